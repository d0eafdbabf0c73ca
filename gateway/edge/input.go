package edge

import (
	"sluice/codec/http1"
	"sluice/loop"
)

const (
	// headRead is the most bytes read at once while a head is awaited. It also
	// bounds what one connection can pipeline behind a request in our memory:
	// the rest stays in the kernel.
	headRead = 16 << 10
	// bodyRead is the most bytes of a body read at once.
	bodyRead = 64 << 10
)

// wantsInput reports whether the socket is to be read.
func (c *HTTPConn) wantsInput() bool {
	switch c.state {
	case stateIdle, stateHead, stateDraining:
		return true
	case stateRequest:
		return c.body == bodyFlows
	}
	return false
}

// OnRead takes what the client sent: first what waits in the stash, then one
// read of the socket.
func (c *HTTPConn) OnRead(*loop.Conn) {
	if c.broken {
		c.lose(PeerReset)
		return
	}
	if c.state == stateProxy {
		c.readProxy()
		return
	}
	c.running = true
	r := loop.ReadBytes
	if c.wantsInput() {
		c.useStash()
	}
	if c.wantsInput() {
		r = c.read()
	} else if c.state < stateLingering {
		c.sock.Pause()
		c.paused = true
		// What was seen before the pause OnHangup will not tell.
		if c.sock.WasReset() {
			r = loop.ReadReset
		} else if c.sock.HungUp() {
			c.hungUp()
		}
	}
	c.running = false
	switch {
	case c.state >= stateLingering && c.state != stateMoving:
	case c.state == stateMoving:
		c.move() // the last thing: c may be running elsewhere afterwards
		return
	case c.broken:
		c.lose(PeerReset)
	case r == loop.ReadReset:
		c.lose(PeerReset)
	case r == loop.ReadEOF:
		c.ended()
	case c.paused:
		c.proceed()
	default:
		c.arm()
	}
}

// useStash feeds what was read before.
func (c *HTTPConn) useStash() {
	b := c.in
	if len(b) == 0 {
		c.feed(nil) // a body that is over already still has its end to tell
		return
	}
	c.in = nil
	used := c.feed(b)
	if rest := b[used:]; len(rest) > 0 && c.in == nil && c.state < stateLingering {
		n := copy(b[:cap(b)], rest)
		c.in = b[:n]
		return
	}
	c.sh.bufs.Put(b)
}

// read reads the socket once and feeds what came.
func (c *HTTPConn) read() loop.ReadResult {
	size := headRead
	if c.state == stateRequest || c.state == stateDraining {
		size = bodyRead
	}
	if len(c.in) > 0 {
		// The rest of a head: it goes behind what is there. The head's limit is
		// larger than what is in the stash, or the parser would have said so.
		if len(c.in) == cap(c.in) {
			larger := append(c.sh.bufs.Get(2*cap(c.in)), c.in...)
			c.sh.bufs.Put(c.in)
			c.in = larger
		}
		n := len(c.in)
		k, r := c.sock.Read(c.in[n:min(cap(c.in), n+size)])
		if r == loop.ReadBytes {
			c.in = c.in[:n+k]
			c.useStash()
		}
		return r
	}
	b := c.sh.loop.Buffer()[loop.Headroom:]
	b = b[:min(len(b), size)]
	n, r := c.sock.Read(b)
	if r == loop.ReadBytes {
		if used := c.feed(b[:n]); used < n && c.state < stateLingering {
			c.stash(b[used:n])
		}
	}
	return r
}

// stash keeps bytes for later.
func (c *HTTPConn) stash(b []byte) { c.in = c.sh.bufs.Grow(c.in, b) }

// feed uses b as far as the state allows and returns how far that was. When the
// connection goes away everything counts as used.
func (c *HTTPConn) feed(b []byte) (used int) {
	for {
		switch c.state {
		case stateIdle, stateHead:
			n := c.feedHead(b[used:])
			if n == 0 {
				return used
			}
			used += n
		case stateRequest:
			if c.body != bodyFlows {
				return used
			}
			n := c.feedBody(b[used:])
			if used += n; n == 0 && c.body == bodyFlows {
				return used
			}
		case stateDraining:
			n := c.feedDrain(b[used:])
			if used += n; n == 0 && c.state == stateDraining {
				return used
			}
		case stateFlushing:
			return used
		default:
			return len(b)
		}
	}
}

// feedHead looks for a head at the beginning of b and hands it to the app. It
// returns 0 if it is not complete.
func (c *HTTPConn) feedHead(b []byte) int {
	if len(b) == 0 {
		return 0
	}
	begun := c.state == stateIdle
	if begun {
		c.state = stateHead
		c.readBy = c.now() + int64(c.sh.srv.cfg.IdleTimeout)
	}
	r := &c.sh.req
	n, err := r.Parse(b, &c.sh.srv.cfg.Limits, &c.mark)
	if err != nil {
		c.refuse(err)
		return len(b)
	}
	if n == 0 {
		if begun {
			c.sh.half.push(c)
		}
		return 0
	}
	c.sh.busy.push(c)
	c.sh.srv.Stats.Requests.Add(1)
	c.state, c.body, c.answer = stateRequest, bodyHeld, answerNone
	c.bodyLeft.Start(&r.Head)
	c.bodyFault, c.toldEOF = nil, false
	c.isHead = r.MethodID == http1.MethodHead
	c.minor, c.keep, c.expect = r.Minor, r.KeepAlive, r.ExpectContinue
	c.readBy = 0
	c.current, c.headBytes = b, n
	if next := c.onward; next != nil {
		c.onward = nil
		next(c, r)
	} else {
		c.sh.srv.app.OnRequest(c, r)
	}
	c.current = nil
	return n
}
