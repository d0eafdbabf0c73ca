package mte

import (
	"sluice/codec/frame"
	"sluice/codec/http1"
	"sluice/codec/open"
	"sluice/gateway/edge"
	"sluice/gateway/metric"
)

// answer is what a stream's client gets from the origin.
type answer struct {
	status  int    // of the origin, 0 before its head
	meta    []byte // of an early answer: the metadata
	held    []byte // of an early answer: application bytes, in a buffer of the shard's
	cookies []byte // Set-Cookie lines for the HTTP response

	whole   bool // the origin has answered completely
	encoded bool // RESPONSE is: from here on a fault ends in an ERROR frame
	started bool // the HTTP response is
}

// early reports whether an answer came before the request's body had ended.
func (a *answer) early() bool { return a.status != 0 }

// forget drops an early answer.
func (a *answer) forget(st *stream) {
	st.s.bufs.Put(a.held)
	*a = answer{meta: a.meta[:0], cookies: a.cookies[:0]}
}

// clean keeps the memory for the next request.
func (a *answer) clean() answer {
	if cap(a.meta) > scratchKept || cap(a.cookies) > scratchKept {
		return answer{}
	}
	return answer{meta: a.meta[:0], cookies: a.cookies[:0]}
}

// heldBytes is how much of an early answer is kept before its origin is stopped.
const heldBytes = 256 << 10

// notFound is what mte_routes makes of a target it does not list.
const notFound = 404

// answerNotFound answers as if the origin had said 404.
func (st *stream) answerNotFound() {
	st.s.writer.Reset()
	st.answer.meta = st.s.writer.AppendResponse(st.answer.meta[:0], notFound)
	st.answer.status, st.answer.whole = notFound, true
	st.answeredEarly()
}

// answeredEarly notes an answer that must wait for the end of the body.
func (st *stream) answeredEarly() {
	switch {
	case st.state == streamEnded && st.origin.backed:
		st.expectDrain()
	case st.state == streamEnded: // only the HTTP body's end is missing
		st.boundDrain()
	case st.state != streamUploading:
	case st.answer.whole:
		st.startDrain()
	default:
		st.setState(streamHolding)
		st.c.PauseBody()
		st.s.l.StartTimer(&st.timer, st.s.l.Now()+int64(earlyTime), st)
	}
}

// expectDrain bounds the time in which an origin that has answered must take a
// byte of the body.
func (st *stream) expectDrain() {
	if st.answer.early() && (st.state == streamUploading || st.state == streamEnded) {
		st.origin.owed = st.origin.call.Owed()
		st.s.l.StartTimer(&st.timer, st.s.l.Now()+int64(earlyTime), st)
	}
}

// tookBytes reports whether the origin has taken a byte since expectDrain, although
// more waits for it.
func (o *outgoing) tookBytes() bool { return o.backed && o.call.Owed() < o.owed }

// giveUpOrigin has an origin that has answered go without the rest of the body.
func (st *stream) giveUpOrigin() {
	st.origin.call.GiveUp()
	st.startDrain()
}

// A fromOrigin is a stream as its origin's call sees it, an originSink.
type fromOrigin stream

// OnHead implements originSink.
func (x *fromOrigin) OnHead(_ *originCall, r *http1.Response) {
	st := (*stream)(x)
	meta, ok := st.responseMetadata(r)
	if !ok {
		st.fail(refusal{reason: frame.UpstreamResponseFailed, message: messageHeaders})
		return
	}
	st.answer.status = r.Status
	if st.state == streamAwaiting {
		st.setState(streamAnswering)
		st.own().openResponse(r.Status, meta)
		return
	}
	st.answer.meta = append(st.answer.meta[:0], meta...)
	st.answeredEarly()
}

// responseMetadata makes the metadata of an origin's head, in the shard's
// memory, and takes the cookies out for the HTTP response if they belong there.
func (st *stream) responseMetadata(r *http1.Response) (meta []byte, ok bool) {
	s, a := st.s, &st.answer
	a.cookies = a.cookies[:0]
	s.writer.Reset()
	moved := st.d.forwardCookies && !st.hop.relay
	for i := range r.Fields {
		f := &r.Fields[i]
		switch {
		case f.ID == http1.FieldSetCookie && moved && !r.HopByHop(f):
			a.cookies = http1.AppendField(a.cookies, f.Name, f.Value)
		case f.Is(plainForwarded): // ours to say
		case s.writer.Add(f.Name, f.Value) != nil:
			return nil, false
		}
	}
	if len(st.origin.merged) > 0 {
		s.writer.Add([]byte(plainForwarded), st.origin.merged)
	}
	s.meta = s.writer.AppendResponse(s.meta[:0], r.Status)
	if n := len(s.meta); n > s.role.maxMetadata[st.typ] {
		if log := s.line(logMetadata, st.c, st.d); log != nil {
			log.Warn("an origin's headers do not fit", "bytes", n, "limit", s.role.maxMetadata[st.typ],
				"setting", "MAX_METADATA_BYTES_"+st.typ.String())
		}
		return nil, false
	}
	return s.meta, true
}

