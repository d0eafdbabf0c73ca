package loop

import (
	"sync"
	"sync/atomic"
	"time"
)

// A Watchdog proves that loops turn over: it posts a message to each and waits
// for its delivery. It runs on a goroutine of its own.
type Watchdog struct {
	loops   []*Loop
	timeout time.Duration
	step    time.Duration // between two looks
	onStall func(*Loop)
	beats   []beat
	stop    chan struct{}
	once    sync.Once

	// The watchdog's goroutine only.
	last int64 // Now of the last look
}

// beat is one loop's account.
type beat struct {
	asked, seen atomic.Int64 // numbers of questions
	since       atomic.Int64 // Now of the question that waits for its answer
	told        bool         // onStall was called for it; watchdog's goroutine only
}

type question struct {
	b *beat
	n int64
}

func (q question) Deliver(*Loop) { q.b.seen.Store(q.n) }

// WatchLoops starts a watchdog that calls onStall, once per stall and from its
// own goroutine, for a loop that has not turned over for timeout; it notices
// before twice that time is over. It looks four times in timeout, and at least
// four times a second. When the watchdog itself was held up, as in a stopped
// process, it starts its count again: a loop that was given no time did not
// fail. Stop it before the loops, since one that has ended does not answer.
func WatchLoops(loops []*Loop, timeout time.Duration, onStall func(*Loop)) *Watchdog {
	w := newWatchdog(loops, timeout, onStall)
	go w.run()
	return w
}

func newWatchdog(loops []*Loop, timeout time.Duration, onStall func(*Loop)) *Watchdog {
	return &Watchdog{
		loops:   loops,
		timeout: timeout,
		step:    max(min(timeout/4, time.Second/4), time.Millisecond),
		onStall: onStall,
		beats:   make([]beat, len(loops)),
		stop:    make(chan struct{}),
		last:    Now(),
	}
}

// Stop ends the watchdog. It may be called more than once.
func (w *Watchdog) Stop() { w.once.Do(func() { close(w.stop) }) }

func (w *Watchdog) run() {
	t := time.NewTicker(w.step)
	defer t.Stop()
	for {
		select {
		case <-w.stop:
			return
		case <-t.C:
			w.look(Now())
		}
	}
}

// look asks every loop that has answered, and judges the others.
func (w *Watchdog) look(now int64) {
	late := now-w.last > 2*int64(w.step)
	w.last = now
	for i, l := range w.loops {
		b := &w.beats[i]
		switch {
		case b.seen.Load() == b.asked.Load():
			b.since.Store(now)
			b.told = false
			l.Post(question{b, b.asked.Add(1)})
		case b.told: // once is enough
		case late:
			b.since.Store(now)
		case now-b.since.Load() >= int64(w.timeout):
			b.told = true
			w.onStall(l)
		}
	}
}

// Late reports whether some loop has owed its answer for longer than d. It may
// be called from anywhere.
func (w *Watchdog) Late(d time.Duration) bool {
	now := Now()
	for i := range w.beats {
		b := &w.beats[i]
		if b.seen.Load() != b.asked.Load() && now-b.since.Load() > int64(d) {
			return true
		}
	}
	return false
}

// Owed returns for how long a loop, by its place in WatchLoops, has owed its
// answer: 0 if it does not. It may be called from anywhere.
func (w *Watchdog) Owed(i int) time.Duration {
	b := &w.beats[i]
	if b.seen.Load() == b.asked.Load() {
		return 0
	}
	return time.Duration(max(0, Now()-b.since.Load()))
}
