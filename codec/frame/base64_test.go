package frame

import (
	"bytes"
	"encoding/base64"
	"math/rand/v2"
	"strings"
	"testing"
)

// checkBase64 compares decoding a text with what the standard library makes of it.
func checkBase64(t *testing.T, text []byte) {
	t.Helper()
	want, err := base64.StdEncoding.Strict().DecodeString(string(text))
	legal := err == nil && !bytes.ContainsAny(text, "\r\n")
	framed := append(append([]byte("<<"), text...), "0123456789abcdef"...)
	got, gotErr := decodeBase64(framed[2 : 2+len(text)])
	switch {
	case legal != (gotErr == nil):
		t.Fatalf("%q: %v, the standard library says %v", text, gotErr, err)
	case legal && !bytes.Equal(got, want):
		t.Fatalf("%q became %x, want %x", text, got, want)
	case string(framed[2+len(text):]) != "0123456789abcdef" || string(framed[:2]) != "<<":
		t.Fatalf("%q: bytes around it were written", text)
	}
}

func TestBase64AgainstStandardLibrary(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	for n := range 200 {
		data := make([]byte, n)
		for i := range data {
			data[i] = byte(random.Uint32())
		}
		text := base64.StdEncoding.EncodeToString(data)
		if got := appendBase64([]byte("head"), data); string(got) != "head"+text {
			t.Fatalf("%x became %s, want head%s", data, got, text)
		}
		tight := make([]byte, 0, len(text)) // no room behind the end
		if got := appendBase64(tight, data); string(got) != text {
			t.Fatalf("%x became %s, want %s", data, got, text)
		}
		checkBase64(t, []byte(text))
		for i := range text {
			checkBase64(t, []byte(text[:i]))
			values := all // of the byte that is replaced; one of them where the loop does the same again
			if n > 24 {
				values = all[random.IntN(256):][:1]
			}
			for _, c := range values {
				changed := []byte(text)
				changed[i] = c
				checkBase64(t, changed)
			}
		}
		checkBase64(t, []byte(text+"===="))
		checkBase64(t, []byte(text+"\n"))
		checkBase64(t, []byte(strings.Repeat("\n", 4)+text))
	}
}

func FuzzBase64(f *testing.F) {
	f.Add([]byte(""))
	f.Add([]byte("AAAAAAAAAAA="))
	f.Add([]byte("AAAAAAAAAAB="))
	f.Add([]byte("AA==AAAAAAAA"))
	f.Add([]byte("AAAA\r\nAAAAAA\n\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		checkBase64(t, text)
		if got := appendBase64(nil, text); string(got) != base64.StdEncoding.EncodeToString(text) {
			t.Fatalf("%x became %s", text, got)
		}
	})
}

func BenchmarkBase64(b *testing.B) {
	key := bytes.Repeat([]byte{0x5a, 0xc3, 0xff, 1}, 1568/4)
	text := base64.StdEncoding.AppendEncode(nil, key)
	b.Run("decode", func(b *testing.B) {
		scratch := make([]byte, len(text))
		b.SetBytes(int64(len(text)))
		for b.Loop() {
			decodeBase64(scratch[:copy(scratch, text)])
		}
	})
	b.Run("decode, standard library", func(b *testing.B) {
		scratch := make([]byte, len(text))
		b.SetBytes(int64(len(text)))
		for b.Loop() {
			b64.Decode(scratch, text)
		}
	})
	b.Run("encode", func(b *testing.B) {
		scratch := make([]byte, 0, len(text))
		b.SetBytes(int64(len(text)))
		for b.Loop() {
			appendBase64(scratch, key)
		}
	})
	b.Run("encode, standard library", func(b *testing.B) {
		scratch := make([]byte, len(text))
		b.SetBytes(int64(len(text)))
		for b.Loop() {
			b64.Encode(scratch, key)
		}
	})
}
