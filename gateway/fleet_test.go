package gateway_test

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"sluice/gateway"
	"sluice/gateway/config"
	"sluice/gateway/store"
	"sluice/gateway/store/redistest"
	"sluice/loop"
)

// fleetLease is the length of leases in tests of fleets; everything else about
// ownership has the contract's proportion to it.
const fleetLease = 6 * time.Second

// A forward is payload that a destination took, and by which token.
type forward struct {
	at    int64 // loop.Now
	token string
}

// forwards records every forward of the nodes of a test, by serverId.
type forwards struct {
	mu   sync.Mutex
	list map[string][]forward
}

func (f *forwards) note(t *store.Tenure) {
	x := forward{loop.Now(), t.Token()}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.list == nil {
		f.list = make(map[string][]forward)
	}
	f.list[t.ServerID()] = append(f.list[t.ServerID()], x)
}

// spans returns when each token forwarded first and last.
func (f *forwards) spans(sid string) map[string][2]int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	spans := make(map[string][2]int64)
	for _, x := range f.list[sid] {
		s, ok := spans[x.token]
		if !ok {
			s[0] = x.at
		}
		s[1] = x.at
		spans[x.token] = s
	}
	return spans
}

// fleetNode starts a node of a fleet in this process and waits until it is ready.
func fleetNode(t testing.TB, record *forwards, target, url string, settings ...string) *node {
	t.Helper()
	start := func(cfg *config.Config, log *slog.Logger) (*gateway.Gateway, error) {
		return gateway.StartFleetNode(cfg, log, fleetLease, record.note)
	}
	n := startNodeBy(t, start, append(settings, "OWNERSHIP_TARGET="+target, "REDIS_URL="+url)...)
	n.untilReady()
	return n
}

// fleetProcess starts one as a process; a lease of 0 is the contract's.
func fleetProcess(t testing.TB, lease time.Duration, target, url string, settings ...string) *served {
	t.Helper()
	settings = append(settings, "OWNERSHIP_TARGET="+target, "REDIS_URL="+url)
	if lease != 0 {
		settings = append(settings, "SLUICE_TEST_LEASE="+lease.String())
	}
	s := serve(t, settings...)
	s.untilReady()
	return s
}

func (n *node) untilReady() {
	n.t.Helper()
	if !poll(func() bool { return httpDo(n.t, n.addr, "GET", "/ready").status == 200 }) {
		n.t.Fatal("never ready")
	}
}

// rerouted expects a 409 that names this target.
func (n *node) rerouted(query, target string) {
	n.t.Helper()
	h := n.refused(query, 409, "")
	if h.Get("x-reroute-target") != target || h.Get("Content-Length") != "0" {
		n.t.Fatalf("a 409 with %v, expected the target %s", h, target)
	}
}

// A flow is a v1 session with a client that never stops to send.
type flow struct {
	got  atomic.Int64 // messages that the server received
	last atomic.Int64 // when it received the last one, loop.Now
	end  [2]chan flowEnd
}

type flowEnd struct {
	code   uint16
	reason string
	at     int64 // loop.Now
	err    error
}

// startFlow lets messages flow from c to s, until they are closed.
func startFlow(s, c *wsClient) *flow {
	f := &flow{end: [2]chan flowEnd{make(chan flowEnd, 1), make(chan flowEnd, 1)}}
	go func() {
		for i := 0; c.write(frame(opText, true, fmt.Appendf(nil, "message %d", i))) == nil; i++ {
			time.Sleep(time.Millisecond) // the pace of the test, not what it waits for
		}
	}()
	for i, w := range []*wsClient{s, c} {
		go func() {
			for {
				m, err := w.message(10 * patience)
				switch {
				case err != nil:
					f.end[i] <- flowEnd{err: err, at: loop.Now()}
					return
				case m.op == opClose:
					f.end[i] <- flowEnd{m.code, m.reason, loop.Now(), nil}
					w.write(closeFrame(m.code, ""))
					return
				}
				f.last.Store(loop.Now())
				f.got.Add(1)
			}
		}()
	}
	return f
}

func (f *flow) flows(t testing.TB, n *node, what string) {
	t.Helper()
	from := f.got.Load()
	if !poll(func() bool { return f.got.Load() >= from+20 }) {
		t.Fatalf("%s: nothing is forwarded any more", what)
	}
}

