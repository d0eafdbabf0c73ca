package gateway_test

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sluice/gateway"
	"sluice/loop"
)

// TestMain lets the test binary be a gateway of its own, for what ends a process.
func TestMain(m *testing.M) {
	if spec := os.Getenv("SLUICE_TEST_CONTAINER"); spec != "" {
		enterContainer(spec)
	}
	if os.Getenv("SLUICE_TEST_SERVE") != "" {
		if lease, err := time.ParseDuration(os.Getenv("SLUICE_TEST_LEASE")); err == nil {
			os.Exit(gateway.ServeFleetNode(os.Environ(), lease))
		}
		os.Exit(gateway.Serve(os.Environ()))
	}
	claimPorts()
	os.Exit(m.Run())
}

// A served gateway is a process.
type served struct {
	*node
	cmd  *exec.Cmd
	out  logLines
	exit chan int
}

// serve starts a process with settings and waits until it is ready.
func serve(t testing.TB, settings ...string) *served {
	t.Helper()
	return serveAt(t, nextPort(), nextPort(), settings...)
}

// serveAt is serve on ports of the caller's choice.
func serveAt(t testing.TB, port, admin string, settings ...string) *served {
	t.Helper()
	return serveTo(t, nil, port, admin, settings...)
}

// serveTo is serveAt with its stderr given to out.
func serveTo(t testing.TB, out *os.File, port, admin string, settings ...string) *served {
	t.Helper()
	s := &served{node: &node{t: t, addr: "127.0.0.1:" + port, admin: "127.0.0.1:" + admin, stopped: true}, exit: make(chan int, 1)}
	s.cmd = exec.Command(os.Args[0], "-test.run=none")
	s.cmd.Env = append(os.Environ(), "SLUICE_TEST_SERVE=1", "PORT=0", "PASEO_RELAY_PORT="+port, "ADMIN_PORT="+admin)
	for _, x := range settings {
		s.cmd.Env = append(s.cmd.Env, fullName(x))
	}
	if overTLS {
		s.cmd.Env = append(s.cmd.Env, testTLS("PASEO_RELAY_")...)
	}
	noteTLS(s.addr, s.cmd.Env)
	s.cmd.Stderr, s.log = &s.out, &s.out
	if out != nil {
		s.cmd.Stderr = out
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		s.cmd.Wait()
		s.exit <- s.cmd.ProcessState.ExitCode()
	}()
	t.Cleanup(func() { s.cmd.Process.Kill() })
	if !poll(func() bool {
		c, err := dialTCP(s.addr, wsDial{})
		if err == nil {
			c.Close()
		}
		return err == nil
	}) {
		t.Fatalf("the process never listens: %s", s.log)
	}
	return s
}

func (s *served) wantExit(code int) {
	s.t.Helper()
	select {
	case got := <-s.exit:
		if got != code {
			s.t.Errorf("exit code %d, expected %d: %s", got, code, s.out.String())
		}
	case <-time.After(patience):
		s.t.Errorf("the process does not end")
	}
}

func TestDrainByAdmin(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	sid := n.sid()
	s, c := n.v1("server", sid), n.v1("client", sid)
	f := func(method string, status int, headers ...string) {
		t.Helper()
		if a := httpDo(t, n.admin, method, "/drain", headers...); a.status != status {
			t.Errorf("%s /drain %q: %d %s", method, headers, a.status, a.body)
		}
	}
	// A web page cannot send it.
	f("POST", 403)
	f("POST", 403, "X-Sluice-Admin:0")
	f("POST", 403, "X-Sluice-Admin:1", "Host:evil.example")
	f("POST", 403, "X-Sluice-Admin:1", "Host:localhost.evil.example:9090")
	f("DELETE", 403)
	f("GET", 405, "X-Sluice-Admin:1")
	if !n.g.Ready() {
		t.Fatal("drained")
	}
	f("POST", 200, "X-Sluice-Admin:1", "Host:localhost:1")
	for _, at := range []string{n.addr, n.admin} {
		if a := httpDo(t, at, "GET", "/ready"); a.status != 503 || a.body != `{"status":"unready"}` {
			t.Errorf("/ready while draining: %d %s", a.status, a.body)
		}
	}
	if a := httpDo(t, n.addr, "GET", "/health"); a.status != 200 {
		t.Errorf("/health while draining: %d", a.status)
	}
	if v, _ := n.metric("draining"); v != 1 {
		t.Error("the gauge does not say so")
	}
	for _, q := range []string{wsQuery(n.sid(), "server", 1, "-"), wsQuery(n.sid(), "client", 2, "c")} {
		if n.refused(q, 503, "draining").Get("Retry-After") == "" {
			t.Error("no Retry-After")
		}
	}
	// Existing sessions go on and their own sockets may come back.
	c.text("still")
	s.wantText("still")
	s2 := n.v1("server", sid)
	s.wantClose(1008, "Replaced by new connection")
	c.leave(1000)
	c = n.v1("client", sid)
	c.text("again")
	s2.wantText("again")
	n.data(sid, "c").leave(1000) // v2 of the same serverId is owned as well
	// The last one gives the session up.
	c.leave(1000)
	s2.leave(1000)
	n.untilSockets(0)
	n.refused(wsQuery(sid, "server", 1, "-"), 503, "draining")
	f("DELETE", 200, "X-Sluice-Admin:1", "Host:[::1]:9")
	n.v1("server", n.sid()).barrier()
	if v, _ := n.metric("ready"); v != 1 {
		t.Error("not ready after the drain was taken back")
	}
	n.untilMetric(`connection_rejections_total{reason="draining"}`, 3)
}

