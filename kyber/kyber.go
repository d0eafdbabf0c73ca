// Package kyber is the key encapsulation of pairing: ML-KEM (FIPS 203) at the three strengths of
// KYBER_STRENGTH, computed by circl, and a pool of workers that keeps it off the event loops.
//
// Names follow FIPS 203: ek is an encapsulation key, dk a decapsulation key, c a ciphertext and K
// the shared secret key. Bytes that a peer sent give an error; a buffer of the wrong size handed in
// by the caller is a bug and panics.
//
// Nothing secret of ours outlives its use: seeds are zeroed here, shared secrets belong to the
// caller. What circl keeps cannot be reached to be zeroed and stays until it is collected: the
// vector s of a decapsulation key, and what its functions leave on their stacks.
package kyber

import (
	"crypto/rand"
	"encoding/binary"
	"errors"

	"github.com/cloudflare/circl/kem/mlkem/mlkem1024"
	"github.com/cloudflare/circl/kem/mlkem/mlkem512"
	"github.com/cloudflare/circl/kem/mlkem/mlkem768"
	"github.com/cloudflare/circl/pke/kyber/kyber1024"
	"github.com/cloudflare/circl/pke/kyber/kyber512"
	"github.com/cloudflare/circl/pke/kyber/kyber768"
)

// A Strength is a parameter set of FIPS 203, named by the number in its title. The zero value is
// none.
type Strength int

const (
	Strength512  Strength = 512
	Strength768  Strength = 768
	Strength1024 Strength = 1024
)

// Parameters that all sets share (FIPS 203 §8, table 2).
const (
	n = 256
	q = 3329

	// SharedKeyBytes is the length of K.
	SharedKeyBytes = 32
	// SeedBytes is the length of d || z, from which a key pair is made.
	SeedBytes = 64

	messageBytes = 32 // m, the randomness of one encapsulation
	seedRhoBytes = 32 // ρ, from which the matrix is made; the end of ek
)

// ErrKey refuses an encapsulation key: its length is not the strength's, or a coefficient is not
// reduced modulo q (FIPS 203 §7.2, the checks an encapsulating party must make).
var ErrKey = errors.New("kyber: not an encapsulation key")

// ErrCiphertext refuses a ciphertext by its length (FIPS 203 §7.3). One of the right length that
// was not made for the key decapsulates to a key nobody else has: that is the standard's answer.
var ErrCiphertext = errors.New("kyber: not a ciphertext")

// Valid tells whether s is one of the three parameter sets.
func (s Strength) Valid() bool {
	return s == Strength512 || s == Strength768 || s == Strength1024
}

// k, du and dv of FIPS 203 §8, table 2.
func (s Strength) params() (k, du, dv int) {
	switch s {
	case Strength512:
		return 2, 10, 4
	case Strength768:
		return 3, 10, 4
	case Strength1024:
		return 4, 11, 5
	}
	panic("BUG: no such ML-KEM strength")
}

// EncapsulationKeyBytes is the length of ek: k polynomials of n 12-bit coefficients, and ρ.
func (s Strength) EncapsulationKeyBytes() int {
	k, _, _ := s.params()
	return k*n*12/8 + seedRhoBytes
}

// CiphertextBytes is the length of c: k polynomials compressed to du bits a coefficient, one to dv.
func (s Strength) CiphertextBytes() int {
	k, du, dv := s.params()
	return n / 8 * (du*k + dv)
}

// CheckKey makes the input check of FIPS 203 §7.2 on an encapsulation key, and nothing more: a fraction
// of a microsecond, where parsing one costs thirty. It lets a pairing request be judged in the
// contract's order before any work is queued for it. It may be called from anywhere.
func CheckKey(s Strength, ek []byte) error {
	if len(ek) != s.EncapsulationKeyBytes() {
		return ErrKey
	}
	// ByteDecode12 (FIPS 203, algorithm 6), eight coefficients in twelve bytes, little endian. Every second
	// one is lifted by what is missing from q to 4096, and has room for the carry.
	const (
		second = 0xfff | 0xfff<<24
		lift   = (1<<12 - q) * (1 | 1<<24)
		carry  = 1<<12 | 1<<36
	)
	over := uint64(0)
	for t := ek; len(t) > seedRhoBytes; t = t[12:] {
		x, y := binary.LittleEndian.Uint64(t), binary.LittleEndian.Uint64(t[6:]) // the last one reaches into ρ
		over |= (x&second + lift) | (x>>12&second + lift) | (y&second + lift) | (y>>12&second + lift)
	}
	if over&carry != 0 {
		return ErrKey
	}
	return nil
}

// An Engine does ML-KEM for one goroutine at a time. It holds what can be used again: encapsulation
// allocates nothing. The zero value is ready.
type Engine struct {
	pk512  kyber512.PublicKey
	pk768  kyber768.PublicKey
	pk1024 kyber1024.PublicKey
	seed   [SeedBytes]byte
	mh     [lanes][messageBytes + 32]byte   // m || H(ek)
	kr     [lanes][SharedKeyBytes + 32]byte // K || r
}

// GenerateKey makes a key pair and writes its encapsulation key, of exactly EncapsulationKeyBytes,
// to ek. The other half is the caller's to wipe.
func (e *Engine) GenerateKey(s Strength, ek []byte) *DecapsulationKey {
	rand.Read(e.seed[:])
	return e.generate(s, ek)
}

func (e *Engine) generate(s Strength, ek []byte) *DecapsulationKey {
	if len(ek) != s.EncapsulationKeyBytes() {
		panic("BUG: ML-KEM key buffer of the wrong size")
	}
	defer clear(e.seed[:])
	dk := &DecapsulationKey{strength: s}
	var pk interface{ Pack(buf []byte) }
	switch s {
	case Strength512:
		pk, dk.sk = mlkem512.NewKeyFromSeed(e.seed[:])
	case Strength768:
		pk, dk.sk = mlkem768.NewKeyFromSeed(e.seed[:])
	case Strength1024:
		pk, dk.sk = mlkem1024.NewKeyFromSeed(e.seed[:])
	}
	pk.Pack(ek)
	return dk
}

// A privateKey is what circl's three have in common.
type privateKey interface {
	DecapsulateTo(ss, ct []byte)
}

// A DecapsulationKey is the secret half of a key pair. It may be used by one goroutine at a time
// and is of no use after Wipe.
type DecapsulationKey struct {
	strength Strength
	sk       privateKey
}

// Decapsulate writes the shared key in c to key, which must have exactly SharedKeyBytes. The error
// is ErrCiphertext. It takes the same time for a ciphertext that was not made for this key.
func (dk *DecapsulationKey) Decapsulate(key, c []byte) error {
	if len(key) != SharedKeyBytes {
		panic("BUG: ML-KEM answer buffer of the wrong size")
	}
	if dk.sk == nil {
		panic("BUG: ML-KEM key used after Wipe")
	}
	if len(c) != dk.strength.CiphertextBytes() {
		return ErrCiphertext
	}
	dk.sk.DecapsulateTo(key, c)
	return nil
}

// Wipe zeroes what can be reached of the key and lets go of the rest.
func (dk *DecapsulationKey) Wipe() {
	switch sk := dk.sk.(type) {
	case *mlkem512.PrivateKey:
		*sk = mlkem512.PrivateKey{}
	case *mlkem768.PrivateKey:
		*sk = mlkem768.PrivateKey{}
	case *mlkem1024.PrivateKey:
		*sk = mlkem1024.PrivateKey{}
	}
	dk.sk = nil
}
