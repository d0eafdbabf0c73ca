package frame

import (
	"encoding/binary"
	"errors"
	"slices"
)

// Keys and ciphertexts are nearly all of a pairing call, 8 KiB a pair each way, so their base64 (padded,
// standard alphabet, strict) does six bytes at a time. What it accepts and writes is what encoding/base64
// does, which also takes over at the ends.

const (
	b64Alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
	b64Invalid  = 1 << 31 // in b64Values: no character of the alphabet
)

var (
	b64Pairs  [1 << 12]uint16   // the two characters of 12 bits, the first in the low byte
	b64Values [4][1 << 8]uint32 // of a character, in its place among the 24 bits of four
)

func init() {
	for i := range b64Pairs {
		b64Pairs[i] = uint16(b64Alphabet[i>>6]) | uint16(b64Alphabet[i&63])<<8
	}
	for place := range b64Values {
		for c := range b64Values[place] {
			b64Values[place][c] = b64Invalid
		}
		for v, c := range []byte(b64Alphabet) {
			b64Values[place][c] = uint32(v) << (18 - 6*place)
		}
	}
}

var errBase64 = errors.New("not padded base64")

// appendBase64 appends the text of src.
func appendBase64(dst, src []byte) []byte {
	from, size := len(dst), b64.EncodedLen(len(src))
	dst = slices.Grow(dst, size)[:from+size]
	out := dst[from:]
	for len(src) >= 8 && len(out) >= 8 {
		x := binary.BigEndian.Uint64(src)
		binary.LittleEndian.PutUint64(out, uint64(b64Pairs[x>>52])|uint64(b64Pairs[x>>40&0xfff])<<16|
			uint64(b64Pairs[x>>28&0xfff])<<32|uint64(b64Pairs[x>>16&0xfff])<<48)
		src, out = src[6:], out[8:]
	}
	b64.Encode(out, src)
	return dst
}

// decodeBase64 decodes text where it stands: the result is its beginning. On an error the text is lost
// as well.
func decodeBase64(text []byte) ([]byte, error) {
	if len(text)%4 != 0 {
		return nil, errBase64
	}
	from, to, bad := 0, 0, uint32(0)
	for ; len(text)-from > 8; from, to = from+8, to+6 {
		in := text[from : from+8]
		v := b64Values[0][in[0]] | b64Values[1][in[1]] | b64Values[2][in[2]] | b64Values[3][in[3]]
		w := b64Values[0][in[4]] | b64Values[1][in[5]] | b64Values[2][in[6]] | b64Values[3][in[7]]
		bad |= v | w
		binary.BigEndian.PutUint64(text[to:to+8], uint64(v)<<40|uint64(w)<<16) // two bytes too many, which are read already
	}
	var rest [6]byte
	n, err := b64.Decode(rest[:], text[from:])
	if err != nil || bad&b64Invalid != 0 || b64.EncodedLen(n) != len(text)-from { // it skips line breaks
		return nil, errBase64
	}
	return text[:to+copy(text[to:], rest[:n])], nil
}
