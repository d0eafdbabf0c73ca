package mte

import (
	"container/heap"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"sluice/codec/frame"
)

// A poolWorld drives a pool with a clock of its own and a relay that answers
// pairing calls after a while. After every step the pool must add up.
type poolWorld struct {
	t    testing.TB
	p    pairPool
	id   *identity
	now  int64
	todo events
	seq  int

	// The other relay.
	batch, perClient int
	answer           func(n int) (pause time.Duration, hard bool) // a refusal, if pause is not 0
	calls            []poolCall
	callTime         func(n int) time.Duration
	held             int   // pairs it holds
	upTo             int64 // when the pool is looked at for itself

	most int // pairs in use at once
}

type poolCall struct {
	at int64
	n  int
}

type event struct {
	at  int64
	seq int
	do  func()
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].seq < e[j].seq
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	last := len(*e) - 1
	x := (*e)[last]
	*e = (*e)[:last]
	return x
}

var defaultRules = poolRules{initial: 2, min: 25, max: 1024, threshold: 10}

func newPoolWorld(t testing.TB, rules poolRules) *poolWorld {
	w := &poolWorld{t: t, p: newPairPool(rules), batch: 100, perClient: 2048}
	w.id = new(identity)
	// About what a core needs for the arithmetic at strength 1024, and the call.
	w.callTime = func(n int) time.Duration { return 2*time.Millisecond + time.Duration(n)*300*time.Microsecond }
	return w
}

func (w *poolWorld) at(at int64, do func()) {
	w.seq++
	heap.Push(&w.todo, event{at, w.seq, do})
}

func (w *poolWorld) after(d time.Duration, do func()) { w.at(w.now+int64(d), do) }

// run lets time pass.
func (w *poolWorld) run(d time.Duration) {
	w.t.Helper()
	end := w.now + int64(d)
	for {
		w.look()
		if len(w.todo) == 0 || w.todo[0].at > end {
			break
		}
		e := heap.Pop(&w.todo).(event)
		w.now = e.at
		e.do()
		if err := w.p.check(); err != nil {
			w.t.Fatalf("at %v: %v", time.Duration(w.now), err)
		}
		w.most = max(w.most, w.p.inUse)
	}
	w.now = end
}

// look does what the pool asks for.
func (w *poolWorld) look() {
	n, at := w.p.Refill(w.now)
	if n == 0 {
		if at < never && at != w.upTo {
			w.upTo = at
			w.at(at, func() { w.upTo = 0 })
		}
		return
	}
	w.p.Begin(w.now, n)
	if w.p.current == nil {
		w.after(time.Millisecond, func() {
			w.p.Know(w.id, w.batch, w.perClient)
			w.p.Landed(nil, w.now)
		})
		return
	}
	id := w.p.current
	w.calls = append(w.calls, poolCall{w.now, n})
	w.after(w.callTime(n), func() {
		if w.answer != nil {
			if pause, hard := w.answer(n); pause > 0 {
				no := refusal{reason: frame.UpstreamResponseFailed}
				w.p.Failed(&no, int64(pause), hard, w.now)
				return
			}
		}
		pairs := make([]*pooledPair, n)
		for i := range pairs {
			pairs[i] = &pooledPair{of: id, id: frame.NewPairID()}
		}
		w.held += n
		w.p.Landed(pairs, w.now)
	})
}

// A poolRequest wants a pair, holds it and gives it back.
type poolRequest struct {
	w    *poolWorld
	wait poolWaiter
	hold time.Duration
	fate pairFate

	asked, got int64
	outcomes   int // it must have one
	pair       *pooledPair
	refused    bool // by the clock
	no         *refusal
}

// ask begins a request that waits for a second at most.
func (w *poolWorld) ask(hold time.Duration, fate pairFate) *poolRequest {
	q := &poolRequest{w: w, hold: hold, fate: fate, asked: w.now}
	q.wait.user = q
	if pair := w.p.Acquire(&q.wait); pair != nil {
		q.has(pair)
		return q
	}
	w.after(time.Second, func() {
		if w.p.Leave(&q.wait) {
			q.refused = true
			q.outcomes++
		}
	})
	return q
}

