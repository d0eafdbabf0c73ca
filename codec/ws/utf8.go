package ws

import "encoding/binary"

// UTF8 validates the text of one message piece by piece. The zero value stands at the start of a
// message. Source: RFC 6455 §8.1, RFC 3629 §4.
type UTF8 struct {
	state uint8 // bit offset of the current state in the rows of utf8Rows
}

// States of the automaton, each the bit offset of its field in a row. Six bits a state, because the
// shift that looks a state up takes its count from the low six bits for free.
const (
	// utf8Start: between two runes. The only state a message may end in. Must be 0.
	utf8Start = 6 * iota
	// utf8Bad: the bytes cannot be continued to valid text. Nothing leaves it.
	utf8Bad
	// utf8Tail1, 2, 3: so many continuation bytes of any value must follow.
	utf8Tail1
	utf8Tail2
	utf8Tail3
	// utf8AfterE0: A0..BF must follow, else the rune would be overlong.
	utf8AfterE0
	// utf8AfterED: 80..9F must follow, else the rune would be a surrogate.
	utf8AfterED
	// utf8AfterF0: 90..BF must follow, else the rune would be overlong.
	utf8AfterF0
	// utf8AfterF4: 80..8F must follow, else the rune would lie above U+10FFFF.
	utf8AfterF4
)

// utf8Rows has a row per byte value, in which the field at a state's offset is the next state. One
// load and one shift per byte, no branch: mixed scripts cost the same as uniform ones.
var utf8Rows = makeUTF8Rows()

func makeUTF8Rows() (rows [256]uint64) {
	for i := range rows {
		for state := utf8Start; state <= utf8AfterF4; state += 6 {
			rows[i] |= uint64(utf8Next(state, byte(i))) << state
		}
	}
	return rows
}

// utf8Next is the automaton as the table in RFC 3629 §4 has it.
func utf8Next(state int, b byte) int {
	in := func(lo, hi byte, next int) int {
		if lo <= b && b <= hi {
			return next
		}
		return utf8Bad
	}
	switch state {
	case utf8Start:
		switch {
		case b < 0x80:
			return utf8Start
		case b == 0xe0:
			return utf8AfterE0
		case b == 0xed:
			return utf8AfterED
		case b == 0xf0:
			return utf8AfterF0
		case b == 0xf4:
			return utf8AfterF4
		case 0xc2 <= b && b <= 0xdf:
			return utf8Tail1
		case 0xe1 <= b && b <= 0xef:
			return utf8Tail2
		case 0xf1 <= b && b <= 0xf3:
			return utf8Tail3
		}
		return utf8Bad
	case utf8Bad:
		return utf8Bad
	case utf8Tail1:
		return in(0x80, 0xbf, utf8Start)
	case utf8Tail2:
		return in(0x80, 0xbf, utf8Tail1)
	case utf8Tail3:
		return in(0x80, 0xbf, utf8Tail2)
	case utf8AfterE0:
		return in(0xa0, 0xbf, utf8Tail1)
	case utf8AfterED:
		return in(0x80, 0x9f, utf8Tail1)
	case utf8AfterF0:
		return in(0x90, 0xbf, utf8Tail2)
	case utf8AfterF4:
		return in(0x80, 0x8f, utf8Tail2)
	}
	panic("BUG: unknown UTF-8 state")
}

// Write takes the next bytes of the message and reports whether they can still be part of valid
// text. false comes with the first byte that cannot be continued, and stays.
func (u *UTF8) Write(b []byte) bool {
	state := uint64(u.state)
	for len(b) >= 32 {
		if state == utf8Start && allASCII((*[32]byte)(b)) {
			b = b[32+asciiPrefix(b[32:]):]
			continue
		}
		for i := 0; i < 32; i += 8 {
			state = utf8Step8(state, (*[8]byte)(b[i:]))
		}
		if state &= 63; state == utf8Bad {
			u.state = utf8Bad
			return false
		}
		b = b[32:]
	}
	for _, c := range b {
		state = utf8Rows[c] >> (state & 63)
	}
	u.state = uint8(state & 63)
	return u.state != utf8Bad
}

// asciiPrefix returns how many bytes at the start of b are ASCII, in whole steps of 64.
func asciiPrefix(b []byte) (n int) {
	for len(b)-n >= 64 && allASCII((*[32]byte)(b[n:])) && allASCII((*[32]byte)(b[n+32:])) {
		n += 64
	}
	return n
}

func allASCII(b *[32]byte) bool {
	return (binary.LittleEndian.Uint64(b[0:])|binary.LittleEndian.Uint64(b[8:])|
		binary.LittleEndian.Uint64(b[16:])|binary.LittleEndian.Uint64(b[24:]))&0x8080808080808080 == 0
}

// utf8Step8 is eight steps of the automaton in a row; as a loop they take twice as long. Only the
// low six bits of a state mean anything.
func utf8Step8(state uint64, b *[8]byte) uint64 {
	state = utf8Rows[b[0]] >> (state & 63)
	state = utf8Rows[b[1]] >> (state & 63)
	state = utf8Rows[b[2]] >> (state & 63)
	state = utf8Rows[b[3]] >> (state & 63)
	state = utf8Rows[b[4]] >> (state & 63)
	state = utf8Rows[b[5]] >> (state & 63)
	state = utf8Rows[b[6]] >> (state & 63)
	state = utf8Rows[b[7]] >> (state & 63)
	return state
}

// Complete reports whether the text may end here: all of it was valid and no rune is open.
func (u *UTF8) Complete() bool { return u.state == utf8Start }

// Reset puts u back to the start of a message.
func (u *UTF8) Reset() { u.state = utf8Start }

// ValidText reports whether b, a whole message, is valid UTF-8.
func ValidText(b []byte) bool {
	var u UTF8
	return u.Write(b) && u.Complete()
}
