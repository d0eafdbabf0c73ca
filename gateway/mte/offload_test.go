package mte

import (
	"bytes"
	"fmt"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"sluice/codec/frame"
	"sluice/kyber"
	"sluice/loop"
)

// A workersHeld is a job that keeps every worker of a relay busy, and as many more
// steps waiting as it was made with.
type workersHeld struct {
	let  chan struct{}
	once sync.Once
	done chan struct{}
}

// holdWorkers keeps the workers from all other work until release, with so many
// steps in front of whatever comes.
func holdWorkers(t *testing.T, r *testRelay, waiting int) *workersHeld {
	t.Helper()
	h := &workersHeld{let: make(chan struct{}), done: make(chan struct{})}
	if !r.role.kem.Submit(h, runtime.GOMAXPROCS(0)+waiting) {
		t.Fatal("refused by idle workers")
	}
	t.Cleanup(h.release)
	r.await("every worker is held", func() bool { return r.role.kem.Waiting() == waiting })
	return h
}

func (h *workersHeld) Step(*kyber.Engine, int) { <-h.let }
func (h *workersHeld) Done()                   { close(h.done) }
func (h *workersHeld) release()                { h.once.Do(func() { close(h.let) }) }

// start sends a request and answers later.
func (c *testClient) start(path, body string) <-chan reply {
	c.r.t.Helper()
	conn := c.dial()
	answer := make(chan reply, 1)
	go func() {
		defer close(answer)
		fmt.Fprintf(conn, "%s%s", c.head("POST", path, fmt.Sprintf("Content-Length: %d", len(body))), body)
		if a, err := readReply(conn, "POST"); err == nil {
			answer <- a
		}
	}()
	return answer
}

// TestLargeControlBodies: what takes long to read is read by a worker, while the
// loops serve others; a small body needs no worker.
func TestLargeControlBodies(t *testing.T) {
	r := startRelay(t, relayOptions{})
	c := r.client()
	held := holdWorkers(t, r, 0)
	padded := func(body string) string { return strings.Repeat(" ", parseHere) + body }
	pair := c.start(frame.PairPath, padded("{"))
	alive := c.start(frame.KeepalivePath, padded(string(frame.AppendKeepalive(nil, &c.token, nil))))
	r.await("both bodies are with the workers", func() bool { return r.role.kem.Waiting() == 2 })
	for range 20 { // both loops get some
		c.auth()
		c.call("POST", frame.PairPath, "{").wantRefusal(t, frame.InvalidRequest, frame.NoReason)
	}
	select {
	case a := <-pair:
		t.Fatalf("a large body was read by a loop: %d", a.status)
	case a := <-alive:
		t.Fatalf("a large body was read by a loop: %d", a.status)
	default:
	}
	held.release()
	(<-pair).wantRefusal(t, frame.InvalidRequest, frame.NoReason)
	if a := <-alive; a.status != 200 {
		t.Fatalf("keepalive: %d %s", a.status, a.body)
	}
}

// TestHostileControlBody: the worst a body of the largest size can do does not hold
// up a loop. Reading it by itself takes many times as long as the longest turn.
func TestHostileControlBody(t *testing.T) {
	r := startRelay(t, relayOptions{})
	c := r.client()
	var b []byte // members in descending order, which are sorted to find a key twice
	for i := 600_000; len(b) < 4<<20-1024; i-- {
		b = fmt.Appendf(append(b, ','), `"%06d":0`, i)
	}
	b[0] = '{'
	b = append(b, '}')
	// On a machine with other work both are only sometimes what they should be.
	for try := 0; ; try++ {
		for _, l := range r.loops {
			l.Stats().LongestTurn.Store(0)
		}
		var req frame.PairRequest
		start := time.Now()
		if err := req.Parse(bytes.Clone(b), 100, 512); err == nil {
			t.Fatal("accepted")
		}
		parse := time.Since(start)
		c.call("POST", frame.PairPath, string(b)).wantRefusal(t, frame.InvalidRequest, frame.NoReason)
		turn := time.Duration(0)
		for _, l := range r.loops {
			turn = max(turn, time.Duration(l.Stats().LongestTurn.Load()))
		}
		if turn < parse/4 {
			t.Logf("reading takes %v, the longest turn %v", parse, turn)
			return
		}
		if try == 20 {
			t.Fatalf("a turn of %v for a body that takes %v to read", turn, parse)
		}
	}
}

