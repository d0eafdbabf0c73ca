package gateway_test

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"testing"
	"time"
)

// leastBudget admits exactly one largest message at weight 4.
const leastBudget = "INGRESS_BUDGET_BYTES=134217672"

// between waits until the ledger holds lo to hi payload bytes.
func (n *node) between(lo, hi int64) {
	n.t.Helper()
	n.until(fmt.Sprintf("%d to %d payload bytes in the ledger", lo, hi), func() bool {
		got := n.g.Ledger().Snapshot().Ingress
		return lo*4 <= got && got <= hi*4
	})
}

// holder is a socket that holds size bytes of a message, all of them read.
func (n *node) holder(size int64) *wsClient {
	n.t.Helper()
	_, c := n.v1pair()
	c.raw(frameHead(opBin, false, uint64(size), true), make([]byte, size))
	c.barrier()
	return c
}

func TestChargeFollowsTheBytes(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	const block = 64 << 10
	for _, kind := range []string{"v1 server", "v1 client", "data", "client"} {
		w, peer := n.kind(kind)
		w.raw(frameHead(opBin, true, 1e6, true))
		w.raw([]byte{7})
		n.between(1, block)
		w.raw(make([]byte, 499999))
		n.between(5e5, 5e5+block)
		w.raw(make([]byte, 499999))
		n.between(1e6-1, 1e6)
		w.raw([]byte{7})
		m, err := peer.message(patience)
		if err != nil || len(m.data) != 1e6 {
			t.Fatalf("%s: %v %v", kind, m, err)
		}
		n.untilIngress(0)
	}
}

// The smallest legal budget takes the largest message.
func TestLeastBudgetTakesTheLargestMessage(t *testing.T) {
	if raceEnabled {
		t.Skip("moves much and races little")
	}
	n := startNode(t, leastBudget)
	s, c := n.v1pair()
	for range 2 {
		go c.write(append(frameHead(opBin, true, maxPayload, true), make([]byte, maxPayload)...))
		if m, err := s.message(patience); err != nil || len(m.data) != maxPayload {
			t.Fatal(m, err)
		}
	}
	n.untilIngress(0)
}

func TestBudgetExhausted(t *testing.T) {
	t.Parallel()
	n := startNode(t, leastBudget, "INGRESS_WAIT_MS=300")
	s, c := n.v1pair()
	d, c2 := n.pair()
	hold := n.holder(maxPayload - 1)
	start := time.Now()
	c.bin(make([]byte, 1024))
	// Meanwhile everything else goes on, control frames of the source's loop too.
	d.barrier()
	c2.barrier()
	s.barrier()
	c.wantClose(1013, "Ingress budget exhausted")
	if took := time.Since(start); took < 250*time.Millisecond {
		t.Errorf("closed after %v", took)
	}
	n.untilMetric("ingress_rejections_total", 1)
	n.between(maxPayload-1, maxPayload)
	if a := httpDo(t, n.addr, "GET", "/ready"); a.status != 200 {
		t.Errorf("an occupied budget made the node unready: %d", a.status)
	}
	hold.rst()
	n.untilIngress(0)
	c2.bin(make([]byte, 5000))
	d.want(opBin, make([]byte, 5000))
}

// A source that waits goes on as soon as there is room, and has its message whole.
func TestBudgetWaitEndsWithRoom(t *testing.T) {
	t.Parallel()
	n := startNode(t, leastBudget, "INGRESS_WAIT_MS=20000")
	for _, size := range []int{3000, 300000} {
		hold := n.holder(maxPayload - 1)
		var ss, cs []*wsClient
		for range 6 {
			s, c := n.v1pair()
			go c.write(bytes.Join([][]byte{frame(opText, true, []byte("x")), frame(opBin, true, make([]byte, size)), frame(opText, true, []byte("behind"))}, nil))
			ss, cs = append(ss, s), append(cs, c)
		}
		n.until("six sources wait", func() bool { return n.g.Ledger().Snapshot().Waiting == 6 })
		hold.rst()
		for i := range ss {
			ss[i].wantText("x")
			ss[i].want(opBin, make([]byte, size))
			ss[i].wantText("behind")
			cs[i].barrier()
		}
		n.untilIngress(0)
		if w := n.g.Ledger().Snapshot().Waiting; w != 0 {
			t.Errorf("%d sources wait for nothing", w)
		}
	}
}

