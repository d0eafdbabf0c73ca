package gateway_test

import (
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"sluice/gateway"
	"sluice/loop"
)

// A supervisor is systemd's end of NOTIFY_SOCKET.
type supervisor struct {
	t    testing.TB
	conn *net.UnixConn
}

// supervise listens at a name; a leading @ makes it abstract.
func supervise(t testing.TB, name string) *supervisor {
	t.Helper()
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return &supervisor{t, conn}
}

// next returns the next datagram's assignments.
func (s *supervisor) next() map[string]string {
	s.t.Helper()
	var b [4096]byte
	s.conn.SetReadDeadline(time.Now().Add(patience))
	n, err := s.conn.Read(b[:])
	if err != nil {
		s.t.Fatalf("the process says nothing more: %v", err)
	}
	said := map[string]string{}
	for line := range strings.SplitSeq(string(b[:n]), "\n") {
		key, value, ok := strings.Cut(line, "=")
		if !ok || said[key] != "" {
			s.t.Fatalf("no notification: %q", b[:n])
		}
		said[key] = value
	}
	return said
}

// until passes over proofs of life up to the datagram that says key, and returns it.
func (s *supervisor) until(key string) map[string]string {
	s.t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); {
		said := s.next()
		if said[key] != "" {
			return said
		}
		if said["WATCHDOG"] == "" {
			s.t.Fatalf("%v, expected %s", said, key)
		}
	}
	s.t.Fatalf("never: %s", key)
	return nil
}

