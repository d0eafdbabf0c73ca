package client

import (
	"fmt"
	"slices"

	"sluice/codec/frame"
	"sluice/codec/open"
)

// A Head is what a request asks for, apart from its body.
type Head struct {
	Method string
	// Path is path and query, percent-encoded, with or without the leading slash.
	Path   string
	Header []Header
}

// A HeadTooLarge refuses a request whose metadata the relay would not take. Nothing was sent.
type HeadTooLarge struct {
	Name  string // of the header that alone is too large, or empty
	Size  int    // of that header or of all metadata, in bytes
	Limit int
}

func (e *HeadTooLarge) Error() string {
	if e.Name != "" {
		return fmt.Sprintf("header %s has %d bytes, the relay takes %d for all metadata (MAX_METADATA_BYTES)", e.Name, e.Size, e.Limit)
	}
	return fmt.Sprintf("the request's metadata has %d bytes, the relay takes %d (MAX_METADATA_BYTES)", e.Size, e.Limit)
}

// A RequestTooLarge refuses a body over the cap that the relay advertises.
type RequestTooLarge struct {
	Size  int64 // of the body; where it is not known, what was read of it
	Limit int64
}

func (e *RequestTooLarge) Error() string {
	return fmt.Sprintf("the request body has %d bytes, the relay takes %d (maxRequestBodyBytes)", e.Size, e.Limit)
}

type exchangeState uint8

const (
	// exchangeOpen: no RESPONSE yet. Takes AppendData until the request ended, and Feed. Leaves to
	// answered, or to done if the RESPONSE has END, or to failed.
	exchangeOpen exchangeState = iota
	// exchangeAnswered: the RESPONSE was read. Takes Feed. Leaves to done with END, or to failed.
	exchangeAnswered
	// exchangeDone: the answer is complete. A frame that still comes is a fault.
	exchangeDone
	// exchangeFailed: the answer was refused, or is none.
	exchangeFailed
)

// An Exchange is one request through a pair, from its metadata to the END of its answer. It does no
// I/O: it makes the bytes of the HTTP body that is to be sent and takes those of the one that comes.
//
// It belongs to one goroutine. The zero value is of no use; Begin makes it ready, again and again.
type Exchange struct {
	pair  *Pair
	relay *Relay
	typ   open.Type
	state exchangeState

	ended      bool // END was appended
	operations int  // of the encoder
	sent       int64

	writer  frame.MetadataWriter
	plain   []byte // the request's metadata before encoding
	partial []byte // an answer frame that has not come whole
	text    []byte // the answer's metadata, into which meta points
	meta    frame.Metadata
}

// An Event is what Feed found.
type Event uint8

const (
	// NeedMore: nothing yet.
	NeedMore Event = iota
	// GotHead: the RESPONSE. Status and Header are known.
	GotHead
	// GotData: bytes of the answer's body.
	GotData
	// GotEnd: the answer is complete, and so may the last bytes be that came with it.
	GotEnd
)

// Begin makes the exchange ready for a request through a pair, with metadata and body encoded as t.
func (x *Exchange) Begin(p *Pair, t open.Type) {
	p.use(t)
	x.pair, x.relay, x.typ = p, p.relay, t
	x.state, x.ended, x.operations, x.sent = exchangeOpen, false, 0, 0
	x.partial = x.partial[:0]
	x.writer.Reset()
}

// AppendHead appends the REQUEST frame for a head: AddHeader for each header, then AppendRequest.
func (x *Exchange) AppendHead(dst []byte, h *Head, body bool) ([]byte, error) {
	for _, f := range h.Header {
		if err := x.AddHeader([]byte(f.Name), []byte(f.Value)); err != nil {
			return dst, err
		}
	}
	return x.AppendRequest(dst, []byte(h.Method), []byte(h.Path), body)
}

// AddHeader takes one of the request's headers, after Begin and before AppendRequest, until which
// both slices must stay as they are. Names may have any case; those that are not carried are dropped.
// Errors are *HeadTooLarge and frame.BadHeader.
func (x *Exchange) AddHeader(name, value []byte) error {
	if size, limit := len(name)+len(value), x.relay.metadataBytes(x.typ); size > limit {
		return &HeadTooLarge{string(name), size, limit}
	}
	return x.writer.Add(name, value)
}

// AppendRequest appends the REQUEST frame; body tells whether AppendData follows. Errors are
// *HeadTooLarge, frame.BadMember (the method), frame.BadPath and open.EncodeFailed; then nothing was
// encoded and the pair is untouched.
func (x *Exchange) AppendRequest(dst, method, path []byte, body bool) ([]byte, error) {
	plain, err := x.writer.AppendRequest(x.plain[:0], method, path)
	x.plain = plain
	if err != nil {
		return dst, err
	}
	return x.AppendMetadata(dst, method, plain, body)
}

