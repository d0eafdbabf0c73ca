//go:build !amd64

package open

import "crypto/aes"

const haveAES = false

func expandKey256(*[15 * aes.BlockSize]byte, *[32]byte) { panic("BUG: no AES assembly here") }

func xorBlocks(_ *[15 * aes.BlockSize]byte, _, _ *byte, _ int, _, _ uint64) {
	panic("BUG: no AES assembly here")
}
