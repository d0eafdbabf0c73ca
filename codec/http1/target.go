package http1

import "bytes"

// A Form is one of the four forms of a request target (RFC 9112 §3.2).
type Form uint8

const (
	// OriginForm: a path and perhaps a query. The usual one.
	OriginForm Form = iota
	// AbsoluteForm: an http or https URI, as sent to proxies.
	AbsoluteForm
	// AuthorityForm: host:port, for CONNECT and nothing else.
	AuthorityForm
	// AsteriskForm: "*", for OPTIONS and nothing else.
	AsteriskForm
)

var slash = []byte("/")

// parseTarget sets everything that follows from the target alone. The method is
// known. Path and Query stay as sent: nothing is decoded or cleaned here.
func (r *Request) parseTarget(t []byte) *Error {
	if len(t) == 0 || !all(t, classTarget) {
		return ErrTarget
	}
	r.Target = t
	switch {
	case r.MethodID == MethodConnect:
		host, port, ok := SplitAuthority(t)
		if !ok || len(port) == 0 {
			return ErrTargetForm
		}
		r.Form, r.Host, r.Hostname, r.Port = AuthorityForm, t, host, port
		return nil
	case t[0] == '/':
		r.Form = OriginForm
	case len(t) == 1 && t[0] == '*':
		if r.MethodID != MethodOptions {
			return ErrTargetForm
		}
		r.Form, r.Path = AsteriskForm, t
		return nil
	default:
		i := schemeLen(t)
		if i == 0 {
			return ErrTarget
		}
		authority := t[i:]
		t = nil
		if j := bytes.IndexAny(authority, "/?"); j >= 0 {
			authority, t = authority[:j], authority[j:]
		}
		host, port, ok := SplitAuthority(authority)
		if !ok {
			return ErrTargetAuthority
		}
		r.Form, r.Host, r.Hostname, r.Port = AbsoluteForm, authority, host, port
	}
	r.Path = t
	if i := bytes.IndexByte(t, '?'); i >= 0 {
		r.Path, r.Query, r.HasQuery = t[:i], t[i+1:], true
	}
	if len(r.Path) == 0 {
		r.Path = slash
	}
	return nil
}

// schemeLen returns the length of "http://" or "https://" at the beginning of t,
// 0 if neither stands there.
func schemeLen(t []byte) int {
	for _, s := range [...]string{"http://", "https://"} {
		if len(t) >= len(s) && equalFold(t[:len(s)], s) {
			return len(s)
		}
	}
	return 0
}

// SplitAuthority checks and splits host[:port], as in Host and in request
// targets. The host of an IPv6 address keeps its brackets. The port may be
// empty, also behind a colon (RFC 3986 §3.2.3), and is at most 65535. User
// information, empty hosts, percent-encoding and sub-delims are not ok.
func SplitAuthority(a []byte) (host, port []byte, ok bool) {
	i := bytes.IndexByte(a, ':')
	if len(a) > 0 && a[0] == '[' {
		i = bytes.IndexByte(a, ']') + 1
		if i == 0 || !validIPv6(a[1:i-1]) || i < len(a) && a[i] != ':' {
			return nil, nil, false
		}
		host = a[:i]
	} else {
		if i < 0 {
			i = len(a)
		}
		host = a[:i]
		if len(host) == 0 || !all(host, classHost) {
			return nil, nil, false
		}
	}
	if i < len(a) {
		if port = a[i+1:]; len(port) > 0 {
			if n, ok := parseDecimal(port); !ok || len(port) > 5 || n > 65535 {
				return nil, nil, false
			}
		}
	}
	return host, port, true
}

// validIPv6 reports whether b is an IPv6 address without a zone (RFC 4291 §2.2,
// an IPv4 address in the last place included).
func validIPv6(b []byte) bool {
	groups, elided := 0, false
	if len(b) >= 2 && b[0] == ':' && b[1] == ':' {
		elided = true
		if b = b[2:]; len(b) == 0 {
			return true
		}
	}
	for {
		n := 0
		for n < len(b) && n < 4 && isHex(b[n]) {
			n++
		}
		if n < len(b) && b[n] == '.' {
			if !validIPv4(b) {
				return false
			}
			groups += 2
			break
		}
		if n == 0 {
			return false
		}
		groups++
		if b = b[n:]; len(b) == 0 {
			break
		}
		if b[0] != ':' {
			return false
		}
		if b = b[1:]; len(b) > 0 && b[0] == ':' {
			if elided {
				return false
			}
			elided = true
			if b = b[1:]; len(b) == 0 {
				break
			}
		}
	}
	return groups == 8 && !elided || groups < 8 && elided
}

func validIPv4(b []byte) bool {
	for i := range 4 {
		if i > 0 {
			if len(b) == 0 || b[0] != '.' {
				return false
			}
			b = b[1:]
		}
		n, v := 0, 0
		for n < len(b) && n < 3 && '0' <= b[n] && b[n] <= '9' {
			v = v*10 + int(b[n]-'0')
			n++
		}
		if n == 0 || v > 255 || n > 1 && b[0] == '0' {
			return false
		}
		b = b[n:]
	}
	return len(b) == 0
}

func isHex(c byte) bool { return '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'f' }

// AppendOriginForm appends the target in origin-form, which is what an origin
// gets: path and query as sent, without scheme and authority. For AsteriskForm
// it appends "*", for AuthorityForm nothing.
func (r *Request) AppendOriginForm(dst []byte) []byte {
	dst = append(dst, r.Path...)
	if r.HasQuery {
		dst = append(dst, '?')
		dst = append(dst, r.Query...)
	}
	return dst
}
