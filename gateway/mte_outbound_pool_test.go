package gateway_test

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	wire "sluice/codec/frame"
)

// pairs is how many pairs an outbound node has that can carry a request.
func (p *relayPair) pairs() float64 {
	p.t.Helper()
	return p.out.metric(`mte_relay_outbound_pairs{state="free"}`) + p.out.metric(`mte_relay_outbound_pairs{state="in_use"}`)
}

// calls is how many pairing calls the other relay has had.
func (p *relayPair) calls() float64 { return p.in.metric(`mte_relay_requests_total{kind="pair"}`) }

// A holding origin keeps each request until it is released.
type holding struct {
	release     chan struct{}
	now, most   atomic.Int64 // requests there, now and at most
	releaseOnce func()
}

func newHolding() *holding {
	h := &holding{release: make(chan struct{})}
	h.releaseOnce = sync.OnceFunc(func() { close(h.release) })
	return h
}

func (h *holding) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	now := h.now.Add(1)
	for most := h.most.Load(); now > most && !h.most.CompareAndSwap(most, now); most = h.most.Load() {
	}
	defer h.now.Add(-1)
	select {
	case <-h.release:
	case <-r.Context().Done():
	}
	io.WriteString(w, "held")
}

// together makes n requests at once and returns their answers when all are there.
func (p *relayPair) together(n int) (all <-chan []answer) {
	done := make(chan []answer, 1)
	go func() {
		answers := make([]answer, n)
		var group sync.WaitGroup
		for i := range answers {
			group.Go(func() {
				a, err := p.try(p.request(context.Background(), "GET", "/", nil))
				if err != nil {
					p.t.Errorf("request %d: %v", i, err)
				}
				answers[i] = a
			})
		}
		group.Wait()
		done <- answers
	}()
	return done
}

// A thousand callers whose requests take a second: the pool follows them from 2 to
// 1,024 pairs, at default settings on both sides, in fewer than 20 pairing calls
// and without one that is too many.
func TestAcceptOutboundRamp(t *testing.T) {
	n := scaled(1024, 256)
	if raceEnabled {
		n = min(n, 64)
	}
	var now atomic.Int64
	p := startRelayProcesses(t, pairOptions{origin: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		now.Add(1)
		defer now.Add(-1)
		select {
		case <-time.After(time.Second): // the request's length
		case <-r.Context().Done():
		}
	})})
	ctx, stop := context.WithCancel(t.Context())
	t.Cleanup(stop)
	var answered, refused atomic.Int64
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			for ctx.Err() == nil {
				a, err := p.try(p.request(ctx, "GET", "/", nil))
				switch {
				case ctx.Err() != nil:
				case err != nil:
					t.Error(err)
					return
				case a.status == 485:
					a.wantRefusal(t, 485, "upstream_capacity", "")
					refused.Add(1)
				case a.status != 200:
					t.Errorf("%d %s", a.status, a.body)
					return
				default:
					answered.Add(1)
				}
			}
		})
	}
	if !poll(func() bool { return p.pairs() >= float64(n) && now.Load() >= int64(n)*9/10 }) {
		t.Errorf("%v pairs, %d requests at the origin", p.pairs(), now.Load())
	}
	calls := p.calls()
	stop()
	all.Wait()
	t.Logf("%v pairs in %v calls; %d answered, %d refused meanwhile", p.pairs(), calls, answered.Load(), refused.Load())
	if calls >= 20 {
		t.Errorf("%v pairing calls", calls)
	}
	if limited := p.in.metric("mte_relay_rate_limited_total"); limited != 0 {
		t.Errorf("%v control calls over the rate limit", limited)
	}
}

