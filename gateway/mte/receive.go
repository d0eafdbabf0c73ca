package mte

import (
	"sluice/codec/frame"
	"sluice/codec/http1"
	"sluice/codec/open"
	"sluice/gateway/metric"
	"sluice/gateway/store"
)

// inbound is a stream's request body: frames, cut anywhere.
type inbound struct {
	part    []byte // of a frame that has not come whole, in a buffer of the shard's
	decoded bool   // the REQUEST was
	cut     bool   // no more will come, although the HTTP body has not ended
	body    int64  // application bytes of DATA
	drained int64  // those since the drain began
}

// receive takes a part of the body: any number of frames, the first and last of
// which may be cut. Frames are decoded where they lie.
func (st *stream) receive(data []byte) {
	for len(data) > 0 {
		switch st.state {
		case streamOpening, streamUploading, streamDraining:
		case streamEnded:
			st.trailing()
			return
		default:
			return
		}
		if len(st.in.part) > 0 {
			st.forward(false) // nothing may point into the buffer that part gives up
		}
		e, whole, rest, ok := st.nextFrame(data)
		if !ok {
			return
		}
		part := st.in.part
		st.in.part = nil
		st.frame(e, whole)
		if st.state == streamTaking {
			// It is looked at again when the store has answered, with what stands
			// behind it.
			if part == nil {
				part = st.s.bufs.Grow(nil, whole)
			}
			st.in.part = st.s.bufs.Grow(part, rest)
			st.c.PauseBody()
			return
		}
		st.s.bufs.Put(part)
		data = rest
	}
}

// nextFrame finds a whole frame at the beginning of what is there, its envelope
// included, or keeps what there is. A fault ends the stream.
func (st *stream) nextFrame(data []byte) (e frame.Envelope, whole, rest []byte, ok bool) {
	b := data
	if n := len(st.in.part); n > 0 {
		if n < frame.EnvelopeBytes {
			k := min(frame.EnvelopeBytes-n, len(data))
			st.in.part = st.s.bufs.Grow(st.in.part, data[:k])
			data = data[k:]
		}
		b = st.in.part
	}
	e, n, err := frame.ParseEnvelope(b)
	if err == nil && n > 0 {
		err = st.checkEnvelope(e)
	}
	switch {
	case err != nil:
		st.frameFault(err)
		return e, nil, nil, false
	case n == 0:
		if len(st.in.part) == 0 {
			st.in.part = st.s.bufs.Grow(nil, data)
		}
		return e, nil, nil, false
	}
	size := frame.EnvelopeBytes + int(e.Length)
	if len(st.in.part) == 0 {
		if len(data) < size {
			st.in.part = st.s.bufs.Grow(nil, data)
			return e, nil, nil, false
		}
		return e, data[:size], data[size:], true
	}
	k := min(size-len(st.in.part), len(data))
	st.in.part = st.s.bufs.Grow(st.in.part, data[:k])
	return e, st.in.part, data[k:], len(st.in.part) == size
}

// checkEnvelope makes the checks that need no payload: its bound, and what may
// stand here.
func (st *stream) checkEnvelope(e frame.Envelope) error {
	kind := frame.KindData
	if st.state == streamOpening {
		kind = frame.KindRequest
	}
	switch {
	case int64(e.Length) > st.s.role.cfg.MaxFrameBytes:
		return frame.TooLarge
	case e.Kind != kind:
		return frame.BadKind
	case !frame.LegalFlags(frame.HTTP, e.Kind, e.Flags, e.Length):
		return frame.BadFlags
	}
	return nil
}

// frameFault ends a stream for what is no legal frame.
func (st *stream) frameFault(err error) {
	fault := err.(frame.Fault)
	no := refusal{reason: fault.Reason(), message: fault.Error()}
	if st.state == streamOpening {
		st.reject(no)
	} else {
		st.breakOff(no)
	}
}

// frame takes a whole frame.
func (st *stream) frame(e frame.Envelope, whole []byte) {
	payload := whole[frame.EnvelopeBytes:]
	if st.state == streamOpening {
		st.request(e, payload)
	} else {
		st.data(e, payload)
	}
}

// request reads the REQUEST and asks for its pair.
func (st *stream) request(e frame.Envelope, payload []byte) {
	q, err := frame.ParseRequest(payload)
	if err != nil {
		st.frameFault(err)
		return
	}
	if len(q.Token) == 0 || q.Pair == (frame.PairID{}) {
		st.reject(refusal{reason: frame.InvalidFrame, message: messageNoToken})
		return
	}
	token := frame.Token(q.Token)
	st.client, st.pair, st.typ = token.Client(), q.Pair, open.Type(q.Type)
	st.to.is(st.client)
	if !st.d.key.Verify(&token) {
		st.reject(refusal{reason: frame.InvalidToken})
		return
	}
	r := st.s.role
	lease, reason, known := r.pairs.Take(store.Client{Domain: st.d.host, ID: st.client}, q.Pair, st.typ, st.s.l.Now(), st)
	if !known {
		st.setState(streamTaking)
		return
	}
	st.taken(e, &q, lease, reason)
}

