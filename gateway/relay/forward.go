package relay

import (
	"sluice/codec/ws"
	"sluice/ledger"
	"sluice/loop"
)

// inPlaceCopy is the payload from which a frame stays where it was read and
// gets a write vector of its own; smaller ones are moved together, unmasked in
// the same pass.
const inPlaceCopy = 4 << 10

// leastRuns is what a message in front leaves of a write vector.
const leastRuns = 64

// mostBlocks is how many blocks a message may lie in. The largest fills 512 of
// 64 KiB behind a few small ones, however it was cut: see sock.room and
// sock.readDirect, which alone make a message longer.
const mostBlocks = loop.MaxVec - leastRuns

// mostWrites is how many writes one read may cause before the rest of it waits
// for the loop's next turn. Messages that are gathered go out one by one, be they
// of a byte: thousands in a read, times the destinations, would hold up everybody.
const mostWrites = 256

// batch is what one read of one source brings for its destinations: at most one
// message that had been gathered before, then whole messages that lie in the
// loop's buffer. It is written before the buffer is used again; what a
// destination refuses is copied. One exists per loop.
type batch struct {
	k   *sock
	s   *shard
	buf []byte

	vec        loop.Vec
	lead       *body // goes first
	leadSize   int
	start, end int // the open run of frames in buf
	at, size   int // the frame that place wrote and commit adds
	frames     int
	writes     int           // that the read has caused, refused ones included
	payload    int64         // of all frames
	charge     ledger.Charge // of the frames in buf
}

func (t *batch) begin(k *sock, buf []byte) {
	t.k, t.buf = k, buf
	t.start, t.end, t.frames, t.payload, t.writes = 0, 0, 0, 0, 0
}

// place unmasks the payload src, which lies at buf[pos:], and writes its frame
// where it will leave from. It returns the payload in its new place. Nothing is
// sent before commit.
func (t *batch) place(pos, size int, src []byte, mask uint32, op ws.Opcode) []byte {
	head := ws.HeaderLen(size)
	if size < inPlaceCopy {
		// Our header is four bytes shorter than the client's, so there is
		// always room between the end of the last frame and the payload.
		t.at, t.size = t.end, head+size
		dst := t.buf[t.end+head : t.end+head+size]
		ws.MaskCopy(dst, src, mask)
		ws.PutHeader(t.buf[t.end:], op, size)
		return dst
	}
	t.at, t.size = pos-head, head+size
	ws.Mask(src, mask)
	ws.PutHeader(t.buf[t.at:], op, size)
	return src
}

// commit adds the frame of the last place, of size payload bytes. Its charge
// is part of pre.
func (t *batch) commit(size int, pre *ledger.Charge) {
	ledger.Move(&t.charge, pre, int64(size))
	if t.at != t.end {
		t.closeRun()
		t.start = t.at
	}
	t.end = t.at + t.size
	t.frames++
	t.payload += int64(size)
	t.s.count.Frame(size)
	if t.vec.Len() >= loop.MaxVec-1 {
		t.send()
	}
}

// closeRun makes the open run of frames an entry of the vector.
func (t *batch) closeRun() {
	if t.end > t.start {
		t.vec.Add(t.buf[t.start:t.end])
	}
	t.start = t.end
}

// addBody adds a message that was gathered. What is there already goes out
// first, so that the message leads what follows it. It reports false, and frees
// the message, if that lies in more than mostBlocks: how a message is cut is its
// sender's choice, so a fault in that reckoning must not be everybody's end.
func (t *batch) addBody(b *body, payload int) bool {
	if t.frames > 0 {
		t.send()
	}
	size, blocks := 0, 0
	for x := b.head; x != nil; x = x.next {
		size += x.end - x.off
		blocks++
	}
	if blocks > mostBlocks {
		t.s.free(b)
		return false
	}
	t.lead, t.leadSize = b, size
	t.frames, t.payload = 1, int64(payload)
	t.s.count.Frame(payload)
	for x := b.head; x != nil; x = x.next {
		if x.end > x.off {
			t.vec.Add(x.bytes())
		}
	}
	return true
}

// flush sends what is in the batch.
func (t *batch) flush() {
	if t.frames > 0 {
		t.send()
	}
}

// send hands the batch to its destinations and empties it. Charges go with the
// bytes that wait, or return.
func (t *batch) send() {
	t.closeRun()
	k, s := t.k, t.s
	switch {
	case k.ch == nil: // k left its session in the middle of the read
	case k.kind == kindData:
		t.fanOut()
	case k.peer() != nil:
		t.sendTo(k.peer())
	case k.kind == kindClient:
		b, _ := t.rest(0)
		k.ch.await(k, s.parcelOf(b, b.head, b.head.off, t.vec.Size(), s.l.Now()))
	default: // v1 without a peer
	}
	t.vec.Reset()
	if t.lead != nil {
		s.free(t.lead) // not before: the vector looks into its blocks
	}
	t.lead, t.leadSize = nil, 0
	t.frames, t.payload = 0, 0
	s.giveBack(&t.charge, t.charge.Bytes())
}

