package mte

// Buffers of frames that have not arrived whole, of answers that must wait, and of
// control calls come in a few fixed sizes. The largest holds a pairing of 100, or
// its answer.
var bufferClasses = [...]int{4 << 10, 16 << 10, 72 << 10, 256 << 10, bodyAhead}

// keptBytes is how much of each class a loop keeps for later.
const keptBytes = 2 << 20

// buffers is one loop's store of free buffers. grow and put are the only way in
// and out.
type buffers struct {
	free [len(bufferClasses)][][]byte
}

func (p *buffers) get(n int) []byte {
	for i, size := range bufferClasses {
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

// put takes a buffer back, which may be nil. It may hold plaintext, and is
// zeroed as far as it was filled.
func (p *buffers) put(b []byte) {
	clear(b)
	for i, size := range bufferClasses {
		if cap(b) == size {
			if len(p.free[i]) < keptBytes/size {
				p.free[i] = append(p.free[i], b[:0])
			}
			return
		}
	}
}

// grow appends data to b, which came from grow or is nil, and returns it, moved to
// a larger buffer if need be.
func (p *buffers) grow(b, data []byte) []byte {
	if need := len(b) + len(data); need > cap(b) {
		if need > bufferClasses[len(bufferClasses)-1] {
			need = max(need, 2*cap(b))
		}
		larger := append(p.get(need), b...)
		p.put(b)
		b = larger
	}
	return append(b, data...)
}
