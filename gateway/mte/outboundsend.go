package mte

import (
	"sluice/codec/frame"
	"sluice/codec/http1"
	"sluice/gateway/client"
	"sluice/gateway/edge"
	"sluice/gateway/metric"
)

// longHeader is from which size on a header's name is remembered, in case the
// metadata is too large: in bytes.
const longHeader = 4 << 10

// outboundRequest is the request of an outbound on its way out.
type outboundRequest struct {
	method int    // length of the method, which stands in front of text
	text   []byte // method, then metadata; not needed any more once it is encoded
	length int64  // of the body as declared, -1 if it is not known

	longest     string // name of the largest header, if it is long
	longestSize int

	// outboundBuffering.
	limit    int64    // bytes
	body     [][]byte // in pieces: one that grew would be copied again and again, and the loop stand still
	gathered int64    // bytes of body
	reserved int64    // room of body, of CLIENT_BUFFER_BYTES, until the body has left our memory, encoded or not

	frames []byte // all bytes sent so far, in a buffer of the shard's; nil if over
	over   bool   // they were more than resendBytes
	backed bool   // the other relay takes no more for now, and the caller's body is paused
	unsent bool   // all of the request was written, and waits for the other relay to take it
}

// compose makes the metadata. The error is a frame.Fault.
func (q *outboundRequest) compose(s *shard, req *http1.Request) error {
	w := &s.writer
	w.Reset()
	for i := range req.Fields {
		f := &req.Fields[i]
		if isKeptFromOthers(f) {
			continue
		}
		if n := len(f.Name) + len(f.Value); n > longHeader && n > q.longestSize {
			q.longest, q.longestSize = string(f.Name), n
		}
		if err := w.Add(f.Name, f.Value); err != nil {
			return err
		}
	}
	s.scratch = s.scratch[:0]
	if req.Form != http1.AsteriskForm {
		s.scratch = req.AppendOriginForm(s.scratch)
	}
	q.method = len(req.Method)
	var err error
	q.text, err = w.AppendRequest(append(q.text[:0], req.Method...), req.Method, s.scratch)
	return err
}

// isKeptFromOthers reports whether a header does not go with the request. The
// names that metadata does not carry are the writer's.
func isKeptFromOthers(f *http1.Field) bool {
	switch f.ID {
	case http1.FieldExpect, http1.FieldForwarded, http1.FieldXForwardedFor, http1.FieldXForwardedProto, http1.FieldXForwardedHost:
		return true
	case http1.FieldOther:
		return sameName(f.Name, tokenHeader) || isForwardedName(f.Name, false) || isFramingLookalike(f.Name)
	}
	return false
}

func (q *outboundRequest) isHead() bool { return string(q.text[:q.method]) == "HEAD" }

// encode makes the REQUEST, and DATA of a body that was gathered. The errors are
// those of client.Exchange.
func (q *outboundRequest) encode(x *outbound) error {
	if err := x.pair.of.tooLarge(max(q.length, q.gathered)); err != nil {
		return err
	}
	room := len(q.text) + frame.EnvelopeBytes + frame.RequestHeadBytes + encodingRoom
	for _, piece := range q.body {
		room += x.exchange.FramedBytes(len(piece))
	}
	b := x.s.bufs.Get(room)
	b, err := x.exchange.AppendMetadata(b, q.text[:q.method], q.text[q.method:], q.length != 0)
	for i, piece := range q.body {
		if err != nil {
			break
		}
		x.count(metric.DirectionRequest, len(piece))
		b, err = x.exchange.AppendData(b, piece, i == len(q.body)-1)
		clear(piece)
		q.body[i] = nil
	}
	if err == nil {
		q.body = nil
	}
	if tooLarge, ok := err.(*client.HeadTooLarge); ok && q.longestSize > tooLarge.Limit {
		tooLarge.Name, tooLarge.Size = q.longest, q.longestSize
	}
	q.frames, q.over = b, len(b) > resendBytes
	return err
}

// encodingRoom is what encoding adds to a piece at most.
const encodingRoom = 64

// free gives back a body that was gathered, and its part of CLIENT_BUFFER_BYTES.
func (q *outboundRequest) free(s *shard) {
	for _, piece := range q.body {
		clear(piece)
	}
	q.body = nil
	s.role.buffered.Add(-q.reserved)
	q.reserved = 0
}

// clean gives back what the request holds, and keeps a little for the next.
func (q *outboundRequest) clean(s *shard) {
	q.free(s)
	s.bufs.Put(q.frames)
	clear(q.text)
	if q.text = q.text[:0]; cap(q.text) > scratchKept {
		q.text = nil
	}
}

// startCall sends what is encoded; length is that of the whole, or -1.
func (x *outbound) startCall(length int64) {
	x.timer.Stop()
	x.call = x.s.origins.call(x.h.up, &originHead{
		Method: methodPost, Target: rootTarget, Fields: x.pair.of.lines, Length: length,
	}, (*outboundSink)(x))
	backed := x.call.Write(x.request.frames)
	switch {
	case length >= 0 && backed:
		x.request.unsent = true // OnDrain ends it
	case length >= 0:
		x.endRequest()
	case backed:
		x.hold()
	}
	x.dropLong()
}