func TestDrainAtStart(t *testing.T) {
	t.Parallel()
	n := startNode(t, "DRAIN=true")
	n.refused(wsQuery("a", "server", 1, "-"), 503, "draining")
	if a := httpDo(t, n.addr, "HEAD", "/ready"); a.status != 503 {
		t.Errorf("/ready: %d", a.status)
	}
}

func TestLameDuck(t *testing.T) {
	t.Parallel()
	n := startNode(t, "LAME_DUCK_SECONDS=1")
	n.g.SetDraining(true)
	if a := httpDo(t, n.addr, "GET", "/ready"); a.status != 503 {
		t.Errorf("/ready: %d", a.status)
	}
	n.v1("server", n.sid()).barrier() // still admitted
	n.until("new sessions are refused", func() bool {
		c, err := dialWS(t, n.addr, wsQuery(n.sid(), "server", 1, "-"), "new")
		if err == nil {
			c.rst()
		}
		return err != nil
	})
}

// SIGTERM closes everybody, spread over the last quarter, and exits 0.
func TestSigtermClosesEvenly(t *testing.T) {
	t.Parallel()
	s := serve(t, "DRAIN_SECONDS=4", "LOOPS=2")
	const sockets = 24
	var cs []*wsClient
	for i := range sockets {
		c, err := dialWS(t, s.addr, wsQuery(strings.Repeat("s", i+1), "server", 1, "-"), "v1 server")
		if err != nil {
			t.Fatal(err)
		}
		cs = append(cs, c)
	}
	start := time.Now()
	s.cmd.Process.Signal(syscall.SIGTERM)
	at := make([]time.Duration, sockets)
	var wg sync.WaitGroup
	for i, c := range cs {
		wg.Go(func() {
			m, err := c.message(patience)
			at[i] = time.Since(start)
			if err != nil || m.code != 1012 || m.reason != "Service restart" {
				t.Errorf("%v %v", m, err)
			}
			c.write(closeFrame(1012, ""))
			c.bye()
		})
	}
	wg.Wait()
	s.wantExit(0)
	slices.Sort(at)
	if at[0] < 2900*time.Millisecond || at[sockets-1] > 12*time.Second {
		t.Errorf("closed between %v and %v of 4 s", at[0], at[sockets-1])
	}
	// A slow machine may see several at once, but not all of them.
	if spread := at[sockets-1] - at[0]; spread < 300*time.Millisecond {
		t.Errorf("all closed within %v", spread)
	}
}

