package ws

import (
	"bytes"
	"encoding/binary"
	"testing"
)

// clientHeader is a masked header with its length in the shortest form.
func clientHeader(fin bool, op Opcode, length uint64, mask uint32) []byte {
	switch {
	case length <= 125:
		return rawHeader(fin, op, byte(length), nil, mask)
	case length <= 0xffff:
		return rawHeader(fin, op, 126, binary.BigEndian.AppendUint16(nil, uint16(length)), mask)
	default:
		return rawHeader(fin, op, 127, binary.BigEndian.AppendUint64(nil, length), mask)
	}
}

// rawHeader takes the length code and the extended length as they are.
func rawHeader(fin bool, op Opcode, code byte, extended []byte, mask uint32) []byte {
	b := []byte{byte(op), 0x80 | code}
	if fin {
		b[0] |= 0x80
	}
	b = append(b, extended...)
	return binary.LittleEndian.AppendUint32(b, mask)
}

func TestParseHeaderSuccess(t *testing.T) {
	const mask = 0x44332211
	f := func(fragmented, fin bool, op Opcode, length uint64) {
		t.Helper()
		b := clientHeader(fin, op, length, mask)
		want := Header{Fin: fin, Op: op, Masked: true, Mask: mask, Length: length}
		for cut := range b {
			var h Header
			if n, err := ParseHeader(b[:cut], fragmented, &h); n != 0 || err != nil || h != (Header{}) {
				t.Fatalf("%x of %x: n=%d err=%v header=%+v, want need more", b[:cut], b, n, err, h)
			}
		}
		for _, tail := range []string{"", "\x00", "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"} {
			var h Header
			n, err := ParseHeader(append(b[:len(b):len(b)], tail...), fragmented, &h)
			if err != nil || n != len(b) || h != want {
				t.Fatalf("%x: n=%d err=%v header=%+v, want %d and %+v", b, n, err, h, len(b), want)
			}
		}
	}

	// every length class and its borders
	for _, length := range []uint64{0, 1, 125, 126, 127, 128, 0xfffe, 0xffff, 0x10000, 0x10001, 32<<20 - 14, 1 << 32, 1<<63 - 1} {
		f(false, true, OpText, length)
		f(false, true, OpBinary, length)
	}
	// first fragment
	f(false, false, OpText, 5)
	f(false, false, OpBinary, 70000)
	// fragments that follow, the last one and empty ones
	f(true, false, OpContinuation, 0)
	f(true, false, OpContinuation, 300)
	f(true, true, OpContinuation, 0)
	// control frames, also between fragments
	for _, op := range []Opcode{OpClose, OpPing, OpPong} {
		for _, length := range []uint64{0, 1, 125} {
			f(false, true, op, length)
			f(true, true, op, length)
		}
	}
}

func TestParseHeaderFailure(t *testing.T) {
	// seen is the number of bytes that prove the fault: one less needs more, and from there
	// on the answer is always the same.
	f := func(fragmented bool, b []byte, seen int, want *Error) {
		t.Helper()
		full := append(b[:len(b):len(b)], make([]byte, MaxHeaderLen)...)
		for cut := range full {
			h := Header{Length: 99}
			n, err := ParseHeader(full[:cut], fragmented, &h)
			if n != 0 || h != (Header{Length: 99}) {
				t.Fatalf("%x: n=%d header=%+v, want nothing", full[:cut], n, h)
			}
			switch {
			case cut < seen && err != nil:
				t.Fatalf("%x: %q, want need more", full[:cut], err.Reason)
			case cut >= seen && err != want:
				t.Fatalf("%x: got %v, want %q", full[:cut], err, want.Reason)
			}
		}
	}

	// reserved bits, one by one and on a control frame
	f(false, []byte{0xc1}, 1, ErrReserved)
	f(false, []byte{0xa1}, 1, ErrReserved)
	f(false, []byte{0x92}, 1, ErrReserved)
	f(false, []byte{0xf9}, 1, ErrReserved)
	// unknown opcodes, data and control
	for _, op := range []byte{3, 4, 5, 6, 7, 11, 12, 13, 14, 15} {
		f(false, []byte{0x80 | op}, 1, ErrOpcode)
		f(true, []byte{0x80 | op}, 1, ErrOpcode)
		f(false, []byte{op}, 1, ErrOpcode)
	}
	// no mask, also on an empty frame and behind a length code
	f(false, []byte{0x81, 0x00}, 2, ErrUnmasked)
	f(false, []byte{0x88, 0x02}, 2, ErrUnmasked)
	f(false, []byte{0x82, 0x7f}, 2, ErrUnmasked)
	f(true, []byte{0x80, 0x01}, 2, ErrUnmasked)
	// fragmented control frames
	f(false, []byte{0x09}, 1, ErrControlFragmented)
	f(true, []byte{0x08}, 1, ErrControlFragmented)
	f(true, []byte{0x0a}, 1, ErrControlFragmented)
	// control frames with one of the long forms, whatever length they hold
	f(false, []byte{0x89, 0xfe}, 2, ErrControlLength)
	f(false, []byte{0x88, 0xff}, 2, ErrControlLength)
	f(true, []byte{0x8a, 0xfe, 0, 5}, 2, ErrControlLength)
	// a continuation of nothing
	f(false, []byte{0x80}, 1, ErrContinuation)
	f(false, []byte{0x00}, 1, ErrContinuation)
	// a message inside a message
	f(true, []byte{0x81}, 1, ErrInterleaved)
	f(true, []byte{0x01}, 1, ErrInterleaved)
	f(true, []byte{0x82}, 1, ErrInterleaved)
	// lengths in a longer form than they need
	f(false, []byte{0x82, 0xfe, 0, 0}, 4, ErrLengthForm)
	f(false, []byte{0x82, 0xfe, 0, 125}, 4, ErrLengthForm)
	f(false, []byte{0x82, 0xff, 0, 0, 0, 0, 0, 0}, 8, ErrLengthForm)
	f(false, []byte{0x82, 0xff, 0, 0, 0, 0, 0, 0, 0xff, 0xff}, 8, ErrLengthForm)
	f(true, []byte{0x00, 0xff, 0, 0, 0, 0, 0, 0, 0, 126}, 8, ErrLengthForm)
	// the top bit of a 64-bit length
	f(false, []byte{0x82, 0xff, 0x80}, 3, ErrLengthTopBit)
	f(true, []byte{0x80, 0xff, 0xff}, 3, ErrLengthTopBit)
}

