package edge

import (
	"sluice/codec/http1"
)

// An Abort says why an exchange cannot go on as it was.
type Abort uint8

const (
	// PeerReset: the connection is broken, and gone.
	PeerReset Abort = iota
	// WriteStalled: the peer took no byte for Config.WriteStall; it was reset.
	WriteStalled

	// BodyCut: the peer ended its stream before the body was complete. It may
	// still read an answer.
	BodyCut
	// BodyStalled: no byte of the body came for Config.BodyTimeout.
	BodyStalled
	// BodyMalformed: the body broke the chunked coding.
	BodyMalformed
)

// Final reports whether the connection is gone already.
func (a Abort) Final() bool { return a < BodyCut }

// An Exchange is one request and its answer, as an app that does not answer at
// once sees it. Its methods are called on the loop of the connection, until the
// answer is complete.
type Exchange interface {
	// OnBody gets a part of the request's body, without its framing. data is
	// valid until OnBody returns; it is all of one read, so pausing takes
	// effect with the next.
	OnBody(c *HTTPConn, data []byte)

	// OnBodyEnd is called when the whole body was given.
	OnBodyEnd(c *HTTPConn)

	// OnDrain is called when the kernel has taken all output, after Write had
	// reported a backlog.
	OnDrain(c *HTTPConn)

	// OnPeerEOF is called at most once, when the peer's end of stream is seen
	// while we do not read. Most often the client has gone; it may also have
	// shut down its side only and wait for the answer. An app that does not
	// care does nothing, one that does calls HTTPConn.Abort.
	OnPeerEOF(c *HTTPConn)

	// OnAbort tells that the request failed. If why is final, the connection
	// is gone, and this is the last call. Else no more of the body comes, and
	// the connection will be closed behind the answer: by returning true the
	// app says that it completes the answer, now or later. On false the edge
	// ends it: with an answer of its own (408, 400) if none was begun, else by
	// cutting the answer visibly short.
	OnAbort(c *HTTPConn, why Abort) (answered bool)
}

// Take makes x the exchange of the request being served. An app that does not
// complete its answer within OnRequest calls it, to learn of aborts.
func (c *HTTPConn) Take(x Exchange) {
	if c.state == stateRequest {
		c.x = x
	}
}

// BodyLength returns how many bytes of the request's body are still to come, -1
// if that is not known, 0 if it has none.
func (c *HTTPConn) BodyLength() int64 { return c.bodyLeft.Remaining() }

// BodyCame reports whether the whole body, if there is one, was read together with
// the head. It may be asked within OnRequest only.
func (c *HTTPConn) BodyCame() bool {
	left := c.bodyLeft.Remaining()
	return left >= 0 && int64(len(c.current)-c.headBytes) >= left
}

// ReadBody begins to give the body to the exchange. A client that asked for it
// is sent 100 (Continue). Without a body OnBodyEnd comes all the same.
func (c *HTTPConn) ReadBody() {
	if c.state != stateRequest || c.body != bodyHeld {
		return
	}
	if c.x == nil {
		panic("BUG: edge: ReadBody without Take")
	}
	if c.expect {
		c.expect = false
		if c.answer == answerNone {
			c.send(continueAnswer, nil, nil)
		}
	}
	c.flow()
}

// PauseBody stops OnBody after the current call, and the client by not reading.
// Time spent paused is not held against it.
func (c *HTTPConn) PauseBody() {
	if c.state == stateRequest && c.body == bodyFlows {
		c.body = bodyPaused
		c.readBy = 0
	}
}

// ResumeBody undoes PauseBody.
func (c *HTTPConn) ResumeBody() {
	if c.state == stateRequest && c.body == bodyPaused {
		c.flow()
	}
}

func (c *HTTPConn) flow() {
	c.body = bodyFlows
	c.readBy = c.now() + int64(c.sh.srv.cfg.BodyTimeout)
	c.proceed()
}

// feedBody gives the exchange what b holds of the body and returns how many
// bytes of b that took.
func (c *HTTPConn) feedBody(b []byte) (used int) {
	if c.bodyFault == nil {
		var data []byte
		data, used, c.bodyFault = c.takeBody(b)
		if used > 0 {
			c.readBy = c.now() + int64(c.sh.srv.cfg.BodyTimeout)
		}
		if c.bodyFault != nil {
			used = len(b) // out of step for good
		}
		if len(data) > 0 {
			c.x.OnBody(c, data)
			if c.state != stateRequest || c.body != bodyFlows {
				return used // the end, or the fault, is told when it flows again
			}
		}
	}
	switch {
	case c.bodyFault != nil:
		c.bodyFails(BodyMalformed)
	case c.bodyLeft.Done():
		c.body = bodyDone
		c.readBy = 0
		c.x.OnBodyEnd(c)
	}
	return used
}

// takeBody takes the framing off what b holds of the body. The runs of a
// chunked body are moved together in b, so that many small chunks make one
// call, not many.
func (c *HTTPConn) takeBody(b []byte) (data []byte, used int, err *http1.Error) {
	begin, end := 0, 0
	for {
		run, n, done, err := c.bodyLeft.Next(b[used:], &c.sh.srv.cfg.Limits)
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
		if err != nil || done || used == len(b) {
			return b[begin:end], used, err
		}
	}
}

// feedDrain drops what b holds of a body that nobody wants.
func (c *HTTPConn) feedDrain(b []byte) int {
	_, used, err := c.takeBody(b)
	c.drain -= used
	switch {
	case err != nil && c.deferred:
		c.refuse(err)
	case err != nil, c.drain < 0:
		c.endDrain(false)
	case c.bodyLeft.Done():
		c.endDrain(true)
	}
	return used
}

// endDrain goes on behind a body that was dropped whole, or not.
func (c *HTTPConn) endDrain(whole bool) {
	c.sh.busy.push(c)
	kept := c.keep
	c.keep = kept && whole
	if c.deferred {
		c.sendDeferred(kept)
	}
	c.settle()
}

// bodyFails ends the request's body before its time.
func (c *HTTPConn) bodyFails(why Abort) {
	c.body = bodyDone
	c.readBy = 0
	c.keep = false
	c.expect = false
	if x := c.x; x != nil && x.OnAbort(c, why) || c.Gone() || c.answer == answerDone {
		c.proceed()
		return
	}
	c.x = nil
	switch {
	case c.answer == answerOpen:
		c.Abort()
	case why == BodyStalled:
		c.refuse(errBodyTimeout)
	case why == BodyMalformed:
		c.refuse(c.bodyFault)
	default:
		c.refuse(http1.ErrBodyCut)
	}
}
