package gateway_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// The pool follows a burst with few pairing calls, none of which is one too many
// for the other relay's rate limits.
func TestOutboundBurst(t *testing.T) {
	n := scaled(1024, 256)
	together := make(chan struct{})
	var arrived atomic.Int64
	p := startRelayPair(t, pairOptions{origin: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if arrived.Add(1) == int64(n) {
			close(together) // all are in flight at once
		}
		<-together
	}), in: []string{"RATE_LIMITS=true"}, out: []string{"CLIENT_PAIR_ACQUIRE_WAIT_MS=20000"}})
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			if a, err := p.try(p.request(t.Context(), "GET", "/", nil)); err != nil || a.status != 200 {
				t.Errorf("%d %s, %v", a.status, a.body, err)
			}
		})
	}
	all.Wait()
	if calls := p.in.metric(`mte_relay_requests_total{kind="pair"}`); calls >= 20 {
		t.Errorf("%v pairing calls", calls)
	}
	if limited := p.in.metric("mte_relay_rate_limited_total"); limited != 0 {
		t.Errorf("%v calls over the rate limit", limited)
	}
}

// A pool of one size comes with one call, at the strongest setting and under the
// other relay's bound of a control body.
func TestOutboundPinned(t *testing.T) {
	const n = "850"
	p := startRelayPair(t, pairOptions{
		origin: http.HandlerFunc(mirror),
		in:     []string{"KYBER_STRENGTH=1024", "MAX_PAIRS_PER_BATCH=" + n},
		out:    []string{"CLIENT_INITIAL_PAIRS=" + n, "CLIENT_MIN_PAIRS=" + n, "CLIENT_MAX_PAIRS=" + n, "CLIENT_PAIR_ACQUIRE_WAIT_MS=20000"},
	})
	if a := p.do("GET", "/", nil); a.status != 200 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	p.out.untilMetric(`mte_relay_outbound_pairs{state="free"}`, 850)
	if calls := p.in.metric(`mte_relay_requests_total{kind="pair"}`); calls != 1 {
		t.Errorf("%v pairing calls", calls)
	}
}

// Requests at twice the capacity: each is answered or refused for want of a pair,
// none is executed twice or lost, and the pairs add up.
func TestAcceptOutboundOverload(t *testing.T) {
	n := scaled(100000, 10000)
	const pairs = 32
	executed := make([]atomic.Int32, n)
	p := startRelayPair(t, pairOptions{origin: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		i, _ := strconv.Atoi(r.URL.Query().Get("i"))
		executed[i].Add(1)
		time.Sleep(time.Duration(rand.IntN(4)) * time.Millisecond) // the work of the origin
		fmt.Fprint(w, i)
	}), out: []string{"CLIENT_MAX_PAIRS=32", "CLIENT_PAIR_ACQUIRE_WAIT_MS=4"}})
	stop := make(chan struct{})
	var watch sync.WaitGroup
	watch.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			if err := p.out.g.CheckPairs(); err != nil {
				t.Error(err)
				return
			}
			runtime.Gosched()
		}
	})
	var next, answered, refused, left atomic.Int64
	var all sync.WaitGroup
	for range 2 * pairs {
		all.Go(func() {
			for {
				i := next.Add(1) - 1
				if i >= int64(n) {
					return
				}
				ctx, cancel := context.Background(), context.CancelFunc(func() {})
				if i%50 == 0 { // some leave
					ctx, cancel = context.WithTimeout(ctx, time.Duration(rand.IntN(3000))*time.Microsecond)
				}
				a, err := p.try(p.request(ctx, "GET", fmt.Sprintf("/?i=%d", i), nil))
				cancel()
				switch {
				case err != nil && i%50 == 0:
					left.Add(1)
				case err != nil:
					t.Errorf("request %d: %v", i, err)
				case a.status == 200 && a.body == fmt.Sprint(i) && executed[i].Load() == 1:
					answered.Add(1)
				case a.status == 485 && a.header.Get("Retry-After") != "" && executed[i].Load() == 0:
					refused.Add(1)
				case a.status == 502 && executed[i].Load() == 0:
					// A pair that somebody left was busy still, or retired: its next user pays.
					left.Add(1)
				default:
					t.Errorf("request %d: %d %s, executed %d times", i, a.status, a.body, executed[i].Load())
				}
			}
		})
	}
	all.Wait()
	close(stop)
	watch.Wait()
	t.Logf("%d answered, %d refused, %d left", answered.Load(), refused.Load(), left.Load())
	if answered.Load() < int64(n)/3 || left.Load() > int64(n)/20 {
		t.Errorf("%d of %d answered, %d left", answered.Load(), n, left.Load())
	}
	for i := range executed {
		if got := executed[i].Load(); got > 1 {
			t.Errorf("request %d was executed %d times", i, got)
		}
	}
	p.out.untilMetric(`mte_relay_outbound_pairs{state="in_use"}`, 0)
}

// A caller that does not read stops the origin, an origin that does not read
// stops the caller, and neither fills our memory.
func TestOutboundBackpressure(t *testing.T) {
	const size = 96 << 20 // more than all kernel buffers on the way
	var sent atomic.Int64
	release := make(chan struct{})
	p := startRelayPair(t, pairOptions{origin: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == "POST" {
			<-release
			n, _ := io.Copy(io.Discard, r.Body)
			fmt.Fprint(w, n)
			return
		}
		piece := make([]byte, 64<<10)
		for sent.Load() < size {
			if _, err := w.Write(piece); err != nil {
				return
			}
			sent.Add(int64(len(piece)))
		}
	})})
	// A test that failed must not wait for its release.
	released := sync.OnceFunc(func() { close(release) })
	t.Cleanup(released)
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	p.do("GET", "/warm?", nil)
	sent.Store(0)
	before := heap()
	res, err := p.client.Get("http://" + outHost + "/")
	if err != nil {
		t.Fatal(err)
	}
	stood := stands(sent.Load)
	if stood >= size/2 {
		t.Errorf("the origin sent %d bytes to a caller that reads none", stood)
	}
	if after := heap(); after > before+8<<20 {
		t.Errorf("heap %d bytes, %d before", after, before)
	}
	if n, err := io.Copy(io.Discard, res.Body); err != nil || n != size {
		t.Errorf("%d bytes, %v", n, err)
	}
	res.Body.Close()

	var taken atomic.Int64
	body := &countedReader{r: io.LimitReader(new(noise), size), n: &taken}
	done := make(chan answer)
	go func() { done <- p.do("POST", "/", body) }()
	before = heap()
	if stood := stands(taken.Load); stood == 0 || stood >= size/2 {
		t.Errorf("%d bytes of an upload were taken for an origin that reads none", stood)
	}
	if after := heap(); after > before+8<<20 {
		t.Errorf("heap %d bytes, %d before", after, before)
	}
	released()
	if a := <-done; a.body != fmt.Sprint(size) {
		t.Errorf("the origin got %d %s", a.status, a.body)
	}
}

type countedReader struct {
	r io.Reader
	n *atomic.Int64
}

func (c *countedReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n.Add(int64(n))
	return n, err
}
