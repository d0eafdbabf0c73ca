package edge

import (
	"sluice/loop"
)

// send offers up to three slices to the kernel, behind what waits. In the usual
// case that is one system call and nothing is copied; what the kernel refuses is
// kept. A failure is told by the next OnRead, not here: the app is on the stack.
func (c *HTTPConn) send(b0, b1, b2 []byte) {
	parts := [3][]byte{b0, b1, b2}
	n := 0
	if !c.broken && (len(c.out) == 0 || c.held) && c.sock.Writable() {
		var ok bool
		if n, ok = c.offer(&parts); !ok {
			c.fail()
			return
		}
		if c.held {
			k := min(n, len(c.out))
			if c.sent, n = k, n-k; k == len(c.out) {
				c.dropOutput()
			}
		}
	}
	c.held = false
	for _, p := range parts {
		if n >= len(p) {
			n -= len(p)
			continue
		}
		c.keepOutput(p[n:])
		n = 0
	}
	if c.waits() && c.writeBy == 0 {
		c.startStall()
	}
}

// waits reports whether the kernel has not taken everything: the rest is here, or
// in the TLS layer below.
func (c *HTTPConn) waits() bool { return len(c.out) > 0 || c.tls != nil && !c.tls.Flushed() }

// offer makes the system call.
func (c *HTTPConn) offer(parts *[3][]byte) (n int, ok bool) {
	var err error
	if !c.held && len(parts[1]) == 0 && len(parts[2]) == 0 {
		n, err = c.sock.Write(parts[0])
		return n, err == nil
	}
	v := c.sh.loop.Vec()
	if c.held {
		v.Add(c.out)
	}
	for _, p := range parts {
		if len(p) > 0 {
			v.Add(p)
		}
	}
	n, err = c.sock.Writev(v)
	v.Reset() // it must not keep the app's memory alive
	return n, err == nil
}

// keepOutput queues what the kernel did not take.
func (c *HTTPConn) keepOutput(b []byte) {
	if len(b) == 0 {
		return
	}
	if c.sent > 0 && c.sent >= len(c.out)/2 {
		c.out = c.out[:copy(c.out, c.out[c.sent:])]
		c.sent = 0
	}
	c.out = c.sh.bufs.Grow(c.out, b)
}

func (c *HTTPConn) dropOutput() {
	if c.out != nil {
		c.sh.bufs.Put(c.out)
	}
	c.out, c.sent, c.held = nil, 0, false
	c.writeBy = 0
}

// startStall begins to wait for the peer to take a byte.
func (c *HTTPConn) startStall() {
	c.writeBy = c.now() + int64(c.sh.srv.cfg.WriteStall)
	c.unacked = c.sock.Unacked()
	if !c.running {
		c.arm()
	}
}

// tookBytes reports whether the peer has taken something since startStall,
// although the kernel has not become writable: it says so only when a third of
// a buffer is free, which may be megabytes, and a slow reader is no stalled one.
func (c *HTTPConn) tookBytes() bool {
	return c.sock.Unacked() < c.unacked
}

// fail notes that the connection is broken.
func (c *HTTPConn) fail() {
	c.broken = true
	c.dropOutput()
	if !c.running {
		c.paused = false
		c.sock.Resume()
		c.sock.Kick()
	}
}

// OnWrite goes on with what waits.
func (c *HTTPConn) OnWrite(*loop.Conn) {
	if c.broken || c.deferred {
		return
	}
	if len(c.out) > 0 {
		c.held = false
		n, err := c.sock.Write(c.out[c.sent:])
		if err != nil {
			c.lose(PeerReset)
			return
		}
		if n > 0 {
			c.startStall()
		}
		if c.sent += n; c.sent < len(c.out) {
			return
		}
		c.dropOutput()
	}
	if c.waits() {
		c.startStall()
		return
	}
	c.writeBy = 0
	switch c.state {
	case stateRequest:
		if c.backed {
			c.backed = false
			if c.x != nil {
				c.x.OnDrain(c)
			}
		}
	case stateFlushing:
		c.goIdle()
		c.proceed()
	case stateClosing:
		c.linger()
	}
}