// Neither a stalled consumer nor a peer that never answers outlasts the drain.
func TestSigtermIsNotHeldUp(t *testing.T) {
	t.Parallel()
	s := serve(t, "DRAIN_SECONDS=2", smallSend)
	open := func(role, sid string) *wsClient {
		c, err := dialWS(t, s.addr, wsQuery(sid, role, 1, "-"), role, smallBuffers)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	_, c := open("server", "stalled"), open("client", "stalled")
	st := stuff(c)
	st.stopped()
	mute := open("server", "mute")
	start := time.Now()
	s.cmd.Process.Signal(syscall.SIGTERM)
	s.wantExit(0)
	if took := time.Since(start); took > 12*time.Second {
		t.Errorf("exit after %v of 2 s", took)
	}
	mute.wantCloseFrame(1012, "Service restart")
	c.rst()
	<-st.done
}

func TestSigtermIdle(t *testing.T) {
	t.Parallel()
	s := serve(t, "DRAIN_SECONDS=30")
	start := time.Now()
	s.cmd.Process.Signal(syscall.SIGINT)
	s.wantExit(0)
	if took := time.Since(start); took > 15*time.Second {
		t.Errorf("an idle process took %v", took)
	}
}

func TestSecondSignal(t *testing.T) {
	t.Parallel()
	s := serve(t, "DRAIN_SECONDS=60")
	c, err := dialWS(t, s.addr, wsQuery("a", "server", 1, "-"), "v1 server")
	if err != nil {
		t.Fatal(err)
	}
	s.cmd.Process.Signal(syscall.SIGTERM)
	if !poll(func() bool { return httpDo(t, s.addr, "GET", "/ready").status == 503 }) {
		t.Fatal("never unready")
	}
	c.barrier()
	// What a signal began is not taken back.
	for method, status := range map[string]int{"DELETE": 409, "POST": 200} {
		if a := httpDo(t, s.admin, method, "/drain", "X-Sluice-Admin:1"); a.status != status || a.body != `{"draining":true}` {
			t.Errorf("%s /drain after a signal: %d %s", method, a.status, a.body)
		}
	}
	if a := httpDo(t, s.addr, "GET", "/ready"); a.status != 503 {
		t.Errorf("/ready after DELETE: %d", a.status)
	}
	s.cmd.Process.Signal(syscall.SIGTERM)
	s.wantExit(1)
}

// A process whose stderr nobody takes ends all the same.
func TestStuckLogAtTheEnd(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	room, err := unix.FcntlInt(w.Fd(), unix.F_GETPIPE_SZ, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(make([]byte, room)); err != nil {
		t.Fatal(err)
	}
	s := serveTo(t, w, nextPort(), nextPort(), "DRAIN_SECONDS=0")
	s.cmd.Process.Signal(syscall.SIGTERM)
	s.wantExit(0)
}

// A loop that does not turn over: the node fails closed.
func TestFailClosed(t *testing.T) {
	t.Parallel()
	n := startNode(t, "CAPACITY_MUTATION_TIMEOUT_MS=300")
	// One socket on each loop.
	var on [2]*wsClient
	for on[0] == nil || on[1] == nil {
		before := [2]int64{n.g.Loops()[0].Stats().Conns.Load(), n.g.Loops()[1].Stats().Conns.Load()}
		c := n.v1("server", n.sid())
		c.barrier()
		for i, l := range n.g.Loops() {
			if l.Stats().Conns.Load() > before[i] {
				on[i] = c
			}
		}
	}
	free := make(chan struct{})
	n.g.Loops()[0].Post(loop.Func(func(*loop.Loop) { <-free }))
	defer func() {
		close(free)
		n.stopped = true // nothing is expected of a gateway that failed
	}()
	on[1].wantCloseFrame(1012, "Service restart")
	if _, err := dialTCP(n.addr, wsDial{}); err == nil {
		t.Error("the listener still accepts")
	}
	if n.g.Ready() {
		t.Error("ready")
	}
	if a := httpDo(t, n.admin, "GET", "/ready"); a.status != 503 {
		t.Errorf("/ready: %d", a.status)
	}
	select {
	case code := <-n.g.Failed():
		if code != 70 {
			t.Errorf("exit code %d", code)
		}
	case <-time.After(patience):
		t.Error("the gateway does not give up")
	}
}

// While a loop owes its answer the ledger's gauges are missing, never zero.
func TestGaugesOfABusyLedgerAreOmitted(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	n.v1("server", n.sid())
	free := make(chan struct{})
	n.g.Loops()[1].Post(loop.Func(func(*loop.Loop) { <-free }))
	var page string
	n.until("the gauges are gone", func() bool {
		page = httpDo(t, n.admin, "GET", "/metrics").body
		return !strings.Contains(page, "\npaseo_relay_active_websockets ")
	})
	for _, name := range []string{"active_sessions", "ingress_reserved_bytes", "blocked_deliveries"} {
		if strings.Contains(page, "\npaseo_relay_"+name+" ") {
			t.Errorf("%s is there", name)
		}
	}
	if a := httpDo(t, n.admin, "GET", "/ready"); a.status != 503 {
		t.Errorf("/ready: %d", a.status)
	}
	close(free)
	n.until("they are back", func() bool {
		return strings.Contains(httpDo(t, n.admin, "GET", "/metrics").body, "\npaseo_relay_active_websockets 1\n")
	})
}
