package edge

import (
	"sluice/codec/http1"
)

// Faults that the edge finds by the clock.
var (
	// A head was begun and not completed within IdleTimeout.
	errHeadTimeout = &http1.Error{Status: 408, Reason: "request head timed out"}
	// A body being read gained no byte within BodyTimeout.
	errBodyTimeout = &http1.Error{Status: 408, Reason: "request body timed out"}
)

var (
	continueAnswer = []byte("HTTP/1.1 100 Continue\r\n\r\n")
	crlf           = []byte(http1.CRLF)
	lastChunk      = []byte(http1.LastChunk)
	crlfLastChunk  = []byte(http1.CRLF + http1.LastChunk)
)

// copiedBody is up to which size a body is copied behind its head: below it a
// write of one piece is cheaper than one of two.
const copiedBody = 4 << 10

const (
	connectionClose = "Connection: close\r\n"
	connectionKeep  = "Connection: keep-alive\r\n"
)

const (
	// Chunked as a Response's Length: the body's length is not known.
	Chunked int64 = -1
	// NoBody as a Response's Length: no body follows and no length is stated,
	// as with 204 and 304.
	NoBody int64 = -2
)

// A Response is the head of an answer.
type Response struct {
	Status int

	// Fields are field lines, each with its CRLF (http1.AppendField). They must
	// not contain Content-Length, Transfer-Encoding or Connection; a Date only
	// if OwnDate is set. They are copied.
	Fields  []byte
	OwnDate bool

	// Length is the body's length in bytes, Chunked or NoBody. To HEAD state
	// what GET would get; no body is sent.
	Length int64

	// Close ends the connection behind this answer.
	Close bool
}

// A Header is one field of Reply.
type Header struct{ Name, Value string }

// Reply answers the request whole, in one write if the kernel takes it. body and
// extra are not kept. contentType may be empty.
//
// If the request has a body that was not asked for, it is read and dropped
// first, so that one with faulty framing is refused (400) like a faulty head,
// and the answer follows its end. Where more than 64 KiB are declared or come,
// or the body is cut short or does not end within Config.IdleTimeout, or the client
// waits for a 100, the answer does not wait and is the last of the connection; it is
// not lost by that.
func (c *HTTPConn) Reply(status int, contentType string, body []byte, extra ...Header) {
	if !c.mayAnswer() {
		return
	}
	b := c.beginHead(status, false)
	if contentType != "" {
		b = http1.AppendField(b, "Content-Type", contentType)
	}
	for _, h := range extra {
		b = http1.AppendField(b, h.Name, h.Value)
	}
	bodiless := status == 204 || status == 304
	if !bodiless {
		b = http1.AppendContentLength(b, uint64(len(body)))
	}
	b = c.endHead(b)
	if c.isHead || bodiless {
		body = nil
	}
	if c.body == bodyHeld && !c.bodyLeft.Done() && !c.expect && c.bodyLeft.Remaining() <= drainBytes {
		c.out = c.sh.bufs.Grow(c.sh.bufs.Grow(nil, b), body)
		c.held, c.deferred, c.deferredHead = true, true, len(b)
		c.answer = answerDone
		c.startDrain()
		c.proceed()
		return
	}
	if len(body) <= copiedBody {
		b = append(b, body...)
		body = nil
		c.sh.scratch = b
	}
	c.send(b, body, nil)
	c.complete()
}

// sendDeferred sends the answer that waited for the end of the request's body.
func (c *HTTPConn) sendDeferred(wasKept bool) {
	c.deferred = false
	if wasKept && !c.keep {
		end := c.deferredHead - len(http1.CRLF)
		if c.minor == 0 { // it says that the connection stays
			rest := c.out[end:]
			end -= len(connectionKeep)
			c.out = append(c.out[:end], rest...)
		}
		c.out = c.sh.bufs.Grow(c.out, []byte(connectionClose))
		copy(c.out[end+len(connectionClose):], c.out[end:])
		copy(c.out[end:], connectionClose)
	}
	c.send(nil, nil, nil)
}

// StartResponse begins an answer that Write and EndResponse go on with. The head
// leaves together with the first Write, or at the end of the loop's turn.
func (c *HTTPConn) StartResponse(r Response) {
	if !c.mayAnswer() {
		return
	}
	c.keep = c.keep && !r.Close
	c.answerLeft = r.Length
	c.noBody = c.isHead || r.Length == NoBody
	if r.Length == Chunked && c.minor == 0 {
		c.keep = false // HTTP/1.0 knows no other end of such a body
	}
	b := c.beginHead(r.Status, r.OwnDate)
	b = append(b, r.Fields...)
	switch {
	case r.Length >= 0:
		b = http1.AppendContentLength(b, uint64(r.Length))
	case r.Length == Chunked && c.minor == 1:
		b = append(b, "Transfer-Encoding: chunked\r\n"...)
	}
	b = c.endHead(b)
	c.answer = answerOpen
	if len(c.out) > 0 {
		c.keepOutput(b)
		return
	}
	c.out = c.sh.bufs.Grow(nil, b)
	c.held = true
	c.sh.held = append(c.sh.held, c)
}