// OnData implements originSink.
func (x *fromOrigin) OnData(o *originCall, b []byte) {
	st := (*stream)(x)
	st.count(metric.DirectionResponse, len(b))
	if st.state == streamAnswering {
		st.encode(b)
		return
	}
	if st.answer.held = st.s.bufs.Grow(st.answer.held, b); len(st.answer.held) >= heldBytes {
		o.Pause()
	}
}

// OnEnd implements originSink.
func (x *fromOrigin) OnEnd(*originCall) {
	st := (*stream)(x)
	st.answer.whole = true
	switch {
	case st.origin.state == outgoingDone:
		st.origin.call = nil
	case st.state != streamEnded:
		st.dropOrigin() // it does not need the rest
	}
	switch st.state {
	case streamAnswering:
		st.complete()
	case streamUploading, streamHolding:
		st.startDrain()
	}
}

// OnFail implements originSink.
func (x *fromOrigin) OnFail(_ *originCall, f originFailure) {
	st := (*stream)(x)
	st.origin.call = nil
	st.origin.state = outgoingDone
	no, why := refusal{reason: frame.UpstreamResponseFailed}, logResponse
	if f.kind == failConnect {
		no.reason, why = frame.UpstreamConnectFailed, logConnect
	}
	if f.head > 0 {
		no.message, why = messageHead, logMetadata
		limits := &st.s.role.cfg.Limits
		if log := st.s.line(why, st.c, st.d); log != nil {
			log.Warn("an origin's headers do not fit", "bytes", f.head, "limit", limits.HeadBytes, "headers_limit", limits.Fields,
				"setting", "HTTP_MAX_HEAD_BYTES, HTTP_MAX_HEADERS", "detail", f.detail)
		}
	} else if log := st.s.line(why, st.c, st.d); log != nil {
		log.Warn("an origin failed", "code", no.reason.Code(), "reason", no.reason.String(), "detail", f.detail)
	}
	if st.state == streamAnswering {
		st.abortWith(no)
		return
	}
	st.fail(no)
}

// OnDrain implements originSink: the client's body goes on.
func (x *fromOrigin) OnDrain(*originCall) {
	st := (*stream)(x)
	st.origin.backed = false
	switch st.state {
	case streamUploading:
		st.timer.Stop()
		st.c.ResumeBody()
	case streamEnded:
		if st.answer.early() {
			st.boundDrain()
		} else {
			st.c.ResumeBody()
		}
	}
}

// deliver sends the early answer, behind the end of the body.
func (st *stream) deliver() {
	st.timer.Stop()
	st.setState(streamAnswering)
	st.own().openResponse(st.answer.status, st.answer.meta)
	held := st.answer.held
	st.answer.held = nil
	st.encode(held)
	st.s.bufs.Put(held)
	switch {
	case st.state != streamAnswering:
	case st.answer.whole:
		st.complete()
	case st.origin.call != nil:
		st.origin.call.Resume()
	}
	if st.state != streamOver && st.peerEOF {
		st.leave()
	}
}

// encode adds application bytes to the answer. They leave at the end of the turn,
// or when a frame is full.
func (st *stream) encode(app []byte) {
	a := st.own()
	for len(app) > 0 {
		if a.kind != frame.KindData {
			if no := a.seal(0); no != frame.NoReason {
				st.encodeFailed(no)
				return
			}
			a.openData()
		}
		n := min(len(app), st.s.role.maxData[st.typ]-a.gathered())
		a.b = append(a.b, app[:n]...)
		app = app[n:]
		if a.gathered() < st.s.role.maxData[st.typ] {
			return
		}
		if st.flush(); st.state != streamAnswering {
			return
		}
		a = st.own()
	}
}

// complete ends the answer: the last frame says END, and the pair is free again
// before that goes out.
func (st *stream) complete() {
	a := st.own()
	if a.kind == noFrame {
		a.openData()
	}
	if no := a.seal(frame.FlagEnd); no != frame.NoReason {
		st.encodeFailed(no)
		return
	}
	st.giveBack(sendAnswer)
}

// sendLast sends the bytes that hold END, and ends the HTTP response unless it is
// to stay open.
func (st *stream) sendLast(open bool) {
	b := st.late.final
	if b == nil {
		b = st.s.assembly.b
	}
	if st.start(); open {
		st.c.Write(b)
	} else {
		st.c.Finish(b)
	}
}

// flush sends what was gathered, and stops the origin when the client does not
// keep up.
func (st *stream) flush() {
	a := &st.s.assembly
	if no := a.seal(0); no != frame.NoReason {
		st.encodeFailed(no)
		return
	}
	st.start()
	backed := st.c.Write(a.b)
	a.drop()
	if backed && st.origin.call != nil {
		st.origin.call.Pause()
	}
}