func (q *poolRequest) Awake() {
	if q.no = q.wait.no; q.no != nil {
		q.outcomes++
		return
	}
	q.has(q.wait.pair)
}

func (q *poolRequest) has(pair *pooledPair) {
	q.pair, q.got = pair, q.w.now
	q.outcomes++
	q.w.after(q.hold, func() { q.w.p.Release(pair, q.fate, q.w.now) })
}

func (w *poolWorld) total() (n int) {
	for _, c := range w.calls {
		n += c.n
	}
	return n
}

func TestPoolBegins(t *testing.T) {
	w := newPoolWorld(t, defaultRules)
	w.run(time.Minute)
	if len(w.calls) != 0 {
		t.Fatal("pairs were made before the first request")
	}
	q := w.ask(time.Millisecond, pairKept)
	w.run(time.Minute)
	if q.pair == nil || len(w.calls) != 2 || w.calls[0].n != 2 || w.calls[1].n != 23 {
		t.Fatalf("calls %v, want 2 pairs and the rest of CLIENT_MIN_PAIRS", w.calls)
	}
}

// The pool follows 1,024 requests that come at once and take a second each,
// without more calls than a relay lets through.
func TestPoolGrowsUnderBurst(t *testing.T) {
	w := newPoolWorld(t, defaultRules)
	var all []*poolRequest
	for range 1024 {
		all = append(all, w.ask(time.Second, pairKept))
	}
	w.run(time.Second)
	if len(w.calls) >= 20 || w.p.total() != 1024 || w.most != 1024 {
		t.Errorf("%d pairs, %d in use at most, in %d calls", w.p.total(), w.most, len(w.calls))
	}
	for i, q := range all {
		if q.pair == nil {
			t.Fatalf("request %d has no pair", i)
		}
		if i > 0 && q.got < all[i-1].got {
			t.Fatalf("request %d was served before the one in front of it", i)
		}
	}
}

// The same, when the load comes slowly: each call adds half of what is in use.
func TestPoolGrowsUnderRisingLoad(t *testing.T) {
	w := newPoolWorld(t, defaultRules)
	for i := range 1024 {
		w.at(int64(i)*int64(50*time.Millisecond), func() { w.ask(10*time.Minute, pairKept) })
	}
	w.run(time.Minute)
	if len(w.calls) >= 20 || w.p.inUse != 1024 {
		t.Errorf("%d in use after %d calls", w.p.inUse, len(w.calls))
	}
}

func TestPoolPinned(t *testing.T) {
	w := newPoolWorld(t, poolRules{initial: 850, min: 850, max: 850, threshold: 10})
	w.batch = 850
	for range 850 {
		w.ask(time.Second, pairKept)
	}
	w.run(10 * time.Second)
	if len(w.calls) != 1 || w.calls[0].n != 850 || w.most != 850 {
		t.Errorf("calls %v, %d in use", w.calls, w.most)
	}
	// In batches where the other relay takes less at a time.
	w = newPoolWorld(t, poolRules{initial: 850, min: 850, max: 850, threshold: 10})
	w.ask(0, pairKept)
	w.run(time.Second)
	if len(w.calls) != 9 || w.total() != 850 {
		t.Errorf("calls %v", w.calls)
	}
}

