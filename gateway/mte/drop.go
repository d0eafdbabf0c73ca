package mte

import (
	"time"

	"sluice/gateway/edge"
	"sluice/loop"
)

// dropTime bounds what is read only so that an answer is not lost.
const dropTime = 5 * time.Second

// A dropper is the exchange behind an answer that was given while the client was
// sending. The answer is sent but for its end, and until the client has finished,
// or for dropTime, what it sends is dropped: closing at once would answer that
// with a reset, which can overtake the answer, and which many clients that are
// still writing take for the only news.
type dropper struct {
	c     *edge.HTTPConn
	timer loop.Timer
}

// dropBody makes c's exchange a dropper. CloseAfter was called.
func (s *shard) dropBody(c *edge.HTTPConn) {
	x := &dropper{c: c}
	s.l.StartTimer(&x.timer, s.l.Now()+int64(dropTime), x)
	c.Take(x)
	c.ReadBody()
	c.ResumeBody()
}

func (x *dropper) end() {
	x.timer.Stop()
	x.c.EndResponse()
}

// OnTimer implements loop.TimerHandler.
func (x *dropper) OnTimer(int64) { x.c.EndResponse() }

// OnBody implements edge.Exchange.
func (x *dropper) OnBody(*edge.HTTPConn, []byte) {}

// OnBodyEnd implements edge.Exchange.
func (x *dropper) OnBodyEnd(*edge.HTTPConn) { x.end() }

// OnDrain implements edge.Exchange.
func (x *dropper) OnDrain(*edge.HTTPConn) {}

// OnPeerEOF implements edge.Exchange.
func (x *dropper) OnPeerEOF(*edge.HTTPConn) {}

// OnAbort implements edge.Exchange.
func (x *dropper) OnAbort(_ *edge.HTTPConn, why edge.Abort) bool {
	x.timer.Stop()
	if !why.Final() {
		x.end()
	}
	return true
}
