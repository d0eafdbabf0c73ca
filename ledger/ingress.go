package ledger

import (
	"slices"
	"sync"
	"time"
)

// A Charge is what one holder of payload bytes (a message, a queue, a stash)
// has reserved of the ingress budget. The zero value holds nothing. It belongs
// to the goroutine that owns the bytes; the bytes and their charge move together.
type Charge struct{ n int64 }

// Bytes returns the payload bytes charged.
func (c *Charge) Bytes() int64 { return c.n }

// Reserve adds n payload bytes to c if the budget can take them; none can
// always be had.
func (l *Ledger) Reserve(c *Charge, n int64) bool {
	if n < 0 {
		panic("BUG: a negative amount of ingress reserved")
	}
	w := n * l.lim.Weight
	for {
		// Not added and taken back: in between the account would be too high,
		// and another loop refused what there is room for.
		have := l.ingress.Load()
		if w > 0 && have+w > l.lim.Budget {
			return false
		}
		if l.ingress.CompareAndSwap(have, have+w) {
			c.n += n
			return true
		}
	}
}

// Count adds n payload bytes to c whatever the budget says: for bytes that were
// read already and cannot be refused any more, and for control input.
func (l *Ledger) Count(c *Charge, n int64) {
	if n < 0 {
		panic("BUG: a negative amount of ingress counted")
	}
	l.ingress.Add(n * l.lim.Weight)
	c.n += n
}

// Return gives n payload bytes of c back. It reports whether a source waits
// for budget, so that the caller can wake those that do.
func (l *Ledger) Return(c *Charge, n int64) (wake bool) {
	if n > c.n || n < 0 {
		panic("BUG: more ingress returned than was charged")
	}
	if n == 0 {
		return false
	}
	c.n -= n
	l.ingress.Add(-n * l.lim.Weight)
	return l.waiting.Load() > 0
}

// Move takes n payload bytes from one charge to another.
func Move(to, from *Charge, n int64) {
	if n > from.n || n < 0 {
		panic("BUG: more ingress moved than was charged")
	}
	from.n -= n
	to.n += n
}

// Room returns how many payload bytes the budget can take now; it can be negative.
func (l *Ledger) Room() int64 { return (l.lim.Budget - l.ingress.Load()) / l.lim.Weight }

// A Wait is a source's place among those that wait for budget. The zero value
// waits for nothing. It is embedded in the source and touched by its owner only;
// the ledger keeps a copy of what it needs to judge.
type Wait struct {
	id    uint64 // 0: not waiting
	until int64
}

// Active reports whether the source waits.
func (w *Wait) Active() bool { return w.id != 0 }

// Until returns when the wait ends, in nanoseconds.
func (w *Wait) Until() int64 { return w.until }

// waits holds the sources that wait, in no order; there are few, and none on
// the fast path.
type waits struct {
	mu   sync.Mutex
	list []waiter
}

type waiter struct {
	id    uint64 // grows with the age of the connection: the youngest has the highest
	held  int64  // payload bytes the source holds
	until int64
}

// StartWait begins a wait of the source id, which holds held payload bytes. A
// wait that goes on, since another try failed too, keeps its end. What another
// loop returned between the refused Reserve and StartWait woke nobody: the caller
// looks at Room once more afterwards.
func (l *Ledger) StartWait(w *Wait, id uint64, held, now int64) {
	until := now + int64(l.lim.IngressWait)
	l.waits.mu.Lock()
	defer l.waits.mu.Unlock()
	e := waiter{id, held, until}
	if i := l.waits.find(id); i >= 0 {
		e.until = l.waits.list[i].until
		l.waits.list[i] = e
	} else {
		l.waits.list = append(l.waits.list, e)
		l.waiting.Add(1)
	}
	*w = Wait{id, e.until}
}

// EndWait ends a wait, if there is one.
func (l *Ledger) EndWait(w *Wait) {
	if w.id == 0 {
		return
	}
	l.waits.mu.Lock()
	defer l.waits.mu.Unlock()
	i := l.waits.find(w.id)
	if i < 0 {
		panic("BUG: a wait for ingress ended twice")
	}
	l.waits.list = slices.Delete(l.waits.list, i, i+1)
	l.waiting.Add(-1)
	*w = Wait{}
}

func (s *waits) find(id uint64) int {
	return slices.IndexFunc(s.list, func(e waiter) bool { return e.id == id })
}

// together is how close the ends of waits must lie to count as one: what ends
// on different loops ends on different ticks.
const together = 20 * time.Millisecond

// Expired judges a wait whose time is up: true means that this source is to be
// closed. When several end together only the one that holds most is (of equal
// ones the youngest), and the others wait afresh, since what it held comes free.
// After false the time to judge again is w.Until.
func (l *Ledger) Expired(w *Wait, now int64) (closeIt bool) {
	l.waits.mu.Lock()
	defer l.waits.mu.Unlock()
	i := l.waits.find(w.id)
	if i < 0 {
		panic("BUG: an unknown wait for ingress expired")
	}
	me := l.waits.list[i]
	if l.lim.IngressWait <= 0 {
		return true // nobody waits, so nothing ends together
	}
	if now < me.until { // another's end renewed it
		w.until = me.until
		return false
	}
	for _, e := range l.waits.list {
		if e.until <= now+int64(together) && (e.held > me.held || e.held == me.held && e.id > me.id) {
			// That one goes. If it does not for some reason, the next round judges again.
			w.until = now + int64(together)
			l.waits.list[i].until = w.until
			return false
		}
	}
	if me.held > 0 {
		for j := range l.waits.list {
			if e := &l.waits.list[j]; j != i && e.until <= now+int64(together) {
				e.until = now + int64(l.lim.IngressWait)
			}
		}
	}
	return true
}
