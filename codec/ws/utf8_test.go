package ws

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestUTF8Success(t *testing.T) {
	f := func(s string) {
		t.Helper()
		if !ValidText([]byte(s)) {
			t.Errorf("%q refused", s)
		}
		for cut := range len(s) + 1 {
			var u UTF8
			if !u.Write([]byte(s[:cut])) {
				t.Errorf("%q refused at byte %d", s, cut)
			}
			if got, want := u.Complete(), utf8.ValidString(s[:cut]); got != want {
				t.Errorf("%q: Complete after %d bytes = %v, want %v", s, cut, got, want)
			}
			if !u.Write([]byte(s[cut:])) || !u.Complete() {
				t.Errorf("%q refused when cut at %d", s, cut)
			}
		}
	}

	f("")
	f("hello")
	// the first and last rune of every length, and round the surrogates
	f("\x00\x7f\u0080\u07ff\u0800\ud7ff\ue000\uffff\U00010000\U0010ffff")
	// noncharacters and the byte order mark are text
	f("\ufdd0\ufffe\uffff\ufeff\U0001fffe")
	f("κόσμε ☕ 日本語 𝄞")
	// runes across the borders of the block path
	f(strings.Repeat("a", 31) + "é" + strings.Repeat("b", 40))
	f(strings.Repeat("a", 30) + "𝄞" + strings.Repeat("日", 30))
}

// The fault is seen at its first byte: what stands before is accepted, and nothing behind helps.
func TestUTF8Failure(t *testing.T) {
	f := func(s string) {
		t.Helper()
		for _, before := range []string{"", "é", strings.Repeat("a", 100), strings.Repeat("a", 31), strings.Repeat("日", 11)} {
			good, last := before+s[:len(s)-1], s[len(s)-1:]
			var u UTF8
			if !u.Write([]byte(good)) {
				t.Errorf("%x refused too early", good)
			}
			if u.Write([]byte(last)) || u.Complete() {
				t.Errorf("%x accepted", good+last)
			}
			if u.Write([]byte("aaaa")) || u.Write(make([]byte, 64)) || u.Complete() {
				t.Errorf("%x recovered", good+last)
			}
			u.Reset()
			if !u.Write([]byte("a")) || !u.Complete() {
				t.Errorf("Reset kept the fault")
			}
			if ValidText([]byte(good + last + strings.Repeat("a", 50))) {
				t.Errorf("%x accepted in one piece", good+last)
			}
		}
	}

	// continuation without a lead
	f("\x80")
	f("\xbf")
	// leads that nothing may follow
	f("\xc0")
	f("\xc1")
	f("\xf5")
	f("\xf8")
	f("\xfc")
	f("\xfe")
	f("\xff")
	// overlong
	f("\xe0\x80")
	f("\xe0\x9f")
	f("\xf0\x80")
	f("\xf0\x8f")
	// surrogates
	f("\xed\xa0")
	f("\xed\xbf")
	// above U+10FFFF
	f("\xf4\x90")
	f("\xf4\xbf")
	// a rune cut short by another byte
	f("\xce\x61")
	f("\xe2\x82\x62")
	f("\xe2\xe2")
	f("\xf0\x9d\x84\xc3")
}

// Every sequence of up to three bytes, and every second byte of the four-byte forms.
func TestUTF8AgainstStandard(t *testing.T) {
	check := func(b []byte) {
		if got, want := ValidText(b), utf8.Valid(b); got != want {
			t.Fatalf("ValidText(%x) = %v", b, got)
		}
	}
	var b [4]byte
	for i := range 1 << 24 {
		if i&0xff > 2 && i&0xff < 0x7e || i&0xff > 0xc2 {
			continue // the third byte only round the borders
		}
		b[0], b[1], b[2] = byte(i>>16), byte(i>>8), byte(i)
		check(b[:3])
	}
	for i := range 1 << 16 {
		b[0], b[1] = byte(i>>8), byte(i)
		check(b[:1])
		check(b[:2])
		for _, tail := range []byte{0x7f, 0x80, 0xbf, 0xc0} {
			b[2], b[3] = 0x80, tail
			check(b[:])
			b[2], b[3] = tail, 0x80
			check(b[:])
		}
	}
}

// Random damage to long mixed text, in random pieces.
func TestUTF8Pieces(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 10))
	text := []byte(strings.Repeat("plain ascii text of some length, then κόσμε and 日本語 and 𝄞𝄞𝄞. ", 6))
	for range 4000 {
		b := bytes.Clone(text[r.IntN(20) : len(text)-r.IntN(20)])
		for range r.IntN(3) {
			b[r.IntN(len(b))] = byte(r.Uint32())
		}
		var u UTF8
		ok := true
		for rest := b; len(rest) > 0; {
			n := min(len(rest), 1+r.IntN(90))
			ok = u.Write(rest[:n])
			rest = rest[n:]
		}
		if got, want := ok && u.Complete(), utf8.Valid(b); got != want {
			t.Fatalf("%q in pieces: %v", b, got)
		}
	}
}

func FuzzUTF8(f *testing.F) {
	f.Add([]byte("κόσμε\xed\xa0\x80edited"), uint8(3))
	f.Add([]byte(strings.Repeat("a", 33)+"\xf4\x8f\xbf\xbf"), uint8(34))
	f.Fuzz(func(t *testing.T, b []byte, at uint8) {
		want := utf8.Valid(b)
		if ValidText(b) != want {
			t.Fatalf("ValidText(%x) = %v", b, !want)
		}
		cut := min(int(at), len(b))
		var pieces, bytewise UTF8
		ok := pieces.Write(b[:cut])
		ok = pieces.Write(b[cut:]) && ok
		for i := range b {
			alive := bytewise.Write(b[i : i+1])
			// dead exactly when no continuation makes the prefix valid
			if alive != viable(b[:i+1]) {
				t.Fatalf("%x: alive = %v", b[:i+1], alive)
			}
			if !alive {
				break
			}
		}
		if (ok && pieces.Complete()) != want || bytewise.Complete() != want {
			t.Fatalf("%x cut at %d is judged differently", b, cut)
		}
	})
}

// viable reports whether some continuation of b is valid UTF-8.
func viable(b []byte) bool {
	for len(b) > 0 {
		r, n := utf8.DecodeRune(b)
		if r == utf8.RuneError && n <= 1 {
			break
		}
		b = b[n:]
	}
	if len(b) == 0 {
		return true
	}
	for _, tail := range []string{"\x80", "\xbf", "\x80\x80", "\xbf\xbf", "\x80\x80\x80", "\xbf\xbf\xbf"} {
		if utf8.ValidString(string(b) + tail) {
			return true
		}
	}
	return false
}
