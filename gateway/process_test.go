package gateway_test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// residentOf returns a process's resident memory in bytes; pid 0 is this one.
func residentOf(t testing.TB, pid int) int64 {
	t.Helper()
	name := "self"
	if pid != 0 {
		name = strconv.Itoa(pid)
	}
	b, err := os.ReadFile("/proc/" + name + "/statm")
	if err != nil {
		t.Skip("no /proc here")
	}
	pages, err := strconv.ParseInt(string(bytes.Fields(b)[1]), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return pages * int64(os.Getpagesize())
}

func resident(t testing.TB) int64 { return residentOf(t, 0) }

// descriptors returns how many the process has open.
func descriptors(t testing.TB) int {
	t.Helper()
	d, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip("no /proc here")
	}
	return len(d)
}

// fullScale reports whether the tests run at the size of the acceptance.
func fullScale() bool { return os.Getenv("SLUICE_SCALE") == "full" }

// onlyFull skips a test that is too long for every day.
func onlyFull(t testing.TB) {
	t.Helper()
	if !fullScale() {
		t.Skip("set SLUICE_SCALE=full")
	}
}

func mib(n int64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }

// openWS opens a socket at a served gateway.
func (s *served) openWS(query string, opts ...wsOption) *wsClient {
	s.t.Helper()
	c, err := dialWS(s.t, s.addr, query, query, opts...)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(c.rst)
	return c
}

// stalledMemory watches the relay's own memory: a sender that never stops, a
// receiver that never reads, at the default settings.
func stalledMemory(t *testing.T, watch time.Duration) {
	if raceEnabled {
		t.Skip("the race detector has memory of its own")
	}
	// The deadline would end the stall.
	s := serve(t, "LOOPS=2", "DELIVERY_TIMEOUT_MS=120000", "TRANSPORT_SEND_TIMEOUT_MS=130000")
	for range 3 { // what every process does once
		s.metric("active_websockets")
	}
	before := residentOf(t, s.cmd.Process.Pid)
	s.openWS(wsQuery("a", "server", 1, "-"), smallBuffers)
	c := s.openWS(wsQuery("a", "client", 1, "-"), smallBuffers)
	st := stuff(c)
	st.stopped()
	if b, _ := s.metric("blocked_deliveries"); b != 1 {
		t.Errorf("%v blocked deliveries", b)
	}
	held, _ := s.metric("ingress_reserved_bytes")
	atStop, taken := residentOf(t, s.cmd.Process.Pid), st.bytes.Load()
	if grew := atStop - before; grew > int64(held/4)*5/4+8<<20 {
		t.Errorf("memory grew by %s with %s held", mib(grew), mib(int64(held/4)))
	}
	s2, c2 := s.openWS(wsQuery("b", "server", 1, "-")), s.openWS(wsQuery("b", "client", 1, "-"))
	most := atStop
	for until := time.Now().Add(watch); time.Now().Before(until); {
		c2.bin(make([]byte, 1000))
		s2.want(opBin, make([]byte, 1000))
		most = max(most, residentOf(t, s.cmd.Process.Pid))
	}
	if more := most - atStop; more > 4<<20 {
		t.Errorf("memory grew by %s while stalled", mib(more))
	}
	if more := st.bytes.Load() - taken; more != 0 {
		t.Errorf("the sender got rid of %d bytes while its receiver was stalled", more)
	}
	c.rst()
	<-st.done
}

func TestStalledReceiverMemoryIsFlat(t *testing.T) { stalledMemory(t, 3*time.Second) }

func TestAcceptStalledReceiverMemoryIsFlat(t *testing.T) {
	onlyFull(t)
	stalledMemory(t, 30*time.Second)
}

// A large message to a stalled receiver costs what it holds.
func TestHeldMessageMemory(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector has memory of its own")
	}
	s := serve(t)
	s.openWS(wsQuery("a", "server", 1, "-"), smallBuffers)
	c := s.openWS(wsQuery("a", "client", 1, "-"))
	before := residentOf(t, s.cmd.Process.Pid)
	c.raw(frameHead(opBin, true, 30<<20, true), make([]byte, 30<<20))
	if !poll(func() bool { v, _ := s.metric("ingress_reserved_bytes"); return v == 4*30<<20 }) {
		t.Fatal("never held")
	}
	if grew := residentOf(t, s.cmd.Process.Pid) - before; grew > 30<<20*5/4+8<<20 {
		t.Errorf("30 MiB held cost %s", mib(grew))
	}
}

