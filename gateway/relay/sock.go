package relay

import (
	"sluice/codec/ws"
	"sluice/gateway/edge"
	"sluice/gateway/store"
	"sluice/ledger"
	"sluice/loop"
)

// kind is what a socket is in its session. Contract, relay §2.
type kind uint8

const (
	kindV1Server kind = iota
	kindV1Client
	kindControl
	kindData
	kindClient
)

var kindNames = [...]string{"v1 server", "v1 client", "control", "data", "client"}

func (k kind) String() string { return kindNames[k] }

// fromClient reports whether the socket belongs to an app: its frames get the
// hello check.
func (k kind) fromClient() bool { return k == kindV1Client || k == kindClient }

// sockState is the life of an upgraded socket.
type sockState uint8

const (
	// open: attached to its session, read and written.
	// Leaves to finishing, closing or gone.
	open sockState = iota
	// finishing: its peer left. Messages that were admitted for it still go
	// out, with their deadlines, then our close frame. Nothing is read.
	// Leaves to closing (deadline passed), lingering or gone.
	finishing
	// closing: only the rest of a frame in flight and our close frame are still
	// to be written. Nothing is read. Leaves to lingering or gone.
	closingState
	// lingering: our close frame and FIN are out; the loop drops input until
	// the peer's FIN. Leaves to gone.
	lingering
	// gone: the descriptor is closed and the slot returned.
	gone
)

// hold is a set of reasons not to read a socket.
type hold uint8

const (
	holdGate   hold = 1 << iota // a destination of its frames takes no more
	holdWait                    // a frame of it waits for the data socket
	holdBudget                  // the ingress budget is exhausted
	holdState                   // it is not open any more
)

// A sock is one upgraded socket. It belongs to its loop's goroutine, as does
// everything it points to. Nothing outside this package sees it.
type sock struct {
	c     edge.Socket
	shard *shard
	sess  *session
	ch    *channel // nil for control, and for everybody once detached
	slot  ledger.Slot

	server string        // its serverId, for log lines; never whole
	tenure *store.Tenure // what the node owns the serverId by

	kind   kind
	state  sockState
	holds  hold
	broken bool      // a write failed; see shard.breakLater
	doomed bool      // on shard.brokens
	listed bool      // on ch.gated
	waits  bool      // on shard.waiters
	pings  uint8     // pings of ours without an answer
	was    *identity // whose closing socket it is, after a replacement

	out outbound // queue.go
	in  inbound  // message.go

	heldSince int64 // when reading stopped; 0 once it was read again
	letGo     int64 // when the last reason not to read it went
	lastPong  int64 // last unsolicited pong since heldSince
	turn      int64 // its place in ch.gated since heldSince; 0 none
	nextPing  int64
	waitSince int64 // its frame that waits for a data socket was complete then; 0 none
	waitBytes int64 // of its frames that wait for a data socket
	closeBy   int64 // closing, lingering: reset then

	end      ending
	recv     int64 // bytes of payload that were admitted from it
	sentB    int64 // bytes of frames that it took
	nextGate *sock // ch.gated

	// The loop's list of all its sockets, and a channel's of its clients.
	nextAll, prevAll *sock
	nextSib, prevSib *sock
}

// ending is how a connection ended, for its log line and the counters.
type ending struct {
	reason string
	code   uint16
	by     by
}

// by says who decided that a connection ends.
type by uint8

const (
	byUs by = iota
	byPeer
	byPeerNone  // FIN without a close frame
	byPeerReset // RST, or a path that died
	byUsReset   // we gave up: reset
)

// peer returns the one socket that frames of k go to, or nil. A data socket has
// many: its clients.
func (k *sock) peer() *sock {
	switch k.kind {
	case kindV1Server:
		return k.ch.first
	case kindV1Client, kindClient:
		return k.ch.data
	}
	return nil
}

// OnRead reads once and parses, unless something keeps the socket from being read.
func (k *sock) OnRead(c *loop.Conn) {
	if k.state != open {
		k.hold(holdState)
		return
	}
	if !k.tenure.Held(k.shard.l.Now()) {
		k.shard.lose(k.sess.meeting)
		return
	}
	if k.mustGate() {
		k.gate()
		return
	}
	k.read()
	k.arm()
}

