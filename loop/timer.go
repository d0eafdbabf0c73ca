package loop

import (
	"math"
	"math/bits"
)

const (
	tickShift  = 22 // a tick is 2^22 ns, about 4.2 ms
	wheelBits  = 6
	wheelSlots = 1 << wheelBits
	wheelMask  = wheelSlots - 1
	// wheelLevels × wheelBits bits of ticks reach 52 days; a timer further away
	// is looked at again when that time has passed. One at never is never due.
	wheelLevels = 5
	maxTicks    = 1<<(wheelBits*wheelLevels) - 1

	never = math.MaxInt64
)

// A TimerHandler is told when its Timer's time has come.
type TimerHandler interface{ OnTimer(now int64) }

// A Timer is a deadline on one loop's wheel. The zero value is a stopped timer;
// it is embedded in what it serves and belongs to that loop's goroutine.
type Timer struct {
	next, prev *Timer
	when       int64 // nanoseconds; valid while on the wheel
	h          TimerHandler
	w          *wheel // nil while stopped
}

// Active reports whether the timer is running.
func (t *Timer) Active() bool { return t.w != nil }

// When returns the deadline of a running timer.
func (t *Timer) When() int64 { return t.when }

// Stop takes the timer off its wheel. Stopping a stopped timer does nothing.
func (t *Timer) Stop() {
	if t.w == nil {
		return
	}
	t.next.prev, t.prev.next = t.prev, t.next
	t.next, t.prev, t.w = nil, nil, nil
}

// StartTimer sets t to call h at the time when, once; a running timer is moved.
// It fires up to a tick (4.2 ms) late and never early. Timers that became due
// while the loop was busy fire in no particular order.
func (l *Loop) StartTimer(t *Timer, when int64, h TimerHandler) {
	t.Stop()
	t.h = h
	t.when = when
	l.wheel.insert(t)
}

// wheel is a hierarchical timing wheel: levels of 64 slots, each slot of a level
// as wide as the whole level below. Setting and stopping a timer are a few
// pointer moves; only a timer that is really waited for trickles down.
type wheel struct {
	tick  int64 // all slots up to this tick have been emptied
	slots [wheelLevels][wheelSlots]Timer
	used  [wheelLevels]uint64 // slots that may hold timers
	soon  int64               // a lower bound for the next deadline, in nanoseconds
	due   Timer               // head of the timers taken out of a slot, see empty
}

func (w *wheel) init(now int64) {
	w.tick = now >> tickShift
	w.soon = never
	for i := range w.slots {
		for j := range w.slots[i] {
			s := &w.slots[i][j]
			s.next, s.prev = s, s
		}
	}
}

func (w *wheel) insert(t *Timer) {
	e := t.when >> tickShift
	if t.when&(1<<tickShift-1) != 0 {
		e++ // round up: never early
	}
	d := e - w.tick
	switch {
	case d < 1:
		d = 1
	case d > maxTicks:
		d = maxTicks
	}
	e = w.tick + d
	level := (bits.Len64(uint64(d)) - 1) / wheelBits
	slot := (e >> (level * wheelBits)) & wheelMask
	// A slot of a higher level is emptied when its first tick begins. The slot we
	// are in has been: what goes there now is for its next round, 64 slots on.
	s := &w.slots[level][slot]
	w.used[level] |= 1 << slot
	t.w, t.next, t.prev = w, s, s.prev
	s.prev.next, s.prev = t, t
	if at := (e &^ (1<<(level*wheelBits) - 1)) << tickShift; at < w.soon {
		w.soon = at
	}
}

// next returns a time before which no timer is due.
func (w *wheel) next() int64 { return w.soon }

// advance fires what is due at now.
func (w *wheel) advance(now int64) {
	target := now >> tickShift
	for w.tick < target {
		w.tick = min(w.scan()>>tickShift, target)
		for level := 1; level < wheelLevels && w.tick&(1<<(level*wheelBits)-1) == 0; level++ {
			w.empty(level, (w.tick>>(level*wheelBits))&wheelMask, now)
		}
		w.empty(0, w.tick&wheelMask, now)
	}
	w.soon = w.scan()
}

// empty takes every timer out of a slot: due ones fire, others go where they
// belong now.
func (w *wheel) empty(level int, slot int64, now int64) {
	if w.used[level]&(1<<slot) == 0 {
		return
	}
	w.used[level] &^= 1 << slot
	s := &w.slots[level][slot]
	if s.next == s {
		return
	}
	// The list moves to a head of its own: a timer set again by its handler
	// must not be met in this pass.
	head := &w.due
	head.next, head.prev = s.next, s.prev
	head.next.prev, head.prev.next = head, head
	s.next, s.prev = s, s
	for head.next != head {
		t := head.next
		t.Stop()
		if t.when <= now {
			t.h.OnTimer(now)
		} else {
			w.insert(t)
		}
	}
}

// scan finds the earliest opening of a slot in use, after the current tick.
func (w *wheel) scan() int64 {
	best := int64(never)
	for level := range wheelLevels {
		if w.used[level] == 0 {
			continue
		}
		shift := level * wheelBits
		cur := w.tick >> shift
		r := bits.RotateLeft64(w.used[level], -int((cur+1)&wheelMask))
		at := (cur + 1 + int64(bits.TrailingZeros64(r))) << shift << tickShift
		best = min(best, at)
	}
	return best
}
