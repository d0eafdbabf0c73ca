package gateway_test

import (
	"encoding/binary"
	"fmt"
	"io"
	"sync"
	"testing"
	"time"
)

// Many sources that wait for budget at once do not stop the loop, and all go on.
func TestManyBudgetWaiters(t *testing.T) {
	n := startNode(t, "LOOPS=1", leastBudget, "INGRESS_WAIT_MS=60000", "ACCEPTORS=1", "CONNECTIONS_PER_ACCEPTOR=20000")
	sources := 1500
	hold := n.holder(maxPayload - 1)
	sid := n.sid()
	d := n.data(sid, "c")
	for i := range sources {
		c := n.client(sid, "c")
		b := make([]byte, 600)
		binary.BigEndian.PutUint32(b, uint32(i))
		c.bin(b)
	}
	n.until("all wait", func() bool { return n.g.Ledger().Snapshot().Waiting == int64(sources) })
	d.barrier()
	start := time.Now()
	hold.rst()
	seen := map[uint32]bool{}
	for range sources {
		m, err := d.message(patience)
		if err != nil {
			t.Fatalf("after %d: %v", len(seen), err)
		}
		seen[binary.BigEndian.Uint32(m.data)] = true
	}
	t.Logf("%d waiting sources served in %v", sources, time.Since(start))
	if len(seen) != sources {
		t.Errorf("%d sources seen", len(seen))
	}
	d.barrier()
	if w := n.g.Ledger().Snapshot().Waiting; w != 0 {
		t.Errorf("%d wait", w)
	}
}

// A thousand clients and one data socket, both ways.
func TestFanInAndFanOutOfAThousand(t *testing.T) {
	n := startNode(t)
	const clients = 1000
	sid := n.sid()
	ctl := n.control(sid)
	d := n.data(sid, "c")
	var cs []*wsClient
	for range clients {
		cs = append(cs, n.client(sid, "c"))
		ctl.wantJSON(connectedJSON("c"))
	}
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := w; i < clients; i += 4 {
				b := make([]byte, 3000)
				binary.BigEndian.PutUint32(b, uint32(i))
				cs[i].write(append(frame(opBin, true, b), frame(opBin, true, b)...))
			}
		})
	}
	var seen [clients]int
	for range 2 * clients {
		m, err := d.message(patience)
		if err != nil {
			t.Fatal(err)
		}
		seen[binary.BigEndian.Uint32(m.data)]++
	}
	wg.Wait()
	for i, k := range seen {
		if k != 2 {
			t.Fatalf("%d messages of client %d", k, i)
		}
	}
	d.text("to all")
	for _, c := range cs {
		c.wantText("to all")
	}
	d.leave(1000)
	for _, c := range cs {
		c.wantCloseFrame(1012, "Server disconnected")
	}
	ctl.wantJSON(disconnectedJSON("c"))
	n.untilIngress(0)
}

// A sync of many connectionIds, whatever CONTROL_QUEUE_BYTES says.
func TestSyncOfManyIDs(t *testing.T) {
	ids := 2000
	if fullScale() {
		ids = 9000
	}
	n := startNode(t, "ACCEPTORS=1", "CONNECTIONS_PER_ACCEPTOR=20000", "CONTROL_QUEUE_BYTES=1000")
	sid := n.sid()
	var all []string
	for i := range ids {
		all = append(all, fmt.Sprintf("%0200d", i))
		n.client(sid, all[i])
	}
	ctl := n.ws(wsQuery(sid, "server", 2, "-"), "control")
	ctl.wantJSON(syncJSON(all...))
	ctl.barrier()
}

// A flood of frames that carry nothing does not hold the loop.
func TestFloodOfEmptyFragments(t *testing.T) {
	t.Parallel()
	n := startNode(t, "LOOPS=1")
	s, c := n.v1pair()
	_, flood := n.v1pair()
	flood.raw(frame(opBin, false, nil))
	var b []byte
	for range 20000 {
		b = append(b, frame(opCont, false, nil)...)
	}
	stop := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
				if _, err := flood.nc.Write(b); err != nil {
					return
				}
			}
		}
	}()
	for range 200 {
		c.text("through")
		s.wantText("through")
	}
	if got := n.g.Ledger().Snapshot().Ingress; got > 4*256<<10 {
		t.Errorf("%d weighted bytes for nothing", got)
	}
	close(stop)
	<-done
}

// FIN and RST at every byte of a whole conversation.
func TestEndAtEveryByte(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	sid := n.sid()
	whole := append(upgradeRequest("/ws?"+wsQuery(sid, "client", 2, "c"), key), frame(opText, false, []byte("ab"))...)
	whole = append(whole, frame(opPing, true, []byte("p"))...)
	whole = append(whole, frame(opCont, true, []byte("cd"))...)
	whole = append(whole, frame(opBin, true, make([]byte, 40000))...)
	whole = append(whole, closeFrame(1000, "bye")...)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for _, role := range []string{"server"} { // its data socket comes and goes
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if c, err := dialWS(t, n.addr, wsQuery(sid, role, 2, "c"), "data"); err == nil {
					c.nc.SetReadDeadline(time.Now().Add(5 * time.Millisecond))
					io.Copy(io.Discard, c.nc)
					c.rst()
				}
			}
		})
	}
	for cut := 0; cut < len(whole); cut++ {
		if cut > 420 && cut < len(whole)-20 && cut%1000 != 0 {
			continue
		}
		for _, rst := range []bool{true, false} {
			c, err := dialAny(n.addr, wsDial{})
			if err != nil {
				t.Fatal(err)
			}
			c.Write(whole[:cut])
			if rst {
				c.SetLinger(0)
			}
			c.Close()
		}
	}
	close(stop)
	wg.Wait()
	n.until("everything is gone", func() bool { return n.g.Ledger().Empty() == nil && n.g.HTTPConnections() == 0 })
}
