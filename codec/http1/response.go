package http1

// A Response is a parsed response head, reusable like a Request.
type Response struct {
	Head

	Status int    // 100 to 599
	Reason []byte // as sent, may be empty
}

// Parse reads a response head at the beginning of b; n, m and the way it deals
// with pieces are those of Request.Parse. method is that of the request it
// answers, since the framing depends on it (RFC 9112 §6.3).
//
// 1xx heads are returned like others, with NoBody: skipping interim answers is
// the caller's, as is what to do with a 101. Behind a head with UntilClose and
// behind a 101 the connection carries no further response; KeepAlive is false
// there.
func (r *Response) Parse(b []byte, lim *Limits, m *Mark, method Method) (n int, err *Error) {
	pieces := m.line > 0
	n, err = r.parseLines(b, lim, m)
	if n > 0 && pieces {
		*m = Mark{}
		n, err = r.parseLines(b, lim, m)
	}
	if n == 0 && err == nil {
		return 0, nil
	}
	*m = Mark{}
	if err == nil {
		err = r.finish(method)
	}
	if err != nil {
		return 0, err
	}
	return n, nil
}

func (r *Response) parseLines(b []byte, lim *Limits, m *Mark) (n int, err *Error) {
	*r = Response{Head: r.Head}
	r.Head.reset()
	if len(b) > lim.HeadBytes {
		b = b[:lim.HeadBytes]
	}
	for {
		line, ok, err := m.nextLine(b)
		switch {
		case err != nil:
			return 0, err
		case !ok && len(b) >= lim.HeadBytes:
			return 0, ErrHeadTooLarge
		case !ok:
			return 0, nil
		case m.lines == 0:
			err = r.parseStatusLine(line)
		case len(line) == 0:
			return m.line, nil
		default:
			err = r.fieldLine(line, m.lines, lim)
		}
		if err != nil {
			return 0, err
		}
		m.lines++
	}
}

// parseStatusLine reads version SP status SP [reason] (RFC 9112 §4). The second
// blank may be missing when there is no reason: that is how several servers
// write it, and nothing hangs on it.
func (r *Response) parseStatusLine(line []byte) *Error {
	const version = len("HTTP/1.1")
	if len(line) < version+4 || line[version] != ' ' {
		return ErrStatusLine
	}
	major, minor, ok := parseVersion(line[:version])
	if !ok {
		return ErrStatusLine
	}
	if major != 1 || minor > 1 {
		return ErrVersion
	}
	status := 0
	for _, c := range line[version+1 : version+4] {
		if c < '0' || c > '9' {
			return ErrStatusLine
		}
		status = status*10 + int(c-'0')
	}
	reason := line[version+4:]
	if len(reason) > 0 {
		if reason[0] != ' ' {
			return ErrStatusLine
		}
		reason = reason[1:]
	}
	if !ValidValue(reason) {
		return ErrStatusLine
	}
	if status < 100 || status > 599 {
		return ErrStatus
	}
	r.Minor, r.Status, r.Reason = minor, status, reason
	return nil
}

func (r *Response) finish(method Method) *Error {
	if err := r.Head.finish(); err != nil {
		return err
	}
	switch {
	case r.Status < 200, r.Status == 204, r.Status == 304, method == MethodHead:
		r.Framing = NoBody
	case method == MethodConnect && r.Status < 300:
		r.Framing = UntilClose // a tunnel
	}
	if r.Framing == UntilClose || r.Status == 101 {
		r.KeepAlive = false
	}
	return nil
}