// contend opens a v1 session at n as soon as it is admitted there.
func contend(t testing.TB, n *node, sid string) *flow {
	t.Helper()
	for end := time.Now().Add(patience + time.Minute); ; time.Sleep(5 * time.Millisecond) {
		s, err := n.dial(wsQuery(sid, "server", 1, "-"), "contender")
		if err == nil {
			return startFlow(s, n.v1("client", sid))
		}
		var no *refusedError
		if !errors.As(err, &no) || no.status != 409 {
			t.Fatalf("the other node answers %v", err)
		}
		if time.Now().After(end) {
			t.Fatal("the session never moves")
		}
	}
}

// cutOff separates a node from Redis under traffic. It closes its sockets no
// later than its lease ends, nothing is forwarded by both nodes, and after the
// healing one owner is left.
func cutOff(t *testing.T, lease time.Duration, separate func(*redistest.Proxy), record *forwards, start func(target, url string) *node) {
	r := redistest.Start(t)
	p := redistest.StartProxy(t, r.Addr)
	a, b := start("A", p.URL()), start("B", r.URL())
	sid := a.sid()
	there := startFlow(a.v1("server", sid), a.v1("client", sid))
	there.flows(t, a, "before")
	b.rerouted(wsQuery(sid, "server", 1, "-"), "A")
	cut := loop.Now()
	separate(p)
	here := contend(t, b, sid)
	taken := loop.Now()
	for i, end := range there.end {
		select {
		case e := <-end:
			if e.code != 1012 || e.reason != "Session owner moved" {
				t.Errorf("socket %d ended with %+v", i, e)
			}
			// What the race detector slows down may be seen late; what was forwarded
			// is compared below.
			slack := int64(0)
			if raceEnabled {
				slack = int64(lease) / 2
			}
			if e.at > cut+int64(lease)+slack || e.at > taken {
				t.Errorf("socket %d was closed %v after the cut, the lease is %v; the other node had the session after %v",
					i, time.Duration(e.at-cut), lease, time.Duration(taken-cut))
			}
		case <-time.After(patience):
			t.Fatal("the node that was cut off keeps its sockets")
		}
	}
	if last := there.last.Load(); last > taken {
		t.Errorf("a message arrived %v after the other node had the session", time.Duration(last-taken))
	}
	here.flows(t, b, "at the other node")
	p.Heal()
	a.untilReady()
	a.rerouted(wsQuery(sid, "server", 1, "-"), "B")
	here.flows(t, b, "after the healing")
	if record == nil {
		return
	}
	spans := record.spans(sid)
	if len(spans) != 2 {
		t.Fatalf("%d tokens forwarded", len(spans))
	}
	var all [][2]int64
	for _, s := range spans {
		all = append(all, s)
	}
	if all[0][0] > all[1][0] {
		all[0], all[1] = all[1], all[0]
	}
	if all[0][1] >= all[1][0] {
		t.Errorf("both tokens forwarded, for %v", time.Duration(all[0][1]-all[1][0]))
	}
	t.Logf("the session was nobody's for %v", time.Duration(all[1][0]-all[0][1]))
}

func TestCutOffNode(t *testing.T) {
	t.Parallel()
	f := func(name string, separate func(*redistest.Proxy)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			record := new(forwards)
			cutOff(t, fleetLease, separate, record, func(target, url string) *node { return fleetNode(t, record, target, url) })
		})
	}
	f("refused", func(p *redistest.Proxy) { p.Cut() })
	f("no answer", func(p *redistest.Proxy) { p.Pause(redistest.ToClient) })
	f("nothing arrives", func(p *redistest.Proxy) { p.Pause(redistest.ToServer) })
}

func TestAcceptCutOffNode(t *testing.T) {
	onlyFull(t)
	cutOff(t, 30*time.Second, func(p *redistest.Proxy) { p.Cut() }, nil, func(target, url string) *node {
		return fleetProcess(t, 0, target, url).node
	})
}

// stopped reports whether every thread of a process is.
func stopped(t testing.TB, pid int) bool {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil || len(threads) == 0 {
		t.Skip("no /proc here")
	}
	for _, name := range threads {
		b, err := os.ReadFile(name)
		_, state, ok := strings.Cut(string(b), ") ")
		if err != nil || !ok || state[0] != 'T' {
			return false
		}
	}
	return true
}

