package gateway_test

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"sluice/gateway/store/redistest"
)

// A cluster is the processes of a fleet, which restart under their peers. The
// targets are the addresses themselves, as if a front had followed them.
type cluster struct {
	t     testing.TB
	url   string
	addrs []string
	admin []string
	nodes []*served
	extra []string
}

func startCluster(t testing.TB, nodes int, url string, settings ...string) *cluster {
	t.Helper()
	c := &cluster{t: t, url: url, extra: settings}
	for i := range nodes {
		port := nextPort()
		c.addrs = append(c.addrs, "127.0.0.1:"+port)
		c.admin = append(c.admin, nextPort())
		c.nodes = append(c.nodes, c.start(i))
	}
	return c
}

func (c *cluster) start(i int) *served {
	c.t.Helper()
	_, port, _ := net.SplitHostPort(c.addrs[i])
	s := serveAt(c.t, port, c.admin[i], append(c.extra, "OWNERSHIP_TARGET="+c.addrs[i], "REDIS_URL="+c.url)...)
	s.untilReady()
	return s
}

// restart stops a node as an operator does and starts it anew.
func (c *cluster) restart(i int) {
	c.t.Helper()
	c.nodes[i].cmd.Process.Signal(syscall.SIGTERM)
	c.nodes[i].wantExit(0)
	c.nodes[i] = c.start(i)
}

// dial opens a socket at whatever node takes it, as a front would: at is the
// node to try first, a 409 names the next, and of those that refuse or are gone
// another is tried until stop. It returns for how long the session was refused.
func (c *cluster) dial(at int, query string, stop <-chan struct{}) (w *wsClient, refused time.Duration, err error) {
	began := time.Now()
	addr := c.addrs[at%len(c.addrs)]
	for hops := 1; ; hops++ {
		w, err = dialWS(c.t, addr, query, query)
		if err == nil {
			return w, time.Since(began), nil
		}
		var no *refusedError
		if errors.As(err, &no) && no.status == 409 && hops%4 != 0 {
			addr = no.header.Get("x-reroute-target")
			continue
		}
		if errors.As(err, &no) && no.status != 409 && no.status != 503 {
			return nil, 0, err
		}
		at++
		addr = c.addrs[at%len(c.addrs)]
		select {
		case <-stop:
			return nil, 0, errStopped
		case <-time.After(20 * time.Millisecond):
		}
		if time.Since(began) > 3*patience {
			return nil, 0, fmt.Errorf("refused for %v: %w", time.Since(began), err)
		}
	}
}

var errStopped = errors.New("the test is over")

// A liveSession is an app that sends numbers to a daemon, which sends each back.
// Both come again whenever their sockets end.
type liveSession struct {
	c      *cluster
	i      int
	stop   chan struct{}
	rounds atomic.Int64  // numbers that came back
	again  atomic.Int64  // sockets after the first of each end
	longer *longest      // refusals
	failed func(error)   // once
	mu     sync.Mutex    // guards live
	live   [2]*wsClient  // to be ended with the test
	pace   time.Duration // between two numbers
}

// longest keeps the longest of many times.
type longest struct {
	mu sync.Mutex
	d  []time.Duration
}

func (l *longest) note(d time.Duration) {
	l.mu.Lock()
	l.d = append(l.d, d)
	l.mu.Unlock()
}

func (s *liveSession) open(role, end int, query string) (*wsClient, error) {
	w, refused, err := s.c.dial(s.i+role, query, s.stop)
	if err != nil {
		return nil, err
	}
	s.longer.note(refused)
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.stop:
		w.rst()
		return nil, errStopped
	default:
	}
	s.live[end] = w
	return w, nil
}

// daemon sends back what comes.
func (s *liveSession) daemon() error {
	for first := true; ; first = false {
		w, err := s.open(0, 0, wsQuery(fmt.Sprint("rolling-", s.i), "server", 2, "c"))
		if err != nil {
			return err
		}
		if !first {
			s.again.Add(1)
		}
		for {
			m, err := w.message(10 * patience)
			if err != nil || m.op == opClose {
				break
			}
			if w.write(frame(opText, true, m.data)) != nil {
				break
			}
		}
		w.bye()
	}
}

// app sends numbers and waits for each. One that was sent on a socket that then
// ends may be lost; one on a socket that stays may not.
func (s *liveSession) app() error {
	n := 0
	for first := true; ; first = false {
		w, err := s.open(1, 1, wsQuery(fmt.Sprint("rolling-", s.i), "client", 2, "c"))
		if err != nil {
			return err
		}
		if !first {
			s.again.Add(1)
		}
		for {
			n++
			if w.write(frame(opText, true, fmt.Append(nil, n))) != nil {
				break
			}
			m, err := w.message(3 * patience)
			if err != nil && strings.Contains(err.Error(), "timeout") {
				return fmt.Errorf("session %d: number %d is lost and its socket open", s.i, n)
			}
			if err != nil || m.op == opClose {
				break
			}
			if string(m.data) != fmt.Sprint(n) {
				return fmt.Errorf("session %d: %q came back instead of %d", s.i, m.data, n)
			}
			s.rounds.Add(1)
			select {
			case <-time.After(s.pace):
			case <-s.stop:
			}
		}
		w.bye()
	}
}