// Write sends a part of the answer's body; b is not kept. It reports whether
// output waits for the peer: then the app should send no more until OnDrain,
// since what it sends is kept in memory.
func (c *HTTPConn) Write(b []byte) (backed bool) { return c.write(b, false) }

// Finish is Write and EndResponse in one system call.
func (c *HTTPConn) Finish(b []byte) { c.write(b, true) }

// EndResponse completes the answer. If a length was stated and not reached, the
// answer is cut short as by Abort.
func (c *HTTPConn) EndResponse() { c.write(nil, true) }

func (c *HTTPConn) write(b []byte, end bool) (backed bool) {
	if c.state != stateRequest {
		return false
	}
	if c.answer != answerOpen {
		panic("BUG: edge: Write outside of an answer")
	}
	switch {
	case c.noBody:
		c.send(nil, nil, nil)
	case c.answerLeft >= 0:
		if int64(len(b)) > c.answerLeft {
			panic("BUG: edge: more body than the stated length")
		}
		c.answerLeft -= int64(len(b))
		if end && c.answerLeft > 0 {
			c.Abort()
			return false
		}
		c.send(b, nil, nil)
	case c.minor == 0:
		c.send(b, nil, nil)
	case len(b) == 0 && end:
		c.send(lastChunk, nil, nil)
	case len(b) > 0:
		tail := crlf
		if end {
			tail = crlfLastChunk
		}
		c.sh.scratch = http1.AppendChunkHeader(c.sh.scratch[:0], len(b))
		c.send(c.sh.scratch, b, tail)
	}
	if end {
		c.complete()
		return false
	}
	c.backed = c.backed || c.waits() && !c.held
	return c.backed
}

// CloseAfter makes the current answer the connection's last. It has no effect
// on a head that is already out.
func (c *HTTPConn) CloseAfter() { c.keep = false }

// TakeBack undoes StartResponse if nothing of the answer has left yet, so that
// another can be given. It reports whether it did.
func (c *HTTPConn) TakeBack() bool {
	if c.Gone() || c.answer != answerOpen || !c.held || c.deferred || c.sent > 0 {
		return false
	}
	c.dropOutput()
	c.answer = answerNone
	return true
}

// Abort ends the connection without completing the answer, so that the peer
// cannot take it for complete: by FIN where the framing shows the cut, else by
// reset. No OnAbort follows.
func (c *HTTPConn) Abort() {
	if c.Gone() {
		return
	}
	c.x = nil
	untilClose := c.answer == answerOpen && c.answerLeft == Chunked && c.minor == 0
	if c.answer == answerOpen && !c.broken && len(c.out) == 0 && !untilClose {
		c.linger()
		return
	}
	c.leave()
	c.sock.Reset()
}

// mayAnswer checks that an answer can begin. An app may be late, since the
// connection can have gone, but it may not answer twice.
func (c *HTTPConn) mayAnswer() bool {
	if c.state == stateRequest && c.answer == answerNone {
		return true
	}
	if c.Gone() {
		return false
	}
	panic("BUG: edge: answer without a request")
}

// beginHead begins a head in the shard's scratch memory.
func (c *HTTPConn) beginHead(status int, ownDate bool) []byte {
	b := http1.AppendStatusLine(c.sh.scratch[:0], status)
	if !ownDate {
		b = append(b, c.sh.date.at(c.now())...)
	}
	return b
}

// endHead decides whether the connection stays and ends the head.
func (c *HTTPConn) endHead(b []byte) []byte {
	switch {
	case c.sh.srv.draining.Load(), c.bodyFault != nil:
		c.keep = false
	case c.body != bodyHeld:
	case c.expect, c.bodyLeft.Remaining() > drainBytes:
		// After a final answer instead of 100 the client may or may not send
		// the body: who believes either will sooner or later be out of step.
		c.keep = false
	}
	if !c.keep {
		b = append(b, connectionClose...)
	} else if c.minor == 0 {
		b = append(b, connectionKeep...)
	}
	b = append(b, http1.CRLF...)
	c.sh.scratch = b
	return b
}

// complete is called when the last byte of the answer was sent or queued.
func (c *HTTPConn) complete() {
	c.answer = answerDone
	c.backed = false
	if c.state == stateRequest {
		c.settle()
	}
}

// refuse answers a request that is none, in plain text, and closes.
func (c *HTTPConn) refuse(e *http1.Error) {
	c.sh.busy.push(c)
	c.sh.srv.Stats.countRefusal(e.Status)
	c.state, c.answer, c.body = stateRequest, answerNone, bodyDone
	c.keep, c.isHead, c.minor = false, false, 1
	c.mark = http1.Mark{}
	c.onward = nil
	if c.deferred {
		c.deferred = false
		c.dropOutput()
	}
	b := c.beginHead(e.Status, false)
	b = http1.AppendField(b, "Content-Type", "text/plain; charset=utf-8")
	b = http1.AppendContentLength(b, uint64(len(e.Reason)+1))
	b = c.endHead(b)
	b = append(b, e.Reason...)
	b = append(b, '\n')
	c.sh.scratch = b
	c.send(b, nil, nil)
	c.complete()
}
