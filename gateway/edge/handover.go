package edge

import (
	"sluice/codec/http1"
	"sluice/loop"
)

// Hijack gives the socket away, for a protocol that HTTP was only the way to. It
// is allowed while no answer was begun and the body was not read. unread is what
// the client sent behind the head; it is valid until OnRequest returns or, later
// than that, belongs to the caller. The caller sets a handler and, since bytes
// may have been announced that nobody read, resumes the socket. The connection
// no longer counts against MaxConnections, no deadline is set, and the HTTPConn
// is gone. sock is nil if it already was.
func (c *HTTPConn) Hijack() (sock Socket, unread []byte) {
	if c.Gone() {
		return nil, nil
	}
	if c.state != stateRequest || c.answer != answerNone || c.body != bodyHeld {
		panic("BUG: edge: Hijack in the middle of an exchange")
	}
	if c.current != nil {
		unread = c.current[c.headBytes:]
	} else {
		unread, c.in = c.in, nil
	}
	c.leave()
	c.sock.SetDeadline(0)
	return c.sock, unread
}

// MoveTo hands the whole connection to another loop: next is called there with
// the same request, parsed anew, in place of OnRequest. Only allowed within
// OnRequest (or a next), before anything else was done with the request; the
// connection leaves when that returns. If it breaks on the way, next is never
// called.
func (c *HTTPConn) MoveTo(dst *loop.Loop, next func(c *HTTPConn, r *http1.Request)) {
	if c.current == nil || c.state != stateRequest || c.answer != answerNone || c.body != bodyHeld {
		panic("BUG: edge: MoveTo outside of OnRequest")
	}
	c.state = stateMoving
	c.moveTo, c.onward = dst, next
	c.x = nil
	// The bytes lie in memory of this loop: take them along, head included.
	c.in = append(make([]byte, 0, max(len(c.current), smallestBuffer)), c.current...)
}

// move leaves the loop. c must not be touched afterwards.
func (c *HTTPConn) move() {
	dst := c.moveTo
	c.moveTo = nil
	c.unlink()
	c.sh = c.sh.srv.shards[dst.ID()]
	c.armed, c.readBy, c.writeBy = 0, 0, 0
	c.sock.MoveTo(dst, c)
}

// OnMoved is the first call on the new loop.
func (c *HTTPConn) OnMoved(*loop.Conn) {
	c.state = stateHead
	c.mark = http1.Mark{}
	c.readBy = c.now() + int64(c.sh.srv.cfg.IdleTimeout)
	c.sh.busy.push(c)
	c.arm()
	c.sock.Kick()
}
