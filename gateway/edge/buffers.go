package edge

// Buffers that connections hold come in a few fixed sizes, so that what one has
// given back fits the next one.
var bufferClasses = [...]int{4 << 10, 16 << 10, 64 << 10, 256 << 10}

// keptBytes is how much of each class a loop keeps for later.
const keptBytes = 4 << 20

// buffers is one loop's store of free buffers. get and put are the only way in
// and out; what was got may also be left to the garbage collector.
type buffers struct {
	free [len(bufferClasses)][][]byte
}

// get returns an empty buffer with room for at least n bytes.
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

// put takes a buffer back. The caller must not use it afterwards.
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

// grow appends data to b, which came from get or is nil, and returns it, moved
// to a larger buffer if need be.
func (p *buffers) grow(b, data []byte) []byte {
	if len(b)+len(data) > cap(b) {
		n := len(b) + len(data)
		if last := bufferClasses[len(bufferClasses)-1]; n > last {
			n = max(n, 2*cap(b)) // beyond the classes grow by doubling
		}
		larger := append(p.get(n), b...)
		if b != nil {
			p.put(b)
		}
		b = larger
	}
	return append(b, data...)
}
