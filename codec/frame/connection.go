package frame

import (
	"encoding/binary"
	"unicode/utf8"
)

// What belongs to frames on long connections (WebSocket, TCP). They are not served yet; their rules
// stand here so that the wire format has one home.

// LegalFlags tells whether a kind may carry these flags on a transport with a payload of this length.
// Only DATA, REQUEST and RESPONSE carry any; an empty DATA is no codec operation and carries none.
func LegalFlags(t Transport, k Kind, f Flags, length uint32) bool {
	var legal Flags
	switch k {
	case KindRequest, KindResponse:
		if t != WebSocket {
			legal = FlagEnd
		}
	case KindData:
		switch {
		case length == 0:
		case t == HTTP:
			legal = FlagEnd
		case t == WebSocket:
			legal = FlagMore | FlagText
		case t == TCP:
			legal = FlagEnd | FlagHalf
		}
	}
	return f&^legal == 0
}

// ParseMessage reads a WebSocket message, which must be exactly one frame. payload points into b.
// Errors are Faults, in this order: those of the envelope (Short for less than one), TooLarge,
// MessageLength, BadFlags.
func ParseMessage(b []byte, maxFrameBytes int) (e Envelope, payload []byte, err error) {
	e, n, err := ParseEnvelope(b)
	switch {
	case err != nil:
		return e, nil, err
	case n == 0:
		return e, nil, Short
	case uint64(e.Length) > uint64(maxFrameBytes):
		return e, nil, TooLarge
	case uint64(e.Length) != uint64(len(b)-n):
		return e, nil, MessageLength
	case !LegalFlags(WebSocket, e.Kind, e.Flags, e.Length):
		return e, nil, BadFlags
	}
	return e, b[n:], nil
}

// A Run puts the DATA frames of one WebSocket message together: all but the last have FlagMore, all
// have the same FlagText, none is empty. The zero value awaits the first.
type Run struct {
	text      bool
	fragments int
}

// Add takes the flags of the next DATA and the length of its application bytes. last tells whether
// the message is complete; text and fragments are then known. Errors are EmptyInRun and TextChanged.
func (r *Run) Add(f Flags, length int) (last bool, err error) {
	text := f&FlagText != 0
	switch {
	case length == 0 && (r.fragments > 0 || f&FlagMore != 0):
		return false, EmptyInRun
	case r.fragments > 0 && text != r.text:
		return false, TextChanged
	}
	r.text = text
	r.fragments++
	return f&FlagMore == 0, nil
}

// Text and Fragments describe the message so far.
func (r *Run) Text() bool     { return r.text }
func (r *Run) Fragments() int { return r.fragments }

// MaxCloseReasonBytes is the bound of a reason in a CLOSE, as in RFC 6455 §5.5.1.
const MaxCloseReasonBytes = 123

// ParseClose reads the payload of a CLOSE: uint16 code and a reason in UTF-8, which points into p.
// The error is BadPayload.
func ParseClose(p []byte) (code int, reason []byte, err error) {
	if len(p) < 2 || len(p)-2 > MaxCloseReasonBytes || !utf8.Valid(p[2:]) {
		return 0, nil, BadPayload
	}
	return int(binary.BigEndian.Uint16(p)), p[2:], nil
}

// AppendClose appends the payload of a CLOSE. A reason over the bound is a bug.
func AppendClose(dst []byte, code int, reason string) []byte {
	if len(reason) > MaxCloseReasonBytes {
		panic("BUG: close reason over 123 bytes")
	}
	return append(binary.BigEndian.AppendUint16(dst, uint16(code)), reason...)
}

// PingBytes is the length of a PING and of the PONG that echoes it.
const PingBytes = 8

// CheckPing judges the payload of a PING or PONG. The error is BadPayload.
func CheckPing(p []byte) error {
	if len(p) != PingBytes {
		return BadPayload
	}
	return nil
}

