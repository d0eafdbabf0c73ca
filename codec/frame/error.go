package frame

import (
	"encoding/binary"
	"strconv"
	"unicode/utf8"
)

// MaxMessageBytes is the bound of a message in an ERROR.
const MaxMessageBytes = 4096

// ErrorHeader is the header that repeats code and reason of an ERROR answer.
const ErrorHeader = "X-MTE-Relay-Error"

// A Cause is the refusal behind a refusal: a code and reason, and how many hops away it arose (0
// here, 2 at the relay behind an outbound domain). A Code of 0 is none.
type Cause struct {
	Code   int
	Hop    int
	Reason string
}

// CauseOf is a refusal of this relay as the cause of another.
func CauseOf(r Reason) Cause { return Cause{Code: r.Code(), Reason: r.String()} }

// An ErrorPayload is the payload of an ERROR as a peer sent it: uint16 code, then JSON. The words may
// be a newer relay's; ActionOf knows what to do.
type ErrorPayload struct {
	Code    int
	Reason  string
	Message string // at most MaxMessageBytes
	Cause   Cause
}

// ParseError reads a whole payload. Unknown members are ignored. The error is BadPayload. It copies:
// a refusal outlives the buffer it came in.
func ParseError(p []byte) (e ErrorPayload, err error) {
	if len(p) < 2 {
		return e, BadPayload
	}
	e.Code = int(binary.BigEndian.Uint16(p))
	var r reader
	r.reset(p[2:])
	if !e.parse(&r) || !r.end() || !ValidReason(e.Reason) {
		return ErrorPayload{}, BadPayload
	}
	return e, nil
}

func (e *ErrorPayload) parse(r *reader) bool {
	base, ok := r.object()
	for ok {
		var key, s []byte
		var more bool
		if key, more, ok = r.next(base); !ok || !more {
			break
		}
		switch string(key) {
		case "reason":
			s, ok = r.member()
			e.Reason = string(s)
		case "message":
			s, ok = r.member()
			e.Message = string(s)
			ok = ok && len(s) <= MaxMessageBytes
		case "cause":
			ok = e.Cause.parse(r)
		default:
			_, ok = r.skip()
		}
	}
	return ok
}

func (c *Cause) parse(r *reader) bool {
	if r.peek() != '{' {
		return false
	}
	base, ok := r.object()
	for ok {
		var key, s []byte
		var n uint64
		var more bool
		if key, more, ok = r.next(base); !ok || !more {
			break
		}
		switch string(key) {
		case "reason":
			s, ok = r.member()
			c.Reason = string(s)
		case "code":
			n, ok = r.uint(65535)
			c.Code = int(n)
		case "hop":
			n, ok = r.uint(255)
			c.Hop = int(n)
		default:
			_, ok = r.skip()
		}
	}
	return ok && c.Code != 0 && ValidReason(c.Reason)
}

// AppendPayload appends the payload of an ERROR in canonical form.
func (e *ErrorPayload) AppendPayload(dst []byte) []byte {
	dst = binary.BigEndian.AppendUint16(dst, uint16(e.Code))
	dst = append(dst, '{')
	if e.Cause.Code != 0 {
		dst = append(e.Cause.append(dst), ',')
	}
	if e.Message != "" {
		dst = append(appendString(append(dst, `"message":`...), cut(e.Message)), ',')
	}
	return append(appendString(append(dst, `"reason":`...), e.Reason), '}')
}

func (c *Cause) append(dst []byte) []byte {
	dst = append(dst, `"cause":{`...)
	dst = appendUint(dst, `"code":`, uint64(c.Code))
	dst = appendUint(dst, `"hop":`, uint64(c.Hop))
	return append(appendString(append(dst, `"reason":`...), c.Reason), '}')
}

// cut shortens a message to its bound, at a character. Invalid UTF-8 could only grow in JSON and is
// cut too.
func cut(s string) string {
	end := 0
	for end < len(s) {
		r, size := utf8.DecodeRuneInString(s[end:])
		if end+size > MaxMessageBytes || r == utf8.RuneError && size == 1 {
			break
		}
		end += size
	}
	return s[:end]
}

// AppendErrorFrame appends the ERROR frame of a refusal. message may be empty; a cause with code 0 is
// left out.
func AppendErrorFrame(dst []byte, r Reason, message string, cause Cause) []byte {
	from := len(dst)
	dst = append(dst, make([]byte, EnvelopeBytes)...)
	e := ErrorPayload{Code: r.Code(), Reason: r.String(), Message: message, Cause: cause}
	dst = e.AppendPayload(dst)
	PutEnvelope(dst[from:], KindError, 0, len(dst)-from-EnvelopeBytes)
	return dst
}

// AppendErrorHeader appends the value of the header ErrorHeader: code and reason.
func AppendErrorHeader(dst []byte, r Reason) []byte {
	dst = strconv.AppendInt(dst, int64(r.Code()), 10)
	return append(append(dst, ' '), r.String()...)
}

// AppendErrorJSON appends the body that a plain HTTP caller gets instead of a frame: on outbound
// domains, and with the reasons that are not framed.
func AppendErrorJSON(dst []byte, r Reason, message string, cause Cause) []byte {
	dst = append(dst, '{')
	if cause.Code != 0 {
		dst = append(cause.append(dst), ',')
	}
	dst = appendUint(dst, `"code":`, uint64(r.Code()))
	dst = append(appendString(append(dst, `"message":`...), cut(message)), ',')
	return append(appendString(append(dst, `"reason":`...), r.String()), '}')
}