// A wait that was satisfied is over: nobody is closed for it later.
func TestSatisfiedWaitDoesNotClose(t *testing.T) {
	t.Parallel()
	n := startNode(t, leastBudget, "INGRESS_WAIT_MS=400")
	s, c := n.v1pair()
	h := n.holder(maxPayload - 1000) // room for less than the message
	c.bin(make([]byte, 1500))
	n.until("the source waits", func() bool { return n.g.Ledger().Snapshot().Waiting == 1 })
	h.rst()
	s.want(opBin, make([]byte, 1500))
	for range 30 {
		c.bin(make([]byte, 1500))
		s.want(opBin, make([]byte, 1500))
		c.barrier()
	}
	if w := n.g.Ledger().Snapshot().Waiting; w != 0 {
		t.Errorf("%d waiting", w)
	}
	time.Sleep(450 * time.Millisecond) // past the end of the wait that was satisfied
	c.barrier()
}

func TestNoWaitClosesAtOnce(t *testing.T) {
	t.Parallel()
	n := startNode(t, leastBudget, "INGRESS_WAIT_MS=0")
	hold := n.holder(maxPayload - 1)
	_, c := n.v1pair()
	c.raw(frame(opBin, true, make([]byte, 100)))
	c.wantClose(1013, "Ingress budget exhausted")
	sid := n.sid()
	w := n.client(sid, "c")
	w.raw(frameHead(opBin, true, 1<<20, true), make([]byte, 100000))
	w.wantClose(1013, "Ingress budget exhausted")
	hold.rst()
	n.untilIngress(0)
}

// Two messages that cannot both fit: one source is closed, the one that holds
// most, and the other gets through.
func TestOnlyTheLargestWaiterIsClosed(t *testing.T) {
	t.Parallel()
	n := startNode(t, leastBudget, "INGRESS_WAIT_MS=500")
	var ss, cs []*wsClient
	for range 4 {
		s, c := n.v1pair()
		ss, cs = append(ss, s), append(cs, c)
	}
	const size = 12 << 20
	var wg sync.WaitGroup
	for _, c := range cs {
		wg.Go(func() { c.write(append(frameHead(opBin, true, size, true), make([]byte, size)...)) })
	}
	whole, closed := 0, 0
	for i, s := range ss {
		done := make(chan wsMessage, 2)
		go func() { m, _ := s.message(patience); done <- m }()
		go func() { m, _ := cs[i].message(patience); done <- m }()
		switch m := <-done; {
		case m.op == opBin && len(m.data) == size:
			whole++
		case m.op == opClose && m.code == 1013 && m.reason == "Ingress budget exhausted":
			closed++
		default:
			// A reset of a source that goes on sending past what is dropped.
			closed++
		}
		s.rst()
		cs[i].rst()
	}
	wg.Wait()
	if whole < 2 {
		t.Errorf("%d of 4 messages of 12 MiB came through 32 MiB, %d closed", whole, closed)
	}
	n.untilIngress(0)
}

// Whatever ends a socket returns what it held.
func TestChargesReturnAfterEveryEnd(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	ends := map[string]func(sid string, w *wsClient){
		"reset":     func(_ string, w *wsClient) { w.rst() },
		"close":     func(_ string, w *wsClient) { w.bye() },
		"fin":       func(_ string, w *wsClient) { w.fin() },
		"protocol":  func(_ string, w *wsClient) { w.raw(frame(3, true, nil)) },
		"utf8":      func(_ string, w *wsClient) { w.raw(frame(opCont, true, []byte{0xff})) },
		"replaced":  func(sid string, w *wsClient) { n.v1("client", sid) },
		"oversize":  func(_ string, w *wsClient) { w.raw(frameHead(opCont, true, maxPayload, true)) },
		"close fr.": func(_ string, w *wsClient) { w.raw(closeFrame(1000, "")) },
		"hello":     func(_ string, w *wsClient) { w.raw(frame(opCont, true, []byte(`","type":"hello"}`))) },
	}
	for name, end := range ends {
		sid := n.sid()
		s, w := n.v1("server", sid), n.v1("client", sid)
		w.raw(frame(opText, false, []byte(`{"a":"`)), frame(opCont, false, bytes.Repeat([]byte("x"), 70000)))
		n.until(name+": charged", func() bool { return n.g.Ledger().Snapshot().Ingress >= 4*70000 })
		end(sid, w)
		n.untilIngress(0)
		s.barrier()
	}
}

