package frame

import (
	"bytes"
	"encoding/binary"
	"slices"
	"strings"
	"unicode/utf8"
)

// maxDepth bounds the nesting of a JSON text, so that a hostile one costs no stack. Nothing in the
// protocol nests deeper than four.
const maxDepth = 512

// reader walks over one JSON text (RFC 8259) in memory, strictly: UTF-8 only, no lone surrogates, no
// duplicate keys at any depth, nothing after the value. It allocates only to grow its scratch, which
// is used again.
//
// Its methods answer false for what is not allowed and leave the reason in fault; the reader is then
// of no more use.
type reader struct {
	in    []byte
	at    int
	depth int
	fault Fault
	arena []byte   // strings that had escapes; never moves, since it is as large as the input
	keys  [][]byte // of the objects that are open, innermost last
}

func (r *reader) reset(in []byte) {
	r.in, r.at, r.depth, r.fault = in, 0, 0, 0
	r.arena, r.keys = r.arena[:0], r.keys[:0]
}

func (r *reader) fail(f Fault) bool {
	if r.fault == 0 {
		r.fault = f
	}
	return false
}

func (r *reader) space() {
	for r.at < len(r.in) {
		switch r.in[r.at] {
		case ' ', '\t', '\n', '\r':
			r.at++
		default:
			return
		}
	}
}

// peek is the first byte of what comes next, 0 at the end.
func (r *reader) peek() byte {
	r.space()
	if r.at == len(r.in) {
		return 0
	}
	return r.in[r.at]
}

func (r *reader) take(c byte) bool {
	if r.peek() != c {
		return r.fail(BadJSON)
	}
	r.at++
	return true
}

// end tells whether nothing is left.
func (r *reader) end() bool {
	r.space()
	return r.at == len(r.in) || r.fail(BadJSON)
}

// object opens an object; its members follow by next. The result is for next and close.
func (r *reader) object() (base int, ok bool) {
	if r.depth++; r.depth > maxDepth {
		return 0, r.fail(BadJSON)
	}
	return len(r.keys), r.take('{')
}

// next reads the key of the next member; more is false after the last, and then the object is closed.
func (r *reader) next(base int) (key []byte, more, ok bool) {
	c := r.peek()
	if c == '}' {
		r.at++
		r.depth--
		return nil, false, r.distinct(base)
	}
	if len(r.keys) > base && !r.take(',') {
		return nil, false, false
	}
	r.space()
	if key, ok = r.str(); !ok || !r.take(':') {
		return nil, false, false
	}
	r.keys = append(r.keys, key)
	return key, true, true
}

// distinct looks for a key that the object just closed has twice, and forgets its keys.
func (r *reader) distinct(base int) bool {
	keys := r.keys[base:]
	r.keys = r.keys[:base]
	if ascending(keys) {
		return true // as in every canonical text
	}
	slices.SortFunc(keys, bytes.Compare)
	return ascending(keys) || r.fail(DuplicateKey)
}

func ascending(keys [][]byte) bool {
	for i := 1; i < len(keys); i++ {
		if bytes.Compare(keys[i-1], keys[i]) >= 0 {
			return false
		}
	}
	return true
}

// array opens an array; its elements follow by element.
func (r *reader) array() bool {
	if r.depth++; r.depth > maxDepth {
		return r.fail(BadJSON)
	}
	return r.take('[')
}

// element steps to the next element; more is false after the last, and then the array is closed.
func (r *reader) element(first bool) (more, ok bool) {
	c := r.peek()
	if c == ']' {
		r.at++
		r.depth--
		return false, true
	}
	if !first && !r.take(',') {
		return false, false
	}
	if r.peek() == ']' { // after a comma
		return false, r.fail(BadJSON)
	}
	return true, true
}

// str reads a string. The result points into the input, or into the arena if it had escapes.
func (r *reader) str() ([]byte, bool) {
	if r.at == len(r.in) || r.in[r.at] != '"' {
		return nil, r.fail(BadJSON)
	}
	start := r.at + 1
	for i := start; ; {
		i += plain(r.in[i:])
		if i >= len(r.in) {
			return nil, r.fail(BadJSON)
		}
		switch c := r.in[i]; {
		case c == '"':
			r.at = i + 1
			return r.in[start:i:i], true
		case c == '\\':
			return r.escaped(start, i)
		case c < 0x20:
			return nil, r.fail(BadJSON)
		default:
			rune, size := utf8.DecodeRune(r.in[i:])
			if rune == utf8.RuneError && size == 1 {
				return nil, r.fail(BadJSON)
			}
			i += size
		}
	}
}

