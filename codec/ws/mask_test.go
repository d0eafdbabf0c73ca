package ws

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

// slowMask is what every path must agree with.
func slowMask(b []byte, key uint32) uint32 {
	for i := range b {
		b[i] ^= byte(key)
		key = key>>8 | key<<24
	}
	return key
}

// maskSizes are the lengths around every border inside Mask.
func maskSizes() (sizes []int) {
	for n := range 300 {
		sizes = append(sizes, n)
	}
	for _, border := range []int{512, maskBlock, maskVectorMin, maskVectorMin + maskBlock} {
		for d := -9; d <= 9; d++ {
			sizes = append(sizes, border+d)
		}
	}
	return append(sizes, 65536, 65537+33)
}

func randomBytes(r *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

func TestMask(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, n := range maskSizes() {
		for offset := range 9 {
			buf := randomBytes(r, offset+n+8)
			want := bytes.Clone(buf)
			key := r.Uint32()
			wantKey := slowMask(want[offset:offset+n], key)
			gotKey := Mask(buf[offset:offset+n], key)
			if !bytes.Equal(buf, want) || gotKey != wantKey {
				t.Fatalf("Mask of %d bytes at offset %d differs from the slow one", n, offset)
			}
		}
	}
}

// A payload masked in pieces is the payload masked at once, wherever it is cut.
func TestMaskPieces(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	plain := randomBytes(r, 700)
	want := bytes.Clone(plain)
	const key = 0xa1b2c3d4
	wantKey := slowMask(want, key)
	for cut := range plain {
		got := bytes.Clone(plain)
		k := Mask(got[:cut], key)
		k = Mask(got[cut:], k)
		if !bytes.Equal(got, want) || k != wantKey {
			t.Fatalf("cut at %d: differs from the slow one", cut)
		}
		k = MaskCopy(got[:cut], plain[:cut], key)
		k = MaskCopy(got[cut:], plain[cut:], k)
		if !bytes.Equal(got, want) || k != wantKey {
			t.Fatalf("copy cut at %d: differs from the slow one", cut)
		}
	}
}

// Every distance from in place to no overlap at all. The bytes before dst and behind src stay as they are.
func TestMaskCopyOverlap(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	f := func(n, distance int) {
		t.Helper()
		buf := randomBytes(r, 8+distance+n+8)
		key := r.Uint32()
		want := bytes.Clone(buf)
		masked := bytes.Clone(buf[8+distance : 8+distance+n])
		wantKey := slowMask(masked, key)
		copy(want[8:], masked)
		gotKey := MaskCopy(buf[8:8+n], buf[8+distance:8+distance+n], key)
		if !bytes.Equal(buf, want) || gotKey != wantKey {
			t.Fatalf("MaskCopy of %d bytes by %d differs from the slow one", n, distance)
		}
	}
	for distance := range 150 {
		for n := range 300 {
			f(n, distance)
		}
	}
	for _, n := range []int{maskBlock, maskVectorMin - 1, maskVectorMin, 3*maskBlock + 77} {
		for distance := range 70 {
			f(n, distance)
		}
		for _, distance := range []int{127, 128, 129, maskBlock - 1, maskBlock, maskBlock + 1, n - 1, n, n + 1} {
			f(n, distance)
		}
	}
}

// dst may be any other memory, and be longer than src.
func TestMaskCopyApart(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	for _, n := range maskSizes() {
		src := randomBytes(r, n)
		buf := randomBytes(r, n+5)
		tail := bytes.Clone(buf[n:])
		want := bytes.Clone(src)
		key := r.Uint32()
		wantKey := slowMask(want, key)
		gotKey := MaskCopy(buf, src, key)
		if !bytes.Equal(buf[:n], want) || !bytes.Equal(buf[n:], tail) || gotKey != wantKey {
			t.Fatalf("MaskCopy of %d bytes differs from the slow one", n)
		}
	}
	// dst behind src without a common byte
	buf := make([]byte, 400)
	MaskCopy(buf[200:], buf[:200], 1)
}

func TestMaskCopyWrongWay(t *testing.T) {
	for _, n := range []int{2, 64, 4096} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("MaskCopy of %d bytes onto what it has still to read did not panic", n)
				}
			}()
			b := make([]byte, n+1)
			MaskCopy(b[1:], b[:n], 1)
		}()
	}
}

func FuzzMaskCopy(f *testing.F) {
	f.Add([]byte("hello hello hello hello hello hello hello"), uint32(0x01020304), uint16(4))
	f.Add(make([]byte, 5000), uint32(0xff00ff00), uint16(1024))
	f.Fuzz(func(t *testing.T, b []byte, key uint32, distance uint16) {
		d := int(distance)
		if d > len(b) {
			d = len(b)
		}
		want := bytes.Clone(b[d:])
		wantKey := slowMask(want, key)
		if k := MaskCopy(b, b[d:], key); k != wantKey || !bytes.Equal(b[:len(want)], want) {
			t.Fatalf("MaskCopy of %d bytes by %d differs from the slow one", len(want), d)
		}
	})
}
