package kyber

import (
	"bytes"
	"crypto/mlkem"
	"crypto/mlkem/mlkemtest"
	"crypto/rand"
	"crypto/sha3"
	"encoding/hex"
	"testing"

	"github.com/cloudflare/circl/kem/mlkem/mlkem1024"
	"github.com/cloudflare/circl/kem/mlkem/mlkem512"
	"github.com/cloudflare/circl/kem/mlkem/mlkem768"
)

var strengths = []Strength{Strength512, Strength768, Strength1024}

// The sizes follow from the parameters; here they are pinned to FIPS 203, table 3, and to circl.
func TestConstantSizes(t *testing.T) {
	f := func(s Strength, ek, c, circlKey, circlCiphertext int) {
		t.Helper()
		if got := s.EncapsulationKeyBytes(); got != ek || got != circlKey {
			t.Errorf("%d: encapsulation key of %d bytes, FIPS 203 has %d, circl %d", s, got, ek, circlKey)
		}
		if got := s.CiphertextBytes(); got != c || got != circlCiphertext {
			t.Errorf("%d: ciphertext of %d bytes, FIPS 203 has %d, circl %d", s, got, c, circlCiphertext)
		}
	}
	f(Strength512, 800, 768, mlkem512.PublicKeySize, mlkem512.CiphertextSize)
	f(Strength768, 1184, 1088, mlkem768.PublicKeySize, mlkem768.CiphertextSize)
	f(Strength1024, 1568, 1568, mlkem1024.PublicKeySize, mlkem1024.CiphertextSize)
	for _, got := range []int{mlkem512.SharedKeySize, mlkem768.SharedKeySize, mlkem1024.SharedKeySize} {
		if got != SharedKeyBytes {
			t.Errorf("circl's shared key has %d bytes", got)
		}
	}
	for _, got := range []int{mlkem512.KeySeedSize, mlkem768.KeySeedSize, mlkem1024.KeySeedSize} {
		if got != SeedBytes {
			t.Errorf("circl's seed has %d bytes", got)
		}
	}
	for _, s := range []Strength{0, 1, 256, 513, 2048, -512} {
		if s.Valid() {
			t.Errorf("%d is a strength", s)
		}
	}
}

func TestRoundTrip(t *testing.T) {
	var e Engine
	for _, s := range strengths {
		ek, c := make([]byte, s.EncapsulationKeyBytes()), make([]byte, s.CiphertextBytes())
		var ours, theirs, other [SharedKeyBytes]byte
		dk := e.GenerateKey(s, ek)
		if err := CheckKey(s, ek); err != nil {
			t.Fatalf("%d: a key of ours: %v", s, err)
		}
		for range 20 {
			if err := e.Encapsulate(s, Encapsulation{ek, c, ours[:]}); err != nil {
				t.Fatalf("%d: encapsulate: %v", s, err)
			}
			if err := dk.Decapsulate(theirs[:], c); err != nil || ours != theirs {
				t.Fatalf("%d: decapsulated %x (%v), want %x", s, theirs, err, ours)
			}
			if ours == other {
				t.Fatalf("%d: the same key twice", s)
			}
			other = ours
			c[7] ^= 1 // implicit rejection: another key, no error
			if err := dk.Decapsulate(theirs[:], c); err != nil || ours == theirs {
				t.Fatalf("%d: a forged ciphertext gave the same key (%v)", s, err)
			}
		}
	}
}