// TestWorkersFull: with the workers' queue full pairing calls wait, nothing else
// does, and none is lost. Whoever leaves meanwhile gets no pair.
func TestWorkersFull(t *testing.T) {
	bothStores(t, func(t *testing.T, later bool) {
		r := startRelay(t, relayOptions{later: later})
		c := r.client()
		call := func(n int) string {
			offers, _ := c.offer(n)
			return string(frame.AppendPairRequest(nil, &c.token, c.about.KyberStrength, offers))
		}
		held := holdWorkers(t, r, kyberQueue)
		var answers []<-chan reply
		for _, n := range []int{1, 20, 3} {
			answers = append(answers, c.start(frame.PairPath, call(n)))
		}
		gone := c.dial()
		body := call(20)
		fmt.Fprintf(gone, "%s%s", c.head("POST", frame.PairPath, fmt.Sprintf("Content-Length: %d", len(body))), body)
		r.await("the calls have arrived", func() bool { return r.role.Active() == 4 })
		if n := r.role.kem.Waiting(); n != kyberQueue {
			t.Fatalf("%d steps wait in a queue of %d", n, kyberQueue)
		}
		gone.Close()
		c.auth()
		held.release()
		for i, answer := range answers {
			a := <-answer
			if made, err := frame.ParsePairAnswers(a.body); err != nil || a.status != 200 {
				t.Fatalf("call %d: %d %d pairs, %v", i, a.status, len(made), err)
			}
		}
		r.await("no call is left", func() bool { return r.role.Active() == 0 })
		// The one that left may have been served before its end was seen.
		if n := r.role.pairs.Count(); n != 24 && n != 44 {
			t.Errorf("%d pairs are held", n)
		}
	})
}

// TestPairingGone: a client that leaves while workers compute for it gets no pair.
func TestPairingGone(t *testing.T) {
	r := startRelay(t, relayOptions{})
	c := r.client()
	offers, _ := c.offer(3)
	body := frame.AppendPairRequest(nil, &c.token, c.about.KyberStrength, offers)
	held := holdWorkers(t, r, 0)
	conn := c.dial()
	conn.Write(append([]byte(c.head("POST", frame.PairPath, fmt.Sprintf("Content-Length: %d", len(body)))), body...))
	r.await("the pairing is with the workers", func() bool { return r.role.kem.Waiting() > 0 })
	conn.(*net.TCPConn).SetLinger(0)
	conn.Close()
	r.await("the connection is gone", func() bool { return r.front.Stats.Open.Load() == 0 })
	held.release()
	r.await("the call is done", func() bool { return r.role.Active() == 0 })
	if n := r.role.pairs.Count(); n != 0 {
		t.Errorf("%d pairs are held", n)
	}
}

// TestPairingsUseRoomAgain: calls of all sizes and fates, some at a time, whose
// memory the next ones get, do not see each other's.
func TestPairingsUseRoomAgain(t *testing.T) {
	r := startRelay(t, relayOptions{}, "MAX_PAIRS_PER_CLIENT=100000", "MAX_PAIRS_PER_BATCH=200")
	c := r.client()
	sizes := []int{1, 100, 3, 200, 2, 50, 1, 130, 4}
	for round := range 4 {
		var calls []func()
		for i, n := range sizes {
			offers, keys := c.offer(n)
			bad := (i+round)%3 == 0
			if bad {
				offers[n-1].Profile = []byte("mte/other")
			}
			answer := c.start(frame.PairPath, string(frame.AppendPairRequest(nil, &c.token, c.about.KyberStrength, offers)))
			calls = append(calls, func() {
				a := <-answer
				if bad {
					a.wantRefusal(t, frame.ProfileMismatch, frame.NoReason)
					return
				}
				made, err := frame.ParsePairAnswers(a.body)
				if err != nil || len(made) != n {
					t.Fatalf("%d pairs: %d, %d made, %v", n, a.status, len(made), err)
				}
				pairs := c.assemble(offers, keys, made)
				for _, p := range []*testPair{pairs[0], pairs[n/2], pairs[n-1]} {
					if e := p.read(c.post(p.get("x"))); e.status != 200 {
						t.Errorf("a pair of %d: %d", n, e.status)
					}
				}
			})
		}
		for _, finish := range calls {
			finish()
		}
	}
	for _, s := range r.role.shards {
		kept := make(chan int)
		s.l.Post(loop.Func(func(*loop.Loop) { kept <- len(s.freePairings) }))
		if n := <-kept; n > keptPairings {
			t.Errorf("%d pairings are kept", n)
		}
	}
}

// TestPairingAllocations: what is left of a pairing is what the store keeps of each
// pair, two objects and its part of a map; client and call are in the figure, too.
func TestPairingAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	const calls, pairs, bound = 6, 100, 4
	r := startRelay(t, relayOptions{})
	c := r.client()
	var bodies []string
	for range 2 * calls {
		offers, _ := c.offer(pairs)
		bodies = append(bodies, string(frame.AppendPairRequest(nil, &c.token, c.about.KyberStrength, offers)))
	}
	mallocs := func(bodies []string) uint64 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for _, body := range bodies {
			if a := c.call("POST", frame.PairPath, body); a.status != 200 {
				t.Fatalf("%d %s", a.status, a.body)
			}
		}
		runtime.ReadMemStats(&after)
		return after.Mallocs - before.Mallocs
	}
	mallocs(bodies[:calls])
	if got := float64(mallocs(bodies[calls:])) / (calls * pairs); got > bound {
		t.Errorf("%.1f allocations per pair", got)
	} else {
		t.Logf("%.1f allocations per pair", got)
	}
}
