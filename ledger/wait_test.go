package ledger

import (
	"math/rand/v2"
	"testing"
	"time"
)

const ms = int64(time.Millisecond)

// waiting starts a wait per held amount, with ids 1, 2, … and at time 0.
func waiting(l *Ledger, held ...int64) []Wait {
	ws := make([]Wait, len(held))
	for i, n := range held {
		l.StartWait(&ws[i], uint64(i+1), n, 0)
	}
	return ws
}

func TestWait(t *testing.T) {
	l := New(small)
	var w Wait
	want(t, "a new source does not wait", !w.Active() && w.Until() == 0)
	l.EndWait(&w)
	want(t, "ending no wait does nothing", l.Snapshot().Waiting == 0)

	l.StartWait(&w, 5, 10, 100*ms)
	want(t, "it waits, for the time of the limits", w.Active() && w.Until() == 1100*ms && l.Snapshot().Waiting == 1)
	l.StartWait(&w, 5, 20, 700*ms)
	want(t, "another failed try keeps the end, and is one wait", w.Until() == 1100*ms && l.Snapshot().Waiting == 1)

	want(t, "before its end it is not closed", !l.Expired(&w, 1100*ms-1) && w.Until() == 1100*ms)
	want(t, "at its end it is", l.Expired(&w, 1100*ms))
	want(t, "it waits until it is told to stop", w.Active() && l.Snapshot().Waiting == 1)
	l.EndWait(&w)
	want(t, "then it waits no more", !w.Active() && l.Snapshot().Waiting == 0)

	l.StartWait(&w, 5, 0, 5000*ms)
	want(t, "a later wait of the same source is fresh", w.Until() == 6000*ms)
	l.EndWait(&w)
	wantEmpty(t, l)
}

func TestWaitMisuse(t *testing.T) {
	l := New(small)
	var w Wait
	wantBug(t, "judging a source that does not wait", func() { l.Expired(&w, 0) })
	l.StartWait(&w, 1, 0, 0)
	twin := w
	l.EndWait(&w)
	wantBug(t, "ending a wait twice through a copy", func() { l.EndWait(&twin) })
	wantBug(t, "judging a wait that has ended", func() { l.Expired(&twin, 0) })
	wantEmpty(t, l)
}

// TestWaitZero: with INGRESS_WAIT 0 a source is closed at once, whoever else is
// about to be.
func TestWaitZero(t *testing.T) {
	l := New(Limits{Sockets: 1, Budget: 4, Weight: 4})
	ws := waiting(l, 10, 20, 30)
	want(t, "the wait is over when it begins", ws[0].Until() == 0)
	for i := range ws {
		want(t, "every source is closed at once", l.Expired(&ws[i], 0))
		l.EndWait(&ws[i])
	}
	wantEmpty(t, l)
}

// TestExpiredTogether has waits end at the same moment; order is in which order
// their loops judge them.
func TestExpiredTogether(t *testing.T) {
	f := func(sentence string, held []int64, order []int, closed int) {
		t.Helper()
		l := New(small)
		ws := waiting(l, held...)
		now, got := 1000*ms, -1
		for range 3 { // those that are put off are judged again
			for _, i := range order {
				if !ws[i].Active() || now < ws[i].Until() || !l.Expired(&ws[i], now) {
					continue
				}
				if got >= 0 {
					t.Errorf("%s: source %d is closed too", sentence, i)
				}
				got = i
				l.EndWait(&ws[i])
			}
			now += 20 * ms
		}
		if got != closed {
			t.Errorf("%s: closes source %d, want %d", sentence, got, closed)
		}
		for i := range ws {
			if i != closed && held[closed] > 0 && ws[i].Until() < 1900*ms {
				t.Errorf("%s: source %d waits until %d only", sentence, i, ws[i].Until()/ms)
			}
		}
	}
	f("alone", []int64{10}, []int{0}, 0)
	f("the largest is judged first", []int64{30, 20, 10}, []int{0, 1, 2}, 0)
	f("the largest is judged last", []int64{30, 20, 10}, []int{2, 1, 0}, 0)
	f("the largest in the middle", []int64{10, 30, 20}, []int{0, 1, 2}, 1)
	f("of equal ones the youngest", []int64{10, 10, 10}, []int{0, 1, 2}, 2)
	f("of equal ones the youngest, judged first", []int64{10, 10, 10}, []int{2, 0, 1}, 2)
	f("more counts before younger", []int64{10, 11, 10}, []int{2, 0, 1}, 1)
}