// The whole life of a unit: ready once it serves, proofs of life, a reload, the stop.
func TestNotifySupervisor(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	f := func(socket string) {
		t.Helper()
		boss := supervise(t, socket)
		file := filepath.Join(dir, "sluice.yaml")
		if err := os.WriteFile(file, []byte("MAX_REQUEST_BODY_MIB: 1\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		s := serve(t, "NOTIFY_SOCKET="+socket, "WATCHDOG_USEC=200000", "CONFIG_FILE="+file, "CONFIG_POLL_SECONDS=3600",
			"DRAIN_SECONDS=7", "LAME_DUCK_SECONDS=2")

		said := boss.next()
		if said["READY"] != "1" || !strings.HasPrefix(said["STATUS"], "ready; 0 sockets") {
			t.Fatalf("the first word is %v", said)
		}
		if a := httpDo(t, s.addr, "GET", "/ready"); a.status != 200 {
			t.Errorf("/ready after READY=1: %d", a.status)
		}
		for range 3 {
			if said := boss.next(); said["WATCHDOG"] != "1" || said["STATUS"] == "" {
				t.Fatalf("%v, expected a proof of life", said)
			}
		}
		s.openWS(wsQuery("a", "server", 1, "-"))
		if !poll(func() bool { return strings.HasPrefix(boss.next()["STATUS"], "ready; 1 sockets") }) {
			t.Error("the status does not count the socket")
		}

		s.cmd.Process.Signal(syscall.SIGHUP)
		if usec, err := strconv.ParseInt(boss.until("RELOADING")["MONOTONIC_USEC"], 10, 64); err != nil || usec <= 0 {
			t.Errorf("MONOTONIC_USEC: %d %v", usec, err)
		}
		boss.until("READY")

		s.cmd.Process.Signal(syscall.SIGTERM)
		said = boss.until("STOPPING")
		// The drain, and what comes after it.
		if usec, _ := strconv.Atoi(said["EXTEND_TIMEOUT_USEC"]); usec != 19_000_000 {
			t.Errorf("EXTEND_TIMEOUT_USEC is %s", said["EXTEND_TIMEOUT_USEC"])
		}
		if !poll(func() bool { return strings.HasPrefix(boss.next()["STATUS"], "not ready: ") }) {
			t.Error("the status does not tell of the drain")
		}
		s.cmd.Process.Signal(syscall.SIGTERM)
		s.wantExit(1)
	}
	// A path, as systemd's manager has.
	f(filepath.Join(dir, "notify"))
	// An abstract name, as containers have.
	f("@sluice-test-" + strconv.Itoa(os.Getpid()) + "-" + nextPort())
}

// A supervisor that is no use, or waits for another process, stops nobody.
func TestNotifyNobody(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	f := func(name, log string, env ...string) {
		t.Helper()
		s := serve(t, append(env, "DRAIN_SECONDS=0")...)
		s.cmd.Process.Signal(syscall.SIGTERM)
		s.wantExit(0)
		if log == "" && strings.Contains(s.out.String(), "WARN") && strings.Contains(s.out.String(), "supervisor") || !strings.Contains(s.out.String(), log) {
			t.Errorf("%s: the log says %s", name, s.out.String())
		}
	}
	f("empty", "", "NOTIFY_SOCKET=")
	f("a watchdog without a socket", "", "WATCHDOG_USEC=1000")
	f("nobody listens", "the supervisor cannot be told", "NOTIFY_SOCKET="+filepath.Join(dir, "none"))
	f("a socket of a virtual machine", "no path and no abstract name", "NOTIFY_SOCKET=vsock:2:1234")
	f("too long", "no path and no abstract name", "NOTIFY_SOCKET=/"+strings.Repeat("x", 107))
}

// A watchdog for another process, or none, hears nothing.
func TestNotifyBeat(t *testing.T) {
	f := func(want time.Duration, env ...string) {
		t.Helper()
		if got := gateway.BeatOf(env, 42); got != want {
			t.Errorf("%q: every %v, expected %v", env, got, want)
		}
	}
	f(0)
	f(7500*time.Millisecond, "WATCHDOG_USEC=30000000")
	f(7500*time.Millisecond, "WATCHDOG_USEC=30000000", "WATCHDOG_PID=42")
	f(7500*time.Millisecond, "WATCHDOG_USEC=30000000", "WATCHDOG_PID=")
	f(0, "WATCHDOG_USEC=30000000", "WATCHDOG_PID=43")
	// Nonsense.
	f(0, "WATCHDOG_USEC=")
	f(0, "WATCHDOG_USEC=0")
	f(0, "WATCHDOG_USEC=-1")
	f(0, "WATCHDOG_USEC=soon")
	// Bounds.
	f(time.Millisecond, "WATCHDOG_USEC=1")
	f(6*time.Hour, "WATCHDOG_USEC=9223372036854775807")
}

// With a loop that does not turn the proofs of life end, although everything
// else goes on; they come back when it turns again.
func TestNotifyStalledLoop(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	name := filepath.Join(t.TempDir(), "notify")
	boss := supervise(t, name)
	stop := gateway.Notify(n.g, "NOTIFY_SOCKET="+name, "WATCHDOG_USEC=4000")
	t.Cleanup(stop)
	boss.until("READY")
	boss.until("WATCHDOG")

	release := make(chan struct{})
	var once atomic.Bool
	free := func() {
		if once.CompareAndSwap(false, true) {
			close(release)
		}
	}
	t.Cleanup(free)
	held := make(chan struct{})
	n.g.Loops()[1].Post(loop.Func(func(*loop.Loop) {
		close(held)
		<-release
	}))
	<-held
	// One more may have been earned before; after silence of a hundred beats
	// nothing is under way.
	for beats := 0; ; beats++ {
		boss.conn.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
		if _, err := boss.conn.Read(make([]byte, 4096)); err != nil {
			break
		}
		if beats > 1000 {
			t.Fatal("a loop is stuck, and the supervisor hears that all is well")
		}
	}
	free()
	boss.until("WATCHDOG")
}

// A supervisor that takes nothing more costs a moment, and a line in the log.
func TestNotifyFullSocket(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "notify")
	boss := supervise(t, name)
	s := serve(t, "NOTIFY_SOCKET="+name, "WATCHDOG_USEC=4000", "DRAIN_SECONDS=0", "LOG_LEVEL=warn")
	if !poll(func() bool { return s.log.with("cannot be told") != nil }) {
		t.Fatal("nothing was lost")
	}
	c := s.openWS(wsQuery("a", "server", 1, "-"))
	c.barrier()
	// It reads again, and hears again.
	boss.until("READY")
	for range 20 { // more than waited in the kernel
		boss.until("WATCHDOG")
	}
	s.cmd.Process.Signal(syscall.SIGTERM)
	boss.until("STOPPING")
	c.wantClose(1012, "Service restart")
	s.wantExit(0)
}
