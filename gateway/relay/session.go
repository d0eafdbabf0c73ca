package relay

import (
	"sluice/gateway/store"
	"sluice/loop"
)

// A meeting is one serverId on its loop: the v1 and the v2 session of it, which
// are separate worlds. It exists while one of them has a socket.
type meeting struct {
	id       string
	tenure   *store.Tenure // what the serverId is owned by, for the meeting's whole life
	sessions [2]*session   // v1, v2
}

// A session is what the sockets of one serverId and version share. It belongs to
// the loop that the serverId hashes to.
type session struct {
	meeting *meeting
	shard   *shard
	v2      bool
	sockets int // attached ones; at 0 the session ends

	controlSock *sock
	control     identity
	channels    map[string]*channel // v2 only
	one         *channel            // v1 only
	watch       loop.Timer          // control watchdog, control.go
}

// A channel is one connectionId of a session, or the whole of a v1 session: on
// one side the data socket (v1: the server socket), on the other its clients.
type channel struct {
	sess *session
	id   string

	data    *sock // the current one
	dataID  identity
	first   *sock // clients, linked through nextSib
	last    *sock
	clients int
	oneID   identity // v1: the client's identity

	over  int      // clients that hold the data socket up
	gated sockList // sources that the data socket holds up, in order

	// Messages that wait for a data socket, in arrival order.
	waiting, waitingTail *parcel
	expiry               *loop.Timer // of those whose client has left; nil until there was one

	// Control watchdog: when it is due, and for what.
	dueAt  int64
	warned bool

	queued bool // on shard.resuming
}

// An identity is a place that one socket holds at a time: the control socket, a
// data socket, a v1 role. The newest wins.
type identity struct {
	closing *sock         // the one that was replaced last, until it is gone
	past    *replacements // nil until there was one
}

// replacements are the last ones of an identity, in the loop's nanoseconds.
type replacements struct {
	times    [5]int64
	at       int // the oldest
	reported int64
}

// fightWindow is the time within which more than five replacements of one
// identity are a fight: two peers that throw each other out in turn.
const fightWindow = int64(10e9)

// replacedNow notes a replacement. It reports a fight.
func (id *identity) replacedNow(now int64) bool {
	if id.past == nil {
		id.past = new(replacements)
	}
	p := id.past
	oldest := p.times[p.at]
	p.times[p.at] = now
	p.at = (p.at + 1) % len(p.times)
	return oldest != 0 && now-oldest <= fightWindow
}

// session returns the session of a serverId, made if need be.
func (s *shard) session(serverID string, v2 bool, tenure *store.Tenure) *session {
	m := s.meetings[serverID]
	if m == nil {
		m = &meeting{id: serverID, tenure: tenure}
		s.meetings[serverID] = m
	}
	i := 0
	if v2 {
		i = 1
	}
	if m.sessions[i] == nil {
		sess := &session{meeting: m, shard: s, v2: v2}
		if v2 {
			sess.channels = make(map[string]*channel)
		} else {
			sess.one = &channel{sess: sess}
		}
		m.sessions[i] = sess
		s.relay.sessions.Add(1)
	}
	return m.sessions[i]
}

// end forgets a session whose last socket left.
func (sess *session) end() {
	s, m := sess.shard, sess.meeting
	i := 0
	if sess.v2 {
		i = 1
	}
	if m.sessions[i] != sess {
		return // it ended with a socket that left because of this one
	}
	sess.watch.Stop()
	m.sessions[i] = nil
	s.relay.sessions.Add(-1)
	if m.sessions == [2]*session{} {
		delete(s.meetings, m.id)
		m.tenure.Release()
	}
}

// channelOf returns the channel of a connectionId, made if need be.
func (sess *session) channelOf(id string) *channel {
	if !sess.v2 {
		return sess.one
	}
	ch := sess.channels[id]
	if ch == nil {
		ch = &channel{sess: sess, id: id}
		sess.channels[id] = ch
	}
	return ch
}

// tidy forgets a channel that nobody holds.
func (ch *channel) tidy() {
	if ch.sess.v2 && ch.data == nil && ch.clients == 0 {
		delete(ch.sess.channels, ch.id)
	}
}

// holder returns the identity that a socket of that kind takes and who has it
// now; nil for v2 clients, which share.
func (sess *session) holder(kind kind, ch *channel) (*identity, *sock) {
	switch kind {
	case kindControl:
		return &sess.control, sess.controlSock
	case kindData, kindV1Server:
		return &ch.dataID, ch.data
	case kindV1Client:
		return &ch.oneID, ch.first
	}
	return nil, nil
}

func (ch *channel) addClient(k *sock) {
	k.prevSib = ch.last
	if ch.last == nil {
		ch.first = k
	} else {
		ch.last.nextSib = k
	}
	ch.last = k
	ch.clients++
	ch.siblingsChanged()
}