// The standard library's implementation and circl's understand each other (it has no 512).
func TestAgainstStandardLibrary(t *testing.T) {
	var e Engine
	var key [SharedKeyBytes]byte

	ek := make([]byte, Strength768.EncapsulationKeyBytes())
	dk := e.GenerateKey(Strength768, ek)
	std, err := mlkem.NewEncapsulationKey768(ek)
	if err != nil {
		t.Fatal(err)
	}
	shared, c := std.Encapsulate()
	if err := dk.Decapsulate(key[:], c); err != nil || !bytes.Equal(key[:], shared) {
		t.Errorf("768: decapsulated %x (%v), want %x", key, err, shared)
	}
	stdKey, _ := mlkem.GenerateKey1024()
	c = make([]byte, Strength1024.CiphertextBytes())
	if err := e.Encapsulate(Strength1024, Encapsulation{stdKey.EncapsulationKey().Bytes(), c, key[:]}); err != nil {
		t.Fatal(err)
	}
	if shared, err := stdKey.Decapsulate(c); err != nil || !bytes.Equal(key[:], shared) {
		t.Errorf("1024: the standard library decapsulated %x (%v), want %x", shared, err, key)
	}
	ek = make([]byte, Strength1024.EncapsulationKeyBytes())
	dk = e.GenerateKey(Strength1024, ek)
	std1024, err := mlkem.NewEncapsulationKey1024(ek)
	if err != nil {
		t.Fatal(err)
	}
	m := bytes.Repeat([]byte{7}, messageBytes)
	shared, want, err := mlkemtest.Encapsulate1024(std1024, m)
	if err != nil {
		t.Fatal(err)
	}
	copy(e.mh[0][:], m)
	e.encapsulate(Strength1024, []Encapsulation{{ek, c, key[:]}})
	if !bytes.Equal(c, want) || !bytes.Equal(key[:], shared) {
		t.Error("1024: encapsulation of a known message differs")
	}
	if err := dk.Decapsulate(key[:], want); err != nil || !bytes.Equal(key[:], shared) {
		t.Errorf("1024: decapsulated %x (%v), want %x", key, err, shared)
	}
}

// A hash over seeded keys, ciphertexts, shared keys and implicit rejections. The scheme is that of
// TestAccumulated in Go's crypto/mlkem, whose value for 768 is used; the others were made with this
// code and agree with the final FIPS 203 (1024 also with the standard library).
func TestAccumulated(t *testing.T) {
	f := func(s Strength, want string) {
		t.Helper()
		random, all := sha3.NewSHAKE128(), sha3.NewSHAKE128()
		var e Engine
		var key, back [SharedKeyBytes]byte
		ek, c := make([]byte, s.EncapsulationKeyBytes()), make([]byte, s.CiphertextBytes())
		for range 100 {
			random.Read(e.seed[:])
			dk := e.generate(s, ek)
			all.Write(ek)
			random.Read(e.mh[0][:messageBytes])
			e.encapsulate(s, []Encapsulation{{ek, c, key[:]}})
			all.Write(c)
			all.Write(key[:])
			if err := dk.Decapsulate(back[:], c); err != nil || back != key {
				t.Fatalf("%d: decapsulated %x (%v), want %x", s, back, err, key)
			}
			random.Read(c)
			if err := dk.Decapsulate(back[:], c); err != nil {
				t.Fatal(err)
			}
			all.Write(back[:])
		}
		sum := make([]byte, 32)
		all.Read(sum)
		if got := hex.EncodeToString(sum); got != want {
			t.Errorf("%d: %s, want %s", s, got, want)
		}
	}
	f(Strength512, "86b1b4703b8ffef6f7f3290c6dbce4ad954498a0673ded401a94828e8c519a59")
	f(Strength768, "1114b1b6699ed191734fa339376afa7e285c9e6acf6ff0177d346696ce564415")
	f(Strength1024, "800018fec3e2723f73f1d657fe239b4d5d8782efaade297e8cd448e54cc2ac00")
}

// Every wrong length is refused, and by the type check before anything is parsed.
func TestBadLengths(t *testing.T) {
	var e Engine
	var key [SharedKeyBytes]byte
	for _, s := range strengths {
		ek, c := make([]byte, s.EncapsulationKeyBytes()), make([]byte, s.CiphertextBytes())
		dk := e.GenerateKey(s, ek)
		long := make([]byte, max(len(ek), len(c))+100)
		for size := range len(ek) + 100 {
			if size == len(ek) {
				continue
			}
			if err := CheckKey(s, long[:size]); err != ErrKey {
				t.Fatalf("%d: a key of %d bytes: %v", s, size, err)
			}
			if err := e.Encapsulate(s, Encapsulation{long[:size], c, key[:]}); err != ErrKey {
				t.Fatalf("%d: a key of %d bytes: %v", s, size, err)
			}
		}
		for size := range len(c) + 100 {
			if size == len(c) {
				continue
			}
			if err := dk.Decapsulate(key[:], long[:size]); err != ErrCiphertext {
				t.Fatalf("%d: a ciphertext of %d bytes: %v", s, size, err)
			}
		}
	}
}