func TestErrorTexts(t *testing.T) {
	all := []*Error{
		ErrReserved, ErrOpcode, ErrUnmasked, ErrControlFragmented, ErrControlLength, ErrContinuation, ErrInterleaved,
		ErrLengthForm, ErrLengthTopBit, ErrText, ErrClosePayload, ErrCloseCode, ErrCloseReason,
	}
	seen := map[string]bool{}
	for _, e := range all {
		if !ValidWireCode(e.Code) || e.Reason == "" || len(e.Reason) > maxCloseReason || seen[e.Reason] {
			t.Errorf("%d %q cannot be told apart on the wire", e.Code, e.Reason)
		}
		seen[e.Reason] = true
	}
}

func TestAppendHeader(t *testing.T) {
	f := func(fin bool, op Opcode, length int, want string) {
		t.Helper()
		if got := AppendHeader([]byte("x"), fin, op, length); string(got) != "x"+want {
			t.Errorf("AppendHeader(%v, %d, %d) = %x, want %x", fin, op, length, got[1:], want)
		}
		if n := HeaderLen(length); n != len(want) {
			t.Errorf("HeaderLen(%d) = %d, want %d", length, n, len(want))
		}
		if !fin {
			return
		}
		b := bytes.Repeat([]byte{0xee}, 12)
		n := PutHeader(b, op, length)
		if string(b[:n]) != want || !bytes.Equal(b[n:], bytes.Repeat([]byte{0xee}, 12-n)) {
			t.Errorf("PutHeader(%d, %d) left %x, want %x", op, length, b, want)
		}
	}

	// the three forms and their borders
	f(true, OpText, 0, "\x81\x00")
	f(true, OpBinary, 125, "\x82\x7d")
	f(true, OpBinary, 126, "\x82\x7e\x00\x7e")
	f(true, OpText, 65535, "\x81\x7e\xff\xff")
	f(true, OpBinary, 65536, "\x82\x7f\x00\x00\x00\x00\x00\x01\x00\x00")
	f(true, OpBinary, 32<<20-14, "\x82\x7f\x00\x00\x00\x00\x01\xff\xff\xf2")
	// fragments and control frames
	f(false, OpText, 3, "\x01\x03")
	f(false, OpContinuation, 300, "\x00\x7e\x01\x2c")
	f(true, OpPong, 5, "\x8a\x05")
}

func TestIsControl(t *testing.T) {
	for op := range Opcode(16) {
		if got := op.IsControl(); got != (op >= 8) {
			t.Errorf("Opcode(%d).IsControl() = %v", op, got)
		}
	}
}

func FuzzParseHeader(f *testing.F) {
	f.Add([]byte{0x81, 0x85, 1, 2, 3, 4}, false)
	f.Add([]byte{0x00, 0xfe, 1, 0, 1, 2, 3, 4}, true)
	f.Add([]byte{0x82, 0xff, 0, 0, 0, 0, 1, 0xff, 0xff, 0xf2, 1, 2, 3, 4}, false)
	f.Add([]byte{0x89, 0xfe}, true)
	f.Add([]byte{0x82, 0xff, 0x80}, false)
	f.Fuzz(func(t *testing.T, b []byte, fragmented bool) {
		var h Header
		n, err := ParseHeader(b, fragmented, &h)

		// What a longer input is told, its prefixes are told no differently.
		decided := false
		for cut := 0; cut <= len(b) && cut <= MaxHeaderLen+1; cut++ {
			var hc Header
			nc, errc := ParseHeader(b[:cut], fragmented, &hc)
			if decided && nc == 0 && errc == nil {
				t.Fatalf("%x needs more after it was decided", b[:cut])
			}
			if nc != 0 || errc != nil {
				decided = true
				if nc != n || errc != err || hc != h {
					t.Fatalf("%x and %x are told different things", b[:cut], b)
				}
			}
		}
		if n == 0 {
			return
		}
		if !bytes.Equal(b[:n], clientHeader(h.Fin, h.Op, h.Length, h.Mask)) || h.Rsv != 0 || !h.Masked || h.Length>>63 != 0 {
			t.Fatalf("%x was read as %+v", b[:n], h)
		}
		if h.Op.IsControl() && (!h.Fin || h.Length > 125) || !h.Op.IsControl() && (h.Op == OpContinuation) != fragmented {
			t.Fatalf("%+v passed with fragmented=%v", h, fragmented)
		}
	})
}
