package open

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
	"fmt"
)

// ctr is AES-256 in counter mode with a key that changes: MTE has a new one for every message.
//
// The standard library cannot take a new key without allocating, 1 KiB for each message, and would
// leave every one of those keys to the collector. On amd64 the AES instructions are therefore used
// directly, on an expanded key that lies here and is zeroed here; elsewhere the standard library
// does it, with those allocations.
type ctr struct {
	keys  [15 * aes.BlockSize]byte // round keys
	block cipher.Block             // instead, where there is no assembly
}

func (c *ctr) setKey(key *[32]byte) {
	if haveAES {
		expandKey256(&c.keys, key)
		return
	}
	block, err := aes.NewCipher(key[:])
	if err != nil {
		panic(fmt.Sprintf("BUG: AES-256: %v", err))
	}
	c.block = block
}

// xor adds the key stream to src, into dst, which is as long and the same memory or other memory.
// The counter block is be64(hi) || be64(lo); lo must not run over.
func (c *ctr) xor(dst, src []byte, hi, lo uint64) {
	if !haveAES {
		var iv [aes.BlockSize]byte
		putCounter(&iv, hi, lo)
		cipher.NewCTR(c.block, iv[:]).XORKeyStream(dst, src)
		return
	}
	dst = dst[:len(src)]
	if blocks := len(src) / aes.BlockSize; blocks > 0 {
		xorBlocks(&c.keys, &dst[0], &src[0], blocks, hi, lo)
		done := blocks * aes.BlockSize
		dst, src, lo = dst[done:], src[done:], lo+uint64(blocks)
	}
	if len(src) > 0 {
		var last [aes.BlockSize]byte
		copy(last[:], src)
		xorBlocks(&c.keys, &last[0], &last[0], 1, hi, lo)
		copy(dst, last[:])
		clear(last[:])
	}
}

func (c *ctr) wipe() { *c = ctr{} }

func putCounter(b *[aes.BlockSize]byte, hi, lo uint64) {
	binary.BigEndian.PutUint64(b[:8], hi)
	binary.BigEndian.PutUint64(b[8:], lo)
}