// idleSockets measures a process that holds sockets which do nothing. The
// clients are plain descriptors, so that this process does not count. What the
// upgrades leave behind is collected shortly after them: the measurement waits
// until no more than enough bytes a socket are left, or patience ends.
func idleSockets(t *testing.T, sockets int, more []byte, enough int64, settings ...string) (perSocket int64) {
	var lim unix.Rlimit
	unix.Getrlimit(unix.RLIMIT_NOFILE, &lim)
	if lim.Cur < uint64(2*sockets+1000) && lim.Cur < uint64(sockets+1000) {
		t.Skipf("%d descriptors are allowed", lim.Cur)
	}
	s := serve(t, append(settings, "ACCEPTORS=1", "CONNECTIONS_PER_ACCEPTOR=20000", "LOG_LEVEL=warn")...)
	warm := s.openWS(wsQuery("warm", "client", 1, "-"))
	warm.barrier()
	before := residentOf(t, s.cmd.Process.Pid)
	var mu sync.Mutex
	var fds []net.Conn
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := w; i < sockets; i += 4 {
				nc, err := dialAny(s.addr, wsDial{})
				if err != nil {
					t.Error(err)
					return
				}
				q := wsQuery(fmt.Sprintf("daemon-%06d", i/2), []string{"server", "client"}[i&1], 1, "-")
				nc.Write(append(upgradeRequest("/ws?"+q, key), more...))
				var answer [256]byte
				nc.SetReadDeadline(time.Now().Add(patience))
				if n, err := nc.Read(answer[:]); err != nil || !bytes.HasPrefix(answer[:n], []byte("HTTP/1.1 101")) {
					t.Errorf("socket %d: %v %q", i, err, answer[:n])
					return
				}
				mu.Lock()
				fds = append(fds, nc)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	defer func() {
		for _, nc := range fds {
			nc.Close()
		}
	}()
	if v, _ := s.metric("active_websockets"); int(v) != sockets+1 {
		t.Fatalf("%v sockets", v)
	}
	if v, _ := s.metric("ingress_reserved_bytes"); v != 0 {
		t.Errorf("%v weighted bytes reserved for nothing", v)
	}
	warm.barrier()
	poll(func() bool {
		perSocket = (residentOf(t, s.cmd.Process.Pid) - before) / int64(sockets)
		return perSocket <= enough
	})
	return perSocket
}

func TestIdleSocketMemory(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector has memory of its own")
	}
	// The garbage collector's slack weighs more on few sockets.
	if per := idleSockets(t, 2000, nil, 6<<10); per > 6<<10 {
		t.Errorf("%d bytes per idle socket", per)
	}
}

// Over TLS most is what crypto/tls keeps: two keys and the buffer that held the
// client's hello.
func TestIdleTLSSocketMemory(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector has memory of its own")
	}
	sockets, enough := 1000, int64(20<<10) // what the handshakes left weighs more on few
	if fullScale() {
		sockets, enough = 10000, 12<<10
	}
	if per := idleSockets(t, sockets, nil, enough, testTLS("PASEO_RELAY_")...); per > enough {
		t.Errorf("%d bytes per idle TLS socket", per)
	}
}

func TestAcceptIdleSocketMemory(t *testing.T) {
	onlyFull(t)
	if raceEnabled {
		t.Skip("the race detector has memory of its own")
	}
	per := idleSockets(t, 10000, nil, 2<<10)
	t.Logf("%d bytes per idle socket", per)
	if per > 2<<10 {
		t.Errorf("%d bytes per idle socket", per)
	}
}

