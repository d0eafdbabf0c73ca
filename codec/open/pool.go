package open

import "sync/atomic"

// Pools are the four pools of idle instances of a profile: encoders and decoders of both types.
// Every method may be called from anywhere and none waits: an empty pool makes an instance, a full
// one lets it go (contract, mte-relay §8).
type Pools struct {
	profile  Profile
	encoders [types]ring[Encoder]
	decoders [types]ring[Decoder]
}

// NewPools makes pools of size idle instances each (DEFAULT_POOL_SIZE, at least 1), full.
func NewPools(p Profile, size int) *Pools {
	s := &Pools{profile: p}
	for t := range Type(types) {
		s.encoders[t].init(size)
		s.decoders[t].init(size)
		for range size {
			e, d := p.NewEncoder(t), p.NewDecoder(t)
			handIn(e)
			handIn(d)
			s.encoders[t].put(e)
			s.decoders[t].put(d)
		}
	}
	return s
}

// Encoder takes an instance that is not keyed. It is the caller's alone until PutEncoder.
func (s *Pools) Encoder(t Type) Encoder {
	if e, ok := s.encoders[t].get(); ok {
		handOut(e)
		return e
	}
	return s.profile.NewEncoder(t)
}

// Decoder is the same for a decoder.
func (s *Pools) Decoder(t Type) Decoder {
	if d, ok := s.decoders[t].get(); ok {
		handOut(d)
		return d
	}
	return s.profile.NewDecoder(t)
}

// PutEncoder wipes an instance and gives it back. Nobody may use it afterwards; giving it back twice
// is a bug that panics.
func (s *Pools) PutEncoder(e Encoder) {
	handIn(e)
	e.Wipe()
	s.encoders[e.Type()].put(e)
}

// PutDecoder is the same for a decoder.
func (s *Pools) PutDecoder(d Decoder) {
	handIn(d)
	d.Wipe()
	s.decoders[d.Type()].put(d)
}

// IdleEncoders and IdleDecoders are how many instances of a type wait, for gauges.
func (s *Pools) IdleEncoders(t Type) int { return s.encoders[t].len() }
func (s *Pools) IdleDecoders(t Type) int { return s.decoders[t].len() }

// lease marks an instance as lying in a pool. One that came back twice would be handed to two
// requests, which would encrypt with each other's keys.
type lease struct{ idle atomic.Bool }

func (l *lease) leased() *lease { return l }

// leaser is what our instances are; those of other profiles may do without.
type leaser interface{ leased() *lease }

func handIn(instance any) {
	if l, ok := instance.(leaser); ok && !l.leased().idle.CompareAndSwap(false, true) {
		panic("BUG: a codec instance came back to its pool twice")
	}
}

func handOut(instance any) {
	if l, ok := instance.(leaser); ok {
		l.leased().idle.Store(false)
	}
}

// ring is a bounded queue without locks: each slot says whose turn it is (D. Vyukov's bounded queue,
// with a turn per lap so that any size works). A caller never waits for another; at worst it takes a
// slot in work for a full or an empty one.
type ring[T any] struct {
	slots []slot[T]
	_     [64]byte // the two ends are written by different cores
	tail  atomic.Uint64
	_     [56]byte
	head  atomic.Uint64
	_     [56]byte
}

// In lap n (position / size) a slot takes an instance at turn 2n, which makes it 2n+1, and gives it
// up at turn 2n+1, which makes it 2n+2.
type slot[T any] struct {
	turn  atomic.Uint64
	value T
}

func (r *ring[T]) init(size int) { r.slots = make([]slot[T], max(size, 1)) }

func (r *ring[T]) put(v T) bool {
	for {
		at := r.tail.Load()
		s, lap := r.slot(at)
		switch turn := s.turn.Load(); {
		case turn == 2*lap:
			if r.tail.CompareAndSwap(at, at+1) {
				s.value = v
				s.turn.Store(2*lap + 1)
				return true
			}
		case turn < 2*lap:
			return false // not taken out in the lap before: full
		}
		// otherwise another caller was here first and the end has moved
	}
}

func (r *ring[T]) get() (v T, ok bool) {
	for {
		at := r.head.Load()
		s, lap := r.slot(at)
		switch turn := s.turn.Load(); {
		case turn == 2*lap+1:
			if r.head.CompareAndSwap(at, at+1) {
				v = s.value
				s.value = *new(T)
				s.turn.Store(2*lap + 2)
				return v, true
			}
		case turn < 2*lap+1:
			return v, false // not put in yet: empty
		}
	}
}

func (r *ring[T]) slot(at uint64) (*slot[T], uint64) {
	size := uint64(len(r.slots))
	return &r.slots[at%size], at / size
}

func (r *ring[T]) len() int {
	head := r.head.Load() // first: the tail is never behind it
	return int(min(uint64(len(r.slots)), r.tail.Load()-head))
}
