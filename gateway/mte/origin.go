package mte

import (
	"net/netip"

	"sluice/codec/http1"
)

// originHead is the head of a request to an origin.
type originHead struct {
	Method []byte
	Target []byte // origin-form, the upstream's base path included

	// Fields are complete field lines, each with its CRLF, without Host,
	// Content-Length, Transfer-Encoding and Connection: those are ours.
	Fields []byte

	// Length is the body's length in bytes; 0 no body, -1 not known: chunked.
	Length int64
}

// An originSink takes what comes of a call. Its methods are called on the loop,
// never from within a call that the user makes.
type originSink interface {
	// OnHead gets the head of the final response; interim ones are skipped. r is
	// valid until OnHead returns.
	OnHead(o *originCall, r *http1.Response)

	// OnData gets a part of the body, without its framing; b is valid until
	// OnData returns. It is all of one read, so pausing takes effect with the
	// next; originCall.Last says whether more comes.
	OnData(o *originCall, b []byte)

	// OnEnd is called when the response is complete. If the request is not, the
	// call goes on for it: End or Cancel is still owed.
	OnEnd(o *originCall)

	// OnFail ends the call.
	OnFail(o *originCall, f originFailure)

	// OnDrain is called when output has gone, after Write had reported a
	// backlog: to the kernel, or away because the origin takes no more. Behind
	// OnEnd it is called in any case when the call becomes Deaf.
	OnDrain(o *originCall)
}

// An originFailure says why a call failed.
type originFailure struct {
	kind   originFailureKind
	detail string // for the log; without bytes of the request
	head   int    // bytes read of a head that is over Config.Limits, else 0
}

type originFailureKind uint8

const (
	// failConnect: no connection came about: the name does not resolve, nobody
	// listens, the certificate is not good, ORIGIN_CONNECT_TIMEOUT_MS is over.
	failConnect originFailureKind = iota
	// failResponse: the origin closed or reset the connection, broke HTTP, was
	// too slow, or would not read the request.
	failResponse
	// failShutdown: the process ends, and the origin had not answered yet.
	failShutdown
)

type callState uint8

const (
	// callConnecting: there is no connection yet. What is written is kept. Leaves
	// to callOpen, or to callOver when no address answers.
	callConnecting callState = iota
	// callOpen: on a connection. Leaves to callAnswered or callOver.
	callOpen
	// callAnswered: the response is complete and the connection was given up
	// before the request was complete. What is written is dropped. Leaves to
	// callOver by End or Cancel.
	callAnswered
	// callOver: nothing has an effect any more. At the end of the turn the call
	// is used for somebody else's request.
	callOver
)

// sendState is how far the request is.
type sendState uint8

const (
	sendHeld sendState = iota // the head is in out and waits for company until the end of the turn
	sendOpen                  // some of it was offered
	sendDone                  // End was called, or there is no body
)

// recvState is how far the response is.
type recvState uint8

const (
	recvHead recvState = iota
	recvBody
	recvDone
)

// An originCall is one request to an origin and its response. It belongs to the
// loop it was made on.
//
// The call is over with OnFail, with Cancel, and when both OnEnd has come and
// End was called. Until the turn in which that happens ends, further calls do
// nothing; after that it must not be touched, since it is used again.
type originCall struct {
	p    *originPool
	host *originHost
	sink originSink
	conn *originConn // nil without one

	state  callState
	send   sendState
	recv   recvState
	method http1.Method
	deaf   bool // the origin takes no more of the request
	backed bool // Write reported a backlog; OnDrain is owed
	paused bool
	begun  bool // the kernel has taken a byte of it
	keep   bool // the response allows another request on the connection
	last   bool // OnData is called with the end of the body

	left    int64 // body bytes still to be written; -1 chunked
	interim int   // 1xx responses so far
	mark    http1.Mark
	body    http1.Body
	asked   int64 // when the request's first byte left, for the histogram

	out  []byte // what the connection has not taken: out[sent:]
	sent int

	// callConnecting.
	connectBy int64
	addrs     []netip.AddrPort // of the host's name; never changed
	tries     int              // addresses tried

	// What waits for pool.Deliver.
	queued  bool
	drained bool
	failed  bool
	failure originFailure

	headOver int // see originFailure.head

	next *originCall // in the pool's lists
}

// maxInterim is how many 1xx responses an origin may send in front of one final
// response. Each restarts the clock, so there must be an end.
const maxInterim = 64

