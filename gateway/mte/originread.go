package mte

import (
	"time"

	"sluice/codec/http1"
	"sluice/loop"
)

// OnRead takes what the origin sent.
func (c *originConn) OnRead(*loop.Conn) {
	switch c.state {
	case originIdle:
		// Nothing may come here but TLS's own records. An end, a 408 in
		// advance, the rest of an answer: each makes it useless.
		if data, end := c.receive(); len(data) > 0 || end != endNone {
			c.close()
		}
	case originBusy:
		o := c.call
		c.inRead = true
		data, end := c.receive()
		if len(data) > 0 {
			c.feed(data)
		}
		if end != endNone && c.state == originBusy {
			o.inputEnded(end)
		}
		c.inRead = false
		c.finish(o, end)
	}
}

// finish goes on behind a response that this read has completed. The connection
// stays with its call until here, so that what came behind the response is seen
// before another request can have it.
func (c *originConn) finish(o *originCall, end originEnd) {
	if c.state != originBusy || o.recv != recvDone {
		return
	}
	if end != endNone {
		o.keep = false
		if o.send != sendDone || o.waits() {
			c.broken = end == endBroken
			o.silence()
			return
		}
	}
	o.settle()
}

// receive reads once and returns what came, in memory of the loop's.
func (c *originConn) receive() ([]byte, originEnd) {
	b := c.p.l.Buffer()[loop.Headroom:]
	n, r := c.sock.Read(b[:min(len(b), originRead)])
	return b[:n], c.endOf(r)
}

func (c *originConn) endOf(r loop.ReadResult) originEnd {
	switch r {
	case loop.ReadEOF:
		if c.broken {
			return endBroken // the failed write took the reset's error with it
		}
		if c.tls != nil && !c.tls.CloseNotified() {
			return endBroken // anybody on the way may have ended it
		}
		return endClean
	case loop.ReadReset:
		return endBroken
	}
	return endNone
}

// feed gives the call what came. It ends early if the call does.
func (c *originConn) feed(b []byte) {
	o := c.call
	held := c.in
	if held != nil {
		held = c.p.bufs.Grow(held, b)
		b, c.in = held, nil
	}
	if o.recv == recvHead {
		rest, ok := o.feedHead(b)
		if !ok {
			if c.state == originBusy && c.call == o && o.recv == recvHead {
				c.keepInput(held, rest)
			} else if held != nil {
				c.p.bufs.Put(held)
			}
			return
		}
		b = rest
	}
	o.feedBody(b)
	if held != nil {
		c.p.bufs.Put(held)
	}
}

// keepInput keeps an unfinished head. held is nil or the buffer that rest lies in.
func (c *originConn) keepInput(held, rest []byte) {
	if held == nil {
		c.in = c.p.bufs.Grow(nil, rest)
	} else {
		c.in = append(held[:0], rest...) // downwards at most
	}
	if o := c.call; c.readBy == 0 && !o.paused {
		c.readBy = c.now() + int64(c.p.cfg.Response) // it has begun before it had the request
	}
	c.arm()
}

// feedHead reads heads up to that of the final response, and tells it. ok is
// false if that is not complete or the call has ended; rest is what was not used.
func (o *originCall) feedHead(b []byte) (rest []byte, ok bool) {
	c, p := o.conn, o.p
	r := &p.resp
	for {
		n, err := r.Parse(b, &p.cfg.Limits, &o.mark, o.method)
		if err != nil {
			if err == http1.ErrHeadTooLarge || err == http1.ErrTooManyFields {
				o.headOver = len(b)
			}
			o.fail(failResponse, "malformed response: "+err.Reason)
			return nil, false
		}
		if n == 0 {
			return b, false
		}
		b = b[n:]
		if r.Status >= 200 {
			break
		}
		if r.Status == 101 {
			o.fail(failResponse, originSwitches)
			return nil, false
		}
		if o.interim++; o.interim > maxInterim {
			o.fail(failResponse, originInterims)
			return nil, false
		}
		if c.readBy != 0 {
			c.readBy = c.now() + int64(p.cfg.Response)
		}
		if len(b) == 0 {
			return b, false
		}
	}
	if m := p.cfg.Metrics; m != nil && o.begun {
		m.OriginSeconds.Update(time.Duration(p.l.Now() - o.asked).Seconds())
	}
	o.recv = recvBody
	o.body.Start(&r.Head)
	o.keep = r.KeepAlive && !o.deaf
	c.readBy = c.now() + int64(p.cfg.Body)
	if o.paused {
		c.readBy = 0
	}
	c.arm()
	o.sink.OnHead(o, r)
	return b, o.state == callOpen && o.conn == c
}

// feedBody takes the framing off what came of the body and passes it on.
func (o *originCall) feedBody(b []byte) {
	c := o.conn
	if o.recv == recvDone {
		o.keep = false // more than a response
		return
	}
	data, used, err := takeOriginBody(&o.body, b, &o.p.cfg.Limits)
	done := err == nil && o.body.Done()
	if !o.paused {
		c.readBy = c.now() + int64(o.p.cfg.Body)
	}
	if len(data) > 0 {
		o.last = done
		o.sink.OnData(o, data)
		o.last = false
		if o.state != callOpen || o.conn != c {
			return
		}
	}
	switch {
	case err != nil:
		o.fail(failResponse, "malformed response body: "+err.Reason)
	case done:
		if used < len(b) {
			o.keep = false
		}
		o.responseDone()
	}
}

// takeOriginBody takes the framing off what b holds of a body. The runs of a
// chunked body are moved together in b, so that many small chunks make one call.
func takeOriginBody(body *http1.Body, b []byte, lim *http1.Limits) (data []byte, used int, err *http1.Error) {
	begin, end := 0, 0
	for used < len(b) {
		run, n, done, err := body.Next(b[used:], lim)
		if len(run) > 0 {
			at := used + n - len(run) // a run ends where its call stopped
			if end == 0 {
				begin, end = at, at
			}
			if at != end {
				copy(b[end:], run)
			}
			end += len(run)
		}
		used += n
		if err != nil {
			return b[begin:end], used, err
		}
		if done {
			break
		}
	}
	return b[begin:end], used, nil
}

// responseDone tells the end of the response. finish sees to the connection.
func (o *originCall) responseDone() {
	o.recv = recvDone
	o.sink.OnEnd(o)
}

// inputEnded deals with the end of what the origin sends, before the response
// was complete.
func (o *originCall) inputEnded(end originEnd) {
	c := o.conn
	switch {
	case o.recv == recvDone:
		// finish does it.
	case o.recv == recvBody && end == endClean && o.body.EOF() == nil:
		o.keep = false
		o.responseDone()
	case o.recv == recvBody:
		o.fail(failResponse, originEarlyEnd)
	case c.pooled && !o.begun && len(c.in) == 0:
		// It closed while it was idle, which nobody had seen yet.
		c.close()
		o.conn, o.state = nil, callConnecting
		if o.send == sendHeld {
			o.send = sendOpen
		}
		o.p.connect(o)
	case len(c.in) > 0:
		o.fail(failResponse, originEarlyEnd)
	case end == endClean:
		o.fail(failResponse, originNoAnswer)
	default:
		o.fail(failResponse, originReset)
	}
}
