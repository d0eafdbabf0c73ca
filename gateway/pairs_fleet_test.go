package gateway_test

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	wire "sluice/codec/frame"
	"sluice/gateway/store/redistest"
)

// A pairFleet is three processes that serve one domain from one Redis.
type pairFleet struct {
	t     testing.TB
	nodes []*mteNode
	cmds  []*exec.Cmd
}

// echoTarget answers with the path and query it was asked for.
func echoTarget() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if d, err := time.ParseDuration(r.URL.Query().Get("wait")); err == nil {
			select {
			case <-time.After(d):
			case <-r.Context().Done():
			}
		}
		fmt.Fprint(w, r.URL.RequestURI())
	})
}

// startPairFleet starts the processes and waits until they are ready.
func startPairFleet(t testing.TB, redisURL string, settings ...string) *pairFleet {
	t.Helper()
	f := &pairFleet{t: t}
	domains := domainMap("localhost", startTestOrigin(t, echoTarget()))
	for range 3 {
		port, admin := nextPort(), nextPort()
		cmd := exec.Command(os.Args[0], "-test.run=none")
		cmd.Env = append(os.Environ(), "SLUICE_TEST_SERVE=1", "PASEO_RELAY_PORT=0", "PORT="+port, "ADMIN_PORT="+admin,
			"RATE_LIMITS=false", "DRAIN_SECONDS=1", "KYBER_STRENGTH=512", "REDIS_URL="+redisURL, domains)
		cmd.Env = append(cmd.Env, settings...)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
		f.nodes = append(f.nodes, &mteNode{t: t, addr: "127.0.0.1:" + port, admin: "127.0.0.1:" + admin})
		f.cmds = append(f.cmds, cmd)
	}
	f.awaitReady()
	return f
}

func (f *pairFleet) ready(n *mteNode) bool {
	res, err := http.Get("http://" + n.admin + "/ready")
	if err != nil {
		return false
	}
	res.Body.Close()
	return res.StatusCode == 200
}

func (f *pairFleet) awaitReady() {
	f.t.Helper()
	for _, n := range f.nodes {
		if !poll(func() bool { return f.ready(n) }) {
			f.t.Fatalf("%s is not ready", n.admin)
		}
	}
}

// A fleetPair is a pair of a client that may turn to any node.
type fleetPair struct {
	*mtePair
	at []*mteClient // the client as each node knows it
}

// client authenticates and makes n pairs, each at another node.
func (f *pairFleet) client(n int) (list []*fleetPair) {
	f.t.Helper()
	c := newMTEClient(f.t, f.nodes[0], "localhost")
	var at []*mteClient
	for _, n := range f.nodes {
		k := *c
		k.n = n
		at = append(at, &k)
	}
	for i := range n {
		p, err := at[i%len(at)].pair()
		if err != nil {
			f.t.Fatal(err)
		}
		list = append(list, &fleetPair{p, at})
	}
	return list
}

// get asks a node through the pair.
func (p *fleetPair) get(node int, path string) error {
	p.c = p.at[node]
	body, err := p.mtePair.get(path)
	if err == nil && body != "/"+path {
		err = fmt.Errorf("answered %q, want %q", body, "/"+path)
	}
	return err
}

// each runs f for every pair at once.
func (f *pairFleet) each(pairs []*fleetPair, do func(i int, p *fleetPair)) {
	var wg sync.WaitGroup
	slots := make(chan struct{}, 64)
	for i, p := range pairs {
		slots <- struct{}{}
		wg.Go(func() {
			do(i, p)
			<-slots
		})
	}
	wg.Wait()
}

// commands is how many scripts Redis has run.
func commands(s *redistest.Server) (n int) {
	_, rest, _ := strings.Cut(s.Do("INFO", "commandstats"), "cmdstat_evalsha:calls=")
	fmt.Sscanf(rest, "%d", &n)
	return n
}

// roundRobin has each request of each pair served by the node that pick says.
func roundRobin(t *testing.T, pairsAndRequests [2]int, sticky bool, most float64, settings ...string) {
	s := redistest.Start(t)
	f := startPairFleet(t, s.URL(), settings...)
	const perClient = 4
	var pairs []*fleetPair
	for len(pairs) < pairsAndRequests[0] {
		pairs = append(pairs, f.client(perClient)...)
	}
	turns := pairsAndRequests[1] / len(pairs)
	before, began := commands(s), time.Now()
	f.each(pairs, func(i int, p *fleetPair) {
		for turn := range turns {
			node := (i + turn) % len(f.nodes)
			if sticky {
				node = (i / perClient) % len(f.nodes)
			}
			if err := p.get(node, fmt.Sprintf("p%d-%d", i, turn)); err != nil {
				t.Errorf("pair %d, request %d: %v", i, turn, err)
				return
			}
		}
	})
	n := float64(commands(s)-before) - 3*(time.Since(began).Seconds()+1) // signs of life
	requests := float64(turns * len(pairs))
	t.Logf("%.0f requests on %d pairs in %v, %.2f commands of Redis each", requests, len(pairs), time.Since(began).Round(time.Millisecond), n/requests)
	if n/requests > most {
		t.Errorf("%.2f commands each, at most %.2f are due", n/requests, most)
	}
}