// start begins the HTTP response.
func (st *stream) start() {
	if st.answer.started {
		return
	}
	st.answer.started = true
	b := http1.AppendField(st.s.scratch[:0], "Content-Type", typeFrames)
	if st.to.hasRoute {
		b = http1.AppendField(b, frame.RouteHeader, st.to.route[:])
	}
	b = append(b, st.to.dress.lines...)
	b = append(b, st.answer.cookies...)
	st.s.scratch = b
	st.c.StartResponse(edge.Response{Status: 200, Fields: b, Length: edge.Chunked})
}

// encodeFailed ends a stream whose pair cannot encode any more.
func (st *stream) encodeFailed(r frame.Reason) {
	st.doomed = true
	st.abortWith(refusal{reason: r})
}

// abortWith ends an answer that cannot be completed: by a refusal, or once
// RESPONSE is encoded by an ERROR frame, which retires the pair.
func (st *stream) abortWith(no refusal) {
	st.dropOrigin()
	if !st.answer.encoded {
		if st.s.assembly.owner == st {
			st.s.assembly.drop()
		}
		st.first = no
		st.giveBack(sendRefusal)
		return
	}
	a := st.own()
	if st.doomed || a.seal(0) != frame.NoReason {
		a.cut() // what was gathered and cannot be encoded
	}
	st.appendError(a, no)
	st.doomed = true
	st.giveBack(sendAnswer)
}

// appendError adds the ERROR frame that ends an answer, and counts it.
func (st *stream) appendError(a *assembly, no refusal) {
	st.s.role.metrics.Refused(counterOf(no.reason))
	if no.message == "" {
		no.message = messageOf(no.reason)
	}
	a.b = frame.AppendErrorFrame(a.b, no.reason, no.message, no.cause)
}

// noFrame is the kind of an assembly in which no frame is open. It is no kind of
// the wire.
const noFrame = frame.Kind(255)

// An assembly gathers the frames of one write. There is one for each loop: it
// belongs to a stream from its first frame to the write, at the latest at the end
// of the turn. The last frame in it may be open: its plaintext is gathered where
// it will be encoded in place.
type assembly struct {
	owner *stream
	b     []byte
	kind  frame.Kind // of the open frame, or noFrame
	at    int        // where the open frame begins
	text  int        // where its plaintext begins
	code  int        // status of an open RESPONSE
}

// own makes the assembly the stream's, and sends what another has in it.
func (st *stream) own() *assembly {
	a := &st.s.assembly
	if a.owner != st {
		if a.owner != nil {
			a.owner.flush()
		}
		a.owner, a.kind = st, noFrame
	}
	return a
}

// drop empties the assembly. It has held plaintext of an open frame at most until
// that was encoded over.
func (a *assembly) drop() {
	a.owner, a.b, a.kind = nil, a.b[:0], noFrame
}

// cut drops the open frame.
func (a *assembly) cut() {
	if a.kind != noFrame {
		a.b, a.kind = a.b[:a.at], noFrame
	}
}

func (a *assembly) openFrame(k frame.Kind, head int) {
	var room [frame.EnvelopeBytes + frame.ResponseHeadBytes + open.HeadBytes]byte
	a.kind, a.at = k, len(a.b)
	a.b = append(a.b, room[:frame.EnvelopeBytes+head+open.HeadBytes]...)
	a.text = len(a.b)
}

func (a *assembly) openResponse(status int, meta []byte) {
	a.openFrame(frame.KindResponse, frame.ResponseHeadBytes)
	a.code = status
	a.b = append(a.b, meta...)
}

func (a *assembly) openData() {
	a.openFrame(frame.KindData, 0)
	a.b = append(a.b, 0) // the flags
}

// gathered is how many application bytes the open DATA has.
func (a *assembly) gathered() int { return len(a.b) - a.text - 1 }

// seal encodes the open frame, if there is one. On a refusal it is still open.
func (a *assembly) seal(f frame.Flags) frame.Reason {
	if a.kind == noFrame {
		return frame.NoReason
	}
	st := a.owner
	if !st.lease.Held(st.s.l.Now()) {
		return frame.StateStoreWriteFailed
	}
	payload := a.at + frame.EnvelopeBytes
	head := payload
	if a.kind == frame.KindResponse {
		head += frame.ResponseHeadBytes
	} else {
		a.b[a.text] = byte(f)
	}
	b, err := st.lease.Encoder().AppendEncode(a.b[:head], a.b[a.text:])
	if err != nil {
		return frame.EncodeFailed
	}
	a.b = b
	if a.kind == frame.KindResponse {
		frame.AppendResponseHead(b[payload:payload], a.code, len(b)-head)
		st.answer.encoded = true
	}
	frame.PutEnvelope(b[a.at:], a.kind, f, len(b)-payload)
	a.kind = noFrame
	return frame.NoReason
}
