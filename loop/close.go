package loop

import "math"

// linger is the last handler of a connection whose output is complete.
type linger struct {
	left    int   // bytes still read and dropped
	stall   int64 // nanoseconds, 0 for none
	unacked int   // what the peer had not acknowledged at the last look
	gone    func()
}

// Linger ends the connection in order: FIN goes behind what was written, then
// input is read and dropped until the peer's FIN, so that no unread byte turns
// the close into a reset that overtakes the last output. Past maxBytes of input
// or at the time until (Now's nanoseconds) the socket is reset, unless stall is
// positive and output is still on its way then: the peer has stall nanoseconds at
// a time, as long as it acknowledges something in each. gone, if any, is called
// when the socket is closed, never from within Linger; the handler there was is
// not called again. A connection still being dialed cannot linger.
func (c *Conn) Linger(maxBytes int, until, stall int64, gone func()) {
	if c.fd < 0 {
		return
	}
	c.h = &linger{maxBytes, stall, math.MaxInt, gone}
	c.ShutdownWrite()
	c.SetDeadline(until)
	c.flags &^= paused
	c.Kick() // the peer's end may have been read before
}

func (g *linger) OnRead(c *Conn) {
	b := c.loop.Buffer()[Headroom:]
	n, r := c.Read(b[:min(len(b)-1, g.left)+1])
	switch r {
	case ReadAgain:
		return
	case ReadEOF:
		c.Close()
		g.done()
		return
	case ReadReset:
		c.Reset()
		g.done()
		return
	}
	if g.left -= n; g.left < 0 {
		c.Reset()
		g.done()
	}
}

func (g *linger) OnWrite(*Conn)        {}
func (g *linger) OnHangup(*Conn, bool) {}

func (g *linger) OnTimer(c *Conn) {
	if g.stall > 0 {
		if n := c.Unacked(); n > 0 && n < g.unacked {
			g.unacked = n
			c.SetDeadline(c.loop.Now() + g.stall)
			return
		}
	}
	c.Reset()
	g.done()
}

func (g *linger) done() {
	if g.gone != nil {
		g.gone()
	}
}
