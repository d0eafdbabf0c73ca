package open

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
)

// HKDF (RFC 5869) with SHA-256. A pair needs it twice at pairing and four times at its first use, with
// keys of one block and infos of a few: crypto/hkdf's hashes, keys and results on the heap cost more
// than the arithmetic. Here everything is on the stack, and zeroed.

// hmacRoom is how much of a message hmacSum takes without help: the personalization of an HTTP client
// of ours, with a host, and more.
const hmacRoom = 256

// hmacSum is HMAC-SHA256 (RFC 2104) of a message in parts. The key has at most a block.
func hmacSum(key []byte, message ...[]byte) (sum [sha256.Size]byte) {
	var inner [sha256.BlockSize + hmacRoom]byte
	n := sha256.BlockSize
	for _, part := range message {
		if len(part) > len(inner)-n {
			return longHMACSum(key, message)
		}
		n += copy(inner[n:], part)
	}
	var outer [sha256.BlockSize + sha256.Size]byte
	copy(inner[:sha256.BlockSize], key)
	copy(outer[:sha256.BlockSize], key)
	for i := range sha256.BlockSize {
		inner[i] ^= 0x36
		outer[i] ^= 0x5c
	}
	sum = sha256.Sum256(inner[:n])
	copy(outer[sha256.BlockSize:], sum[:])
	sum = sha256.Sum256(outer[:])
	clear(inner[:n])
	clear(outer[:])
	return sum
}

// longHMACSum is the same by the standard library. It works on copies, so that the callers' memory stays
// on their stacks.
func longHMACSum(key []byte, message [][]byte) (sum [sha256.Size]byte) {
	k, m := bytes.Clone(key), bytes.Join(message, nil)
	h := hmac.New(sha256.New, k)
	h.Write(m)
	h.Sum(sum[:0])
	clear(k)
	clear(m)
	return sum
}

// hkdfExpand fills out, of at most 255 hashes.
func hkdfExpand(out, prk, info []byte) {
	var t [sha256.Size]byte
	before := t[:0]
	for i := byte(1); len(out) > 0; i++ {
		t = hmacSum(prk, before, info, []byte{i})
		before = t[:]
		out = out[copy(out, t[:]):]
	}
	clear(t[:])
}