// A call that is too large a body is halved until it fits, for as long as the other
// relay knows us: also behind a refresh of the token.
func TestPoolHalves(t *testing.T) {
	w := newPoolWorld(t, poolRules{initial: 850, min: 850, max: 850, threshold: 10})
	w.batch = 850
	var refused []int
	w.answer = func(n int) (time.Duration, bool) {
		if n <= 220 {
			return 0, false
		}
		refused = append(refused, n)
		w.p.Smaller(n)
		return time.Nanosecond, true
	}
	w.ask(0, pairKept)
	w.run(2 * time.Second)
	if len(refused) != 2 || w.p.total() != 850 {
		t.Fatalf("refused %v, %d pairs", refused, w.p.total())
	}
	w.p.Know(w.id, w.batch, w.perClient)
	for range 850 {
		w.ask(0, pairGone)
	}
	w.run(10 * time.Second)
	if len(refused) != 2 || w.p.total() != 850 {
		t.Errorf("refused %v, %d pairs", refused, w.p.total())
	}
	w.p.Forget(w.id, w.now)
	w.ask(0, pairKept)
	w.run(10 * time.Second)
	if len(refused) != 4 || w.p.total() != 850 {
		t.Errorf("refused %v, %d pairs of another identity", refused, w.p.total())
	}
}

func TestPoolClamped(t *testing.T) {
	w := newPoolWorld(t, defaultRules)
	w.perClient = 40
	for range 100 {
		w.ask(100*time.Millisecond, pairKept)
	}
	w.run(time.Minute)
	if w.total() != 40 || w.most != 40 {
		t.Errorf("%d pairs made, %d in use, the other relay allows 40", w.total(), w.most)
	}
	// Retired pairs count until the other relay was told.
	for range 40 {
		w.ask(0, pairRetired)
	}
	w.run(time.Minute)
	if w.total() != 40 || !w.p.DropsDue() || len(w.p.Drops()) != 40 {
		t.Fatalf("%d made, %d to be told", w.total(), len(w.p.Drops()))
	}
	w.p.Dropped(40)
	w.run(time.Minute)
	if w.total() != 80 {
		t.Errorf("%d made after the drops", w.total())
	}
}

func TestPoolRateLimited(t *testing.T) {
	w := newPoolWorld(t, defaultRules)
	w.ask(0, pairKept)
	w.run(time.Second)
	n := len(w.calls)
	w.answer = func(int) (time.Duration, bool) { return 7 * time.Second, true }
	var all []*poolRequest
	for range 100 {
		all = append(all, w.ask(500*time.Millisecond, pairKept))
	}
	w.run(6 * time.Second)
	if len(w.calls) != n+1 {
		t.Errorf("%d calls in a pause", len(w.calls)-n-1)
	}
	served, refused := 0, 0
	for _, q := range all {
		switch {
		case q.outcomes != 1:
			t.Fatalf("%d outcomes", q.outcomes)
		case q.refused:
			refused++
		case q.pair != nil:
			served++
		}
	}
	if served < 50 || served+refused != 100 {
		t.Errorf("%d served and %d refused with 25 pairs", served, refused)
	}
	if got := w.p.Paused(w.now); got <= 0 || got > 2*time.Second {
		t.Errorf("paused for another %v", got)
	}
	w.answer = nil
	w.ask(time.Second, pairKept)
	for range 30 {
		w.ask(3*time.Second, pairKept)
	}
	w.run(2 * time.Second)
	if len(w.calls) == n+1 {
		t.Error("no call after the pause")
	}
}

// A relay that cannot be reached is asked for whoever comes, one call at a time,
// and nobody waits for nothing.
func TestPoolFails(t *testing.T) {
	w := newPoolWorld(t, defaultRules)
	w.answer = func(int) (time.Duration, bool) { return time.Second, false }
	a, b := w.ask(0, pairKept), w.ask(0, pairKept)
	w.run(time.Millisecond * 100)
	if a.no == nil || b.no == nil || len(w.calls) != 1 {
		t.Fatalf("%v, %v after %d calls", a.no, b.no, len(w.calls))
	}
	w.answer = nil
	c := w.ask(0, pairKept)
	w.run(time.Millisecond * 100)
	if c.pair == nil {
		t.Fatal("the next request found no pair although the relay is back")
	}
	// With pairs to wait for, a failure is nobody's.
	w.answer = func(int) (time.Duration, bool) { return time.Second, false }
	var all []*poolRequest
	for range 60 {
		all = append(all, w.ask(300*time.Millisecond, pairKept))
	}
	n := len(w.calls)
	w.run(900 * time.Millisecond)
	for i, q := range all {
		if q.no != nil || i < 50 && q.pair == nil {
			t.Fatalf("request %d: %+v", i, q)
		}
	}
	if got := len(w.calls) - n; got != 1 {
		t.Errorf("%d calls to a relay that has just failed", got)
	}
}