// Write sends a part of the request's body; b is not kept. It reports whether
// output waits in memory: then the user should send no more until OnDrain.
// With Length n no more than n bytes may be written.
func (o *originCall) Write(b []byte) (backed bool) {
	if o.state == callOver || o.state == callAnswered || len(b) == 0 {
		return o.backed
	}
	if o.send == sendDone {
		panic("BUG: mte: origin body after its end")
	}
	if o.left >= 0 {
		if int64(len(b)) > o.left {
			panic("BUG: mte: more origin body than its length")
		}
		o.left -= int64(len(b))
		o.transmit(nil, b, nil)
	} else {
		o.p.small = http1.AppendChunkHeader(o.p.small[:0], len(b))
		o.transmit(o.p.small, b, lineEnd)
	}
	o.backed = o.waits()
	return o.backed
}

// End completes the request. All of a stated length must have been written.
func (o *originCall) End() {
	if o.state == callOver {
		return
	}
	if o.state == callAnswered {
		o.over()
		return
	}
	if o.send == sendDone {
		return
	}
	if o.left > 0 && !o.deaf {
		panic("BUG: mte: origin body shorter than its length")
	}
	if o.left < 0 {
		o.transmit(lastChunk, nil, nil)
	}
	o.send = sendDone
	switch {
	case o.state == callAnswered:
		o.over() // the last write found the connection gone
	case o.state == callOpen && !o.waits():
		o.requestSent()
	}
}

// Cancel ends the call at once: the connection is closed, so that the origin
// sees no complete request if it has not got one already.
func (o *originCall) Cancel() {
	if o.state == callOver {
		return
	}
	if c := o.conn; c != nil {
		c.close()
	}
	o.over()
}

// Pause stops OnHead and OnData after the current read, and the origin by not
// reading. Time spent paused is not held against it.
func (o *originCall) Pause() {
	o.paused = true
	if o.state == callOpen {
		o.conn.pause()
	}
}

// Resume undoes Pause.
func (o *originCall) Resume() {
	if !o.paused {
		return
	}
	o.paused = false
	if o.state == callOpen {
		o.conn.resume()
	}
}

// Last reports, within OnData, that the body ends with this part: OnEnd is next.
func (o *originCall) Last() bool { return o.last }

// Deaf reports that the origin takes no more of the request, because it closed
// or stalled after it had begun to answer: what is written is dropped. The
// response can still come.
func (o *originCall) Deaf() bool { return o.deaf || o.state >= callAnswered }

// Owed returns how many bytes of the request the origin has not acknowledged, of
// those that were written. It costs a system call.
func (o *originCall) Owed() int {
	n := len(o.out) - o.sent
	if o.state == callOpen {
		n += o.conn.sock.Unacked()
	}
	return n
}

// GiveUp makes the call deaf: the rest of the request is not sent. The response
// is read to its end and the connection closed behind it; until then the origin
// sees a request that is not complete.
func (o *originCall) GiveUp() {
	if o.state == callOpen && o.send != sendDone {
		o.silence()
	}
}

// settle ends a call of which everything is done, or goes on with the request
// behind a complete response.
func (o *originCall) settle() {
	c := o.conn
	switch {
	case c.inRead:
		// finish comes here again.
	case o.send == sendDone && !o.waits():
		if o.keep && !o.deaf && !c.broken {
			c.release()
		} else {
			c.close()
		}
		o.over()
	case o.deaf:
		c.close()
		if o.state = callAnswered; o.send == sendDone {
			o.over()
		}
	default:
		c.hearOn()
	}
}

// over ends the call. The connection has been seen to.
func (o *originCall) over() {
	if o.state == callConnecting && o.conn == nil {
		o.host.names.forget(o)
	}
	o.dropOutput()
	o.conn = nil
	o.state = callOver
	o.backed, o.drained, o.failed = false, false, false
	o.p.finished(o)
}

// fail ends the call and tells. It is called by the loop.
func (o *originCall) fail(kind originFailureKind, detail string) {
	if o.state >= callAnswered {
		return
	}
	if c := o.conn; c != nil {
		c.close()
	}
	sink := o.sink
	o.over()
	sink.OnFail(o, originFailure{kind, detail, o.headOver})
}

// failLater is fail for where the user may be on the stack.
func (o *originCall) failLater(kind originFailureKind, detail string) {
	o.failed = true
	o.failure = originFailure{kind: kind, detail: detail}
	o.p.later(o)
}

// owesDrain has OnDrain called once the user is off the stack.
func (o *originCall) owesDrain() {
	o.drained = true
	o.p.later(o)
}

// deliver tells what was put off.
func (o *originCall) deliver() {
	if o.failed {
		o.failed = false
		o.fail(o.failure.kind, o.failure.detail)
		return
	}
	if o.drained {
		o.drained = false
		if o.backed = o.backed && o.waits(); !o.backed {
			o.sink.OnDrain(o)
		}
	}
}
