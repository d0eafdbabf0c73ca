package gateway

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"sluice/gateway/metric"
	"sluice/loop"
)

const (
	// sampleEvery is the time between two samples of the live page's charts.
	sampleEvery = 5 * time.Second
	// samplesKept is how many a chart shows: a quarter of an hour.
	samplesKept = int(15 * time.Minute / sampleEvery)
	// samplesLately are those of the last minute.
	samplesLately = int(time.Minute / sampleEvery)
)

// A ring keeps the last values of one series. Its memory is what it was made with.
type ring struct {
	values [samplesKept]float32
	n      int // ever put
}

func (r *ring) put(v float64) {
	r.values[r.n%samplesKept] = float32(v)
	r.n++
}

// last returns the newest value, NaN without one.
func (r *ring) last() float64 {
	if r.n == 0 {
		return math.NaN()
	}
	return float64(r.values[(r.n-1)%samplesKept])
}

// each calls f with the values, oldest first, and each one's place if the newest
// is the last of samplesKept places.
func (r *ring) each(f func(place int, v float64)) {
	for i := max(0, r.n-samplesKept); i < r.n; i++ {
		f(samplesKept-(r.n-i), float64(r.values[i%samplesKept]))
	}
}

// largest returns the largest of the last n values, 0 without one.
func (r *ring) largest(n int) (most float64) {
	r.each(func(place int, v float64) {
		if place >= samplesKept-n && v > most {
			most = v
		}
	})
	return most
}

// A chart is one series of the page's last fifteen minutes.
type chart struct {
	name, unit string
	ring       ring
	// value makes a sample of a snapshot and of the one before, which is nil at the
	// first; seconds is the time between them. NaN leaves a gap.
	value func(now, before *metric.Snapshot, seconds float64) float64
}

// A loopRecord is what is kept of one event loop. Times are in seconds.
type loopRecord struct {
	longest ring // turn, by sample
	busy    ring // share of the time
	turn    ring // mean

	busyBefore, turnsBefore int64
}

// A history samples what the live page shows as charts. One goroutine takes the
// samples; pages read them under mu. It grows no more once it is made, but for the
// snapshots it replaces.
type history struct {
	g    *Gateway
	once sync.Once // closes quit
	quit chan struct{}
	done chan struct{}

	longest []atomic.Int64 // by loop: nanoseconds of the longest turn of the last minute, for the gauge
	blocked atomic.Int64   // nanoseconds: age of the oldest blocked delivery

	charts []*chart // set when it is made; what they hold is under mu

	mu     sync.Mutex
	taken  int // samples
	at     int64
	before *metric.Snapshot
	loops  []loopRecord
}

func newHistory(g *Gateway) *history {
	n := g.cfg.Loops
	return &history{
		g: g, quit: make(chan struct{}), done: make(chan struct{}), charts: g.charts(), at: loop.Now(),
		longest: make([]atomic.Int64, n), loops: make([]loopRecord, n),
	}
}

// begin starts the sampling, once the loops run. Without an admin listener nobody
// would see the samples, and none are taken.
func (h *history) begin() {
	if !h.g.cfg.Admin.Listen.On() {
		close(h.done)
		return
	}
	go h.run()
}

// stop ends the sampling. It may be called again.
func (h *history) stop() {
	h.once.Do(func() { close(h.quit) })
	<-h.done
}

func (h *history) run() {
	defer close(h.done)
	tick := time.NewTicker(sampleEvery)
	defer tick.Stop()
	for {
		h.sample(loop.Now())
		select {
		case <-h.quit:
			return
		case <-tick.C:
		}
	}
}

// sample puts one value into every ring.
func (h *history) sample(now int64) {
	if h.g.relay != nil {
		h.blocked.Store(int64(h.g.relay.OldestBlocked()))
	}
	taken := metric.Take(h.g.pages()...)
	h.mu.Lock()
	defer h.mu.Unlock()
	seconds := float64(now-h.at) / 1e9
	for _, c := range h.charts {
		if h.before == nil || seconds <= 0 {
			c.ring.put(c.value(taken, nil, 1))
		} else {
			c.ring.put(c.value(taken, h.before, seconds))
		}
	}
	for i, l := range h.g.loops {
		r, s := &h.loops[i], l.Stats()
		busy, turns := s.BusyNanos.Load(), s.Turns.Load()
		r.longest.put(float64(s.LongestTurn.Swap(0)) / 1e9)
		if h.before != nil && seconds > 0 {
			spent, turned := float64(busy-r.busyBefore)/1e9, float64(turns-r.turnsBefore)
			r.busy.put(min(spent/seconds, 1))
			r.turn.put(spent / max(turned, 1))
		}
		r.busyBefore, r.turnsBefore = busy, turns
		h.longest[i].Store(int64(r.longest.largest(samplesLately) * 1e9))
	}
	h.before, h.at = taken, now
	h.taken++
}

// longestTurn is the longest turn of a loop in the last minute, one that is under
// way included. It may be called from anywhere.
func (h *history) longestTurn(i int) time.Duration {
	most := max(h.longest[i].Load(), h.g.loops[i].Stats().LongestTurn.Load())
	if w := h.g.watchdog; w != nil {
		// The watchdog asks four times a second: an answer that is owed for less
		// than that may only not have been looked at.
		if owed := w.Owed(i); owed > watchdogStep {
			most = max(most, int64(owed))
		}
	}
	return time.Duration(most)
}

// watchdogStep is the longest time between two looks of the watchdog.
const watchdogStep = time.Second / 4
