package ws

import (
	"crypto/subtle"
	"encoding/binary"
	"math/bits"
	"unsafe"
)

// maskBlock is the size in bytes of the repeated key that the vector path XORs against. Building it
// costs about as much as masking a kilobyte by words, hence no vectors below maskVectorMin.
const (
	maskBlock     = 1024
	maskVectorMin = 2 * maskBlock
)

// Mask XORs b in place with key and returns the key rotated for the byte after b, so that a payload
// may be masked piece by piece. key holds the first key byte lowest (Header.Mask). Masking and
// unmasking are the same (RFC 6455 §5.3).
func Mask(b []byte, key uint32) uint32 {
	next := rotateKey(key, len(b))
	if len(b) < maskVectorMin {
		maskWords(b, b, key)
	} else {
		maskBlocks(b, b, key)
	}
	return next
}

// MaskCopy writes src XORed with key to dst[:len(src)] and returns the key rotated for the byte
// after src. dst may overlap src if it starts at or before it: that is how payloads move up over
// their own client headers. An overlap the other way round panics.
func MaskCopy(dst, src []byte, key uint32) uint32 {
	n := len(src)
	if n == 0 {
		return key
	}
	next := rotateKey(key, n)
	dst = dst[:n]
	to, from := uintptr(unsafe.Pointer(unsafe.SliceData(dst))), uintptr(unsafe.Pointer(unsafe.SliceData(src)))
	if to > from && to-from < uintptr(n) {
		panic("BUG: ws.MaskCopy onto bytes it has still to read")
	}
	// XORBytes refuses operands that overlap inexactly, but it sees one block at a time, so
	// that a distance of a block or more is no overlap.
	if distance := from - to; n < maskVectorMin || distance != 0 && distance < maskBlock {
		maskWords(dst, src, key)
	} else {
		maskBlocks(dst, src, key)
	}
	return next
}

// rotateKey returns key as it stands n bytes later.
func rotateKey(key uint32, n int) uint32 {
	return bits.RotateLeft32(key, -8*(n&3))
}

// maskBlocks masks by whole blocks, which are multiples of four and so leave the key as it is, and
// the rest by words.
func maskBlocks(dst, src []byte, key uint32) {
	var block [maskBlock]byte
	fillKey(block[:], key)
	i := 0
	for ; i+maskBlock <= len(src); i += maskBlock {
		subtle.XORBytes(dst[i:], src[i:i+maskBlock], block[:])
	}
	maskWords(dst[i:], src[i:], key)
}

// fillKey repeats key over b, whose length is a power of two and at least 32.
func fillKey(b []byte, key uint32) {
	k := uint64(key)<<32 | uint64(key)
	binary.LittleEndian.PutUint64(b, k)
	binary.LittleEndian.PutUint64(b[8:], k)
	binary.LittleEndian.PutUint64(b[16:], k)
	binary.LittleEndian.PutUint64(b[24:], k)
	for n := 32; n < len(b); n *= 2 {
		copy(b[n:], b[:n])
	}
}

// maskWords goes strictly forward, and every load comes before the store that could destroy it as
// long as dst does not start behind src.
func maskWords(dst, src []byte, key uint32) {
	k := uint64(key)<<32 | uint64(key)
	for len(src) >= 32 && len(dst) >= 32 {
		a := binary.LittleEndian.Uint64(src) ^ k
		b := binary.LittleEndian.Uint64(src[8:]) ^ k
		c := binary.LittleEndian.Uint64(src[16:]) ^ k
		d := binary.LittleEndian.Uint64(src[24:]) ^ k
		binary.LittleEndian.PutUint64(dst, a)
		binary.LittleEndian.PutUint64(dst[8:], b)
		binary.LittleEndian.PutUint64(dst[16:], c)
		binary.LittleEndian.PutUint64(dst[24:], d)
		src, dst = src[32:], dst[32:]
	}
	for len(src) >= 8 && len(dst) >= 8 {
		binary.LittleEndian.PutUint64(dst, binary.LittleEndian.Uint64(src)^k)
		src, dst = src[8:], dst[8:]
	}
	if len(src) >= 4 && len(dst) >= 4 {
		binary.LittleEndian.PutUint32(dst, binary.LittleEndian.Uint32(src)^key)
		src, dst = src[4:], dst[4:]
	}
	for i := range src {
		dst[i] = src[i] ^ byte(key>>(8*i))
	}
}