// A relay that is down for long is asked ever more rarely while nobody calls, and
// at once for whoever does.
func TestPoolFailsForLong(t *testing.T) {
	w := newPoolWorld(t, defaultRules)
	w.answer = func(int) (time.Duration, bool) { return time.Second, false }
	w.ask(0, pairKept)
	w.run(10 * time.Minute)
	if n := len(w.calls); n < 20 || n > 30 {
		t.Errorf("%d calls in ten minutes", n)
	}
	for range 5 {
		q := w.ask(0, pairKept)
		w.run(100 * time.Millisecond)
		if q.no == nil {
			t.Fatalf("%+v", q)
		}
	}
	w.answer = nil
	q := w.ask(0, pairKept)
	w.run(time.Second)
	if q.pair == nil || w.p.total() != 25 {
		t.Errorf("%+v, %d pairs", q, w.p.total())
	}
}

func TestPoolIdle(t *testing.T) {
	w := newPoolWorld(t, defaultRules)
	for range 500 {
		w.ask(500*time.Millisecond, pairKept)
	}
	w.run(time.Minute)
	if w.p.total() < 500 {
		t.Fatalf("%d pairs", w.p.total())
	}
	const timeout = 2 * time.Hour
	w.p.Expire(int64(timeout), w.now)
	if len(w.p.Drops()) != 0 {
		t.Fatal("pairs were given up that were used a minute ago")
	}
	w.run(timeout)
	w.p.Expire(int64(timeout), w.now)
	if got := w.p.total(); got != 25 {
		t.Fatalf("%d pairs left", got)
	}
	for len(w.p.Drops()) > 0 {
		w.p.Dropped(len(w.p.Drops()))
	}
	n := len(w.calls)
	w.run(timeout)
	if len(w.calls) != n {
		t.Errorf("%d calls to bring them back", len(w.calls)-n)
	}
	w.p.Expire(int64(timeout), w.now)
	if w.p.total() != 25 {
		t.Errorf("%d pairs left", w.p.total())
	}
}

// Fifty abandoned streams a second cost one call a second, and the pool keeps
// enough free pairs.
func TestPoolAbandoned(t *testing.T) {
	w := newPoolWorld(t, defaultRules)
	var all []*poolRequest
	for i := range 60 * 50 {
		w.at(int64(i)*int64(20*time.Millisecond), func() { all = append(all, w.ask(time.Second, pairRetired)) })
	}
	for i := range 120 { // the upkeep
		w.at(int64(i)*int64(500*time.Millisecond), func() { w.p.Dropped(len(w.p.Drops())) })
	}
	w.run(20 * time.Second)
	n := len(w.calls)
	slow := w.p.total() - w.p.inUse
	w.run(40 * time.Second)
	if calls := len(w.calls) - n; calls > 41 {
		t.Errorf("%d calls in 40 s with %d free pairs", calls, slow)
	}
	if n > 35 {
		t.Errorf("%d calls in the first 20 s", n)
	}
	for i, q := range all {
		if q.pair == nil || i > 50 && q.got != q.asked {
			t.Fatalf("request %d waited for %v", i, time.Duration(q.got-q.asked))
		}
	}
	w.run(time.Minute)
	if w.p.inUse != 0 {
		t.Errorf("%d pairs leaked", w.p.inUse)
	}
}