// A process that was stopped for longer than its lease forwards nothing more, and
// that is the reason it gives, whatever deadlines have gone by meanwhile.
func TestStoppedNodeForwardsNothing(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	a := fleetProcess(t, fleetLease/2, "A", r.URL(), "PASEO_RELAY_DATA_ATTACH_TIMEOUT_MS=1500", "PASEO_RELAY_MESSAGE_IDLE_TIMEOUT_MS=1500")
	b := fleetProcess(t, fleetLease/2, "B", r.URL())
	s, c := a.openWS(wsQuery("x", "server", 1, "-")), a.openWS(wsQuery("x", "client", 1, "-"))
	c.text("in time")
	s.wantText("in time")
	part, waits := a.openWS(wsQuery("part", "client", 1, "-")), a.openWS(wsQuery("waits", "client", 2, "c"))
	for _, w := range []*wsClient{part, waits} {
		// Behind the ping, in the same segment: read when the pong is here.
		w.raw(frame(opPing, true, []byte("read")), frame(opText, w == waits, []byte("a message, or its beginning")))
		if m, err := w.next(patience); err != nil || m.op != opPong {
			t.Fatal(m, err)
		}
	}
	a.cmd.Process.Signal(syscall.SIGSTOP)
	t.Cleanup(func() { a.cmd.Process.Signal(syscall.SIGCONT) })
	if !poll(func() bool { return stopped(t, a.cmd.Process.Pid) }) {
		t.Fatal("it does not stop")
	}
	c.text("late")
	contend(t, b.node, "x")
	a.cmd.Process.Signal(syscall.SIGCONT)
	s.wantClose(1012, "Session owner moved")
	c.wantClose(1012, "Session owner moved")
	part.wantClose(1012, "Session owner moved")
	waits.wantClose(1012, "Session owner moved")
	a.rerouted(wsQuery("x", "client", 1, "-"), "B")
}

// A node that is full takes no session for an upgrade that it refuses, and sends
// those of other nodes there.
func TestFullNodeClaimsNothing(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	a := fleetNode(t, new(forwards), "A", r.URL(), "ACCEPTORS=1", "CONNECTIONS_PER_ACCEPTOR=1")
	b := fleetNode(t, new(forwards), "B", r.URL())
	first := a.ws(wsQuery("first", "server", 1, "-"), "ws")
	b.ws(wsQuery("other", "server", 1, "-"), "ws")
	sets := r.Info("commandstats", "cmdstat_set")
	a.refused(wsQuery("second", "server", 1, "-"), 503, "at capacity")
	a.rerouted(wsQuery("other", "client", 1, "-"), "B")
	a.refused(wsQuery("first", "client", 1, "-"), 503, "at capacity")
	if s := r.Info("commandstats", "cmdstat_set"); s != sets || s == "" {
		t.Errorf("claims were written: %q, before %q", s, sets)
	}
	a.ws(wsQuery("first", "server", 1, "-"), "ws") // which replaces
	first.wantClose(1008, "Replaced by new connection")
	b.ws(wsQuery("second", "server", 1, "-"), "ws")
}

// A node that goes down gives a session up before it tells its sockets: who comes
// again at once is admitted elsewhere.
func TestRestartGivesUpFirst(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	a, b := fleetProcess(t, 0, "A", r.URL(), "DRAIN_SECONDS=2"), fleetProcess(t, 0, "B", r.URL())
	const sessions = 20
	var all [sessions][2]*wsClient
	for i := range all {
		all[i] = [2]*wsClient{a.openWS(wsQuery(fmt.Sprint(i), "server", 1, "-")), a.openWS(wsQuery(fmt.Sprint(i), "server", 2, "-"))}
		all[i][1].wantJSON(syncJSON())
		b.rerouted(wsQuery(fmt.Sprint(i), "server", 1, "-"), "A")
	}
	a.cmd.Process.Signal(syscall.SIGTERM)
	var wg sync.WaitGroup
	for i, pair := range all {
		for v, w := range pair {
			wg.Go(func() {
				m, err := w.message(patience)
				if err != nil || m.code != 1012 || m.reason != "Service restart" {
					t.Errorf("session %d ended with %v %v", i, m, err)
					return
				}
				c, err := dialWS(t, b.addr, wsQuery(fmt.Sprint(i), "client", v+1, "c"), "again")
				if err != nil {
					t.Errorf("session %d is not admitted elsewhere: %v", i, err)
					return
				}
				c.rst()
				w.write(closeFrame(1012, ""))
			})
		}
	}
	wg.Wait()
	a.wantExit(0)
}

// A node whose Redis is gone says so, keeps what it has and takes it up again.
func TestNodeWithoutRedis(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	n := fleetNode(t, new(forwards), "A", r.URL())
	s, c := n.v1pair()
	c.text("with")
	s.wantText("with")
	r.Kill()
	n.until("not ready", func() bool { return !n.g.Ready() })
	a := httpDo(t, n.admin, "GET", "/ready")
	if a.status != 503 || a.header.Get("X-Sluice-Unready") != "the ownership store is unavailable" {
		t.Errorf("%d %v", a.status, a.header)
	}
	n.refused(wsQuery("new", "server", 1, "-"), 503, "ownership store unavailable")
	n.untilMetric(`connection_rejections_total{reason="ownership_store"}`, 1)
	c.text("without")
	s.wantText("without")
	r.Restart()
	n.until("ready", n.g.Ready)
	n.v1("server", n.sid()).barrier()
	c.text("again")
	s.wantText("again")
}