// A header that stays incomplete is waited for as long as the rest of a message,
// whatever its length form, and what it has declared already is judged at once.
func TestIncompleteHeader(t *testing.T) {
	t.Parallel()
	n := startNode(t, "MESSAGE_IDLE_TIMEOUT_MS=500")
	for _, kind := range kinds {
		for _, cut := range []int{1, 5} {
			w, _ := n.kind(kind)
			w.raw(frameHead(opBin, true, 100, true)[:cut])
			w.wantClose(1013, "Message timeout")
		}
		w, _ := n.kind(kind)
		w.raw(frameHead(opBin, true, 1<<16, true)[:9])
		w.wantClose(1013, "Message timeout")
		w, _ = n.kind(kind)
		w.raw(frameHead(opBin, true, 32<<20, true)[:10])
		w.wantClose(1009, "Message too big")
	}
	// A ping whose payload does not come.
	_, c := n.v1pair()
	c.raw(frame(opPing, true, []byte("never whole"))[:8])
	c.wantClose(1013, "Message timeout")
}

func TestMessageTimeout(t *testing.T) {
	t.Parallel()
	n := startNode(t, "MESSAGE_IDLE_TIMEOUT_MS=500")
	for _, kind := range kinds {
		w, peer := n.kind(kind)
		w.raw(frameHead(opBin, true, 1000, true), []byte("xx"))
		w.wantClose(1013, "Message timeout")
		if peer != nil {
			peerEnds(kind, peer)
		}
	}
	// Pings are no bytes of it.
	s, c := n.v1pair()
	c.raw(frame(opBin, false, []byte("begun")))
	stop := make(chan struct{})
	go func(c *wsClient) {
		for tick := time.NewTicker(20 * time.Millisecond); ; {
			select {
			case <-stop:
				tick.Stop()
				return
			case <-tick.C:
				c.write(frame(opPing, true, nil))
			}
		}
	}(c)
	c.wantClose(1013, "Message timeout")
	close(stop)
	s.barrier()
	// A large one that only trickles.
	_, c = n.v1pair()
	c.raw(frameHead(opBin, true, 1<<20, true), make([]byte, 100000))
	go func(c *wsClient) {
		for tick := time.NewTicker(20 * time.Millisecond); ; <-tick.C {
			if c.write([]byte{0}) != nil {
				tick.Stop()
				return
			}
		}
	}(c)
	c.wantCloseFrame(1013, "Message timeout")
	c.rst()
	// A small one may.
	s, c = n.v1pair()
	drip := frame(opText, true, []byte("drip, drip, drip"))
	for _, b := range drip {
		c.raw([]byte{b})
		time.Sleep(30 * time.Millisecond) // the pace is the case
	}
	s.wantText("drip, drip, drip")
	n.untilIngress(0)
}

// Sockets that declare the largest payload and send none of it stop nobody.
func TestDeclaredPayloadsStopNobody(t *testing.T) {
	sockets := 1000
	n := startNode(t, "ACCEPTORS=1", "CONNECTIONS_PER_ACCEPTOR=20000", leastBudget)
	before := resident(t)
	for i := range sockets {
		c := n.v1("client", fmt.Sprint("declared", i%100, "-", i))
		c.raw(frameHead(opBin, true, maxPayload, true))
	}
	s, c := n.v1pair()
	c.bin(make([]byte, 100000))
	s.want(opBin, make([]byte, 100000))
	n.untilIngress(0)
	// Both ends live in this process, so the bound is for two sockets.
	if grew := (resident(t) - before) / int64(sockets); grew > 64<<10 {
		t.Errorf("%d bytes per socket that has declared 32 MiB", grew)
	}
}

// Sources that come and go while the budget is short: nobody hangs, nothing leaks.
func TestBudgetUnderChurn(t *testing.T) {
	t.Parallel()
	n := startNode(t, leastBudget, "INGRESS_WAIT_MS=50", "TCP_SEND_BUFFER_BYTES=32768")
	stop := time.Now().Add(2 * time.Second)
	var wg sync.WaitGroup
	for worker := range 8 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(7, uint64(worker)))
			for time.Now().Before(stop) {
				sid := fmt.Sprint("churn", worker)
				s, err1 := dialWS(t, n.addr, wsQuery(sid, "server", 1, "-"), "s")
				c, err2 := dialWS(t, n.addr, wsQuery(sid, "client", 1, "-"), "c")
				if err1 != nil || err2 != nil {
					t.Error(err1, err2)
					return
				}
				size := r.IntN(16 << 20)
				go io.Copy(io.Discard, s.nc)
				c.nc.SetWriteDeadline(time.Now().Add(300 * time.Millisecond))
				c.nc.Write(append(frameHead(opBin, true, uint64(size), true), make([]byte, size)...))
				if r.IntN(2) == 0 {
					c.rst()
					s.bye()
				} else {
					s.rst()
					c.bye()
				}
			}
		})
	}
	wg.Wait()
}