func TestPoolForgets(t *testing.T) {
	w := newPoolWorld(t, defaultRules)
	for range 100 {
		w.ask(5*time.Second, pairKept)
	}
	w.run(900 * time.Millisecond)
	if w.p.inUse != 100 {
		t.Fatalf("%d in use", w.p.inUse)
	}
	old := w.id
	w.id = new(identity)
	if !w.p.Forget(old, w.now) || w.p.Forget(old, w.now) {
		t.Fatal("forgotten not exactly once")
	}
	q := w.ask(time.Millisecond, pairKept)
	w.run(900 * time.Millisecond)
	if q.pair == nil || q.pair.of != w.id || w.p.old != 100 {
		t.Fatalf("%+v, %d of the former identity", q, w.p.old)
	}
	w.run(10 * time.Second)
	if w.p.old != 0 || w.p.inUse != 0 || w.p.total() < 25 {
		t.Errorf("%d and %d in use of %d", w.p.old, w.p.inUse, w.p.total())
	}
	// A relay that accepts nobody is not asked all the time.
	n := len(w.calls)
	for range 100 {
		w.p.Forget(w.p.current, w.now)
		w.id = new(identity)
		w.ask(0, pairKept)
		w.run(50 * time.Millisecond)
	}
	if got := len(w.calls) - n; got > 14 {
		t.Errorf("%d calls in 5 s of repairs", got)
	}
}

// Pairs that were given up without the other relay are used last.
func TestPoolCools(t *testing.T) {
	w := newPoolWorld(t, defaultRules)
	w.ask(0, pairKept)
	w.run(time.Second)
	q := w.ask(0, pairCooling)
	w.run(time.Millisecond)
	for range 24 {
		if r := w.ask(time.Second, pairKept); r.pair == q.pair {
			t.Fatal("the cooling pair was used although others were free")
		}
	}
	if r := w.ask(time.Second, pairKept); r.pair != q.pair {
		t.Fatal("the cooling pair was not used although no other was free")
	}
}

// A hundred thousand requests at twice the capacity: each has one outcome, in
// order, and nothing leaks.
func TestPoolOverload(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	w := newPoolWorld(t, poolRules{initial: 2, min: 25, max: 64, threshold: 10})
	all := make([]*poolRequest, 0, 100000)
	fates := make([]pairFate, 50)
	fates[0], fates[1], fates[2] = pairCooling, pairRetired, pairGone
	for i := range cap(all) {
		w.at(int64(i)*int64(time.Millisecond)/13, func() { // 64 pairs carry 6.4 a millisecond
			all = append(all, w.ask(time.Duration(rng.IntN(20))*time.Millisecond, fates[rng.IntN(len(fates))]))
		})
	}
	for i := range 40 {
		w.at(int64(i)*int64(time.Second)/4, func() {
			w.p.Expire(int64(100*time.Millisecond), w.now)
			w.p.Dropped(len(w.p.Drops()))
		})
	}
	w.at(int64(3*time.Second), func() {
		w.id = new(identity)
		w.p.Forget(w.p.current, w.now)
	})
	w.answer = func(int) (time.Duration, bool) {
		switch rng.IntN(50) {
		case 0:
			return time.Duration(rng.IntN(50)+1) * time.Millisecond, true
		case 1:
			return 100 * time.Millisecond, false
		}
		return 0, false
	}
	w.run(time.Minute)
	served, last := 0, int64(math.MinInt64)
	if len(all) != cap(all) {
		t.Fatalf("%d requests", len(all))
	}
	for i, q := range all {
		if q.outcomes != 1 {
			t.Fatalf("request %d has %d outcomes", i, q.outcomes)
		}
		if q.pair == nil {
			continue
		}
		served++
		if q.got < last {
			t.Fatalf("request %d was served before the one in front of it", i)
		}
		last = q.got
	}
	if w.p.inUse != 0 || w.p.old != 0 || w.p.waiting != 0 {
		t.Errorf("%d in use, %d of a former identity, %d waiting", w.p.inUse, w.p.old, w.p.waiting)
	}
	if served < len(all)/3 {
		t.Errorf("%d of %d served", served, len(all))
	}
}
