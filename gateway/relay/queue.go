package relay

import (
	"sluice/codec/ws"
	"sluice/ledger"
)

// outbound is what waits to be written to a socket: a queue of parcels behind
// the kernel's send buffer, empty as long as the kernel takes everything.
type outbound struct {
	head, tail *parcel
	d          ledger.Delivery
	parcels    int    // in the queue
	pong       []byte // payload of the one pong that waits, if pongWaits
	pongWaits  bool
	over       bool // its sources must not be read
	syncing    bool // a watchdog sync is among the parcels
}

// maxPump bounds the bytes of one write: more than any send buffer takes.
const maxPump = 4 << 20

// mostLag is how many parcels a client with siblings may be behind, whatever is
// in them: each keeps a block, and so many of the least are the bytes that it may
// be behind. A source whose frames come one a read makes a parcel of each.
const mostLag = ledger.SiblingLag / leastBlock

// idle reports whether a write would not overtake anything.
func (k *sock) idle() bool {
	return k.out.head == nil && !k.out.pongWaits && k.c.Writable() && !k.broken
}

// enqueue puts p behind everything that waits.
func (k *sock) enqueue(p *parcel) {
	if k.out.tail == nil {
		k.out.head = p
	} else {
		k.out.tail.next = p
	}
	k.out.tail = p
	k.out.parcels++
	k.shard.led.Refuse(&k.out.d, int64(p.n))
}

// popHead takes the first parcel, which is written or given up, off the queue.
func (k *sock) popHead() {
	p := k.out.head
	if k.out.head = p.next; k.out.head == nil {
		k.out.tail = nil
	}
	k.out.parcels--
	k.shard.led.Accept(&k.out.d, int64(p.n))
	k.shard.freeParcel(p)
}

// pump writes what waits until it is written or the kernel refuses.
func (k *sock) pump() {
	s := k.shard
	for k.state < lingering && !k.broken && k.c.Writable() {
		k.placePong()
		if k.out.head == nil {
			break
		}
		v := s.l.Vec()
		for p := k.out.head; p != nil && !v.Full() && v.Size() < maxPump; p = p.next {
			p.addTo(v, maxPump-v.Size())
		}
		n, err := k.c.Writev(v)
		if err != nil {
			s.breakLater(k)
			break
		}
		if f := s.relay.cfg.Forwarded; f != nil && n > 0 && k.state == open && k.kind != kindControl {
			f(k.tenure)
		}
		if k.wrote(n) {
			return
		}
	}
	k.pressure()
}

// wrote accounts for n bytes that the kernel took. It reports whether the close
// frame was among them, and with it the socket is out of our hands.
func (k *sock) wrote(n int) (closed bool) {
	s := k.shard
	k.sentB += int64(n)
	for n > 0 {
		p := k.out.head
		m := min(n, p.n)
		s.sent(p, m)
		s.led.Accept(&k.out.d, int64(m))
		n -= m
		if p.n == 0 {
			closed = p.closing
			k.popHead()
		}
	}
	if k.out.head == nil {
		k.out.syncing = false
	}
	if closed {
		k.linger()
	}
	return closed
}

// pressure tells the sources of k whether it holds them up.
func (k *sock) pressure() {
	over, changed := k.out.d.Over(k.kind == kindClient && k.ch != nil && k.ch.clients > 1 && k.out.parcels < mostLag)
	if !changed {
		return
	}
	k.out.over = over
	switch {
	case k.ch == nil:
	case k.kind == kindClient || k.kind == kindV1Client:
		k.ch.clientOver(over)
	default:
		if !over {
			k.shard.drained(k.ch)
		}
	}
	if k.kind == kindControl && !over {
		k.unhold(holdGate)
	}
}

// placePong puts the waiting pong where it belongs: behind the frame in flight
// and in front of everything else.
func (k *sock) placePong() {
	if !k.out.pongWaits {
		return
	}
	p := k.shard.controlParcel(k.shard.ownFrame(ws.OpPong, k.out.pong))
	p.pong = true
	k.out.pongWaits = false
	k.insert(p)
	if q := p.next; q != nil && q.pong {
		// The kernel has refused it. The younger one answers for both.
		if p.next = q.next; p.next == nil {
			k.out.tail = p
		}
		k.out.parcels--
		k.shard.led.Accept(&k.out.d, int64(q.n))
		k.shard.freeParcel(q)
	}
}

// pongUnderway reports whether a pong waits, or is in front of the queue.
func (k *sock) pongUnderway() bool {
	h := k.out.head
	return k.out.pongWaits || h != nil && (h.pong || h.next != nil && h.next.pong)
}

// controlParcel makes a parcel of a whole body of ours.
func (s *shard) controlParcel(b *body) *parcel {
	n := 0
	for x := b.head; x != nil; x = x.next {
		n += x.end - x.off
	}
	p := s.parcelOf(b, b.head, b.head.off, n, s.l.Now())
	p.control = true
	return p
}

// insert puts p behind the frame in flight, if any, and in front of the rest.
func (k *sock) insert(p *parcel) {
	k.out.parcels++
	k.shard.led.Refuse(&k.out.d, int64(p.n))
	h := k.out.head
	if h == nil || !h.begun || h.left == 0 {
		p.next = h
		k.out.head = p
	} else {
		k.splitFlight()
		p.next = h.next
		h.next = p
	}
	if p.next == nil {
		k.out.tail = p
	}
}

// splitFlight makes the rest of the frame in flight a parcel of its own.
func (k *sock) splitFlight() {
	h := k.out.head
	if h == nil || !h.begun || h.left == 0 || h.n == h.left {
		return
	}
	at, off, n := h.at, h.off, h.left
	for n > 0 {
		m := min(n, at.end-off)
		off += m
		n -= m
		if off == at.end && at.next != nil {
			at, off = at.next, at.next.off
		}
	}
	rest := k.shard.parcelOf(h.body, at, off, h.n-h.left, h.since)
	rest.control, rest.closing = h.control, h.closing
	h.closing = false
	h.n = h.left
	rest.next = h.next
	h.next = rest
	k.out.parcels++
	if k.out.tail == h {
		k.out.tail = rest
	}
}

// cutFlight takes everything that is not in flight off the queue and returns it.
func (k *sock) cutFlight() (rest *parcel) {
	k.splitFlight()
	h := k.out.head
	if h != nil && h.begun && h.left > 0 {
		rest, h.next, k.out.tail = h.next, nil, h
	} else {
		rest, k.out.head, k.out.tail = h, nil, nil
	}
	for p := rest; p != nil; p = p.next {
		k.out.parcels--
		k.shard.led.Accept(&k.out.d, int64(p.n))
	}
	return rest
}

// dropParcels gives parcels up.
func (s *shard) dropParcels(p *parcel) {
	for p != nil {
		next := p.next
		s.freeParcel(p)
		p = next
	}
}

// dropQueue gives up everything that waits, the frame in flight included.
func (k *sock) dropQueue() {
	for k.out.head != nil {
		k.popHead()
	}
	k.out.pongWaits = false
	k.pressure()
}