// The other relay's bound of pairs is the pool's, and the log says so once.
func TestOutboundClamped(t *testing.T) {
	origin := newHolding()
	p := startRelayPair(t, pairOptions{origin: origin, in: []string{"MAX_PAIRS_PER_CLIENT=40"}, out: []string{"CLIENT_PAIR_ACQUIRE_WAIT_MS=20000"}})
	t.Cleanup(origin.releaseOnce)
	all := p.together(60)
	if !poll(func() bool { return origin.now.Load() == 40 }) {
		t.Errorf("%d requests at the origin", origin.now.Load())
	}
	origin.releaseOnce()
	for _, a := range <-all {
		if a.status != 200 {
			t.Errorf("%d %s", a.status, a.body)
		}
	}
	if most := origin.most.Load(); most != 40 {
		t.Errorf("%d requests at once through 40 pairs", most)
	}
	if got := p.in.metric(`mte_relay_refusals_total{code="490",reason="pair_limit"}`); got != 0 {
		t.Errorf("%v calls for more pairs than the other relay allows", got)
	}
	lines := p.out.log.with("Clamping the pool to the server's maxPairsPerClient")
	if len(lines) != 1 || !strings.Contains(lines[0], `"maxPairsPerClient":40,"CLIENT_MAX_PAIRS":1024`) || !strings.Contains(lines[0], `"level":"WARN"`) {
		t.Errorf("logged: %q", lines)
	}
}

// A pairing call over the other relay's bound of a control body is halved until it
// fits.
func TestOutboundHalves(t *testing.T) {
	const n = "600"
	p := startRelayPair(t, pairOptions{
		origin: http.HandlerFunc(mirror),
		in:     []string{"KYBER_STRENGTH=1024", "MAX_PAIRS_PER_BATCH=" + n, "MAX_CONTROL_BODY_MIB=1"},
		out:    []string{"CLIENT_INITIAL_PAIRS=" + n, "CLIENT_MIN_PAIRS=" + n, "CLIENT_MAX_PAIRS=" + n, "CLIENT_PAIR_ACQUIRE_WAIT_MS=20000"},
	})
	if a := p.do("GET", "/", nil); a.status != 200 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	p.out.untilMetric(`mte_relay_outbound_pairs{state="free"}`, 600)
	refused := p.in.metric(`mte_relay_refusals_total{code="481",reason="body_too_large"}`)
	if calls := p.calls(); refused != 2 || calls != refused+3 && calls != refused+4 {
		t.Errorf("%v pairing calls, %v too large", calls, refused)
	}
}

// A refused pairing call stops the growth for its Retry-After at least, while
// requests go on with the pairs there are.
func TestOutboundPairingPauses(t *testing.T) {
	const wait = 2 * time.Second
	origin := newHolding()
	p := startRelayPair(t, pairOptions{wired: true, origin: muxOrigin{"": http.HandlerFunc(mirror), "held": origin}, out: []string{"CLIENT_PAIR_ACQUIRE_WAIT_MS=300"}})
	t.Cleanup(origin.releaseOnce)
	p.do("GET", "/", nil)
	p.out.untilMetric(`mte_relay_outbound_pairs{state="free"}`, 25)
	var mu sync.Mutex
	var refused, next []time.Time
	p.wire.play(func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path != wire.PairPath {
			return false
		}
		mu.Lock()
		defer mu.Unlock()
		if len(refused) > 0 {
			next = append(next, time.Now())
			return false
		}
		refused = append(refused, time.Now())
		io.Copy(io.Discard, r.Body)
		w.Header().Set("Retry-After", strconv.Itoa(int(wait/time.Second)))
		w.Header().Set("X-MTE-Relay-Error", "488 rate_limited")
		w.WriteHeader(488)
		w.Write(wire.AppendErrorFrame(nil, wire.RateLimited, "too many requests", wire.Cause{}))
		return true
	})
	var held sync.WaitGroup
	for range 25 {
		held.Go(func() { p.try(p.request(context.Background(), "GET", "/held", nil)) })
	}
	if !poll(func() bool { return origin.now.Load() == 25 && len(p.out.log.with("Pairing rate limited")) > 0 }) {
		t.Fatalf("%d requests at the origin, logged %q", origin.now.Load(), p.out.log.with("Pairing rate limited"))
	}
	// Who finds no pair is told how long that will be so.
	a := p.do("GET", "/", nil)
	if a.status != 200 { // it is when this machine was slow
		a.wantRefusal(t, 485, "upstream_capacity", "488 rate_limited")
		if s, _ := strconv.Atoi(a.header.Get("Retry-After")); s < 1 || s > 3 {
			t.Errorf("Retry-After %q", a.header.Get("Retry-After"))
		}
	}
	if !poll(func() bool { a = p.do("GET", "/", nil); return a.status == 200 }) {
		t.Errorf("never again: %d %s", a.status, a.body)
	}
	origin.releaseOnce()
	held.Wait()
	mu.Lock()
	defer mu.Unlock()
	if len(next) == 0 || next[0].Sub(refused[0]) < wait {
		t.Errorf("refused at %v, asked again at %v", refused, next)
	}
	lines := p.out.log.with("Pairing rate limited")
	if len(lines) != 1 || !strings.Contains(lines[0], `"level":"WARN"`) || !strings.Contains(lines[0], `"code":488,"reason":"rate_limited"`) {
		t.Errorf("logged: %q", lines)
	}
}

