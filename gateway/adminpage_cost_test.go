package gateway_test

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"
)

// processorTime is what a process has used of its processors, by its threads that
// still run.
func processorTime(t testing.TB, pid int) (sum time.Duration) {
	t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil || len(files) == 0 {
		t.Skip("no scheduler statistics here")
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			continue // the thread has just ended
		}
		n, err := strconv.ParseInt(string(bytes.Fields(b)[0]), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		sum += time.Duration(n)
	}
	return sum
}

// openIdle opens sockets that do nothing, as plain descriptors.
func openIdle(t testing.TB, addr string, sockets int) {
	t.Helper()
	var mu sync.Mutex
	var all []net.Conn
	t.Cleanup(func() {
		for _, c := range all {
			c.Close()
		}
	})
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := w; i < sockets; i += 4 {
				c, err := net.Dial("tcp", addr)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				all = append(all, c)
				mu.Unlock()
				q := wsQuery(fmt.Sprintf("daemon-%06d", i/2), []string{"server", "client"}[i&1], 1, "-")
				c.Write(upgradeRequest("/ws?"+q, key))
				var answer [256]byte
				c.SetReadDeadline(time.Now().Add(patience))
				if n, err := c.Read(answer[:]); err != nil || !bytes.HasPrefix(answer[:n], []byte("HTTP/1.1 101")) {
					t.Errorf("socket %d: %v %q", i, err, answer[:n])
					return
				}
			}
		})
	}
	wg.Wait()
}

// The page open in a browser, with ten thousand sockets, costs the node less than
// a hundredth of a processor: what the script asks for every two seconds, the
// charts of a sample every five, and the sampling.
func TestAcceptAdminPageCost(t *testing.T) {
	const askedEvery, sampledEvery = 2 * time.Second, 5 * time.Second
	sockets, polls := scaled(10000, 500), scaled(500, 100)
	if raceEnabled {
		t.Skip("the race detector takes time of its own")
	}
	s := serve(t, "ACCEPTORS=1", "CONNECTIONS_PER_ACCEPTOR=20000", "LOG_LEVEL=warn")
	s.adminUp()
	openIdle(t, s.addr, sockets)
	if v, _ := s.metric("active_websockets"); int(v) != sockets {
		t.Fatalf("%v sockets", v)
	}
	cost := func(path string) time.Duration {
		t.Helper()
		for range 5 { // what every process does once
			httpDo(t, s.admin, "GET", path)
		}
		before := processorTime(t, s.cmd.Process.Pid)
		for range polls {
			if a := httpDo(t, s.admin, "GET", path); a.status != 200 {
				t.Fatalf("%s: %d %s", path, a.status, a.body)
			}
		}
		return (processorTime(t, s.cmd.Process.Pid) - before) / time.Duration(polls)
	}
	// A poll with charts costs no less than one without, and a sample no more than
	// a poll: both read the registry once. Only a sample taken while deliveries are
	// blocked looks at the sockets.
	poll := cost("/live.json?sample=-1")
	share := float64(poll)/float64(askedEvery) + float64(poll)/float64(sampledEvery)
	t.Logf("%d sockets: %v of processor time a poll, %.3f %% of one processor with the page open", sockets, poll, 100*share)
	if share > 0.01 {
		t.Errorf("the page costs %.2f %% of a processor", 100*share)
	}
	t.Logf("the whole page costs %v", cost("/"))
}