// parse is circl's opinion of an encapsulation key.
func parse(s Strength, ek []byte) error {
	var pk interface{ Unpack(buf []byte) error }
	switch s {
	case Strength512:
		pk = new(mlkem512.PublicKey)
	case Strength768:
		pk = new(mlkem768.PublicKey)
	case Strength1024:
		pk = new(mlkem1024.PublicKey)
	}
	if pk.Unpack(ek) != nil {
		return ErrKey
	}
	return nil
}

// The fast check and circl's full parse accept the same keys.
func TestCheckKeyAgainstParse(t *testing.T) {
	var e Engine
	for _, s := range strengths {
		good := make([]byte, s.EncapsulationKeyBytes())
		e.GenerateKey(s, good)
		f := func(name string, ek []byte, want error) {
			t.Helper()
			if got := CheckKey(s, ek); got != want {
				t.Errorf("%d: check of %s: %v", s, name, got)
			}
			if got := parse(s, ek); got != want {
				t.Errorf("%d: parse of %s: %v", s, name, got)
			}
		}
		put := func(i int, c uint) []byte { // coefficient i of the vector t
			ek := bytes.Clone(good)
			at := i / 2 * 3
			if i%2 == 0 {
				ek[at], ek[at+1] = byte(c), ek[at+1]&0xf0|byte(c>>8)
			} else {
				ek[at+1], ek[at+2] = ek[at+1]&15|byte(c<<4), byte(c>>4)
			}
			return ek
		}
		k, _, _ := s.params()
		for i := range n * k {
			f("the largest coefficient", put(i, q-1), nil)
			f("coefficient q", put(i, q), ErrKey)
			f("coefficient 4095", put(i, 4095), ErrKey)
		}
		// any seed ρ is legal
		rho := bytes.Clone(good)
		copy(rho[len(rho)-32:], bytes.Repeat([]byte{0xff}, 32))
		f("another rho", rho, nil)
		random := make([]byte, len(good))
		rand.Read(random)
		f("noise", random, ErrKey)
	}
}

func TestWipe(t *testing.T) {
	var e Engine
	ek := make([]byte, Strength512.EncapsulationKeyBytes())
	dk := e.GenerateKey(Strength512, ek)
	if e.seed != [SeedBytes]byte{} {
		t.Error("the seed of a key outlives its making")
	}
	c, key := make([]byte, Strength512.CiphertextBytes()), make([]byte, SharedKeyBytes)
	if e.Encapsulate(Strength512, Encapsulation{ek, c, key}) != nil || e.mh != (Engine{}).mh || e.kr != (Engine{}).kr {
		t.Error("the message of an encapsulation, or its key, outlives it")
	}
	dk.Wipe()
	defer func() {
		if recover() == nil {
			t.Error("a wiped key was used without a panic")
		}
	}()
	dk.Decapsulate(key, c)
}

func FuzzCheckKey(f *testing.F) {
	var e Engine
	for _, s := range strengths {
		ek := make([]byte, s.EncapsulationKeyBytes())
		e.GenerateKey(s, ek)
		f.Add(uint8(s/256-2), ek)
	}
	f.Add(uint8(2), make([]byte, 1567))
	f.Fuzz(func(t *testing.T, which uint8, ek []byte) {
		s := strengths[int(which)%len(strengths)]
		if a, b := CheckKey(s, ek), parse(s, ek); a != b {
			t.Errorf("check says %v, parse says %v", a, b)
		}
	})
}
