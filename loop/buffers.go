package loop

// Buffers is one loop's store of free buffers in a few fixed sizes, so that what one
// connection has given back fits the next one. Get, Grow and Put are the only way in
// and out; what was got may also be left to the garbage collector. It belongs to the
// loop's goroutine.
type Buffers struct {
	sizes []int // rising, bytes
	kept  int   // bytes of each size
	free  [][][]byte
}

// NewBuffers makes a store of these sizes, rising, which keeps that many bytes of each.
func NewBuffers(kept int, sizes ...int) Buffers {
	return Buffers{sizes: sizes, kept: kept, free: make([][][]byte, len(sizes))}
}

// Get returns an empty buffer with room for at least n bytes.
func (p *Buffers) Get(n int) []byte {
	for i, size := range p.sizes {
		if n > size {
			continue
		}
		if k := len(p.free[i]); k > 0 {
			b := p.free[i][k-1]
			p.free[i][k-1] = nil
			p.free[i] = p.free[i][:k-1]
			return b
		}
		return make([]byte, 0, size)
	}
	return make([]byte, 0, n)
}

// Put takes a buffer back, which may be nil. The caller must not use it afterwards.
// It may hold plaintext, and is zeroed as far as it was filled.
func (p *Buffers) Put(b []byte) {
	clear(b)
	for i, size := range p.sizes {
		if cap(b) == size {
			if len(p.free[i]) < p.kept/size {
				p.free[i] = append(p.free[i], b[:0])
			}
			return
		}
	}
}

// Grow appends data to b, which came from here or is nil, and returns it, moved to
// a larger buffer if need be.
func (p *Buffers) Grow(b, data []byte) []byte {
	if need := len(b) + len(data); need > cap(b) {
		if need > p.sizes[len(p.sizes)-1] {
			need = max(need, 2*cap(b)) // beyond the sizes grow by doubling
		}
		larger := append(p.Get(need), b...)
		p.Put(b)
		b = larger
	}
	return append(b, data...)
}
