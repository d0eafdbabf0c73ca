package ledger

import (
	"sync"
	"testing"
)

func TestSlot(t *testing.T) {
	l := New(Limits{Sockets: 2, Budget: 4, Weight: 4})
	var a, b, c Slot
	want(t, "an empty node is not full", !l.Full() && !l.Above())
	want(t, "the first socket gets a slot", l.TakeSlot(&a, false))
	want(t, "the last slot is given", l.TakeSlot(&b, false))
	want(t, "the ceiling is reached, not exceeded", l.Full() && !l.Above())
	want(t, "a new socket is refused at the ceiling", !l.TakeSlot(&c, false))
	want(t, "a refused socket took nothing", l.Snapshot().Sockets == 2)
	want(t, "a replacement is admitted above it", l.TakeSlot(&c, true))
	want(t, "now the ceiling is exceeded", l.Full() && l.Above())

	l.ReturnSlot(&a)
	want(t, "one fewer is at the ceiling again", l.Full() && !l.Above())
	want(t, "and still admits nobody", !l.TakeSlot(&a, false))
	l.ReturnSlot(&b)
	want(t, "two fewer leave room", !l.Full())
	want(t, "a slot can be taken again by the socket that returned one", l.TakeSlot(&b, false))
	l.ReturnSlot(&b)
	l.ReturnSlot(&c)
	wantEmpty(t, l)
}

func TestSlotMisuse(t *testing.T) {
	l := New(small)
	var s, none Slot
	l.TakeSlot(&s, false)
	wantBug(t, "taking the same slot twice", func() { l.TakeSlot(&s, false) })
	wantBug(t, "taking the same slot twice, above the ceiling", func() { l.TakeSlot(&s, true) })
	l.ReturnSlot(&s)
	wantBug(t, "returning the same slot twice", func() { l.ReturnSlot(&s) })
	wantBug(t, "returning a slot that was never taken", func() { l.ReturnSlot(&none) })
	wantEmpty(t, l)
}

// TestSlotConcurrent has more sockets than slots come and go on several
// goroutines: the ceiling holds at every moment and the sum is exact.
func TestSlotConcurrent(t *testing.T) {
	l := New(small)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			var mine [3]Slot
			for i := range 20000 {
				s := &mine[i%len(mine)]
				if s.held {
					l.ReturnSlot(s)
				} else if l.TakeSlot(s, false) && l.Above() {
					t.Error("the ceiling was exceeded")
				}
			}
			for i := range mine {
				if mine[i].held {
					l.ReturnSlot(&mine[i])
				}
			}
		})
	}
	wg.Wait()
	wantEmpty(t, l)
}