var (
	smallFleet = [2]int{24, 1200}
	fullFleet  = [2]int{200, 50_000}
)

// Every request of a pair goes to the next node.
func TestFleetRoundRobin(t *testing.T) {
	t.Parallel()
	roundRobin(t, smallFleet, false, 2.05)
}

func TestAcceptFleetRoundRobin(t *testing.T) {
	onlyFull(t)
	roundRobin(t, fullFleet, false, 2.05)
}

// With sticky routing and the cache a request is one write; the first of a pair
// reads it, and clients that were idle are read again.
func TestFleetSticky(t *testing.T) {
	t.Parallel()
	roundRobin(t, smallFleet, true, 1.2, "LOCAL_STATE_CACHE=true")
}

func TestAcceptFleetSticky(t *testing.T) {
	onlyFull(t)
	roundRobin(t, fullFleet, true, 1.1, "LOCAL_STATE_CACHE=true")
}

// registered reports whether an error is a refusal of the registry; decoding and
// encoding from an old state would be none, or would be told by the pair's own
// decoder.
func registered(err error) (wire.Reason, bool) {
	var r *mteRefusal
	if !errors.As(err, &r) {
		return wire.NoReason, false
	}
	return wire.ReasonOf(r.Code, r.Reason)
}

// With the cache and routing that is not sticky requests are right or refused.
func notSticky(t *testing.T, pairsAndRequests [2]int) {
	s := redistest.Start(t)
	f := startPairFleet(t, s.URL(), "LOCAL_STATE_CACHE=true")
	var pairs []*fleetPair
	for len(pairs) < pairsAndRequests[0] {
		pairs = append(pairs, f.client(2)...)
	}
	turns := pairsAndRequests[1] / len(pairs)
	var right, notOwner atomic.Int64
	f.each(pairs, func(i int, p *fleetPair) {
		for turn := range turns {
			err := p.get((i+turn)%len(f.nodes), fmt.Sprintf("p%d-%d", i, turn))
			r, ok := registered(err)
			switch {
			case err == nil:
				right.Add(1)
			case ok && r == wire.NotOwner:
				notOwner.Add(1)
			default:
				// 63 requests that were not decoded put a pair out of step.
				if !ok || r != wire.DecodeFailed {
					t.Errorf("pair %d, request %d: %v", i, turn, err)
				}
				return
			}
		}
	})
	t.Logf("%d right, %d refused", right.Load(), notOwner.Load())
	if right.Load() == 0 || notOwner.Load() == 0 {
		t.Errorf("%d right, %d refused", right.Load(), notOwner.Load())
	}
}

func TestFleetNotSticky(t *testing.T) {
	t.Parallel()
	notSticky(t, smallFleet)
}

func TestAcceptFleetNotSticky(t *testing.T) {
	onlyFull(t)
	notSticky(t, fullFleet)
}

// A node that is killed in the middle of requests takes the pairs of those with
// it: they are busy until the lock ends, and gone afterwards. Others go on.
func TestFleetKilledNode(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	f := startPairFleet(t, s.URL())
	pairs := f.client(6)
	for i, p := range pairs {
		if err := p.get(i%3, "warm"); err != nil {
			t.Fatal(err)
		}
	}
	var wg sync.WaitGroup
	for _, p := range pairs[:2] {
		wg.Go(func() {
			if err := p.get(2, "held?wait=1m"); err == nil {
				t.Error("a killed node answered")
			}
		})
	}
	if !poll(func() bool { return f.nodes[2].metric("mte_relay_pairs_in_use") == 2 }) {
		t.Fatal("the requests are not under way")
	}
	f.cmds[2].Process.Kill()
	wg.Wait()
	for i, p := range pairs[2:] {
		if err := p.get(i%2, "on"); err != nil {
			t.Errorf("a pair that was not in use: %v", err)
		}
	}
	var again [2][]byte
	for i, p := range pairs[:2] {
		p.c = p.at[0]
		again[i] = p.request("GET", "again", false)
		if _, err := p.send(again[i]); !refusedFor(err, wire.PairBusy) {
			t.Errorf("right after the end of its node: %v", err)
		}
	}
	if !fullScale() {
		return // the lock lasts 30 s
	}
	for i, p := range pairs[:2] {
		if !pollFor(time.Minute, func() bool {
			_, err := p.send(again[i])
			if !refusedFor(err, wire.PairBusy) && !refusedFor(err, wire.PairNotFound) {
				t.Fatalf("while the lock ends: %v", err)
			}
			return refusedFor(err, wire.PairNotFound)
		}) {
			t.Error("the lock does not end")
		}
	}
}