func (s *liveSession) end() {
	close(s.stop)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.live {
		if w != nil {
			w.rst()
		}
	}
}

// TestAcceptRollingRestart: three nodes are restarted one after the other under
// live sessions. Each comes again and goes on, none is refused for long, and what
// was admitted is lost only with its socket.
func TestAcceptRollingRestart(t *testing.T) {
	if !fullScale() { // which is about time, and wants the machine
		t.Parallel()
	}
	sessions, bound, settings := 300, 20*time.Second, []string{"DRAIN_SECONDS=3"}
	if fullScale() {
		sessions, bound = 3000, 5*time.Second
	}
	settings = append(settings, "LOG_LEVEL=warn")
	c := startCluster(t, 3, redistest.Start(t).URL(), settings...)
	var longer longest
	var wg sync.WaitGroup
	all := make([]*liveSession, sessions)
	for i := range all {
		s := &liveSession{c: c, i: i, stop: make(chan struct{}), longer: &longer, pace: time.Duration(sessions) * time.Second / 3000}
		all[i] = s
		for _, f := range []func() error{s.daemon, s.app} {
			wg.Go(func() {
				if err := f(); !errors.Is(err, errStopped) {
					t.Error(err)
				}
			})
		}
	}
	end := sync.OnceFunc(func() {
		for _, s := range all {
			s.end()
		}
		wg.Wait()
	})
	t.Cleanup(end)
	// everyGoesOn waits until each session got two more numbers through.
	everyGoesOn := func(when string) {
		t.Helper()
		from := make([]int64, sessions)
		for i, s := range all {
			from[i] = s.rounds.Load()
		}
		for i, s := range all {
			if !poll(func() bool { return s.rounds.Load() >= from[i]+2 || t.Failed() }) {
				t.Fatalf("%s: session %d does not go on", when, i)
			}
		}
	}
	everyGoesOn("at the start")
	for i := range c.nodes {
		c.restart(i)
		everyGoesOn(fmt.Sprintf("after the restart of node %d", i))
	}
	end()
	var again int64
	for _, s := range all {
		again += s.again.Load()
	}
	most := slices.Max(longer.d)
	t.Logf("%d sessions came again %d times; refused for %v at most", sessions, again, most)
	if most > bound {
		t.Errorf("a session was refused for %v", most)
	}
	if again < int64(sessions) {
		t.Errorf("only %d sockets came again: nothing was tested", again)
	}
}

// TestAcceptOneOwnerEach: three nodes are asked for the same serverIds at once.
// Exactly one of them admits each, and the others name it.
func TestAcceptOneOwnerEach(t *testing.T) {
	t.Parallel()
	ids := 1000
	if fullScale() {
		ids = 50000
	}
	c := startCluster(t, 3, redistest.Start(t).URL(), "LOG_LEVEL=warn")
	var wg sync.WaitGroup
	var next atomic.Int64
	for range 8 {
		wg.Go(func() {
			for {
				i := int(next.Add(1))
				if i > ids || t.Failed() {
					return
				}
				c.oneOwner(fmt.Sprintf("id-%d", i))
			}
		})
	}
	wg.Wait()
}

func (c *cluster) oneOwner(sid string) {
	type result struct {
		w   *wsClient
		err error
	}
	results := make([]result, len(c.addrs))
	var wg sync.WaitGroup
	for i, addr := range c.addrs {
		wg.Go(func() {
			w, err := dialWS(c.t, addr, wsQuery(sid, "server", 1, "-"), sid)
			results[i] = result{w, err}
		})
	}
	wg.Wait()
	owner := -1
	for i, r := range results {
		if r.err != nil {
			continue
		}
		defer r.w.rst()
		if owner >= 0 {
			c.t.Errorf("%s is owned by %d and %d", sid, owner, i)
		}
		owner = i
	}
	if owner < 0 {
		c.t.Errorf("%s is owned by nobody: %v", sid, results)
		return
	}
	for i, r := range results {
		var no *refusedError
		if i != owner && (!errors.As(r.err, &no) || no.status != 409 || no.header.Get("x-reroute-target") != c.addrs[owner]) {
			c.t.Errorf("%s is owned by %d, and %d answers %v", sid, owner, i, r.err)
		}
	}
}
