package http1

import "bytes"

// A Method is a request method that we know. The zero value stands for every
// other one.
type Method uint8

// The methods of RFC 9110 §9 and PATCH.
const (
	MethodOther Method = iota
	MethodGet
	MethodHead
	MethodPost
	MethodPut
	MethodPatch
	MethodDelete
	MethodOptions
	MethodTrace
	MethodConnect

	numMethods
)

var methodNames = [numMethods]string{
	MethodGet: "GET", MethodHead: "HEAD", MethodPost: "POST", MethodPut: "PUT",
	MethodPatch: "PATCH", MethodDelete: "DELETE", MethodOptions: "OPTIONS",
	MethodTrace: "TRACE", MethodConnect: "CONNECT",
}

// String returns the method as it stands in a request line, "" for MethodOther.
func (m Method) String() string { return methodNames[m] }

// ParseMethod recognises a method. Methods are case-sensitive.
func ParseMethod(b []byte) Method {
	for m := MethodGet; m < numMethods; m++ {
		if string(b) == methodNames[m] {
			return m
		}
	}
	return MethodOther
}

// A Request is a parsed request head. One is enough for all the connections of
// an event loop: it is used again by the next Parse, and its slices are parts of
// the bytes that were parsed.
type Request struct {
	Head

	Method   []byte // a token
	MethodID Method

	// Target is the request target as sent: visible ASCII without "#".
	// Path and Query are its parts, undecoded; the path is never empty (but for
	// AuthorityForm) and begins with a slash (but for AsteriskForm). HasQuery
	// tells an empty query from none.
	Target   []byte
	Form     Form
	Path     []byte
	Query    []byte
	HasQuery bool

	// Host is the authority the request is for: that of an absolute target,
	// which replaces the Host field (RFC 9112 §3.2.2), else the Host field's.
	// Hostname and Port are its checked parts, the host's case as sent. All are
	// empty if an HTTP/1.0 request said nothing.
	Host     []byte
	Hostname []byte
	Port     []byte

	// ExpectContinue says that the client waits for a 100 before it sends the
	// body. Never set without a body or in HTTP/1.0.
	ExpectContinue bool
}

// Parse reads a request head at the beginning of b and returns how many bytes
// it took; the body or the next request begins there. 0 without an error means
// that the head is not complete: call again with the same bytes and more behind
// them, and with the same mark. m must be zero for the first call of a head and
// is zero again after its last. Limits hold for unfinished heads too.
//
// The outcome does not depend on how the bytes were cut: each line is judged
// when it ends, everything that concerns the head as a whole when that ends.
// After an error the connection is out of step; answer it and close.
func (r *Request) Parse(b []byte, lim *Limits, m *Mark) (n int, err *Error) {
	pieces := m.line > 0
	n, err = r.parseLines(b, lim, m)
	if n > 0 && pieces {
		// The lines of earlier calls were judged, not kept, since their bytes
		// may have moved. Now that all are there, go through them once more.
		*m = Mark{}
		n, err = r.parseLines(b, lim, m)
	}
	if n == 0 && err == nil {
		return 0, nil
	}
	*m = Mark{}
	if err == nil {
		err = r.finish()
	}
	if err != nil {
		return 0, err
	}
	return n, nil
}

// parseLines reads whole lines from m on, up to the end of the head.
func (r *Request) parseLines(b []byte, lim *Limits, m *Mark) (n int, err *Error) {
	*r = Request{Head: r.Head}
	r.Head.reset()
	if len(b) > lim.HeadBytes {
		b = b[:lim.HeadBytes]
	}
	for {
		window := b
		if m.lines == 0 {
			window = b[:min(len(b), m.line+lim.lineBytes())]
		}
		line, ok, err := m.nextLine(window)
		switch {
		case err != nil:
			return 0, err
		case !ok && m.lines == 0 && len(window) >= min(m.line+lim.lineBytes(), lim.HeadBytes):
			return 0, ErrLineTooLong
		case !ok && len(b) >= lim.HeadBytes:
			return 0, ErrHeadTooLarge
		case !ok:
			return 0, nil
		case len(line) == 0 && m.lines > 0:
			return m.line, nil
		case len(line) == 0:
			if m.empty++; m.empty > maxEmptyLines {
				return 0, ErrEmptyLines
			}
			continue
		case m.lines == 0:
			err = r.parseRequestLine(line)
		default:
			err = r.fieldLine(line, m.lines, lim)
		}
		if err != nil {
			return 0, err
		}
		m.lines++
	}
}

// parseRequestLine reads method SP target SP version, with exactly these two
// blanks (RFC 9112 §3).
func (r *Request) parseRequestLine(line []byte) *Error {
	i := bytes.IndexByte(line, ' ')
	if i < 0 {
		return ErrRequestLine
	}
	method, rest := line[:i], line[i+1:]
	if !ValidToken(method) {
		return ErrMethod
	}
	i = bytes.IndexByte(rest, ' ')
	if i < 0 {
		return ErrRequestLine
	}
	major, minor, ok := parseVersion(rest[i+1:])
	if !ok {
		return ErrRequestLine
	}
	if major != 1 || minor > 1 {
		return ErrVersion
	}
	r.Method, r.MethodID, r.Minor = method, ParseMethod(method), minor
	return r.parseTarget(rest[:i])
}

// parseVersion reads "HTTP/" DIGIT "." DIGIT.
func parseVersion(b []byte) (major, minor uint8, ok bool) {
	if len(b) != len("HTTP/1.1") || string(b[:5]) != "HTTP/" || b[6] != '.' {
		return 0, 0, false
	}
	major, minor = b[5]-'0', b[7]-'0'
	return major, minor, major <= 9 && minor <= 9
}

// finish judges the complete head.
func (r *Request) finish() *Error {
	if err := r.Head.finish(); err != nil {
		return err
	}
	if r.Framing == UntilClose {
		r.Framing = NoBody
	}
	switch {
	case r.hosts == 0 && r.Minor == 1:
		return ErrHostMissing
	case r.hosts > 1:
		return ErrHostRepeated
	case r.hosts == 1:
		host, port, ok := SplitAuthority(r.host)
		if !ok {
			return ErrHost
		}
		if r.Form == OriginForm || r.Form == AsteriskForm {
			r.Host, r.Hostname, r.Port = r.host, host, port
		}
	}
	if r.badExpected {
		return ErrExpect
	}
	r.ExpectContinue = r.expects > 0 && r.Minor == 1 && r.Framing != NoBody
	return nil
}