// endRequest completes the request, all of which the other relay's connection has
// taken.
func (x *outbound) endRequest() {
	x.request.unsent = false
	x.request.free(x.s)
	x.call.End()
}

var methodPost, rootTarget = []byte("POST"), []byte(client.DataTarget)

// dropLong forgets bytes that are too many to be sent again.
func (x *outbound) dropLong() {
	if x.request.over {
		x.s.bufs.Put(x.request.frames)
		x.request.frames = nil
	}
}

// hold stops the caller: the other relay takes no more for now.
func (x *outbound) hold() {
	x.request.backed = true
	x.c.PauseBody()
}

// resend sends the same bytes again.
func (x *outbound) resend() {
	x.resent++
	x.startCall(int64(len(x.request.frames)))
	x.setState(outboundAwaiting)
}

// OnBody implements edge.Exchange.
func (x *outbound) OnBody(c *edge.HTTPConn, data []byte) {
	switch x.state {
	case outboundBuffering:
		x.gather(data)
	case outboundGathering, outboundSending:
		x.send(data, c.BodyLength() == 0)
	case outboundAnswering:
		if !x.call.Deaf() {
			x.send(data, c.BodyLength() == 0)
		}
	case outboundRefused:
		// What the refusal says does not depend on it.
	default:
		panic("BUG: mte: a body that is not read")
	}
}

// OnBodyEnd implements edge.Exchange.
func (x *outbound) OnBodyEnd(*edge.HTTPConn) {
	switch x.state {
	case outboundBuffering:
		x.request.length = x.request.gathered
		x.acquire()
	case outboundGathering, outboundSending:
		if !x.exchange.Ended() {
			x.send(nil, true)
		}
	case outboundAnswering:
		if !x.exchange.Ended() && !x.call.Deaf() {
			x.send(nil, true)
		}
	}
}

// gather keeps a part of a body that is not to be sent before it is known to be
// within the cap.
func (x *outbound) gather(data []byte) {
	q := &x.request
	need := q.gathered + int64(len(data))
	if need > q.limit {
		x.refuse(refusal{reason: frame.BodyTooLarge, message: messageBody})
		return
	}
	had := q.reserved
	if need > had && !q.grow(x.s.role, need) {
		x.refuse(refusal{reason: frame.UpstreamCapacity, message: messageBuffer})
		return
	}
	if n := len(q.body) - 1; n >= 0 {
		piece := q.body[n]
		fits := min(len(data), cap(piece)-len(piece))
		q.body[n] = append(piece, data[:fits]...)
		data = data[fits:]
	}
	if len(data) > 0 {
		q.body = append(q.body, append(make([]byte, 0, q.reserved-had), data...))
	}
	q.gathered = need
}

// gatherPiece is how much room for more a gathered body is given at most, in bytes.
const gatherPiece = 1 << 20

// grow reserves room for need bytes and for more to come: as much again up to
// gatherPiece, or half of what CLIENT_BUFFER_BYTES has left if that is less. So a
// body that fits is not refused for the room it does not need, and still has few
// pieces.
func (q *outboundRequest) grow(r *Role, need int64) bool {
	left := r.cfg.Client.BufferBytes - r.buffered.Load() + q.reserved - need
	for _, more := range [...]int64{min(max(2*q.reserved, 4<<10)-need, gatherPiece), left / 2, 0} {
		size := min(need+max(more, 0), q.limit)
		if r.reserve(size - q.reserved) {
			q.reserved = size
			return true
		}
	}
	return false
}

// reserve takes n bytes of CLIENT_BUFFER_BYTES, if there are so many.
func (r *Role) reserve(n int64) bool {
	if r.buffered.Add(n) > r.cfg.Client.BufferBytes {
		r.buffered.Add(-n)
		return false
	}
	return true
}

// send encodes a part of the body and sends it.
func (x *outbound) send(data []byte, last bool) {
	x.count(metric.DirectionRequest, len(data))
	q, s := &x.request, x.s
	frames, err := x.exchange.AppendData(s.scratch[:0], data, last)
	s.scratch = frames
	if err != nil {
		x.failSend(err)
		return
	}
	if q.over = q.over || len(q.frames)+len(frames) > resendBytes; !q.over {
		q.frames = s.bufs.Grow(q.frames, frames)
	}
	if x.state == outboundGathering {
		x.sendFirst(frames, last)
		return
	}
	x.dropLong()
	if x.call.Write(frames) {
		x.hold()
	}
	if !last {
		return
	}
	x.call.End()
	if x.state == outboundSending {
		x.setState(outboundAwaiting)
	}
}

// sendFirst sends the REQUEST together with the first bytes of the body, which
// are frames, and may be all of it.
func (x *outbound) sendFirst(frames []byte, last bool) {
	q := &x.request
	if q.over { // then the REQUEST is all that was kept
		q.frames = x.s.bufs.Grow(q.frames, frames)
	}
	length := edge.Chunked
	next := outboundSending
	if last {
		length, next = int64(len(q.frames)), outboundAwaiting
	}
	x.startCall(length)
	x.setState(next)
}

// failSend ends a request that cannot be completed.
func (x *outbound) failSend(err error) {
	if x.state == outboundGathering {
		x.giveBack(x.unsent())
		x.refuse(refusalFor(err))
		return
	}
	x.fail(refusalFor(err)) // the other relay waits for an END that will not come
}
