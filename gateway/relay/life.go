package relay

import (
	"sluice/codec/ws"
	"sluice/gateway/edge"
)

const (
	// closingTime bounds each half of a close: the flush of the close frame,
	// and then the wait for the peer's end. Contract, relay §2, closing.
	closingTime = int64(5e9)
	// lingerBytes is how much input is dropped while a socket closes.
	lingerBytes = 1 << 20
	// pongScratch bounds the pongs that answer one read in one write; of
	// further pings the last is answered.
	pongScratch = 4 << 10
)

// shut closes k with a close frame of ours behind the frame in flight and in
// front of everything else. What waits is dropped, but for the answers to pings
// that stood in front of what k is shut for, in the same read.
func (k *sock) shut(c closing) {
	if k.state >= closingState {
		return
	}
	if k.shard.batch.k == k {
		k.sendPongs()
	}
	k.decide(ending{c.Reason, c.Code, byUs})
	k.state = closingState
	k.closeFrame(ws.AppendClose(k.shard.small[:0], c.Code, c.Reason))
}

// echo answers the peer's close frame and ends k.
func (k *sock) echo(code uint16, reason string) {
	k.decide(ending{reason, code, byPeer})
	k.state = closingState
	k.closeFrame(ws.AppendClose(k.shard.small[:0], code, ""))
}

// finish closes k with a close frame behind everything that waits for it: its
// peer left, and what the peer had sent still counts.
func (k *sock) finish(c closing) {
	if k.state != open {
		return
	}
	k.decide(ending{c.Reason, c.Code, byUs})
	k.state = finishing
	k.enqueueClose(ws.AppendClose(k.shard.small[:0], c.Code, c.Reason))
}

// drop ends k at once, without a close frame: the peer is gone, or does not
// take one.
func (k *sock) drop(by by) {
	if k.state >= lingering {
		return
	}
	if k.state == open || by == byUsReset {
		k.decide(ending{"", ws.CloseAbnormal, by})
	} else {
		k.leave()
	}
	if by == byUsReset {
		k.c.Reset()
	} else {
		k.c.Close()
	}
	k.gone()
}

// giveUp resets k wherever it is in its close.
func (k *sock) giveUp() {
	if k.state != lingering {
		k.drop(byUsReset)
		return
	}
	k.c.Reset()
	k.gone()
}

// decide records how k ends and takes it out of its session.
func (k *sock) decide(e ending) {
	k.end = e
	k.holds |= holdState
	k.c.Pause()
	k.leave()
}

// closeFrame puts a close frame behind the frame in flight and drops the rest.
func (k *sock) closeFrame(frame []byte) {
	k.silence()
	k.enqueueClose(frame)
}

// silence drops what waits behind the frame in flight.
func (k *sock) silence() {
	k.shard.dropParcels(k.cutFlight())
	k.out.pongWaits = false
	k.closeBy = k.shard.closeLimit()
}

func (k *sock) enqueueClose(frame []byte) {
	s := k.shard
	b := s.newBody()
	s.append(b, frame)
	p := s.controlParcel(b)
	p.closing = true
	k.enqueue(p)
	k.pump()
	k.arm()
	if k.broken {
		s.breakLater(k) // nobody will take it
	}
}

// linger waits for the peer's end behind our close frame and FIN.
func (k *sock) linger() {
	k.state = lingering
	k.closeBy = 0
	for k.out.head != nil { // nothing follows a close frame
		k.popHead()
	}
	k.shard.ended(k)
	k.c.Linger(lingerBytes, k.shard.closeLimit(), 0, k.gone)
}

// gone accounts for a socket whose descriptor is closed.
func (k *sock) gone() {
	s := k.shard
	k.leave()
	if k.state != lingering {
		s.ended(k)
	}
	k.state = gone
	for k.out.head != nil {
		k.popHead()
	}
	k.out.pong, k.out.pongWaits = nil, false
	if k.was != nil && k.was.closing == k {
		k.was.closing = nil
	}
	s.unlink(k)
	s.led.ReturnSlot(&k.slot)
}

// closeLimit is until when a socket that begins to close may take: never past
// the end of a drain.
func (s *shard) closeLimit() int64 {
	t := s.l.Now() + closingTime
	if s.drainEnd != 0 {
		t = min(t, s.drainEnd)
	}
	return t
}

// queuePong answers a ping. While nothing else waits for the socket all pongs
// of a read leave in one write; otherwise one waits, for the last ping.
func (k *sock) queuePong(p []byte) {
	s := k.shard
	if k.idle() && len(s.pongs) < pongScratch {
		s.pongs = ws.AppendHeader(s.pongs, true, ws.OpPong, len(p))
		s.pongs = append(s.pongs, p...)
		return
	}
	k.out.pong = append(k.out.pong[:0], p...)
	k.out.pongWaits = true
}

// sendPongs writes the pongs of this read.
func (k *sock) sendPongs() {
	s := k.shard
	if len(s.pongs) == 0 {
		return
	}
	pongs := s.pongs
	s.pongs = s.pongs[:0]
	if k.broken || k.state != open {
		return
	}
	n, err := k.c.Write(pongs)
	if err != nil {
		s.breakLater(k)
		return
	}
	k.sentB += int64(n)
	if n == len(pongs) {
		if k.out.pongWaits {
			k.pump()
		}
		return
	}
	// The pong in flight goes out whole. Of those behind it one waits, the last.
	at, last := 0, 0
	for at < n {
		head, pay := ourFrame(pongs[at:])
		at += head + pay
	}
	flight := pongs[n:at]
	for ; at < len(pongs) && !k.out.pongWaits; at += last {
		head, pay := ourFrame(pongs[at:])
		if last = head + pay; at+last == len(pongs) {
			k.out.pong = append(k.out.pong[:0], pongs[at+head:]...)
			k.out.pongWaits = true
		}
	}
	if len(flight) > 0 {
		b := s.newBody()
		s.append(b, flight)
		p := s.controlParcel(b)
		p.left, p.begun = p.n, true // nothing may come between its bytes
		k.enqueue(p)
	}
	k.pump()
	k.arm()
}

// upgraded makes an upgraded connection a socket of its session. rest is what
// the peer sent behind its request.
func (s *shard) upgraded(k *sock, c edge.Socket, sess *session, ch *channel, rest []byte) {
	k.c = c
	c.SetHandler(k)
	s.link(k)
	sess.attach(k, ch)
	if k.state != open {
		return
	}
	if len(rest) > 0 {
		k.keep(rest)
		c.Kick()
	}
	if k.holds == 0 {
		c.Resume() // HTTP may have paused it
	}
	if p := s.relay.cfg.PingInterval; p > 0 {
		k.nextPing = s.l.Now() + int64(p)
	}
	k.arm()
}