// escaped goes on with a string whose first escape is at i.
func (r *reader) escaped(start, i int) ([]byte, bool) {
	if cap(r.arena) < len(r.in) {
		// No string is longer decoded than written, so all of them fit. What was handed out from an
		// older arena stays there.
		r.arena = make([]byte, 0, len(r.in))
	}
	from := len(r.arena)
	r.arena = append(r.arena, r.in[start:i]...)
	for {
		n := plain(r.in[i:])
		r.arena = append(r.arena, r.in[i:i+n]...)
		if i += n; i >= len(r.in) {
			return nil, r.fail(BadJSON)
		}
		switch c := r.in[i]; {
		case c == '"':
			r.at = i + 1
			return r.arena[from:len(r.arena):len(r.arena)], true
		case c == '\\':
			var ok bool
			if i, ok = r.escape(i); !ok {
				return nil, false
			}
		case c < 0x20:
			return nil, r.fail(BadJSON)
		default:
			rune, size := utf8.DecodeRune(r.in[i:])
			if rune == utf8.RuneError && size == 1 {
				return nil, r.fail(BadJSON)
			}
			r.arena = append(r.arena, r.in[i:i+size]...)
			i += size
		}
	}
}

// escape decodes the escape at i into the arena and answers where it ends.
func (r *reader) escape(i int) (int, bool) {
	if i+1 >= len(r.in) {
		return 0, r.fail(BadJSON)
	}
	const from, to = `"\/bfnrt`, "\"\\/\b\f\n\r\t"
	c := r.in[i+1]
	for k := range len(from) {
		if from[k] == c {
			r.arena = append(r.arena, to[k])
			return i + 2, true
		}
	}
	if c != 'u' {
		return 0, r.fail(BadJSON)
	}
	u, ok := hex4(r.in[i+2:])
	i += 6
	switch {
	case !ok, u >= 0xdc00 && u < 0xe000: // a low surrogate without a high one
		return 0, r.fail(BadJSON)
	case u >= 0xd800 && u < 0xdc00:
		if len(r.in) < i+6 || r.in[i] != '\\' || r.in[i+1] != 'u' {
			return 0, r.fail(BadJSON)
		}
		low, ok := hex4(r.in[i+2:])
		if !ok || low < 0xdc00 || low >= 0xe000 {
			return 0, r.fail(BadJSON)
		}
		u = 0x10000 + (u-0xd800)<<10 + (low - 0xdc00)
		i += 6
	}
	r.arena = utf8.AppendRune(r.arena, u)
	return i, true
}

func hex4(b []byte) (u rune, ok bool) {
	if len(b) < 4 {
		return 0, false
	}
	for _, c := range b[:4] {
		switch {
		case '0' <= c && c <= '9':
			u = u<<4 | rune(c-'0')
		case 'a' <= c && c <= 'f':
			u = u<<4 | rune(c-'a'+10)
		case 'A' <= c && c <= 'F':
			u = u<<4 | rune(c-'A'+10)
		default:
			return 0, false
		}
	}
	return u, true
}

// plain is the number of bytes at the start of b that a JSON string carries as they are and that are
// ASCII: neither quote, backslash, control nor part of a longer character.
func plain(b []byte) int {
	i := 0
	for ; i+8 <= len(b); i += 8 {
		const ones, tops = 0x0101010101010101, 0x8080808080808080
		x := binary.LittleEndian.Uint64(b[i:])
		quote, slash := x^'"'*ones, x^'\\'*ones
		// the top bit of each byte that is special; wrong only above one that is
		if (x|(x-0x20*ones)|(quote-ones)|(slash-ones))&tops != 0 {
			break
		}
	}
	for i < len(b) && plainByte(b[i]) {
		i++
	}
	return i
}

func plainByte(c byte) bool { return c >= 0x20 && c < utf8.RuneSelf && c != '"' && c != '\\' }

