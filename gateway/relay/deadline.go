package relay

import (
	"math"

	"sluice/codec/ws"
	"sluice/ledger"
	"sluice/loop"
)

const (
	noDeadline = int64(math.MaxInt64)
	// pausedPong is how long a source stays unread before it gets an empty
	// pong, and between two of them: peers that take any frame as a sign of
	// life must not give up on us. Contract, relay §2.
	pausedPong = int64(5e9)
)

// arm sets the socket's one timer to the earliest of its deadlines. A timer
// that is set earlier than needed stays: it looks again when it fires, and a
// busy socket does not move it with every read.
func (k *sock) arm() {
	if k.state >= lingering {
		return
	}
	if when := k.nextDeadline(); when != noDeadline {
		if d := k.c.Deadline(); d == 0 || when < d {
			k.c.SetDeadline(when)
		}
	}
}

func (k *sock) nextDeadline() int64 {
	when := noDeadline
	cfg := &k.shard.relay.cfg
	if p := k.oldest(); p != nil && k.state <= finishing {
		_, when = cfg.Deadlines.Judge(p.since, p.since)
	}
	if k.closeBy != 0 {
		when = min(when, k.closeBy)
	}
	if k.state != open {
		return when
	}
	if k.waitSince != 0 {
		when = min(when, k.waitSince+int64(cfg.DataAttach))
	}
	if k.in.wait.Active() {
		when = min(when, k.in.wait.Until())
	}
	if k.holds != 0 {
		when = min(when, max(k.heldSince, k.lastPong)+pausedPong)
	} else if k.in.begun() {
		when = min(when, k.in.judgeAt(int64(cfg.MessageIdle)))
	}
	if k.nextPing != 0 {
		when = min(when, k.nextPing)
	}
	return when
}

// oldest returns the parcel whose deadline comes first. The queue is in the
// order of its messages, but a pong may have gone in front of the head or
// behind the frame in flight, which is then split.
func (k *sock) oldest() *parcel {
	first := k.out.head
	if first == nil {
		return nil
	}
	for p, n := first.next, 0; p != nil && n < 2; p, n = p.next, n+1 {
		if p.since < first.since {
			first = p
		}
	}
	return first
}

// OnTimer looks at every deadline of the socket.
func (k *sock) OnTimer(c *loop.Conn) {
	s := k.shard
	now := s.l.Now()
	if k.closeBy != 0 && now >= k.closeBy {
		// Not even the close frame was taken in time.
		k.c.Reset()
		k.gone()
		return
	}
	if k.state <= finishing && k.tenure.Lost(now) {
		k.lapse() // the process stood still: no deadline is the reason
		return
	}
	if k.state <= finishing && k.tooSlow(now) {
		return
	}
	if k.state == open {
		k.checkSource(now)
	}
	if k.state < lingering {
		k.arm()
	}
}

// tooSlow judges k as a destination. It reports whether k was ended.
func (k *sock) tooSlow(now int64) bool {
	s := k.shard
	p := k.oldest()
	if p == nil {
		return false
	}
	since := p.since // p may be another's once k is shut
	v, _ := s.relay.cfg.Deadlines.Judge(since, now)
	if v == ledger.KeepIt {
		return false
	}
	if k.kind == kindControl {
		k.shut(closeControlFull)
		k.resetBy(since + int64(s.relay.cfg.Deadlines.Send))
		return true
	}
	s.count.SlowConsumerCloses++
	s.logSlow(k, now-since)
	if v == ledger.ResetIt {
		k.drop(byUsReset)
		return true
	}
	k.shut(closeSlow)
	k.resetBy(since + int64(s.relay.cfg.Deadlines.Send))
	return true
}

// resetBy has a slow socket that closes reset at when, should it not be done by
// then: the closing time does not extend the last resort.
func (k *sock) resetBy(when int64) {
	if k.state == closingState && when < k.closeBy {
		k.closeBy = when
		k.arm()
	}
}

// checkSource judges k as a source.
func (k *sock) checkSource(now int64) {
	s := k.shard
	cfg := &s.relay.cfg
	if k.waitSince != 0 && now >= k.waitSince+int64(cfg.DataAttach) {
		k.shut(closeNoData)
		return
	}
	if k.in.wait.Active() && now >= k.in.wait.Until() && s.led.Expired(&k.in.wait, now) {
		s.count.IngressRejections++
		k.shut(closeBudget)
		return
	}
	if k.holds == 0 && k.in.begun() {
		if k.in.idle(now, int64(cfg.MessageIdle)) {
			k.shut(closeMessageIdle)
			return
		}
	}
	if k.holds != 0 && now >= max(k.heldSince, k.lastPong)+pausedPong {
		k.lastPong = now
		if !k.pongUnderway() {
			k.out.pong, k.out.pongWaits = k.out.pong[:0], true
			k.pump()
		}
	}
	if k.nextPing != 0 && now >= k.nextPing {
		k.ping(now)
	}
}

// ping sends a relay ping, or ends a socket that answered neither of the last
// two. A socket that is not read cannot answer, and behind unsent output a
// ping would only wait.
func (k *sock) ping(now int64) {
	k.nextPing = now + int64(k.shard.relay.cfg.PingInterval)
	if k.holds != 0 || !k.idle() {
		k.pings = 0
		return
	}
	if k.pings >= 2 {
		k.drop(byUsReset)
		return
	}
	k.pings++
	s := k.shard
	k.enqueue(s.controlParcel(s.ownFrame(ws.OpPing, nil)))
	k.pump()
}
