package relay

import (
	"encoding/binary"
	"math/bits"
)

// stringRole says what the string being read is, and so what to do with it.
type stringRole uint8

const (
	// roleValue: a value of no interest. Nothing of it is kept.
	roleValue stringRole = iota
	// roleMember: the value of a top-level member of interest, captured for text.
	roleMember
	// roleName: a name below the top level. Nothing of it is kept.
	roleName
	// roleTopName: a name at the top level, captured to see whether its member is of interest.
	roleTopName
)

// beginName takes the quote before a member's name.
func (s *jsonScanner) beginName() {
	s.state, s.role, s.bufLen = jsonString, roleName, 0
	if s.depth == 1 {
		s.role = roleTopName
	}
}

// readString takes bytes inside a string, up to the end of b at most, and returns how many. ended means
// that the last of them was the closing quote.
func (s *jsonScanner) readString(b []byte) (n int, ended bool) {
	for s.state == jsonString {
		run := stringRun(b[n:])
		s.capture(b[n : n+run])
		if n += run; n == len(b) {
			break
		}
		c := b[n]
		n++
		switch {
		case c == '"':
			return n, true
		case c != '\\': // a control character
			s.state = jsonBroken
		case n == len(b):
			s.state = jsonEscape
		default:
			s.escape(b[n])
			n++
		}
	}
	return n, false
}

// endString takes the closing quote. It returns the member whose value the string was, if that is of
// interest.
func (s *jsonScanner) endString() (member jsonMember) {
	switch s.role {
	case roleValue:
		s.state = jsonAfter
	case roleMember:
		s.state = jsonAfter
		member, s.name = s.name, memberNone
	case roleName:
		s.state = jsonColon
	case roleTopName:
		s.state = jsonColon
		switch string(s.text()) {
		case "type":
			s.name = memberType
		case "key":
			s.name = memberKey
		}
	default:
		panic("BUG: unknown string role")
	}
	return member
}

// capture keeps the next bytes of a string if its text may matter.
func (s *jsonScanner) capture(run []byte) {
	if s.role == roleValue || s.role == roleName || s.bufLen == textTooLong {
		return
	}
	if len(run) > maxJSONText-int(s.bufLen) {
		s.bufLen = textTooLong
		return
	}
	s.bufLen += uint8(copy(s.buf[s.bufLen:], run))
}

// escape takes the byte behind a backslash (RFC 8259 §7).
func (s *jsonScanner) escape(c byte) {
	s.state = jsonString
	switch c {
	case '"', '\\', '/':
	case 'b':
		c = '\b'
	case 'f':
		c = '\f'
	case 'n':
		c = '\n'
	case 'r':
		c = '\r'
	case 't':
		c = '\t'
	case 'u':
		s.state, s.hexLeft, s.hex = jsonHex, 4, 0
		return
	default:
		s.state = jsonBroken
		return
	}
	s.capture([]byte{c})
}

// unicodeEscape takes the next digit of \uXXXX.
func (s *jsonScanner) unicodeEscape(c byte) {
	digit := hexDigit(c)
	if digit > 15 {
		s.state = jsonBroken
		return
	}
	s.hex = s.hex<<4 | uint16(digit)
	if s.hexLeft--; s.hexLeft > 0 {
		return
	}
	s.state = jsonString
	// No text we look for has more than ASCII in it, so that any byte that is none stands
	// for every other code unit, surrogates included.
	s.capture([]byte{byte(min(s.hex, 0x80))})
}

// stringRun returns how many bytes at the start of b are neither a quote nor a backslash nor a control
// character, which a string may not hold.
func stringRun(b []byte) int {
	n := 0
	for ; len(b)-n >= 32; n += 32 {
		p := (*[32]byte)(b[n:])
		if stringStops(binary.LittleEndian.Uint64(p[0:]))|stringStops(binary.LittleEndian.Uint64(p[8:]))|
			stringStops(binary.LittleEndian.Uint64(p[16:]))|stringStops(binary.LittleEndian.Uint64(p[24:])) != 0 {
			break
		}
	}
	for ; len(b)-n >= 8; n += 8 {
		if stops := stringStops(binary.LittleEndian.Uint64(b[n:])); stops != 0 {
			return n + bits.TrailingZeros64(stops)/8
		}
	}
	for n < len(b) && b[n] >= 0x20 && b[n] != '"' && b[n] != '\\' {
		n++
	}
	return n
}

// stringStops sets the top bit of the bytes in w that end a run. The lowest of them is exact; those
// above may be set by a borrow.
func stringStops(w uint64) uint64 {
	const ones, tops = 0x0101010101010101, 0x8080808080808080
	quote, backslash := w^ones*'"', w^ones*'\\'
	return ((w-ones*0x20)&^w | (quote-ones)&^quote | (backslash-ones)&^backslash) & tops
}