// A payload that was declared and not sent costs next to nothing, in the
// segment of the upgrade or behind it.
func TestDeclaredPayloadMemory(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector has memory of its own")
	}
	sockets := 1000
	if fullScale() {
		sockets = 10000
	}
	per := idleSockets(t, sockets, frameHead(opBin, true, maxPayload, true), 8<<10)
	t.Logf("%d bytes per socket that declared 32 MiB", per)
	if per > 8<<10 {
		t.Errorf("%d bytes per socket that declared 32 MiB", per)
	}
}

// Connections that come and go leave nothing behind: no goroutine, no
// descriptor, nothing in the ledger.
func TestChurnLeavesNothing(t *testing.T) {
	cycles := 1000
	if fullScale() {
		cycles = 10000
	}
	n := startNode(t)
	n.v1("client", n.sid()).leave(1000)
	n.untilSockets(0)
	goroutines, open := runtime.NumGoroutine(), descriptors(t)
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := w; i < cycles; i += 4 {
				role := []string{"server", "client"}[i>>1&1]
				nc, err := net.Dial("tcp", n.addr)
				if err != nil {
					t.Error(err)
					return
				}
				b := upgradeRequest("/ws?"+wsQuery(fmt.Sprint("churn", i%40), role, 1+i>>2&1, fmt.Sprint("c", i%3)), key)
				switch i % 5 {
				case 1:
					b = append(b, frame(opText, true, []byte("early"))...)
				case 2:
					b = append(b, frameHead(opBin, true, 1<<20, true)...)
				case 3:
					b = append(b, frame(opClose, true, nil)...)
				case 4:
					b = b[:len(b)*(i%97)/97] // in the middle of the head
				}
				nc.Write(b)
				if i%7 != 0 && i%5 != 4 {
					nc.SetReadDeadline(time.Now().Add(patience))
					nc.Read(make([]byte, 12))
				}
				if i%3 == 0 {
					nc.(*net.TCPConn).SetLinger(0)
				}
				nc.Close()
			}
		})
	}
	wg.Wait()
	if err := n.emptied(); err != nil {
		t.Error(err)
	}
	n.until("no HTTP connection is left", func() bool { return n.g.HTTPConnections() == 0 })
	n.until("descriptors and goroutines are back", func() bool {
		return descriptors(t) <= open && runtime.NumGoroutine() <= goroutines
	})
}

// With descriptors exhausted the relay waits for some and loses nobody.
func TestDescriptorsExhausted(t *testing.T) {
	s := serve(t, "LOOPS=1")
	a, b := s.openWS(wsQuery("a", "server", 1, "-")), s.openWS(wsQuery("a", "client", 1, "-"))
	lim := unix.Rlimit{Cur: 64, Max: 64}
	if err := unix.Prlimit(s.cmd.Process.Pid, unix.RLIMIT_NOFILE, &lim, nil); err != nil {
		t.Skip(err)
	}
	var many []net.Conn
	for range 200 {
		nc, err := net.Dial("tcp", s.addr)
		if err != nil {
			t.Fatal(err)
		}
		many = append(many, nc)
	}
	for range 100 {
		b.text("through")
		a.wantText("through")
	}
	for _, nc := range many {
		nc.Close()
	}
	c := s.openWS(wsQuery("b", "server", 1, "-"))
	c.barrier()
	if s.tlsMetric(`accept_errors_total{listener="relay"}`) == "0" {
		t.Error("failed accepts are not counted")
	}
	s.cmd.Process.Signal(syscall.SIGTERM)
	for _, w := range []*wsClient{a, b, c} {
		w.rst()
	}
	s.wantExit(0)
}

// A storm of resets at every stage of many sessions.
func TestResetStorm(t *testing.T) {
	n := startNode(t, smallSend)
	rounds := 20
	if fullScale() {
		rounds = 200
	}
	for round := range rounds {
		var all []*wsClient
		sid := n.sid()
		for i := range 10 {
			cid := fmt.Sprint(i % 3)
			all = append(all, n.client(sid, cid, smallBuffers), n.data(sid, cid, smallBuffers), n.v1("client", sid), n.v1("server", sid))
		}
		var wg sync.WaitGroup
		for i, c := range all {
			wg.Go(func() {
				c.nc.SetWriteDeadline(time.Now().Add(50 * time.Millisecond))
				c.nc.Write(bytes.Repeat(frame(opBin, true, make([]byte, 30000+i)), 5))
				if (i+round)%3 == 0 {
					c.nc.Write(closeFrame(1000, ""))
				}
			})
		}
		if round%2 == 0 {
			wg.Wait()
		}
		for _, c := range all {
			c.rst()
		}
		wg.Wait()
	}
	if err := n.emptied(); err != nil {
		t.Error(err)
	}
}

