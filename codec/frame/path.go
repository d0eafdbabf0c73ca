package frame

import (
	"bytes"
	"strings"
)

// Paths are path and query without a leading slash, percent-encoded as the client sent them; empty
// is the root. A reader accepts one leading slash, a writer emits none (contract, mte-relay §2).

// MaxPathBytes is the bound of a path.
const MaxPathBytes = 16384

// readablePath is the reader's rule. What cannot be made a request target is found by AppendTarget.
func readablePath(p []byte) bool {
	return len(p) <= MaxPathBytes && !(len(p) >= 2 && p[0] == '/' && p[1] == '/')
}

// CheckPath is the writer's rule: what a reader refuses, and bytes that no target may hold. The error
// is BadPath.
func CheckPath(p []byte) error {
	if !readablePath(p) || !validValue(p) {
		return BadPath
	}
	return nil
}

func withoutSlash(p []byte) []byte {
	if len(p) > 0 && p[0] == '/' {
		return p[1:]
	}
	return p
}

// AppendTarget appends the request target of a path that was read. Bytes that may not stand in one
// are percent-encoded, so that nothing raw reaches the origin's request line; the rest is carried
// through untouched. The error is BadPath: two leading slashes, too long, a segment "..", also
// written with %2e, or a NUL or line break.
func AppendTarget(dst, path []byte) ([]byte, error) {
	if !readablePath(path) || !validValue(path) || hasParentSegment(path) {
		return dst, BadPath
	}
	return appendEncoded(append(dst, '/'), withoutSlash(path)), nil
}

// hasParentSegment looks for a segment ".." before the query.
func hasParentSegment(path []byte) bool {
	path, _, _ = bytes.Cut(path, []byte{'?'})
	for more := true; more; {
		var segment []byte
		segment, path, more = bytes.Cut(path, []byte{'/'})
		if len(segment) <= len("%2e%2e") && dots(segment) == 2 {
			return true
		}
	}
	return false
}

// dots is the number of dots, literal or encoded, that a segment consists of; -1 if of anything else.
func dots(segment []byte) (n int) {
	for len(segment) > 0 {
		switch {
		case segment[0] == '.':
			segment = segment[1:]
		case len(segment) >= 3 && segment[0] == '%' && segment[1] == '2' && segment[2]|0x20 == 'e':
			segment = segment[3:]
		default:
			return -1
		}
		n++
	}
	return n
}

// HasDotSegment tells whether a request target has a segment "." or "..", literal or with %2e, before
// its query. Pass-through routes refuse such targets: origins resolve them, so the path that was
// matched against the routes would not be the one that is served.
func HasDotSegment(target []byte) bool {
	target, _, _ = bytes.Cut(target, []byte{'?'})
	for more := true; more; {
		var segment []byte
		segment, target, more = bytes.Cut(target, []byte{'/'})
		if n := dots(segment); n == 1 || n == 2 {
			return true
		}
	}
	return false
}

func appendEncoded(dst, path []byte) []byte {
	const digits = "0123456789ABCDEF"
	for _, c := range path {
		if targetByte(c) {
			dst = append(dst, c)
		} else {
			dst = append(dst, '%', digits[c>>4], digits[c&15])
		}
	}
	return dst
}

// targetByte tells whether a byte may stand in a request target as it is.
func targetByte(c byte) bool { return targets[c>>5]>>(c&31)&1 != 0 }

var targets = func() (set [8]uint32) {
	for c := '!'; c <= '~'; c++ {
		if !strings.ContainsRune("\"<>\\^`{|}#", c) {
			set[c>>5] |= 1 << (c & 31)
		}
	}
	return set
}()

// AppendPathFromURL appends the path of an absolute http or https URL: what stands after the
// authority, without its leading slash and without the fragment. Escapes stay as they are, bytes that
// may not stand in a target are encoded, dot segments are not resolved. The error is BadPath.
func AppendPathFromURL(dst []byte, url string) ([]byte, error) {
	_, rest, ok := strings.Cut(url, "://")
	if !ok {
		return dst, BadPath
	}
	rest, _, _ = strings.Cut(rest, "#")
	i := strings.IndexAny(rest, "/?")
	if i < 0 {
		return dst, nil
	}
	path := []byte(rest[i:])
	if len(path) > 1 && path[0] == '/' && path[1] == '/' || !validValue(path) {
		return dst, BadPath
	}
	from := len(dst)
	dst = appendEncoded(dst, withoutSlash(path))
	if len(dst)-from > MaxPathBytes {
		return dst[:from], BadPath
	}
	return dst, nil
}
