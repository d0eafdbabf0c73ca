package relay

import (
	"sluice/codec/ws"
	"sluice/gateway/edge"
	"sluice/gateway/metric"
	"sluice/gateway/store"
)

// A refusal is the answer to an upgrade that is not admitted.
type refusal struct {
	status int
	body   string
	reason metric.Rejection
	target string // 409: the owner's
	retry  bool   // with Retry-After
}

// place is where an upgrade would go, looked up without making anything.
type place struct {
	kind kind
	sess *session // nil: not there yet
	ch   *channel
	id   *identity
	old  *sock // who is there
}

func (s *shard) lookUp(q *query) (p place) {
	switch {
	case !q.V2 && q.Server:
		p.kind = kindV1Server
	case !q.V2:
		p.kind = kindV1Client
	case !q.Server:
		p.kind = kindClient
	case q.ConnectionID == "":
		p.kind = kindControl
	default:
		p.kind = kindData
	}
	m := s.meetings[q.ServerID]
	if m == nil {
		return p
	}
	i := 0
	if q.V2 {
		i = 1
	}
	if p.sess = m.sessions[i]; p.sess == nil {
		return p
	}
	if p.sess.v2 {
		p.ch = p.sess.channels[q.ConnectionID]
	} else {
		p.ch = p.sess.one
	}
	if p.ch != nil || p.kind == kindControl {
		p.id, p.old = p.sess.holder(p.kind, p.ch)
	}
	return p
}

// check makes the checks 6 and 7 of the contract, on the loop that owns the
// serverId. nil admits: k has its slot then.
func (s *shard) check(q *query, claim store.Claim, k *sock) *refusal {
	r := s.relay
	switch claim.Verdict {
	case store.Elsewhere:
		return &refusal{status: 409, target: claim.Target}
	case store.Unavailable:
		return &refusalStore
	case store.BelowFloor:
		return &refusalFloor
	case store.Draining:
		return &refusalDraining
	}
	if r.draining.Load() && s.meetings[q.ServerID] == nil {
		return &refusalDraining
	}
	if r.pressed.Load() {
		return &refusalMemory
	}
	if claim.Verdict == store.Nobody { // only looked at, for lack of room
		return &refusalCapacity
	}
	p := s.lookUp(q)
	// A replacement may stand above the ceiling while the old socket closes.
	if !s.led.TakeSlot(&k.slot, p.old != nil) {
		return &refusalCapacity
	}
	k.kind = p.kind
	return nil
}

// admit answers 101 and attaches. rest is what the peer sent behind its request.
func (s *shard) admit(c edge.Socket, q *query, key []byte, k *sock, tenure *store.Tenure, rest []byte) {
	if !tenure.Attach() {
		s.expire(c, q, key, k, tenure)
		return
	}
	sess := s.session(q.ServerID, q.V2, tenure)
	var ch *channel
	if k.kind != kindControl {
		id := q.ConnectionID
		if id == "" && q.V2 {
			id = newConnectionID()
		}
		ch = sess.channelOf(id)
	}
	s.accept(c, key, k)
	s.upgraded(k, c, sess, ch, rest)
}

// expire answers 101 and closes at once: the reservation ran out before the
// socket could attach.
func (s *shard) expire(c edge.Socket, q *query, key []byte, k *sock, tenure *store.Tenure) {
	k.server, k.tenure = q.ServerID, tenure
	s.accept(c, key, k)
	c.SetHandler(k)
	s.link(k)
	k.shut(closeExpired)
}

// accept makes k the socket of c and answers 101.
func (s *shard) accept(c edge.Socket, key []byte, k *sock) {
	k.shard, k.c = s, c
	b := append(s.scratch[:0], "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: "...)
	b = ws.AppendAccept(b, key)
	b = append(b, "\r\n\r\n"...)
	s.scratch = b
	n, err := c.Write(b)
	if err != nil {
		s.breakLater(k)
	} else if n < len(b) {
		head := s.newBody()
		s.append(head, b[n:])
		p := s.controlParcel(head)
		p.left, p.begun = p.n, true // nothing may come between its bytes
		k.enqueue(p)
	}
	s.relay.freed.Add(upgradeFreed)
}

var (
	refusalDraining = refusal{status: 503, body: refuseDraining, reason: metric.RejectDraining, retry: true}
	refusalFloor    = refusal{status: 503, body: refuseClusterFloor, reason: metric.RejectClusterFloor, retry: true}
	refusalStore    = refusal{status: 503, body: refuseStore, reason: metric.RejectStore, retry: true}
	refusalCapacity = refusal{status: 503, body: refuseCapacity, reason: metric.RejectCapacity, retry: true}
	refusalMemory   = refusal{status: 503, body: refuseMemory, reason: metric.RejectMemory, retry: true}
)