// TestExpiredHoldingNothing: when nobody holds anything an end frees nothing,
// and one after the other goes, the youngest first.
func TestExpiredHoldingNothing(t *testing.T) {
	l := New(small)
	ws := waiting(l, 0, 0, 0)
	var order []int
	for now := 1000 * ms; now <= 1100*ms; now += 4 * ms {
		for i := range ws {
			if ws[i].Active() && now >= ws[i].Until() && l.Expired(&ws[i], now) {
				l.EndWait(&ws[i])
				order = append(order, i)
			}
		}
	}
	want(t, "the youngest goes first, the oldest last",
		len(order) == 3 && order[0] == 2 && order[1] == 1 && order[2] == 0)
	wantEmpty(t, l)
}

func TestExpiredRenews(t *testing.T) {
	l := New(small)
	var a, b, c, d Wait
	l.StartWait(&a, 1, 100, 0)
	l.StartWait(&b, 2, 50, 15*ms) // ends within what counts as together
	l.StartWait(&c, 3, 50, 21*ms) // ends on its own
	l.StartWait(&d, 4, 200, 500*ms)

	want(t, "one that holds more but has time left does not go for the others", l.Expired(&a, 1000*ms))
	want(t, "the closed source's own end is not moved", a.Until() == 1000*ms)
	want(t, "what ends together waits afresh from that moment", !l.Expired(&b, 1015*ms) && b.Until() == 2000*ms)
	l.StartWait(&b, 2, 60, 1500*ms)
	want(t, "a try that fails keeps the renewed end", b.Until() == 2000*ms)
	l.EndWait(&a)
	want(t, "a later end is its own", l.Expired(&c, 1021*ms))
	l.EndWait(&c)
	want(t, "one that holds most goes when its time is up", l.Expired(&d, 1500*ms))
	l.EndWait(&d)
	want(t, "and the renewed one in the end", l.Expired(&b, 2000*ms))
	l.EndWait(&b)
	wantEmpty(t, l)
}

// TestExpiredWaitsForTheLargest: a source that is put off for a larger one is
// closed after all when that one was served meanwhile.
func TestExpiredWaitsForTheLargest(t *testing.T) {
	l := New(small)
	ws := waiting(l, 10, 20)
	want(t, "the smaller is put off", !l.Expired(&ws[0], 1000*ms))
	want(t, "for a moment, not for another wait", ws[0].Until() == 1020*ms)
	l.EndWait(&ws[1]) // it got its budget
	want(t, "then it is its own turn", l.Expired(&ws[0], 1020*ms))
	l.EndWait(&ws[0])
	wantEmpty(t, l)
}

// TestExpiredJudgesTheLastTry: what a source holds is what it held when it last
// tried.
func TestExpiredJudgesTheLastTry(t *testing.T) {
	l := New(small)
	ws := waiting(l, 10, 20)
	l.StartWait(&ws[0], 1, 30, 500*ms)
	want(t, "the one that grew meanwhile is the largest now", !l.Expired(&ws[1], 1000*ms) && l.Expired(&ws[0], 1000*ms))
	l.EndWait(&ws[0])
	l.EndWait(&ws[1])
	wantEmpty(t, l)
}

// TestWaitSimulation lets sources gather messages block by block under a budget
// that holds a few of them, with destinations that sometimes stall, and checks
// what the contract promises about who is closed and when.
func TestWaitSimulation(t *testing.T) {
	closed := 0
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 3))
		s := newSimulation(t, r, 2+r.IntN(30), 4+r.Int64N(60))
		for s.now < 30_000*ms && !t.Failed() {
			s.tick()
		}
		s.end()
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
		closed += s.closed
	}
	want(t, "pressure was real: sources were closed", closed > 100)
	t.Logf("%d sources closed in ten minutes of simulated time", closed)
}

const simBlock = 64 << 10

// A simSource gathers messages of size bytes, holds each for a time as if its
// destination were slow, and begins the next.
type simSource struct {
	id         uint64
	size, held int64
	charge     Charge
	wait       Wait
	waits      int64 // since when, or since another's end renewed it
	busyUntil  int64 // the message is complete and being delivered
}

