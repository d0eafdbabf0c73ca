package open

import (
	"crypto/aes"

	"golang.org/x/sys/cpu"
)

var haveAES = cpu.X86.HasAES && cpu.X86.HasSSE41

// expandKey256 is KeyExpansion of FIPS 197 §5.2 for a 256-bit key.
//
//go:noescape
func expandKey256(keys *[15 * aes.BlockSize]byte, key *[32]byte)

// xorBlocks adds whole blocks of key stream, eight at a time.
//
//go:noescape
func xorBlocks(keys *[15 * aes.BlockSize]byte, dst, src *byte, blocks int, hi, lo uint64)