// With one socket flooding, a ping-pong on another session of the same loop
// stays quick. The bar is 2 ms; ten times that is asserted, since tests share
// their machine.
func TestFairness(t *testing.T) {
	if overTLS {
		t.Skip("it writes to the descriptors themselves")
	}
	if raceEnabled {
		t.Skip("timing")
	}
	n := serve(t, "LOOPS=1")
	fs, fc := n.openWS(wsQuery("flood", "server", 1, "-")), n.openWS(wsQuery("flood", "client", 1, "-"))
	go io.Copy(io.Discard, fs.nc)
	flood := bytes.Repeat(frame(opBin, true, make([]byte, 64)), 4000)
	stop := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
				if fc.write(flood) != nil {
					return
				}
			}
		}
	}()
	s, c := n.openWS(wsQuery("quick", "server", 1, "-")), n.openWS(wsQuery("quick", "client", 1, "-"))
	// Blocking descriptors on a thread of their own: what is measured is the
	// relay and the kernel, not how soon this process's scheduler comes by.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	sf, _ := s.nc.File()
	cf, _ := c.nc.File()
	defer sf.Close()
	defer cf.Close()
	sfd, cfd := int(sf.Fd()), int(cf.Fd())
	ping := frame(opBin, true, []byte("ping"))
	var answer [16]byte
	hop := func(from, to int) {
		if _, err := unix.Write(from, ping); err != nil {
			t.Fatal(err)
		}
		if n, err := unix.Read(to, answer[:]); err != nil || n != 6 || string(answer[2:6]) != "ping" {
			t.Fatalf("%q %v", answer[:n], err)
		}
	}
	round := func() time.Duration {
		var took []time.Duration
		for range 1000 {
			start := time.Now()
			hop(cfd, sfd)
			hop(sfd, cfd)
			took = append(took, time.Since(start))
		}
		slices.Sort(took)
		t.Logf("p50 %v, p99 %v", took[len(took)/2], took[len(took)*99/100])
		return took[len(took)*99/100]
	}
	// An unfair loop is unfair each time; another program on these cores is not.
	best := round()
	for range 4 {
		if best > 20*time.Millisecond {
			best = min(best, round())
		}
	}
	close(stop)
	<-done
	if best > 20*time.Millisecond {
		t.Errorf("p99 %v", best)
	}
}

// The relay allocates nothing per forwarded message. Both ends are here, so
// the clients do not allocate either.
func TestNoAllocationPerMessage(t *testing.T) {
	if overTLS {
		t.Skip("crypto/tls allocates on both ends")
	}
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	n := startNode(t, "LOOPS=1")
	for _, kind := range []string{"v1 client", "v1 server", "client", "data"} {
		for _, size := range []int{64, 1 << 10, 16 << 10} {
			w, peer := n.kind(kind)
			const batch = 8
			out := bytes.Repeat(frame(opBin, true, make([]byte, size)), batch)
			in := make([]byte, batch*(size+4))
			if size < 126 {
				in = in[:batch*(size+2)]
			}
			round := func() {
				w.nc.Write(out)
				io.ReadFull(peer.nc, in)
			}
			w.nc.SetDeadline(time.Time{})
			peer.nc.SetDeadline(time.Time{})
			for range 50 {
				round()
			}
			// What the process does besides (watchdog, memory sampling) is a few
			// allocations a second: the least of several runs is the relay's.
			least := 1e9
			for range 5 {
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				const rounds = 100
				for range rounds {
					round()
				}
				runtime.ReadMemStats(&after)
				least = min(least, float64(after.Mallocs-before.Mallocs)/(rounds*batch))
			}
			if least >= 0.05 {
				t.Errorf("%s, %d bytes: %.3f allocations per message", kind, size, least)
			}
			w.rst()
			peer.rst()
		}
	}
}