// OnWrite lets the queue go on.
func (k *sock) OnWrite(c *loop.Conn) {
	if k.state <= finishing && k.tenure.Lost(k.shard.l.Now()) {
		k.lapse()
		return
	}
	k.pump()
	k.arm()
}

// OnHangup hears of the peer's end while the socket is not read. What it sent
// before counts, so an open socket is read first, when its turn comes; one
// that nobody will read again is finished with.
func (k *sock) OnHangup(c *loop.Conn, reset bool) {
	switch {
	case reset && (k.state != open || k.holds&holdWait != 0):
		k.drop(byPeerReset)
	case reset && k.out.head != nil:
		// Nothing more can be written to it. Its own messages are still read.
		k.dropQueue()
	}
}

// futile is how soon a source that was let go is held up again, if it is before
// it was read although it had something: another was quicker. Loops turn over
// faster.
const futile = int64(1e9)

// hold stops the reading for one more reason. To a source that was let go in
// vain it is as if it had been held all the time.
func (k *sock) hold(h hold) {
	if k.holds == 0 {
		if now := k.shard.l.Now(); k.heldSince == 0 || now-k.letGo > futile {
			k.heldSince, k.lastPong, k.turn = now, 0, 0
		}
		k.c.Pause()
	}
	k.holds |= h
}

// unhold takes a reason away; without any the reading goes on, with what was
// read and not yet parsed first.
func (k *sock) unhold(h hold) {
	if k.holds&h == 0 {
		return
	}
	if k.holds &^= h; k.holds != 0 {
		return
	}
	now := k.shard.l.Now()
	k.in.resumed(now)
	k.letGo = now
	k.c.Resume()
	if len(k.in.stash) > 0 {
		k.c.Kick()
	}
	k.arm()
}

// mustGate reports whether a destination holds k up.
func (k *sock) mustGate() bool {
	switch k.kind {
	case kindControl:
		// Its answers wait: more questions would only make more of them.
		return k.out.head != nil
	case kindData:
		return k.ch.over > 0
	}
	p := k.peer()
	return p != nil && p.out.over
}

// gate stops the reading until the destination drains. It is not the budget any
// more that k waits for, even if a step of this read did not fit: nobody wakes a
// source whose wait has ended. It tries again when the destination takes bytes.
func (k *sock) gate() {
	k.hold(holdGate)
	k.shard.led.EndWait(&k.in.wait)
	k.shard.unlistWaiter(k)
	k.holds &^= holdBudget
	if k.kind != kindControl && k.kind != kindData && !k.listed {
		if k.turn == 0 {
			k.shard.turns++
			k.turn = k.shard.turns
		}
		k.listed = true
		k.ch.gated.insert(k)
	}
	k.arm()
}

// sockList holds gated sources in the order of their turns, linked through nextGate.
type sockList struct{ head, tail *sock }

// insert puts k where its turn is. That is the end, or, for one of the few that
// were let go and not read, the front.
func (q *sockList) insert(k *sock) {
	at := &q.head
	if q.tail != nil && q.tail.turn < k.turn {
		at = &q.tail.nextGate
	}
	for *at != nil && (*at).turn < k.turn {
		at = &(*at).nextGate
	}
	k.nextGate = *at
	*at = k
	if k.nextGate == nil {
		q.tail = k
	}
}

func (q *sockList) pop() *sock {
	k := q.head
	if k == nil {
		return nil
	}
	if q.head = k.nextGate; q.head == nil {
		q.tail = nil
	}
	k.nextGate, k.listed = nil, false
	return k
}

func (q *sockList) remove(k *sock) {
	var prev *sock
	for x := q.head; x != nil; prev, x = x, x.nextGate {
		if x != k {
			continue
		}
		if prev == nil {
			q.head = x.nextGate
		} else {
			prev.nextGate = x.nextGate
		}
		if q.tail == k {
			q.tail = prev
		}
		k.nextGate, k.listed = nil, false
		return
	}
}

// accounted returns the bytes the socket is responsible for.
func (k *sock) accounted() int64 {
	return k.out.d.Queued() + k.in.held() + int64(cap(k.in.stash)) + k.waitBytes
}

// fail closes the socket for an error of its peer that the codec found.
func (k *sock) fail(e *ws.Error) { k.shut(closing{e.Code, e.Reason}) }
