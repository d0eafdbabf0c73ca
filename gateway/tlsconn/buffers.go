package tlsconn

// What a connection keeps between calls, ciphertext only, comes in a few fixed
// sizes. The largest holds what a blocked connection can have.
var bufferClasses = [...]int{4 << 10, 24 << 10, keptOutput}

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

// put takes a buffer back, which may be nil.
func (p *buffers) put(b []byte) {
	for i, size := range bufferClasses {
		if cap(b) == size {
			if len(p.free[i]) < keptBytes/size {
				p.free[i] = append(p.free[i], b[:0])
			}
			return
		}
	}
}

// grow appends data to b, which came from grow or is nil, and returns it, moved
// to a larger buffer if need be.
func (p *buffers) grow(b, data []byte) []byte {
	if need := len(b) + len(data); need > cap(b) {
		larger := append(p.get(need), b...)
		p.put(b)
		b = larger
	}
	return append(b, data...)
}