func TestAcceptFleetKilledNode(t *testing.T) {
	onlyFull(t)
	TestFleetKilledNode(t)
}

// pollFor is poll with a patience of its own.
func pollFor(d time.Duration, cond func() bool) bool {
	for end := time.Now().Add(d); !cond(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}

// Outages of Redis are told, and service is back soon after, with new pairs.
func TestFleetRedisOutages(t *testing.T) {
	t.Parallel()
	for name, act := range map[string]struct {
		begin, end func(s *redistest.Server)
		gone       bool // pairs are, behind it
	}{
		"paused":          {(*redistest.Server).Pause, (*redistest.Server).Resume, false},
		"restarted empty": {(*redistest.Server).Kill, (*redistest.Server).Restart, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t)
			f := startPairFleet(t, s.URL(), "REDIS_READ_TIMEOUT_SECONDS=1", "REDIS_OP_TIMEOUT_SECONDS=2")
			p := f.client(1)[0]
			if err := p.get(0, "before"); err != nil {
				t.Fatal(err)
			}
			act.begin(s)
			for i := range f.nodes {
				p.c = p.at[i]
				if _, err := p.send(p.request("GET", "during", false)); !refusedFor(err, wire.StateStoreUnavailable) {
					t.Errorf("during it: %v", err)
				}
			}
			for _, n := range f.nodes {
				if !poll(func() bool { return !f.ready(n) }) {
					t.Error("a node is ready without Redis")
				}
			}
			if _, err := p.at[0].pair(); err == nil {
				t.Error("a pair was made without Redis")
			}
			act.end(s)
			ended := time.Now()
			f.awaitReady()
			if d := time.Since(ended); d > 50*time.Second { // the aim is 5 s
				t.Errorf("back after %v", d)
			}
			// Calls that reached Redis behind their time may have locked the pair.
			p.c = p.at[1]
			_, err := p.send(p.request("GET", "after", false))
			switch {
			case act.gone && !refusedFor(err, wire.InvalidClientID):
				t.Errorf("a pair behind it: %v", err)
			case !act.gone && err != nil && !refusedFor(err, wire.PairNotFound) && !refusedFor(err, wire.PairBusy):
				t.Errorf("a pair behind it: %v", err)
			}
			for i, q := range f.client(3) {
				if err := q.get((i+1)%3, "new"); err != nil {
					t.Errorf("a new pair: %v", err)
				}
			}
		})
	}
}

// A node that stops gives the clients it leases back: others serve them at once,
// with the same pairs.
func TestFleetStoppedNode(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	f := startPairFleet(t, s.URL(), "LOCAL_STATE_CACHE=true")
	pairs := f.client(3)
	for _, p := range pairs {
		if err := p.get(0, "first"); err != nil {
			t.Fatal(err)
		}
		p.c = p.at[1]
		res, err := p.c.raw(p.request("GET", "refused", false))
		if err != nil || !strings.HasPrefix(res, "486\n") || !strings.Contains(res, "Retry-After: ") || !strings.Contains(res, "not_owner") {
			t.Errorf("another node: %q %v", res, err)
		}
	}
	f.cmds[0].Process.Signal(syscall.SIGTERM)
	f.cmds[0].Wait()
	for _, p := range pairs {
		if err := p.get(1, "second"); err != nil {
			t.Errorf("behind it: %v", err)
		}
	}
}

// A gateway leaves nothing of its Redis client behind.
func TestRedisGatewayStops(t *testing.T) {
	for _, cache := range []string{"false", "true"} {
		t.Run(cache, func(t *testing.T) {
			s := redistest.Start(t)
			n := startMTEBehind(t, echoTarget(), "REDIS_URL="+s.URL(), "LOCAL_STATE_CACHE="+cache)
			(&pairFleet{t: t, nodes: []*mteNode{n}}).awaitReady()
			http.DefaultClient.CloseIdleConnections()
			p, err := newMTEClient(t, n, "localhost").pair()
			if err != nil {
				t.Fatal(err)
			}
			for i := range 3 {
				path := fmt.Sprint("x", i)
				if body, err := p.get(path); err != nil || body != "/"+path {
					t.Errorf("%q %v", body, err)
				}
			}
			if n.metric("sluice_redis_up") != 1 || n.metric("sluice_redis_calls_max") == 0 || n.metric("sluice_redis_seconds_count") < 3 {
				t.Error("the metrics do not tell of Redis")
			}
		})
	}
}
