package loop

import (
	"bytes"
	"testing"
)

func TestBuffers(t *testing.T) {
	const keptBytes = 1 << 20
	p := NewBuffers(keptBytes, 4<<10, 16<<10, 256<<10)
	for _, size := range p.sizes {
		for _, n := range []int{size - 1, size} {
			b := p.Get(n)
			if len(b) != 0 || cap(b) != size {
				t.Fatalf("for %d bytes: %d", n, cap(b))
			}
			b = append(b, 1)
			p.Put(b)
			if again := p.Get(n); &again[:1][0] != &b[0] || len(again) != 0 {
				t.Fatal("a buffer given back is not used again")
			}
		}
	}
	largest := p.sizes[len(p.sizes)-1]
	if b := p.Get(largest + 1); cap(b) != largest+1 {
		t.Fatalf("over the classes: %d", cap(b))
	}
	for range 3 * keptBytes / largest {
		p.Put(make([]byte, 0, largest))
	}
	if n := len(p.free[len(p.free)-1]); n != keptBytes/largest {
		t.Fatalf("%d of the largest are kept", n)
	}

	var b, want []byte
	for i := range 2000 {
		piece := bytes.Repeat([]byte{byte(i)}, i)
		b = p.Grow(b, piece)
		want = append(want, piece...)
	}
	if !bytes.Equal(b, want) {
		t.Fatal("grown wrongly")
	}
}