// AppendMetadata is AppendRequest for metadata that a frame.MetadataWriter has made; method is the one
// in it. Errors are *HeadTooLarge, without a name, and open.EncodeFailed.
func (x *Exchange) AppendMetadata(dst, method, plain []byte, body bool) ([]byte, error) {
	if limit := x.relay.metadataBytes(x.typ); len(plain) > limit {
		return dst, &HeadTooLarge{"", len(plain), limit}
	}
	encoded := x.relay.Profile.EncodedBytes(x.typ, len(plain))
	flags := frame.FlagEnd
	if body {
		flags = 0
	}
	from := len(dst)
	dst = frame.AppendEnvelope(dst, frame.KindRequest, flags, frame.RequestHeadBytes+encoded)
	dst = frame.AppendRequestHead(dst, byte(x.typ), frame.MethodByte(method), x.pair.ID, x.pair.token[:], encoded)
	dst, err := x.pair.enc.AppendEncode(dst, plain)
	if err != nil {
		return dst[:from], err
	}
	x.operations++
	x.ended = !body
	return dst, nil
}

// DataBytes is how many bytes of a body fit a frame.
func (x *Exchange) DataBytes() int {
	return x.relay.Profile.PlaintextBytes(x.typ, x.relay.MaxFrameBytes) - 1
}

// AppendData appends a piece of the request's body as frames of the relay's size, the last of them
// with END if it is the last piece, which may be empty. Errors are *RequestTooLarge, for a piece that
// takes the body over the relay's cap, and open.EncodeFailed. After one the pair is of no more use,
// since the request has no end.
func (x *Exchange) AppendData(dst, piece []byte, last bool) ([]byte, error) {
	if x.ended {
		panic("BUG: body bytes behind the END of a request")
	}
	x.sent += int64(len(piece))
	if limit := x.relay.MaxRequestBodyBytes; limit > 0 && x.sent > limit {
		return dst, &RequestTooLarge{x.sent, limit}
	}
	dst = slices.Grow(dst, x.FramedBytes(len(piece))) // at once: of a large body each copy counts
	for len(piece) > 0 || last {
		n := min(len(piece), x.DataBytes())
		var flags frame.Flags
		if last && n == len(piece) {
			flags, last = frame.FlagEnd, false
			x.ended = true
		}
		from, encoded := len(dst), x.relay.Profile.EncodedBytes(x.typ, n+1)
		dst = frame.AppendEnvelope(dst, frame.KindData, flags, encoded)
		// encoded in place
		plain := frame.AppendData(dst[len(dst)+open.HeadBytes:len(dst)+open.HeadBytes], flags, piece[:n])
		piece = piece[n:]
		var err error
		if dst, err = x.pair.enc.AppendEncode(dst, plain); err != nil {
			return dst[:from], err
		}
		x.operations++
	}
	return dst, nil
}

// FramedBytes is how long AppendData makes a piece of n bytes at most.
func (x *Exchange) FramedBytes(n int) int {
	most := x.DataBytes()
	framed := func(n int) int { return frame.EnvelopeBytes + x.relay.Profile.EncodedBytes(x.typ, n+1) }
	return n/most*framed(most) + framed(n%most)
}

// Ended tells whether END was appended.
func (x *Exchange) Ended() bool { return x.ended }

// Status and Header are the answer's, after GotHead. What Header holds is good until the next Feed.
func (x *Exchange) Status() int           { return x.meta.Status }
func (x *Exchange) Header() []frame.Field { return x.meta.Headers() }

// Feed reads the answer's body from its beginning: n bytes of b were used, and data, which came with
// GotData or GotEnd, is a part of b or of the exchange's own memory, good until the next call. b is
// written to. Call it again with the rest until NeedMore.
//
// An error is a *Refusal (an ERROR frame behind the RESPONSE), a frame.Fault or an open.Error. After
// one the pair is of no more use.
func (x *Exchange) Feed(b []byte) (ev Event, data []byte, n int, err error) {
	for n < len(b) {
		whole, used, err := x.nextFrame(b[n:])
		n += used
		if err != nil {
			x.state = exchangeFailed
			return NeedMore, nil, n, err
		}
		if whole == nil {
			continue // all of b was used
		}
		ev, data, err = x.takeFrame(whole)
		if err != nil {
			x.state = exchangeFailed
		}
		if ev != NeedMore || err != nil {
			return ev, data, n, err
		}
	}
	return NeedMore, nil, n, nil
}