func (ch *channel) removeClient(k *sock) {
	if k.prevSib == nil {
		ch.first = k.nextSib
	} else {
		k.prevSib.nextSib = k.nextSib
	}
	if k.nextSib == nil {
		ch.last = k.prevSib
	} else {
		k.nextSib.prevSib = k.prevSib
	}
	k.nextSib, k.prevSib = nil, nil
	ch.clients--
	if k.out.over {
		k.out.over = false
		ch.clientOver(false)
	}
	ch.siblingsChanged()
}

// siblingsChanged looks again at how far each client may lag: with siblings a
// little, alone not at all.
func (ch *channel) siblingsChanged() {
	if ch.clients == 1 || ch.clients == 2 {
		for k := ch.first; k != nil; k = k.nextSib {
			k.pressure()
		}
	}
}

// clientOver counts the clients that hold the data socket up.
func (ch *channel) clientOver(over bool) {
	if over {
		ch.over++
		return
	}
	if ch.over--; ch.over == 0 && ch.data != nil {
		ch.data.unhold(holdGate)
	}
}

// attach makes k a socket of its session: it takes its place, replaces who had
// it and gets what waits for it.
func (sess *session) attach(k *sock, ch *channel) {
	s := sess.shard
	k.sess, k.ch, k.server, k.tenure = sess, ch, sess.meeting.id, sess.meeting.tenure
	sess.sockets++
	s.attached++
	id, old := sess.holder(k.kind, ch)
	switch k.kind {
	case kindControl:
		sess.controlSock = k
		k.ch = nil
	case kindData, kindV1Server:
		ch.data = k
	case kindV1Client:
		if old != nil {
			ch.removeClient(old)
		}
		ch.addClient(k)
	case kindClient:
		ch.addClient(k)
	}
	if old != nil {
		s.replace(id, old, k)
	}
	switch k.kind {
	case kindControl:
		sess.sendSync(k)
		sess.rewatch()
	case kindData:
		ch.dueAt, ch.warned = 0, false
		ch.takeWaiting(k)
	case kindClient:
		sess.notify(ch, connected)
		ch.startWatch()
	}
	if ch != nil && k.kind != kindClient && k.kind != kindV1Client {
		s.drained(ch) // sources that the old one held up look again
	}
}

// replace ends old, whose place k has taken: what was not begun goes to k.
func (s *shard) replace(id *identity, old, k *sock) {
	if id.replacedNow(s.l.Now()) {
		s.fight(id, old, k)
	}
	if prev := id.closing; prev != nil && s.led.Above() {
		prev.giveUp() // one closing socket per identity above the ceiling
	}
	id.closing = old
	old.was = id
	var moved *parcel
	if old.kind != kindControl {
		// A control socket's notifications are worthless to another: it gets a sync.
		moved = old.cutFlight()
	}
	old.detach()
	for p := moved; p != nil; {
		next := p.next
		p.next = nil
		if p.control {
			s.freeParcel(p)
		} else {
			p.since = s.l.Now()
			k.enqueue(p)
		}
		p = next
	}
	old.shut(closeReplaced)
	k.pump()
	k.arm()
}

// leave takes k out of its session and tells the others. What k had sent and
// was admitted is delivered in front of what they are told.
func (k *sock) leave() {
	if k.sess == nil {
		return
	}
	sess, ch := k.sess, k.ch
	switch k.kind {
	case kindControl:
		if sess.controlSock == k {
			sess.controlSock = nil
		}
	case kindV1Server:
		ch.data = nil
	case kindV1Client:
		ch.removeClient(k)
	case kindData:
		ch.data = nil
	case kindClient:
		ch.removeClient(k)
	}
	k.detach()
	switch k.kind {
	case kindV1Server:
		k.shard.drained(ch) // nobody holds the client up any more
	case kindData:
		k.shard.drained(ch)
		for ch.first != nil {
			ch.first.finish(closeServerGone) // leaves in turn
		}
	case kindClient:
		if ch.clients > 0 {
			ch.expireOrphans()
			break
		}
		ch.dropWaiting()
		ch.dueAt, ch.warned = 0, false
		sess.notify(ch, disconnected)
		if d := ch.data; d != nil {
			d.finish(closeClientGone)
		}
	}
	if ch != nil {
		ch.tidy()
	}
	if sess.sockets == 0 {
		sess.end()
	}
}

// detach cuts k's ties: it is nobody's source or destination any more, and what
// it has sent incompletely is dropped.
func (k *sock) detach() {
	if k.sess == nil {
		return
	}
	s := k.shard
	if k.listed {
		k.ch.gated.remove(k)
	}
	s.led.EndWait(&k.in.wait)
	s.unlistWaiter(k)
	k.dropInput()
	k.waitSince, k.waitBytes = 0, 0
	k.sess.sockets--
	s.attached--
	k.sess, k.ch = nil, nil
	k.holds |= holdState
	k.c.Pause()
}
