package relay

import (
	"sluice/codec/ws"
	"sluice/gateway/store"
	"sluice/loop"
)

// longestGiveUp is how long the sockets of a session wait for the store to hear
// that the node gives it up: they are told to come again when another node can
// take them, or when the store does not answer.
const longestGiveUp = int64(1e9)

// sockets returns how many are attached, in both sessions.
func (m *meeting) sockets() (sockets int) {
	for _, sess := range m.sessions {
		if sess != nil {
			sockets += sess.sockets
		}
	}
	return sockets
}

// A parting is the end of a meeting that is closed as a whole: its sockets, which
// forward nothing any more and have not been told yet.
type parting struct {
	s     *shard
	left  []*sock
	timer loop.Timer
}

// part gives a serverId up and closes its sockets with 1012 Service restart,
// when the store knows.
func (s *shard) part(m *meeting) {
	x := &parting{s: s, left: m.halt(closeRestart)}
	pending := !m.tenure.GiveUp(func() { s.l.Post(x) })
	m.end()
	if !pending {
		x.close()
		return
	}
	now := s.l.Now()
	wait := longestGiveUp
	if s.drainEnd != 0 {
		wait = min(wait, (s.drainEnd-now)/2)
	}
	s.l.StartTimer(&x.timer, now+wait, x)
}

// Deliver hears from the store.
func (x *parting) Deliver(*loop.Loop) { x.close() }

// OnTimer has waited long enough.
func (x *parting) OnTimer(int64) { x.close() }

func (x *parting) close() {
	x.timer.Stop()
	for _, k := range x.left {
		k.say(closeRestart)
	}
	x.left = nil
}

// lose closes the sockets of a serverId that the node does not own any more.
func (s *shard) lose(m *meeting) {
	for _, k := range m.halt(closeMoved) {
		k.say(closeMoved)
	}
	m.end()
}

// Lose closes the sockets of a tenure that is over.
func (r *Relay) Lose(t *store.Tenure) {
	s := r.shardOf(t.ServerID())
	s.l.Post(loop.Func(func(*loop.Loop) {
		if m := s.meetings[t.ServerID()]; m != nil && m.tenure == t {
			s.lose(m)
		}
	}))
}

// halt takes every socket out of both sessions: nothing is forwarded any more
// from here on, and nobody is told that the others left. What waits is dropped.
func (m *meeting) halt(c closing) (all []*sock) {
	add := func(k *sock) {
		if k != nil {
			all = append(all, k)
		}
	}
	gather := func(ch *channel) {
		add(ch.data)
		for k := ch.first; k != nil; k = k.nextSib {
			add(k)
		}
	}
	for _, sess := range m.sessions {
		if sess == nil {
			continue
		}
		add(sess.controlSock)
		if sess.one != nil {
			gather(sess.one)
		}
		for _, ch := range sess.channels {
			gather(ch)
		}
	}
	for _, k := range all {
		sess, ch := k.sess, k.ch
		switch k.kind {
		case kindControl:
			sess.controlSock = nil
		case kindData, kindV1Server:
			ch.data = nil
		default:
			ch.removeClient(k)
			if ch.clients == 0 {
				ch.dropWaiting()
			}
		}
		k.detach()
		if ch != nil {
			ch.tidy()
		}
		k.halt(c)
	}
	return all
}

// end forgets a meeting that has no socket any more.
func (m *meeting) end() {
	for _, sess := range m.sessions {
		if sess != nil {
			sess.end()
		}
	}
}

// halt begins to close k as shut does, without the close frame: that follows
// with say, or k is reset.
func (k *sock) halt(c closing) {
	k.decide(ending{c.Reason, c.Code, byUs})
	k.state = closingState
	k.silence()
	k.arm()
	if k.broken {
		k.shard.breakLater(k) // there is nothing to say to it
	}
}

// say sends the close frame of a socket that was halted.
func (k *sock) say(c closing) {
	if k.state == closingState && !k.broken {
		k.closeBy = k.shard.closeLimit()
		k.enqueueClose(ws.AppendClose(k.shard.small[:0], c.Code, c.Reason))
	}
}

// lapse ends k, which has a turn to write: the node has lost the serverId, and
// what waits must not go out any more.
func (k *sock) lapse() {
	if k.sess != nil {
		k.shard.lose(k.sess.meeting)
		return
	}
	// It was finishing with its peer's last messages.
	k.state = closingState
	k.closeFrame(ws.AppendClose(k.shard.small[:0], k.end.code, k.end.reason))
}
