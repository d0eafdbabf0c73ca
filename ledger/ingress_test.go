package ledger

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func TestReserve(t *testing.T) {
	l := New(small) // 1000 payload bytes
	var a, b Charge
	want(t, "an empty budget has all its room", l.Room() == 1000)
	want(t, "what fits is taken", l.Reserve(&a, 600))
	want(t, "the account is weighted, the charge is not", l.Snapshot().Ingress == 2400 && a.Bytes() == 600)
	want(t, "what does not fit is refused", !l.Reserve(&b, 401))
	want(t, "a refusal takes nothing", b.Bytes() == 0 && l.Room() == 400)
	want(t, "the last byte fits", l.Reserve(&b, 400))
	want(t, "one more does not", !l.Reserve(&b, 1))
	want(t, "nothing always fits", l.Reserve(&b, 0))
	want(t, "there is no room", l.Room() == 0)

	want(t, "nobody waits, so a return wakes nobody", !l.Return(&a, 600))
	want(t, "what was returned can be taken again", l.Reserve(&b, 600) && b.Bytes() == 1000)
	l.Return(&b, 400)
	l.Return(&b, 600)
	wantEmpty(t, l)
}

func TestCount(t *testing.T) {
	l := New(small)
	var c, d Charge
	l.Count(&c, 1500)
	want(t, "what was read already is counted beyond the budget", l.Snapshot().Ingress == 6000 && c.Bytes() == 1500)
	want(t, "then the room is negative", l.Room() == -500)
	want(t, "nothing is admitted", !l.Reserve(&d, 1))
	want(t, "but nothing can still be had", l.Reserve(&d, 0))
	l.Return(&c, 501)
	want(t, "one byte below the budget admits one byte", l.Room() == 1 && l.Reserve(&d, 1))
	l.Return(&c, 999)
	l.Return(&d, 1)
	wantEmpty(t, l)
}

func TestReturnWakes(t *testing.T) {
	l := New(small)
	var c Charge
	var w Wait
	l.Reserve(&c, 1000)
	l.StartWait(&w, 1, 0, 0)
	want(t, "with a source waiting a return says so", l.Return(&c, 1))
	want(t, "returning nothing wakes nobody", !l.Return(&c, 0))
	l.EndWait(&w)
	want(t, "when it waits no more nobody is woken", !l.Return(&c, 1))
	l.Return(&c, c.Bytes())
	wantEmpty(t, l)
}

func TestMove(t *testing.T) {
	l := New(small)
	var a, b Charge
	l.Reserve(&a, 100)
	Move(&b, &a, 40)
	want(t, "a move changes who holds, not how much", a.Bytes() == 60 && b.Bytes() == 40 && l.Snapshot().Ingress == 400)
	Move(&b, &a, 0)
	Move(&b, &a, 60)
	want(t, "all of it can move", a.Bytes() == 0 && b.Bytes() == 100)
	wantBug(t, "moving what is not held", func() { Move(&b, &a, 1) })
	wantBug(t, "moving backwards", func() { Move(&a, &b, -1) })
	l.Return(&b, 100)
	wantEmpty(t, l)
}

func TestChargeMisuse(t *testing.T) {
	l := New(small)
	var c Charge
	l.Reserve(&c, 10)
	l.Return(&c, 10)
	wantBug(t, "returning a charge twice", func() { l.Return(&c, 10) })
	wantBug(t, "returning a byte too many", func() { l.Return(&c, 1) })
	wantBug(t, "returning a negative amount", func() { l.Return(&c, -1) })
	wantBug(t, "reserving a negative amount", func() { l.Reserve(&c, -1) })
	wantBug(t, "counting a negative amount", func() { l.Count(&c, -1) })
	want(t, "a bug leaves the account alone", l.Empty() == nil && c.Bytes() == 0)
}

// TestReserveConcurrent has several loops take and give at random: the account
// never passes the budget, is never negative, and its sum is exact.
func TestReserveConcurrent(t *testing.T) {
	l := New(small)
	done := make(chan struct{})
	var watcher, loops sync.WaitGroup
	watcher.Go(func() {
		for {
			if n := l.Snapshot().Ingress; n < 0 || n > small.Budget {
				t.Errorf("the account stood at %d of %d", n, small.Budget)
				return
			}
			select {
			case <-done:
				return
			default:
			}
		}
	})
	for seed := range uint64(4) {
		loops.Go(func() {
			r := rand.New(rand.NewPCG(seed, 1))
			var c, d Charge
			for range 50000 {
				switch r.IntN(4) {
				case 0, 1:
					l.Reserve(&c, r.Int64N(300))
				case 2:
					l.Return(&c, r.Int64N(c.Bytes()+1))
				case 3:
					Move(&d, &c, r.Int64N(c.Bytes()+1))
					l.Return(&d, d.Bytes())
				}
			}
			l.Return(&c, c.Bytes())
		})
	}
	loops.Wait()
	close(done)
	watcher.Wait()
	wantEmpty(t, l)
}

// TestReserveOneWins: of what fits once only one goroutine has it at a time.
func TestReserveOneWins(t *testing.T) {
	l := New(small)
	var holders atomic.Int64
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			var c Charge
			for range 100000 {
				if !l.Reserve(&c, 501) {
					continue
				}
				if holders.Add(1) != 1 {
					t.Error("two hold more than half of the budget")
				}
				holders.Add(-1)
				l.Return(&c, 501)
			}
		})
	}
	wg.Wait()
	wantEmpty(t, l)
}

// TestReserveIsNotRefusedByARefusal: a try that is too large must not be seen in
// the account while it fails, or another loop is refused what there is room for.
func TestReserveIsNotRefusedByARefusal(t *testing.T) {
	l := New(small)
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		var c Charge
		for {
			l.Reserve(&c, 1001)
			select {
			case <-done:
				return
			default:
			}
		}
	})
	var c Charge
	for range 100000 {
		if !l.Reserve(&c, 1000) {
			t.Error("refused although everything was free")
			break
		}
		l.Return(&c, 1000)
	}
	close(done)
	wg.Wait()
	wantEmpty(t, l)
}

// TestFastPathAllocs: what happens per read must not allocate.
func TestFastPathAllocs(t *testing.T) {
	l := New(Limits{Sockets: 10, Budget: 1 << 20, Weight: 4, IngressWait: time.Second})
	var c, to Charge
	var d Delivery
	n := testing.AllocsPerRun(1000, func() {
		l.Reserve(&c, 100)
		l.Count(&c, 10)
		Move(&to, &c, 50)
		l.Return(&c, c.Bytes())
		l.Return(&to, to.Bytes())
		l.Refuse(&d, 10)
		d.Over(true)
		l.Accept(&d, 10)
		l.Room()
	})
	if n != 0 {
		t.Errorf("%v allocations per read, want none", n)
	}
}