// PASEO_RELAY_OWNERSHIP=local keeps sessions out of Redis.
func TestLocalOwnershipWithRedis(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	n := startNode(t, "REDIS_URL="+r.URL(), "OWNERSHIP=local")
	n.v1("server", n.sid()).barrier()
	if keys := r.Do("KEYS", "sluice:owner:*"); keys != "" {
		t.Errorf("Redis holds %s", keys)
	}
	r.Kill()
	n.v1("server", n.sid()).barrier()
	if !n.g.Ready() {
		t.Error("not ready without what it does not need")
	}
}

// Below the floor nothing new is taken; a node more and it is.
func TestClusterFloor(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	start := func(cfg *config.Config, log *slog.Logger) (*gateway.Gateway, error) {
		return gateway.StartFleetNode(cfg, log, fleetLease, nil)
	}
	a := startNodeBy(t, start, "OWNERSHIP_TARGET=A", "REDIS_URL="+r.URL(), "MIN_CLUSTER_SIZE=2")
	a.until("below the floor", func() bool {
		return httpDo(t, a.admin, "GET", "/ready").header.Get("X-Sluice-Unready") == "below PASEO_RELAY_MIN_CLUSTER_SIZE"
	})
	a.refused(wsQuery("x", "server", 1, "-"), 503, "below cluster floor")
	b := fleetNode(t, new(forwards), "B", r.URL())
	a.untilReady()
	for _, n := range []*node{a, b} {
		n.untilMetric("cluster_nodes", 2)
	}
	b.v1("server", "x").barrier()
	a.rerouted(wsQuery("x", "client", 1, "-"), "B")
	a.v1("server", "y").barrier()
}

// A socket that attaches after its reservation has run out is closed.
func TestReservationExpired(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	p := redistest.StartProxy(t, r.Addr)
	a, b := fleetNode(t, new(forwards), "A", p.URL(), "LOOPS=1", "CAPACITY_MUTATION_TIMEOUT_MS=60000"), fleetNode(t, new(forwards), "B", r.URL())
	a.v1("server", "first").barrier() // Redis knows the script
	p.Pause(redistest.ToClient)       // Redis's answer is kept back until the loop is busy
	got := make(chan *wsClient, 1)
	go func() {
		c, err := a.dial(wsQuery("x", "server", 1, "-"), "late")
		if err != nil {
			t.Error(err)
		}
		got <- c
	}()
	if !poll(func() bool { return r.Do("KEYS", "sluice:owner:*:x") != "" }) {
		t.Fatal("never claimed")
	}
	blocked, release := make(chan struct{}), make(chan struct{})
	a.g.Loops()[0].Post(loop.Func(func(*loop.Loop) { close(blocked); <-release }))
	var once sync.Once
	unblock := func() { once.Do(func() { close(release) }) }
	t.Cleanup(unblock)
	<-blocked
	p.Heal()
	contend(t, b, "x")
	unblock()
	if c := <-got; c != nil {
		c.wantClose(1012, "Session expired")
	}
	a.rerouted(wsQuery("x", "server", 1, "-"), "B")
}

// A node of which a loop is stuck keeps no session from the others: they have it
// at once, not when its lease ends.
func TestWedgedNodeGivesUp(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	a := startNode(t, "OWNERSHIP_TARGET=A", "REDIS_URL="+r.URL(), "LOOPS=1", "CAPACITY_MUTATION_TIMEOUT_MS=500")
	a.untilReady()
	b := fleetNode(t, new(forwards), "B", r.URL())
	s, c := a.v1("server", "x"), a.v1("client", "x")
	c.text("before")
	s.wantText("before")
	free := make(chan struct{})
	began := time.Now()
	a.g.Loops()[0].Post(loop.Func(func(*loop.Loop) { <-free }))
	t.Cleanup(func() {
		close(free)
		a.stopped = true // nothing is expected of a gateway that failed
	})
	contend(t, b, "x")
	if took := time.Since(began); took > 25*time.Second {
		t.Errorf("taken over after %v", took)
	}
	if code := <-a.g.Failed(); code != 70 {
		t.Errorf("exit code %d", code)
	}
}
