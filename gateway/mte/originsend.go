package mte

import "sluice/codec/http1"

var (
	lineEnd   = []byte(http1.CRLF)
	lastChunk = []byte(http1.LastChunk)
)

// waits reports whether output is kept in memory for longer than this turn. What
// TLS keeps of a deaf call's does not count: it may never leave.
func (o *originCall) waits() bool {
	if o.state == callOpen && o.send != sendHeld && !o.deaf && o.conn.pending() {
		return true
	}
	return len(o.out) > 0 && (o.send != sendHeld || o.state == callConnecting)
}

// transmit offers up to three slices to the connection behind what waits, and
// keeps what it does not take.
func (o *originCall) transmit(b0, b1, b2 []byte) {
	if o.deaf {
		return
	}
	parts := [3][]byte{b0, b1, b2}
	if o.state == callConnecting {
		o.keepOutput(&parts, 0)
		return
	}
	c := o.conn
	n := 0
	if (len(o.out) == 0 || o.send == sendHeld) && c.writable() {
		var err error
		if n, err = c.offer(o.out, &parts); err != nil {
			o.sendFailed(&parts)
			return
		}
		if n > 0 {
			o.noteBegun()
		}
		if len(o.out) > 0 {
			k := min(n, len(o.out))
			if o.sent, n = k, n-k; k == len(o.out) {
				o.dropOutput()
			}
		}
	}
	if o.send == sendHeld {
		o.send = sendOpen
	}
	o.keepOutput(&parts, n)
	if c.writeBy == 0 && (len(o.out) > 0 || c.pending()) {
		c.startStall()
	}
}

func (o *originCall) noteBegun() {
	if !o.begun {
		o.begun = true
		o.asked = o.p.l.Now()
	}
}

// keepOutput queues the parts but for their first n bytes.
func (o *originCall) keepOutput(parts *[3][]byte, n int) {
	for _, b := range parts {
		if n >= len(b) {
			n -= len(b)
			continue
		}
		if o.sent > 0 && o.sent >= len(o.out)/2 {
			o.out = o.out[:copy(o.out, o.out[o.sent:])]
			o.sent = 0
		}
		o.out = o.p.bufs.Grow(o.out, b[n:])
		n = 0
	}
}

func (o *originCall) dropOutput() {
	if o.out != nil {
		o.p.bufs.Put(o.out)
	}
	o.out, o.sent = nil, 0
}

// flush offers what waits. It is called by the loop, at the end of the turn in
// which the head was held back and when the connection takes bytes again.
func (o *originCall) flush() {
	c := o.conn
	if o.send == sendHeld {
		o.send = sendOpen
	}
	if len(o.out) > 0 && c.writable() {
		n, err := c.offer(o.out[o.sent:], &[3][]byte{})
		if err != nil {
			o.sendFailed(nil)
			return
		}
		if n > 0 {
			o.noteBegun()
		}
		if o.sent += n; o.sent == len(o.out) {
			o.dropOutput()
		}
	}
	if len(o.out) > 0 || c.pending() {
		if c.writeBy == 0 {
			c.startStall()
		}
		return
	}
	c.endStall()
	if o.send == sendDone {
		o.requestSent()
		return
	}
	if o.backed {
		o.backed = false
		o.sink.OnDrain(o)
	}
}

// sendFailed deals with a write that failed. A pooled connection that the
// origin had closed unseen is replaced, if the kernel took nothing of this
// request: else the origin may have got it, and sending it twice is not ours to
// decide. Otherwise what the origin had to say may still be there to be read.
func (o *originCall) sendFailed(parts *[3][]byte) {
	c := o.conn
	if c.pooled && !o.begun {
		if parts != nil {
			o.keepOutput(parts, 0)
		}
		c.close()
		o.conn, o.state = nil, callConnecting
		if o.send == sendHeld {
			o.send = sendOpen
		}
		o.p.connect(o)
		return
	}
	c.broken = true
	if o.send == sendHeld {
		o.send = sendOpen
	}
	o.silence()
	if o.state == callOpen && !o.paused {
		c.sock.Kick()
	}
}

// silence makes the call deaf.
func (o *originCall) silence() {
	o.deaf = true
	o.keep = false
	o.dropOutput()
	if o.backed || o.recv == recvDone {
		o.owesDrain()
	}
	if o.state != callOpen {
		return
	}
	o.conn.endStall()
	if o.recv == recvDone {
		o.conn.close()
		if o.state = callAnswered; o.send == sendDone {
			o.over()
		}
		return
	}
	o.conn.awaitAnswer() // the request is as complete as it will ever be
}

// requestSent is called when the kernel has the whole request.
func (o *originCall) requestSent() {
	if o.recv == recvDone {
		o.settle()
		return
	}
	o.conn.awaitAnswer()
}