// number reads a number and answers its text.
func (r *reader) number() ([]byte, bool) {
	start := r.at
	digits := func() bool {
		from := r.at
		for r.at < len(r.in) && r.in[r.at]-'0' <= 9 {
			r.at++
		}
		return r.at > from
	}
	at := func(set string) bool {
		if r.at < len(r.in) && strings.IndexByte(set, r.in[r.at]) >= 0 {
			r.at++
			return true
		}
		return false
	}
	at("-")
	if !at("0") && !digits() {
		return nil, r.fail(BadJSON)
	}
	if at(".") && !digits() {
		return nil, r.fail(BadJSON)
	}
	if at("eE") {
		at("+-")
		if !digits() {
			return nil, r.fail(BadJSON)
		}
	}
	return r.in[start:r.at:r.at], true
}

// literal reads true, false or null.
func (r *reader) literal(word string) bool {
	if len(r.in)-r.at < len(word) || string(r.in[r.at:r.at+len(word)]) != word {
		return r.fail(BadJSON)
	}
	r.at += len(word)
	return true
}

// skip reads any value and answers its text.
func (r *reader) skip() (raw []byte, ok bool) {
	c := r.peek()
	start := r.at
	switch c {
	case '{':
		base, ok := r.object()
		for more := true; ok && more; {
			if _, more, ok = r.next(base); ok && more {
				_, ok = r.skip()
			}
		}
		return r.in[start:r.at:r.at], ok
	case '[':
		ok := r.array()
		for first, more := true, true; ok && more; first = false {
			if more, ok = r.element(first); ok && more {
				_, ok = r.skip()
			}
		}
		return r.in[start:r.at:r.at], ok
	case '"':
		_, ok = r.str()
	case 't':
		ok = r.literal("true")
	case 'f':
		ok = r.literal("false")
	case 'n':
		ok = r.literal("null")
	default:
		return r.number()
	}
	return r.in[start:r.at:r.at], ok
}

// uint reads a number that must be an integer literal of at most max.
func (r *reader) uint(max uint64) (uint64, bool) {
	if c := r.peek(); c < '0' || c > '9' {
		return 0, r.fail(BadMember)
	}
	text, ok := r.number()
	if !ok {
		return 0, false
	}
	v, ok := parseUint(text)
	if !ok || v > max {
		return 0, r.fail(BadMember)
	}
	return v, true
}

// parseUint reads decimal digits and nothing else.
func parseUint(text []byte) (v uint64, ok bool) {
	for _, c := range text {
		d := uint64(c - '0')
		if d > 9 || v > (1<<64-1-d)/10 {
			return 0, false
		}
		v = v*10 + d
	}
	return v, len(text) > 0
}

// member reads a string, the value of a member that must be one.
func (r *reader) member() ([]byte, bool) {
	if r.peek() != '"' {
		return nil, r.fail(BadMember)
	}
	return r.str()
}

// appendString appends s as a canonical JSON string: only the escapes JSON needs, the short ones
// where they exist. Bytes that are not UTF-8 are taken as ISO 8859-1, which is what a header value
// in them is (RFC 9110 §5.5).
func appendString[T ~string | ~[]byte](dst []byte, s T) []byte {
	dst = append(dst, '"')
	b := []byte(s)
	text := utf8.Valid(b)
	for i := 0; i < len(b); {
		n := plain(b[i:])
		dst = append(dst, b[i:i+n]...)
		if i += n; i == len(b) {
			break
		}
		switch c := b[i]; {
		case c < utf8.RuneSelf:
			dst = appendEscape(dst, c)
			i++
		case text:
			_, size := utf8.DecodeRune(b[i:])
			dst = append(dst, b[i:i+size]...)
			i += size
		default:
			dst = utf8.AppendRune(dst, rune(c))
			i++
		}
	}
	return append(dst, '"')
}

func appendEscape(dst []byte, c byte) []byte {
	switch c {
	case '"', '\\':
		return append(dst, '\\', c)
	case '\b':
		return append(dst, '\\', 'b')
	case '\f':
		return append(dst, '\\', 'f')
	case '\n':
		return append(dst, '\\', 'n')
	case '\r':
		return append(dst, '\\', 'r')
	case '\t':
		return append(dst, '\\', 't')
	}
	const digits = "0123456789abcdef"
	return append(dst, '\\', 'u', '0', '0', digits[c>>4], digits[c&15])
}
