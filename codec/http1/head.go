// Package http1 reads and writes HTTP/1.1 message heads and bodies (RFC 9112)
// on borrowed bytes: requests from clients, responses from origins, the chunked
// coding both ways.
//
// It is strict where leniency lets two readers of one message disagree about
// where it ends: what a smuggler needs is refused, not repaired. It knows no
// sockets and no clock, keeps nothing of the bytes it is given beyond the
// slices it returns, and allocates nothing once a Request or Response has been
// used.
package http1

import "bytes"

// Framing is how the end of a body is found (RFC 9112 §6.3).
type Framing uint8

const (
	// NoBody: the message ends with its head. A length of 0 counts as NoBody.
	NoBody Framing = iota
	// Length: Head.Length bytes follow.
	Length
	// Chunked: the chunked coding follows.
	Chunked
	// UntilClose: everything until the connection ends (responses only).
	UntilClose
)

// A Head is what requests and responses have in common. Its slices are parts of
// the parsed bytes: they are valid only as long as those are, and the next Parse
// overwrites them.
type Head struct {
	// Minor is the minor version: 0 for HTTP/1.0, 1 for HTTP/1.1.
	Minor uint8

	// Framing says how the body ends, Length how long it is if that was said.
	// A response without a body (to HEAD, 304) keeps the Length it stated;
	// -1 means that none was stated.
	Framing Framing
	Length  int64

	// KeepAlive says whether the connection may carry another message behind
	// this one (RFC 9112 §9.3).
	KeepAlive bool

	// ConnectionUpgrade says that Connection lists "upgrade".
	ConnectionUpgrade bool

	// Fields are the field lines in the order they came.
	Fields []Field

	// Gathered while lines are read; judged when the head is complete, so that
	// a head that arrives in pieces meets its faults in the same order as one
	// that arrives at once.
	lengths     int // lines of Content-Length
	badLength   bool
	codings     codingState
	close       bool // Connection lists close
	keep        bool // Connection lists keep-alive
	nominates   bool // Connection lists something else
	host        []byte
	hosts       int // lines of Host
	expects     int // lines of Expect
	badExpected bool
}

// codingState is what the Transfer-Encoding lines said so far.
type codingState uint8

const (
	codingNone    codingState = iota // no such line
	codingUnknown                    // tokens, none of them chunked
	codingChunked                    // chunked alone, so far at the end
	codingMixed                      // others, then chunked
	codingBad
)

// A Mark remembers how far an unfinished head was read, so that a head that
// arrives in many pieces is not searched from its beginning each time. The zero
// value stands for a head not yet looked at; it holds offsets only, so the bytes
// may move between two calls.
type Mark struct {
	line  int // where the first unfinished line begins
	seen  int // up to where no LF was found
	empty int // empty lines before the first line
	lines int // finished lines, the first line included
}

func (h *Head) reset() {
	*h = Head{Fields: h.Fields[:0], Length: -1}
}

// nextLine returns the line at m.line without its CRLF, and moves m behind it.
// ok is false if the line is not finished.
func (m *Mark) nextLine(b []byte) (line []byte, ok bool, err *Error) {
	i := bytes.IndexByte(b[m.seen:], '\n')
	if i < 0 {
		m.seen = len(b)
		return nil, false, nil
	}
	i += m.seen
	if i == m.line || b[i-1] != '\r' {
		return nil, false, ErrBareLF
	}
	line = b[m.line : i-1]
	m.line, m.seen = i+1, i+1
	return line, true, nil
}

// fieldLine adds one field line to the head. count is its number, from 1.
func (h *Head) fieldLine(line []byte, count int, lim *Limits) *Error {
	if count > lim.Fields {
		return ErrTooManyFields
	}
	f, err := splitField(line)
	if err != nil {
		return err
	}
	h.Fields = append(h.Fields, f)
	switch f.ID {
	case FieldContentLength:
		n, ok := parseDecimal(f.Value)
		h.Length = n
		h.lengths++
		h.badLength = h.badLength || !ok
	case FieldTransferEncoding:
		h.addCodings(f.Value)
	case FieldConnection:
		h.addConnection(f.Value)
	case FieldHost:
		h.host = f.Value
		h.hosts++
	case FieldExpect:
		h.expects++
		h.badExpected = h.badExpected || !equalFold(f.Value, "100-continue")
	}
	return nil
}

// addCodings reads one Transfer-Encoding line. Empty list elements, which other
// lists may have, are malformed here: readers are known to differ about them.
func (h *Head) addCodings(value []byte) {
	for more := true; more; {
		var e []byte
		e, value, more = cutList(value)
		name := e
		if i := bytes.IndexByte(e, ';'); i >= 0 {
			name = trim(e[:i])
		}
		chunked := equalFold(name, "chunked")
		switch {
		case !ValidToken(name), chunked && len(name) != len(e):
			h.codings = codingBad // chunked takes no parameters
		case h.codings == codingNone && chunked:
			h.codings = codingChunked
		case h.codings == codingNone:
			h.codings = codingUnknown
		case h.codings == codingUnknown && chunked:
			h.codings = codingMixed
		case h.codings == codingUnknown:
		default:
			h.codings = codingBad // something behind chunked
		}
	}
}

func (h *Head) addConnection(value []byte) {
	for more := true; more; {
		var e []byte
		e, value, more = cutList(value)
		switch {
		case len(e) == 0:
		case equalFold(e, "close"):
			h.close = true
		case equalFold(e, "keep-alive"):
			h.keep = true
		case equalFold(e, "upgrade"):
			h.ConnectionUpgrade = true
		default:
			h.nominates = true
		}
	}
}

// finish judges framing and persistence once all lines are there. Framing comes
// out as Chunked, Length, NoBody (a length of 0) or, if nothing was said,
// UntilClose, which means NoBody in a request.
func (h *Head) finish() *Error {
	h.KeepAlive = !h.close && (h.Minor == 1 || h.keep)
	switch {
	case h.codings != codingNone && h.lengths > 0:
		return ErrLengthAndCoding
	case h.codings != codingNone && h.Minor == 0:
		return ErrCodingVersion
	case h.codings == codingBad:
		return ErrCoding
	case h.codings == codingUnknown, h.codings == codingMixed:
		return ErrCodingUnknown
	case h.badLength:
		return ErrLength
	case h.lengths > 1:
		return ErrLengthRepeated
	case h.codings == codingChunked:
		h.Framing = Chunked
	case h.lengths == 0:
		h.Framing = UntilClose
	case h.Length == 0:
		h.Framing = NoBody
	default:
		h.Framing = Length
	}
	return nil
}