// nextFrame finds the next frame, in b if it lies there whole, else gathered. whole is nil while
// bytes are missing.
func (x *Exchange) nextFrame(b []byte) (whole []byte, used int, err error) {
	if len(x.partial) == 0 {
		size, err := x.frameSize(b)
		if err != nil {
			return nil, 0, err
		}
		if size > 0 && size <= len(b) {
			return b[:size], size, nil
		}
	}
	if len(x.partial) < frame.EnvelopeBytes {
		used = min(frame.EnvelopeBytes-len(x.partial), len(b))
		x.partial = append(x.partial, b[:used]...)
	}
	size, err := x.frameSize(x.partial)
	if size == 0 || err != nil {
		return nil, used, err
	}
	k := min(size-len(x.partial), len(b)-used)
	x.partial = append(x.partial, b[used:used+k]...)
	used += k
	if len(x.partial) < size {
		return nil, used, nil
	}
	whole, x.partial = x.partial, x.partial[:0]
	return whole, used, nil
}

// frameSize is the length of the frame at the start of b, 0 if its envelope is not whole.
func (x *Exchange) frameSize(b []byte) (int, error) {
	e, n, err := frame.ParseEnvelope(b)
	switch {
	case err != nil || n == 0:
		return 0, err
	case uint64(e.Length) > uint64(x.relay.MaxFrameBytes):
		return 0, frame.TooLarge
	case !frame.LegalFlags(frame.HTTP, e.Kind, e.Flags, e.Length):
		return 0, frame.BadFlags
	}
	return n + int(e.Length), nil
}

func (x *Exchange) takeFrame(whole []byte) (Event, []byte, error) {
	e, n, _ := frame.ParseEnvelope(whole)
	payload := whole[n:]
	switch {
	case e.Kind == frame.KindError && x.state <= exchangeAnswered:
		p, err := frame.ParseError(payload)
		if err != nil {
			return NeedMore, nil, err
		}
		return NeedMore, nil, &Refusal{ErrorPayload: p}
	case e.Kind == frame.KindResponse && x.state == exchangeOpen:
		return x.takeResponse(payload, e.Flags)
	case e.Kind == frame.KindData && x.state == exchangeAnswered:
		return x.takeData(payload, e.Flags)
	}
	return NeedMore, nil, frame.BadKind
}

func (x *Exchange) takeResponse(payload []byte, flags frame.Flags) (Event, []byte, error) {
	r, err := frame.ParseResponse(payload)
	if err != nil {
		return NeedMore, nil, err
	}
	plain, err := x.pair.dec.Decode(r.Metadata)
	if err != nil {
		return NeedMore, nil, err
	}
	x.text = append(x.text[:0], plain...) // what Header holds outlives b
	if err := x.meta.Parse(x.text); err != nil {
		return NeedMore, nil, err
	}
	if err := x.meta.CheckResponse(r.Status); err != nil {
		return NeedMore, nil, err
	}
	x.pair.undecoded = 0 // the relay has decoded the request
	x.state = exchangeAnswered
	if flags&frame.FlagEnd != 0 {
		x.state = exchangeDone
	}
	return GotHead, nil, nil
}

func (x *Exchange) takeData(payload []byte, flags frame.Flags) (Event, []byte, error) {
	if len(payload) == 0 {
		return NeedMore, nil, nil
	}
	plain, err := x.pair.dec.Decode(payload)
	if err != nil {
		return NeedMore, nil, err
	}
	app, err := frame.SplitData(plain, flags)
	if err != nil {
		return NeedMore, nil, err
	}
	if flags&frame.FlagEnd != 0 {
		x.state = exchangeDone
		return GotEnd, app, nil
	}
	return GotData, app, nil
}

// Over tells whether the answer has ended: with GotEnd, with a GotHead that had END, or with a fault.
func (x *Exchange) Over() bool { return x.state >= exchangeDone }

// InStep tells whether the pair may carry another request: request and answer have ended.
func (x *Exchange) InStep() bool { return x.ended && x.state == exchangeDone }

// NotSent judges a pair of whose request the relay got nothing: it misses the operations, no more.
func (x *Exchange) NotSent() (replace bool) {
	x.pair.undecoded += x.operations
	return x.pair.worn()
}

// Clean forgets the request and its answer, and keeps the memory of small ones for the next.
func (x *Exchange) Clean() {
	clear(x.plain)
	clear(x.partial[:cap(x.partial)])
	clear(x.text)
	if cap(x.plain)+cap(x.partial)+cap(x.text) > keptBytes {
		*x = Exchange{}
		return
	}
	x.pair, x.relay = nil, nil
	x.plain, x.partial, x.text = x.plain[:0], x.partial[:0], x.text[:0]
}

// keptBytes is how much memory an exchange takes along to its next request.
const keptBytes = 16 << 10

// GivenUp judges a pair whose caller left before the end: it may be kept only if the request had
// ended and no RESPONSE was read; the relay then releases it too.
func (x *Exchange) GivenUp() (replace bool) {
	if !x.ended || x.state != exchangeOpen {
		return true
	}
	x.pair.undecoded += x.operations
	return x.pair.worn()
}