// An Open is the payload of an OPEN, or with Pair alone of an OPEN_ACK. Pair is a JSON object.
type Open struct {
	ClientID []byte
	Host     []byte
	Pair     []byte

	r reader
}

// ParseOpen fills o from the payload of an OPEN, ParseOpenAck from that of an OPEN_ACK. What it holds
// points into p or its own scratch. Unknown members are ignored. The error is BadPayload.
func (o *Open) ParseOpen(p []byte) error {
	return o.parse(p, func() bool { return o.ClientID != nil && o.Host != nil && o.Pair != nil })
}

func (o *Open) ParseOpenAck(p []byte) error {
	return o.parse(p, func() bool { return o.Pair != nil })
}

func (o *Open) parse(p []byte, complete func() bool) error {
	o.ClientID, o.Host, o.Pair = nil, nil, nil
	r := &o.r
	r.reset(p)
	base, ok := r.object()
	for ok {
		var key []byte
		var more bool
		if key, more, ok = r.next(base); !ok || !more {
			break
		}
		switch string(key) {
		case "clientId":
			o.ClientID, ok = r.member()
		case "host":
			o.Host, ok = r.member()
		case "pair":
			if ok = r.peek() == '{'; ok {
				o.Pair, ok = r.skip()
			}
		default:
			_, ok = r.skip()
		}
	}
	if !ok || !r.end() || !complete() {
		return BadPayload
	}
	return nil
}

// AppendOpen appends the payload of an OPEN in canonical form, AppendOpenAck that of an OPEN_ACK.
func (o *Open) AppendOpen(dst []byte) []byte {
	dst = append(appendString(append(dst, `{"clientId":`...), o.ClientID), ',')
	dst = append(appendString(append(dst, `"host":`...), o.Host), ',')
	return append(appendCanonical(append(dst, `"pair":`...), o.Pair), '}')
}

func (o *Open) AppendOpenAck(dst []byte) []byte {
	return append(appendCanonical(append(dst, `{"pair":`...), o.Pair), '}')
}

// CloseCode is the WebSocket close code for a refusal's code: 4000 + code - 400, and 1011 for a code
// that has no place there.
func CloseCode(code int) int {
	if code < 400 || code > 1399 {
		return 1011
	}
	return 4000 + code - 400
}

// A CloseClass is what a WebSocket close code says about a connection.
type CloseClass uint8

const (
	// CloseUnknown: nothing can be learned from it.
	CloseUnknown CloseClass = iota
	// CloseClean: the connection has served its purpose, or the peer goes away.
	CloseClean
	// CloseInvalidFrame: the peer could not read what it got; as code 477.
	CloseInvalidFrame
	// CloseTransport: the connection broke, or the peer did.
	CloseTransport
	// CloseRelayCode: a refusal of the relay.
	CloseRelayCode
)

func (c CloseClass) String() string {
	switch c {
	case CloseClean:
		return "clean"
	case CloseInvalidFrame:
		return "invalid_frame"
	case CloseTransport:
		return "transport"
	case CloseRelayCode:
		return "relay_code"
	}
	return "unknown"
}

// ClassOfClose judges a close code; code is the refusal's where there is one, else 0. The codes of
// RFC 6455 §7.4.1 that complain about our bytes (protocol error, unacceptable or inconsistent data,
// too big) are one class.
func ClassOfClose(closeCode int) (c CloseClass, code int) {
	switch {
	case closeCode == 1000 || closeCode == 1001:
		return CloseClean, 0
	case closeCode == 1002 || closeCode == 1003 || closeCode == 1007 || closeCode == 1009:
		return CloseInvalidFrame, InvalidFrame.Code()
	case closeCode == 1006 || closeCode == 1011:
		return CloseTransport, 0
	case closeCode >= 4000 && closeCode <= 4999:
		return CloseRelayCode, closeCode - 4000 + 400
	}
	return CloseUnknown, 0
}
