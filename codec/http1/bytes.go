package http1

import "encoding/binary"

// Classes of bytes, RFC 9110 §5.6.2, §5.5 and RFC 5234.
const (
	classToken  = 1 << iota // tchar
	classHost               // what we take in a reg-name or IPv4 address
	classTarget             // VCHAR but "#", which never stands in a target
	classValue              // HTAB, SP, VCHAR, obs-text
)

var classOf = func() (t [256]uint8) {
	for c := range 256 {
		b := byte(c)
		alnum := '0' <= b && b <= '9' || 'a' <= b|0x20 && b|0x20 <= 'z'
		if alnum {
			t[c] |= classToken | classHost
		}
		if b > ' ' && b < 0x7f && b != '#' {
			t[c] |= classTarget
		}
		if b == '\t' || b >= ' ' && b != 0x7f {
			t[c] |= classValue
		}
	}
	for _, b := range []byte("!#$%&'*+-.^_`|~") {
		t[b] |= classToken
	}
	// RFC 3986 would allow sub-delims and percent-encoding in a host. No name
	// that resolves has them, and two readers seldom agree about them.
	for _, b := range []byte("-._~") {
		t[b] |= classHost
	}
	return t
}()

// all reports whether every byte of b is of the class.
func all(b []byte, class uint8) bool {
	for _, c := range b {
		if classOf[c]&class == 0 {
			return false
		}
	}
	return true
}

// ValidToken reports whether b is a token (RFC 9110 §5.6.2): a legal method or
// field name.
func ValidToken(b []byte) bool { return len(b) > 0 && all(b, classToken) }

// ValidValue reports whether b may stand as a field value: no control byte but
// HTAB, so in particular no CR, LF or NUL. White space at the ends is allowed.
func ValidValue(b []byte) bool {
	const (
		ones  = 0x0101010101010101
		highs = 0x8080808080808080
	)
	for len(b) >= 8 {
		w := binary.LittleEndian.Uint64(b)
		del := w ^ ones*0x7f
		// The first term has a bit set if some byte lies below blank, the
		// second if some byte is DEL. Bytes from 0x80 on never do.
		if ((w-ones*' ')&^w|(del-ones)&^del)&highs != 0 && !all(b[:8], classValue) {
			return false // a tab comes through here and is fine
		}
		b = b[8:]
	}
	return all(b, classValue)
}

// equalFold reports whether b equals lower, which must be in lower case, when
// the case of ASCII letters is ignored.
func equalFold(b []byte, lower string) bool {
	if len(b) != len(lower) {
		return false
	}
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			c |= 0x20
		}
		if c != lower[i] {
			return false
		}
	}
	return true
}

// equalFoldBytes reports whether a and b are equal when the case of ASCII
// letters is ignored.
func equalFoldBytes(a, b []byte) bool {
	if len(a) != len(b) {
		return false
	}
	for i, c := range a {
		d := b[i]
		if c == d {
			continue
		}
		if c|0x20 != d|0x20 || c|0x20 < 'a' || c|0x20 > 'z' {
			return false
		}
	}
	return true
}

// trim removes optional white space (blank and tab, RFC 9110 §5.6.3) from both
// ends of b.
func trim(b []byte) []byte {
	for len(b) > 0 && (b[0] == ' ' || b[0] == '\t') {
		b = b[1:]
	}
	for len(b) > 0 && (b[len(b)-1] == ' ' || b[len(b)-1] == '\t') {
		b = b[:len(b)-1]
	}
	return b
}

// cutList takes the first element, trimmed, off a comma list. more reports
// whether a comma stood behind it. Commas inside quoted strings are not known
// here: the lists we read are lists of tokens.
func cutList(list []byte) (element, rest []byte, more bool) {
	for i, c := range list {
		if c == ',' {
			return trim(list[:i]), list[i+1:], true
		}
	}
	return trim(list), nil, false
}

// parseDecimal reads 1*DIGIT up to 2^63−1. Leading zeros are legal and, since
// they are counted as bytes of the head, bounded.
func parseDecimal(b []byte) (n int64, ok bool) {
	if len(b) == 0 {
		return 0, false
	}
	for _, c := range b {
		d := int64(c) - '0'
		if d < 0 || d > 9 || n > (1<<63-1-d)/10 {
			return 0, false
		}
		n = n*10 + d
	}
	return n, true
}