type simulation struct {
	t       *testing.T
	r       *rand.Rand
	l       *Ledger
	now     int64
	sources []*simSource
	nextID  uint64

	progress int64 // when somebody last got a block, was done or was closed
	closed   int
}

func newSimulation(t *testing.T, r *rand.Rand, sources int, blocks int64) *simulation {
	s := &simulation{t: t, r: r, l: New(Limits{Sockets: 1, Budget: blocks * simBlock * 4, Weight: 4, IngressWait: time.Second})}
	for range sources {
		s.sources = append(s.sources, s.fresh())
	}
	return s
}

// fresh makes a source with a message that the budget can take when it is alone.
func (s *simulation) fresh() *simSource {
	s.nextID++
	blocks := s.l.lim.Budget / 4 / simBlock
	return &simSource{id: s.nextID, size: simBlock * (1 + s.r.Int64N(blocks))}
}

// tick lets 4 ms pass and every source do something, in any order.
func (s *simulation) tick() {
	s.now += 4 * ms
	waits := false
	for _, i := range s.r.Perm(len(s.sources)) {
		k := s.sources[i]
		switch {
		case k.busyUntil > 0:
			if s.now >= k.busyUntil {
				s.finish(i)
			}
		case k.wait.Active() && s.now >= k.wait.Until():
			s.judge(i)
		case s.r.IntN(3) == 0:
			s.try(k)
		}
		waits = waits || s.sources[i].wait.Active()
	}
	if n := s.l.Snapshot().Ingress; n > s.l.lim.Budget || n != s.sum() {
		s.t.Errorf("the account stands at %d, the sources hold %d, the budget is %d", n, s.sum(), s.l.lim.Budget)
	}
	// The longest delivery, a whole wait, and the moments in which waits that
	// end together are put off.
	if waits && s.now-s.progress > 4000*ms {
		s.t.Errorf("nobody got on since %d ms, now %d", s.progress/ms, s.now/ms)
	}
}

func (s *simulation) sum() (n int64) {
	for _, k := range s.sources {
		n += k.charge.Bytes() * 4
	}
	return n
}

func (s *simulation) try(k *simSource) {
	if !s.l.Reserve(&k.charge, simBlock) {
		if !k.wait.Active() {
			k.waits = s.now
		}
		s.l.StartWait(&k.wait, k.id, k.held, s.now)
		return
	}
	s.progress = s.now
	s.l.EndWait(&k.wait)
	if k.held += simBlock; k.held == k.size {
		k.busyUntil = s.now + 4*ms
		if s.r.IntN(10) == 0 {
			k.busyUntil = s.now + s.r.Int64N(2500)*ms
		}
	}
}

func (s *simulation) finish(i int) {
	s.l.Return(&s.sources[i].charge, s.sources[i].charge.Bytes())
	s.sources[i] = s.fresh()
	s.progress = s.now
}

func (s *simulation) judge(i int) {
	k := s.sources[i]
	if !s.l.Expired(&k.wait, s.now) {
		if k.wait.Until() <= s.now {
			s.t.Errorf("source %d is neither closed nor given more time", k.id)
		}
		return
	}
	if s.now-k.waits < 1000*ms {
		s.t.Errorf("source %d is closed after %d ms", k.id, (s.now-k.waits)/ms)
	}
	for j, o := range s.sources {
		if j == i || !o.wait.Active() {
			continue
		}
		fresh := s.l.untilOf(o.id) == s.now+1000*ms
		if o.waits+1000*ms <= s.now { // its time is up as well
			if o.held > k.held || o.held == k.held && o.id > k.id {
				s.t.Errorf("source %d with %d is closed, source %d with %d not", k.id, k.held, o.id, o.held)
			}
			if k.held > 0 && !fresh {
				s.t.Errorf("source %d does not wait afresh although %d bytes come free", o.id, k.held)
			}
		}
		if fresh {
			o.waits = s.now
		}
	}
	s.l.EndWait(&k.wait)
	s.finish(i)
	s.closed++
}

// end takes every source away and finds the ledger empty.
func (s *simulation) end() {
	for _, k := range s.sources {
		s.l.EndWait(&k.wait)
		s.l.Return(&k.charge, k.charge.Bytes())
	}
	wantEmpty(s.t, s.l)
}

// untilOf returns the ledger's own idea of when a wait ends.
func (l *Ledger) untilOf(id uint64) int64 { return l.waits.list[l.waits.find(id)].until }