// resumeTaken goes on with what was kept while the store was asked.
func (st *stream) resumeTaken(lease store.Lease, reason frame.Reason) {
	b := st.in.part
	st.in.part = nil
	e, n, _ := frame.ParseEnvelope(b)
	end := n + int(e.Length)
	q, _ := frame.ParseRequest(b[n:end])
	st.taken(e, &q, lease, reason)
	st.OnBody(st.c, b[end:])
	st.s.bufs.Put(b)
	switch st.state {
	case streamUploading, streamDraining, streamEnded:
		if !st.origin.backed {
			st.c.ResumeBody()
		}
	}
}

// taken decodes the REQUEST. Up to the success of that the pair is untouched,
// afterwards every refusal keeps it in step.
func (st *stream) taken(e frame.Envelope, q *frame.Request, lease store.Lease, reason frame.Reason) {
	if reason != frame.NoReason {
		st.reject(refusal{reason: reason})
		return
	}
	st.lease = lease
	if !lease.Held(st.s.l.Now()) { // it took long to get it
		st.reject(refusal{reason: frame.StateStoreUnavailable})
		return
	}
	text, err := lease.Decoder().Decode(q.Metadata)
	if err != nil {
		st.reject(refusal{reason: st.decodeFault(err)})
		return
	}
	st.in.decoded = true
	if e.Flags&frame.FlagEnd != 0 {
		st.setState(streamEnded)
	} else {
		st.setState(streamUploading)
	}
	switch no := st.understand(q, text); no.reason {
	case frame.NoReason:
	case frame.NotFound:
		st.answerNotFound()
	case frame.HeaderMismatch:
		st.security(no.reason)
		st.fail(no)
	default:
		st.fail(no)
	}
}

// understand reads the metadata and makes the origin's request of it. NotFound is
// said of a target that mte_routes does not list.
func (st *stream) understand(q *frame.Request, text []byte) refusal {
	if len(text) > st.s.role.maxMetadata[st.typ] {
		return refusal{reason: frame.MetadataInvalid, message: messageMetadata}
	}
	m := &st.s.metadata
	err := m.Parse(text)
	if err == nil {
		err = m.CheckRequest(q.Method)
	}
	if err == nil {
		err = st.compose(m)
	}
	if err != nil {
		fault := err.(frame.Fault)
		return refusal{reason: fault.Reason(), message: fault.Error()}
	}
	switch http1.ParseMethod(m.Method) {
	case http1.MethodConnect, http1.MethodTrace:
		return refusal{reason: frame.MetadataInvalid, message: messageMethod}
	}
	if !st.routed() {
		return refusal{reason: frame.NotFound}
	}
	st.origin.state = outgoingReady
	return refusal{}
}

// data decodes a DATA and passes it on, or drops it while draining.
func (st *stream) data(e frame.Envelope, payload []byte) {
	if len(payload) == 0 {
		return // no codec operation
	}
	if !st.lease.Held(st.s.l.Now()) {
		st.breakOff(refusal{reason: frame.StateStoreWriteFailed})
		return
	}
	text, err := st.lease.Decoder().Decode(payload)
	if err != nil {
		st.breakOff(refusal{reason: st.decodeFault(err)})
		return
	}
	app, err := frame.SplitData(text, e.Flags)
	if err != nil {
		if err == frame.FlagsMismatch {
			st.security(frame.HeaderMismatch)
		}
		st.frameFault(err)
		return
	}
	st.count(metric.DirectionRequest, len(app))
	st.in.body += int64(len(app))
	over := st.in.body - st.maxBody
	switch {
	case st.state == streamDraining:
		st.in.drained += int64(len(app))
	case st.maxBody > 0 && over > 0:
		st.in.drained = over
		st.fail(refusal{reason: frame.BodyTooLarge, message: messageBody})
	case st.origin.call != nil:
		if len(app) > 0 {
			st.toOrigin(app)
		}
	case st.origin.pending == nil:
		st.origin.pending = app
	default:
		// It lies behind what is pending, in the same array, and moves up to it.
		st.origin.pending = append(st.origin.pending, app...)
	}
	switch {
	case st.state == streamDraining && st.in.drained > drainBytes && st.first.reason != frame.NoReason:
		st.drainExceeded()
	case e.Flags&frame.FlagEnd != 0:
		st.setState(streamEnded)
	}
}

// decodeFault is the refusal for an error of the decoder.
func (st *stream) decodeFault(err error) frame.Reason {
	if err == open.ReplayRejected {
		st.security(frame.ReplayRejected)
		return frame.ReplayRejected
	}
	return frame.DecodeFailed
}
