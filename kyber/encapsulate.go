package kyber

import (
	"crypto/rand"
	"crypto/sha3"
	"encoding/binary"

	"github.com/cloudflare/circl/simd/keccakf1600"
)

// lanes is how many encapsulations are hashed side by side: as many as circl's four-way Keccak takes.
const lanes = 4

// An Encapsulation is one operation of ML-KEM.Encaps: a shared key for the holder of EK.
type Encapsulation struct {
	EK  []byte // the encapsulation key; only read
	C   []byte // room for the ciphertext, exactly CiphertextBytes; it may be the key's own
	Key []byte // room for K, exactly SharedKeyBytes
}

// Encapsulate draws a shared key for the holder of each EK and writes key and ciphertext. Four at a
// time are cheaper than four times one. The error is ErrKey if any of the keys is none, and then
// nothing was written.
func (e *Engine) Encapsulate(s Strength, work ...Encapsulation) error {
	size := s.CiphertextBytes()
	for i := range work {
		w := &work[i]
		if len(w.C) != size || len(w.Key) != SharedKeyBytes {
			panic("BUG: ML-KEM answer buffers of the wrong size")
		}
		if err := CheckKey(s, w.EK); err != nil {
			return err
		}
	}
	for len(work) > 0 {
		n := min(len(work), lanes)
		for i := range n {
			rand.Read(e.mh[i][:messageBytes]) // never fails (crypto/rand)
		}
		e.encapsulate(s, work[:n])
		work = work[n:]
	}
	return nil
}

// encapsulate is ML-KEM.Encaps_internal (FIPS 203, algorithm 17) for at most lanes checked keys, with
// the messages in e.m. The encryption is circl's K-PKE; what its ML-KEM puts around it, two hashes and
// an allocation for each key, costs less here.
func (e *Engine) encapsulate(s Strength, work []Encapsulation) {
	defer e.forget()
	var in, out [lanes][]byte
	for i := range work {
		in[i], out[i] = work[i].EK, e.mh[i][messageBytes:]
	}
	hash(&out, &in, len(work), rateH)
	for i := range work {
		in[i], out[i] = e.mh[i][:], e.kr[i][:]
	}
	hash(&out, &in, len(work), rateG)
	pke := e.pke(s)
	for i := range work {
		w := &work[i]
		pke.Unpack(w.EK)
		pke.EncryptTo(w.C, e.mh[i][:messageBytes], e.kr[i][SharedKeyBytes:])
		copy(w.Key, e.kr[i][:])
	}
}

// forget zeroes what is secret of encapsulations.
func (e *Engine) forget() {
	clear(e.mh[:])
	clear(e.kr[:])
}

// A publicKey is what circl's three have in common: the encryption of K-PKE (FIPS 203, algorithm 14).
type publicKey interface {
	Unpack(buf []byte)
	EncryptTo(ct, pt, seed []byte)
}

func (e *Engine) pke(s Strength) publicKey {
	switch s {
	case Strength512:
		return &e.pk512
	case Strength768:
		return &e.pk768
	case Strength1024:
		return &e.pk1024
	}
	panic("BUG: no such ML-KEM strength")
}

// The hash functions of FIPS 203 §4.1 by their rates in bytes.
const (
	rateH = 136 // SHA3-256
	rateG = 72  // SHA3-512
)

// hash hashes the first count of in to out. All have the same length, a multiple of 8 bytes.
func hash(out, in *[lanes][]byte, count, rate int) {
	if count == 1 || !keccakf1600.IsEnabledX4() {
		for i := range count {
			if rate == rateH {
				h := sha3.Sum256(in[i])
				copy(out[i], h[:])
			} else {
				h := sha3.Sum512(in[i])
				copy(out[i], h[:])
				clear(h[:])
			}
		}
		return
	}
	// The sponge of FIPS 202 §4 over four interleaved states; lanes that nobody needs repeat the first.
	var x4 keccakf1600.StateX4
	state := x4.Initialize(false)
	from := *in
	for j := count; j < lanes; j++ {
		from[j] = in[0]
	}
	words, left := rate/8, len(in[0])/8
	for at := 0; ; left -= words {
		block := min(left, words)
		for j, b := range from {
			for i := range block {
				state[lanes*i+j] ^= binary.LittleEndian.Uint64(b[at+8*i:])
			}
		}
		at += 8 * block
		if block < words { // pad10*1 behind the suffix 01, for there is room in this block
			for j := range lanes {
				state[lanes*block+j] ^= 6
				state[lanes*(words-1)+j] ^= 1 << 63
			}
			x4.Permute()
			break
		}
		x4.Permute()
	}
	for j := range count {
		for i := range len(out[j]) / 8 {
			binary.LittleEndian.PutUint64(out[j][8*i:], state[lanes*i+j])
		}
	}
	clear(state)
}
