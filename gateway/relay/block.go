package relay

// headerRoom is what the first block of a message keeps free in front of the
// payload: the longest header of a frame that we write.
const headerRoom = 10

// leastBlock is what a byte that is kept costs.
const leastBlock = 512

// blockSizes are the classes of memory that payload is kept in. The third holds
// a 16 KiB message with its header; the last is the contract's largest step.
var blockSizes = [...]int{leastBlock, 4 << 10, 20 << 10, 64 << 10}

// keepBlocks is how many free blocks of a class a loop keeps in any case. What
// is above goes back to the system, half of what was not needed every trimEvery.
var keepBlocks = [...]int{512, 128, 64, 32}

const trimEvery = int64(1e9)

// A block is a piece of kept payload or output. It belongs to one body, and
// with it to one loop.
type block struct {
	next     *block
	buf      []byte
	off, end int // the bytes in use
	class    uint8
}

func (b *block) bytes() []byte { return b.buf[b.off:b.end] }
func (b *block) space() []byte { return b.buf[b.end:] }

// blockPool is a loop's store of free blocks, one stack a class. A burst's
// blocks are kept as long as they are used again: allocating them anew would
// clear and fault in every byte of a large message.
type blockPool struct {
	free  [len(blockSizes)]*block
	n     [len(blockSizes)]int // free blocks
	least [len(blockSizes)]int // the fewest there were since the last trim
	freed int64                // bytes given up since the last look, see shard.OnTurn
}

func classFor(n int) int {
	for i, size := range blockSizes {
		if n <= size {
			return i
		}
	}
	return len(blockSizes) - 1
}

// get returns an empty block that holds n bytes, or the largest there is.
func (p *blockPool) get(n int) *block {
	class := classFor(n)
	b := p.free[class]
	if b == nil {
		return &block{buf: make([]byte, blockSizes[class]), class: uint8(class)}
	}
	p.free[class] = b.next
	p.n[class]--
	p.least[class] = min(p.least[class], p.n[class])
	b.next, b.off, b.end = nil, 0, 0
	return b
}

func (p *blockPool) put(b *block) {
	class := b.class
	b.next = p.free[class]
	p.free[class] = b
	p.n[class]++
}

// spare reports whether the pool holds more than it keeps in any case.
func (p *blockPool) spare() bool {
	for class, n := range p.n {
		if n > keepBlocks[class] {
			return true
		}
	}
	return false
}

// trim gives half of the blocks up that nobody has needed since the last time.
func (p *blockPool) trim() {
	for class := range p.n {
		unused := min(p.least[class], p.n[class]-keepBlocks[class])
		for range (unused + 1) / 2 {
			b := p.free[class]
			p.free[class] = b.next
			b.next = nil
			p.n[class]--
			p.freed += int64(len(b.buf))
		}
		p.least[class] = p.n[class]
	}
}