// sendTo writes the batch to one destination and queues what it refuses.
func (t *batch) sendTo(d *sock) {
	if d.broken {
		return // it is only read to its end
	}
	n := t.offer(d)
	if n == t.vec.Size() {
		t.s.deliveredAtOnce(t.frames, t.payload)
		return
	}
	b, base := t.rest(n)
	t.queue(d, b, base, n)
}

// fanOut writes the batch to every client of a data socket. What some refuse is
// copied once and shared by them.
func (t *batch) fanOut() {
	s, total := t.s, t.vec.Size()
	taken := s.taken[:0]
	least := total
	for d := t.k.ch.first; d != nil; d = d.nextSib {
		if d.broken {
			taken = append(taken, total) // it is only read to its end
			continue
		}
		n := t.offer(d)
		taken = append(taken, n)
		least = min(least, n)
		if n == total {
			s.deliveredAtOnce(t.frames, t.payload)
		}
	}
	s.taken = taken
	if least == total {
		return
	}
	b, base := t.rest(least)
	b.shared = true
	b.refs++ // held until everybody who needs it has a parcel
	i := 0
	for d := t.k.ch.first; d != nil; d = d.nextSib {
		if n := taken[i]; n < total {
			t.queue(d, b, base, n)
		}
		i++
	}
	s.release(b)
}

// rest makes a body of what follows the first n bytes of the batch, from the
// beginning of the frame there: base is how many bytes of the batch are not in
// it. The charge of the frames in front is returned.
func (t *batch) rest(n int) (b *body, base int) {
	s := t.s
	runs := 0
	if t.lead != nil {
		for x := t.lead.head; x != nil; x = x.next {
			if x.end > x.off {
				runs++
			}
		}
	}
	if t.lead != nil && n < t.leadSize {
		b, t.lead = t.lead, nil
	} else {
		base = t.leadSize
		b = s.newBody()
	}
	paid, found := 0, base == 0 && t.leadSize > 0
	for ; runs < t.vec.Len(); runs++ {
		run := t.vec.Bytes(runs)
		for !found && len(run) > 0 {
			head, pay := ourFrame(run)
			if found = base+head+pay > n; !found {
				base += head + pay
				paid += pay
				run = run[head+pay:]
			}
		}
		s.append(b, run)
	}
	s.giveBack(&t.charge, int64(paid))
	ledger.Move(&b.charge, &t.charge, t.charge.Bytes())
	return b, base
}

// queue puts the batch behind what waits for d, which has taken its first n
// bytes. b holds it from base on.
func (t *batch) queue(d *sock, b *body, base, n int) {
	s := t.s
	p := s.parcelOf(b, b.head, b.head.off, t.vec.Size()-base, s.l.Now())
	if base > 0 {
		s.deliveredAtOnce(t.before(base))
	}
	s.sent(p, n-base)
	d.enqueue(p)
	if d.accounted() > s.relay.cfg.SocketMemory {
		s.fuseLater(d)
	}
	d.pressure()
	d.arm()
}

// before counts the frames in the first n bytes of the batch.
func (t *batch) before(n int) (frames int, payload int64) {
	var h [headerRoom]byte
	need := 0 // bytes of the frame under way that lie in further entries
	for i := 0; i < t.vec.Len() && n > 0; i++ {
		run := t.vec.Bytes(i)
		run = run[:min(len(run), n)]
		n -= len(run)
		if need >= len(run) {
			need -= len(run)
			continue
		}
		for run = run[need:]; len(run) > 0; {
			copy(h[:], run)
			head, pay := ourFrame(h[:])
			frames++
			payload += int64(pay)
			if head+pay > len(run) {
				need = head + pay - len(run)
				break
			}
			run, need = run[head+pay:], 0
		}
	}
	return frames, payload
}

// offer writes the batch to d, if nothing waits there, and returns how many
// bytes d took.
func (t *batch) offer(d *sock) int {
	t.writes++
	if !d.idle() {
		return 0
	}
	n, err := d.c.Writev(&t.vec)
	if err != nil {
		t.s.breakLater(d)
		return 0
	}
	d.sentB += int64(n)
	if f := t.s.relay.cfg.Forwarded; f != nil && n > 0 {
		f(d.tenure)
	}
	return n
}
