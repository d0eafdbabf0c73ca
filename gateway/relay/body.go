package relay

import (
	"sluice/codec/ws"
	"sluice/ledger"
	"sluice/loop"
)

// A body is a run of bytes on their way to one destination or several: whole
// frames as they go out, or a message that is still coming in. It belongs to
// its loop. Its charge is the token of the messages in it: payload bytes
// reserved of the ingress budget, returned as the last destination is done.
type body struct {
	head, tail *block
	refs       int32 // parcels that still need it
	shared     bool  // for several destinations: the charge is returned whole, at the end
	charge     ledger.Charge
	nextFree   *body
}

func (s *shard) newBody() *body {
	b := s.freeBodies
	if b == nil {
		return new(body)
	}
	s.freeBodies = b.nextFree
	*b = body{}
	return b
}

// release drops one need of the body; the last frees its memory and returns
// what is left of its charge.
func (s *shard) release(b *body) {
	if b.refs--; b.refs > 0 {
		return
	}
	if b.refs < 0 {
		panic("BUG: a body released twice")
	}
	s.free(b)
}

// free gives a body's memory and charge back.
func (s *shard) free(b *body) {
	s.giveBack(&b.charge, b.charge.Bytes())
	for k := b.head; k != nil; {
		next := k.next
		s.blocks.put(k)
		k = next
	}
	b.head, b.tail = nil, nil
	b.nextFree = s.freeBodies
	s.freeBodies = b
}

// push adds a block behind the others.
func (b *body) push(k *block) {
	if b.tail == nil {
		b.head = k
	} else {
		b.tail.next = k
	}
	b.tail = k
}

// append copies p behind the bytes of the body.
func (s *shard) append(b *body, p []byte) {
	for len(p) > 0 {
		if b.tail == nil || len(b.tail.space()) == 0 {
			b.push(s.blocks.get(len(p)))
		}
		n := copy(b.tail.space(), p)
		b.tail.end += n
		p = p[n:]
	}
}

// A parcel is a part of a body in one destination's queue. Parcels of data hold
// whole frames; a frame of which a byte has been written is in flight, and
// nothing may come between its bytes.
type parcel struct {
	next *parcel
	body *body
	at   *block // where the unsent bytes begin
	off  int    // in at.buf
	n    int    // unsent bytes

	// left and pay describe the frame at the front once its header has been
	// looked at: unsent bytes of it, and its payload. left > 0 with a byte of
	// the frame sent means in flight.
	left, pay int
	begun     bool

	control bool  // a frame of ours: it holds no token
	pong    bool  // a pong, alone
	since   int64 // when its newest message was complete
	from    *sock // while it waits for a data socket: who sent it
	closing bool  // ends with our close frame
}

func (s *shard) newParcel() *parcel {
	p := s.freeParcels
	if p == nil {
		return new(parcel)
	}
	s.freeParcels = p.next
	*p = parcel{}
	return p
}

func (s *shard) freeParcel(p *parcel) {
	s.release(p.body)
	p.body, p.at, p.from = nil, nil, nil
	p.next = s.freeParcels
	s.freeParcels = p
}

// parcelOf makes a parcel of n bytes of b, which begin at off of block at.
func (s *shard) parcelOf(b *body, at *block, off, n int, since int64) *parcel {
	p := s.newParcel()
	b.refs++
	p.body, p.at, p.off, p.n, p.since = b, at, off, n, since
	return p
}

// addTo puts the unsent bytes, at most limit of them, into v as far as it has room.
func (p *parcel) addTo(v *loop.Vec, limit int) {
	k, off := p.at, p.off
	for n := min(p.n, limit); n > 0 && !v.Full(); k, off = k.next, k.nextOff() {
		part := k.buf[off:k.end]
		if len(part) > n {
			part = part[:n]
		}
		if len(part) > 0 {
			v.Add(part)
		}
		n -= len(part)
	}
}

// nextOff is where the bytes of the block behind k begin.
func (k *block) nextOff() int {
	if k.next == nil {
		return 0
	}
	return k.next.off
}

// frame looks at the header of the frame at the front.
func (p *parcel) frame() {
	var h [headerRoom]byte
	n := 0
	for k, off := p.at, p.off; n < len(h) && k != nil; k, off = k.next, k.nextOff() {
		n += copy(h[n:], k.buf[off:k.end])
	}
	head, pay := ourFrame(h[:n])
	p.left, p.pay, p.begun = head+pay, pay, false
}

// ourFrame measures a frame of ours, which is never masked.
func ourFrame(h []byte) (head, payload int) {
	switch l := int(h[1]); l {
	case 126:
		return 4, int(h[2])<<8 | int(h[3])
	case 127:
		n := 0
		for _, x := range h[2:10] {
			n = n<<8 | int(x)
		}
		return 10, n
	default:
		return 2, l
	}
}

// advance moves the front by n bytes and frees what nobody needs any more.
func (s *shard) advance(p *parcel, n int) {
	p.n -= n
	for n > 0 {
		m := min(n, p.at.end-p.off)
		p.off += m
		n -= m
		if p.off == p.at.end && p.at.next != nil {
			p.at, p.off = p.at.next, p.at.next.off
			s.trim(p)
		}
	}
}

// trim frees the blocks in front of p when nobody else needs them.
func (s *shard) trim(p *parcel) {
	if p.body.refs > 1 {
		return
	}
	for b := p.body; b.head != p.at; {
		done := b.head
		b.head = done.next
		s.blocks.put(done)
	}
}

// sent accounts for n bytes that the destination took: frames that are complete
// return their tokens.
func (s *shard) sent(p *parcel, n int) {
	for n > 0 {
		if p.left == 0 {
			p.frame()
		}
		m := min(n, p.left)
		s.advance(p, m)
		p.left -= m
		p.begun = true
		n -= m
		if p.left == 0 && !p.control {
			s.delivered(p.pay, s.l.Now()-p.since)
			if !p.body.shared {
				s.giveBack(&p.body.charge, int64(p.pay))
			}
		}
	}
}

// ownFrame makes a body of one frame of ours.
func (s *shard) ownFrame(op ws.Opcode, payload []byte) *body {
	b := s.newBody()
	var h [headerRoom]byte
	n := ws.PutHeader(h[:], op, len(payload))
	s.append(b, h[:n])
	s.append(b, payload)
	return b
}
