package open

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"encoding/hex"
	"math/rand/v2"
	"testing"
)

// FIPS 197, appendix C.3, as the key stream of the counter block that is its plaintext.
func TestCTRKnownAnswer(t *testing.T) {
	var key [32]byte
	for i := range key {
		key[i] = byte(i)
	}
	var c ctr
	c.setKey(&key)
	got := make([]byte, 16)
	c.xor(got, got, 0x0011223344556677, 0x8899aabbccddeeff)
	if want := "8ea2b7ca516745bfeafc49904b496089"; hex.EncodeToString(got) != want {
		t.Errorf("key stream %x, want %s", got, want)
	}
}

// Every length around the group sizes, in place and not, against the standard library.
func TestCTRAgainstStandardLibrary(t *testing.T) {
	random := rand.NewChaCha8([32]byte{1})
	var c ctr
	for size := range 600 {
		var key [32]byte
		random.Read(key[:])
		src := make([]byte, size)
		random.Read(src)
		hi, lo := random.Uint64(), random.Uint64()>>1

		block, _ := aes.NewCipher(key[:])
		var iv [16]byte
		putCounter(&iv, hi, lo)
		want := make([]byte, size)
		cipher.NewCTR(block, iv[:]).XORKeyStream(want, src)

		c.setKey(&key)
		got := make([]byte, size+1)
		got[size] = 0xa5
		c.xor(got[:size], src, hi, lo)
		if !bytes.Equal(got[:size], want) || got[size] != 0xa5 {
			t.Fatalf("%d bytes: differ from the standard library's, or are too many", size)
		}
		c.xor(src, src, hi, lo)
		if !bytes.Equal(src, want) {
			t.Fatalf("%d bytes in place differ from the standard library's", size)
		}
	}
}