// A pool that outgrows the other relay's rate of pairing calls is slowed down by
// it, not stopped: no pairing call is made without hope, and no request lost.
func TestOutboundRateLimited(t *testing.T) {
	const burst, n = 60, 62 // calls in a burst, pairs
	origin := newHolding()
	p := startRelayPair(t, pairOptions{origin: origin, in: []string{"RATE_LIMITS=true", "MAX_PAIRS_PER_BATCH=1"},
		out: []string{"CLIENT_MAX_PAIRS=62", "CLIENT_PAIR_ACQUIRE_WAIT_MS=20000"}})
	t.Cleanup(origin.releaseOnce)
	all := p.together(n)
	if !poll(func() bool { return origin.now.Load() == n }) {
		t.Errorf("%d requests at the origin", origin.now.Load())
	}
	origin.releaseOnce()
	for _, a := range <-all {
		if a.status != 200 {
			t.Errorf("%d %s", a.status, a.body)
		}
	}
	if limited, calls := p.in.metric("mte_relay_rate_limited_total"), p.calls(); limited > n-burst+1 || calls > n+limited {
		t.Errorf("%v pairing calls, %v over the limit", calls, limited)
	}
}

// Pairs that idle for longer than the other relay keeps them are given back, down
// to CLIENT_MIN_PAIRS; these are kept alive for good, the token is refreshed, and
// the other relay never has to refuse anything.
func TestOutboundFallsBack(t *testing.T) {
	origin := newHolding()
	var mu sync.Mutex
	routes := map[string]bool{}
	p := startRelayPair(t, pairOptions{wired: true, origin: origin,
		in:  []string{"SESSION_TIMEOUT_SECONDS=3", "TOKEN_MAX_AGE_SECONDS=3"},
		out: []string{"CLIENT_MIN_PAIRS=5", "CLIENT_REFILL_THRESHOLD=2", "CLIENT_PAIR_ACQUIRE_WAIT_MS=20000"}})
	p.wire.play(func(_ http.ResponseWriter, r *http.Request) bool {
		mu.Lock()
		defer mu.Unlock()
		if route := r.Header.Get(wire.RouteHeader); route != "" {
			routes[route] = true
		}
		if !strings.HasPrefix(r.Header.Get("X-MTE-Relay-Client"), "sluice/") {
			t.Errorf("%s %s without X-MTE-Relay-Client", r.Method, r.URL)
		}
		return false
	})
	t.Cleanup(origin.releaseOnce)
	all := p.together(60)
	if !poll(func() bool { return origin.now.Load() == 60 }) {
		t.Errorf("%d requests at the origin", origin.now.Load())
	}
	origin.releaseOnce()
	<-all
	if got := p.in.metric("mte_relay_pairs"); got < 60 {
		t.Errorf("%v pairs for 60 requests", got)
	}
	p.out.untilMetric(`mte_relay_outbound_pairs{state="free"}`, 5)
	p.out.untilMetric(`mte_relay_outbound_pairs{state="retiring"}`, 0)
	p.in.untilMetric("mte_relay_pairs", 5)
	keepalives, auths, calls := p.in.metric(`mte_relay_requests_total{kind="keepalive"}`), p.in.metric(`mte_relay_requests_total{kind="auth"}`), p.calls()
	if !poll(func() bool {
		return p.in.metric(`mte_relay_requests_total{kind="keepalive"}`) >= keepalives+4 && p.in.metric(`mte_relay_requests_total{kind="auth"}`) > auths
	}) {
		t.Error("the pairs are not kept alive, or the token not refreshed")
	}
	if a := p.do("GET", "/", nil); a.status != 200 {
		t.Errorf("%d %s", a.status, a.body)
	}
	if p.pairs() != 5 || p.calls() != calls {
		t.Errorf("%v pairs, %v calls more", p.pairs(), p.calls()-calls)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(routes) != 1 {
		t.Errorf("routes %v", routes)
	}
}

// Callers that abandon streams, fifty a second: their pairs come back in one
// pairing call a second, and no caller finds none.
func TestAcceptOutboundAbandoned(t *testing.T) {
	const rate = 50
	seconds := scaled(60, 6)
	if raceEnabled && !fullScale() {
		seconds = 3
	}
	p := startRelayPair(t, pairOptions{origin: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "begin")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}), in: []string{"RATE_LIMITS=true"}})
	p.out.untilMetric(`mte_relay_outbound_pairs{state="free"}`, 0)
	begun := time.Now()
	abandon := func() {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		res, err := p.client.Do(p.request(ctx, "GET", "/", nil))
		if err != nil {
			t.Error(err)
			return
		}
		defer res.Body.Close()
		if _, err := io.ReadFull(res.Body, make([]byte, 5)); res.StatusCode != 200 || err != nil {
			t.Errorf("a stream begins with %d, %v", res.StatusCode, err)
		}
	}
	abandon()
	tick := time.NewTicker(time.Second / rate)
	defer tick.Stop()
	var all sync.WaitGroup
	// What the ramp takes is not counted: until there are pairs for two seconds.
	var before float64
	var since time.Time
	for i := range seconds * rate {
		<-tick.C
		all.Go(abandon)
		if i == 2*rate {
			before, since = p.calls(), time.Now()
		}
	}
	calls, passed := p.calls()-before, time.Since(since)
	all.Wait()
	p.out.untilMetric(`mte_relay_outbound_pairs{state="in_use"}`, 0)
	retired := p.out.metric("mte_relay_pairs_retired_total")
	t.Logf("%v pairs retired in %v; %v pairing calls, then %v in %v", retired, time.Since(begun).Round(time.Millisecond), before, calls, passed.Round(time.Millisecond))
	if retired != float64(seconds*rate+1) {
		t.Errorf("%v pairs retired by %d streams", retired, seconds*rate+1)
	}
	// One a second, and one more for each time that a late machine emptied the pool.
	if most := passed.Seconds()*1.25 + 3; calls > most {
		t.Errorf("%v pairing calls in %v", calls, passed)
	}
	if before > 15 {
		t.Errorf("%v pairing calls in the first two seconds", before)
	}
	if limited := p.in.metric("mte_relay_rate_limited_total"); limited != 0 {
		t.Errorf("%v control calls over the rate limit", limited)
	}
	if n := p.out.metric(`mte_relay_refusals_total{code="485",reason="upstream_capacity"}`); n != 0 {
		t.Errorf("%v callers found no pair", n)
	}
}
