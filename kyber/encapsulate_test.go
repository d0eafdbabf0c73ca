package kyber

import (
	"bytes"
	"crypto/rand"
	"crypto/sha3"
	"testing"

	"github.com/cloudflare/circl/kem/mlkem/mlkem1024"
	"github.com/cloudflare/circl/kem/mlkem/mlkem512"
	"github.com/cloudflare/circl/kem/mlkem/mlkem768"
)

// newWork is encapsulations to as many keys.
func newWork(e *Engine, s Strength, count int) []Encapsulation {
	work := make([]Encapsulation, count)
	for i := range work {
		work[i] = Encapsulation{
			EK:  make([]byte, s.EncapsulationKeyBytes()),
			C:   make([]byte, s.CiphertextBytes()),
			Key: make([]byte, SharedKeyBytes),
		}
		e.GenerateKey(s, work[i].EK)
	}
	return work
}

// circlEncapsulate is circl's ML-KEM.Encaps_internal.
func circlEncapsulate(t *testing.T, s Strength, ek, m []byte) (c, key []byte) {
	t.Helper()
	var pk interface {
		Unpack(buf []byte) error
		EncapsulateTo(ct, ss, seed []byte)
	}
	switch s {
	case Strength512:
		pk = new(mlkem512.PublicKey)
	case Strength768:
		pk = new(mlkem768.PublicKey)
	case Strength1024:
		pk = new(mlkem1024.PublicKey)
	}
	if err := pk.Unpack(ek); err != nil {
		t.Fatal(err)
	}
	c, key = make([]byte, s.CiphertextBytes()), make([]byte, SharedKeyBytes)
	pk.EncapsulateTo(c, key, m)
	return c, key
}

// Groups of every size give what circl's ML-KEM gives for each key by itself.
func TestEncapsulateAgainstCircl(t *testing.T) {
	var e Engine
	for _, s := range strengths {
		for count := 1; count <= lanes; count++ {
			for range 25 {
				work := newWork(&e, s, count)
				var m [lanes][messageBytes]byte
				for i := range count {
					rand.Read(m[i][:])
					copy(e.mh[i][:], m[i][:])
				}
				e.encapsulate(s, work)
				for i, w := range work {
					if c, key := circlEncapsulate(t, s, w.EK, m[i][:]); !bytes.Equal(c, w.C) || !bytes.Equal(key, w.Key) {
						t.Fatalf("%d: encapsulation %d of %d differs from circl's", s, i, count)
					}
				}
			}
		}
	}
}

// Any number of keys, each with a key and a ciphertext of its own; one bad key and nothing is written.
func TestEncapsulateMany(t *testing.T) {
	var e Engine
	for _, s := range strengths {
		for count := range 2*lanes + 2 {
			work := newWork(&e, s, count)
			dks := make([]*DecapsulationKey, count)
			for i := range work {
				dks[i] = e.GenerateKey(s, work[i].EK)
			}
			if err := e.Encapsulate(s, work...); err != nil {
				t.Fatalf("%d: %d keys: %v", s, count, err)
			}
			var key [SharedKeyBytes]byte
			for i, w := range work {
				if err := dks[i].Decapsulate(key[:], w.C); err != nil || !bytes.Equal(key[:], w.Key) {
					t.Fatalf("%d: key %d of %d: decapsulated %x (%v), want %x", s, i, count, key, err, w.Key)
				}
				for _, other := range work[:i] {
					if bytes.Equal(other.Key, w.Key) {
						t.Fatalf("%d: the same shared key twice", s)
					}
				}
			}
			for bad := range work {
				work[bad].EK[0], work[bad].EK[1] = 0xff, 0xff
				for i := range work {
					clear(work[i].C)
					clear(work[i].Key)
				}
				if err := e.Encapsulate(s, work...); err != ErrKey {
					t.Fatalf("%d: key %d of %d is none: %v", s, bad, count, err)
				}
				for _, w := range work {
					if bytes.Count(w.C, []byte{0}) != len(w.C) || bytes.Count(w.Key, []byte{0}) != len(w.Key) {
						t.Fatalf("%d: something was written in spite of a bad key", s)
					}
				}
				e.GenerateKey(s, work[bad].EK)
			}
		}
	}
}

// Hashing side by side gives SHA3, for every length around the blocks.
func TestHashAgainstStandardLibrary(t *testing.T) {
	for words := range 2*rateH/8 + 2 {
		for count := 1; count <= lanes; count++ {
			var in, out [lanes][]byte
			for i := range count {
				in[i], out[i] = make([]byte, 8*words), make([]byte, 64)
				rand.Read(in[i])
			}
			hash(&out, &in, count, rateG)
			for i := range count {
				if want := sha3.Sum512(in[i]); !bytes.Equal(out[i], want[:]) {
					t.Fatalf("SHA3-512 of %d bytes, lane %d of %d, differs", 8*words, i, count)
				}
				out[i] = out[i][:32]
			}
			hash(&out, &in, count, rateH)
			for i := range count {
				if want := sha3.Sum256(in[i]); !bytes.Equal(out[i], want[:]) {
					t.Fatalf("SHA3-256 of %d bytes, lane %d of %d, differs", 8*words, i, count)
				}
			}
		}
	}
}
