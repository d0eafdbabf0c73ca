package gateway_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// Each of these once went wrong, or nearly so, in a way that no single line of
// the contract names.

// A ping and a fault in the same read: the pong must not go to the next socket
// of the loop.
func TestPongOfAClosedSocketGoesToNobodyElse(t *testing.T) {
	t.Parallel()
	n := startNode(t, "LOOPS=1")
	faults := map[string][]byte{
		"protocol":  {0x83, 0x80, 0, 0, 0, 0},
		"text":      frame(opText, true, []byte{0xff}),
		"too big":   frameHead(opBin, true, maxPayload+1, true),
		"hello":     frame(opText, true, []byte(`{"type":"hello"}`)),
		"text part": append(frame(opText, false, []byte("a")), frame(opCont, true, []byte{0xff})...),
	}
	for name, fault := range faults {
		_, a := n.v1pair()
		_, b := n.v1pair()
		a.raw(frame(opPing, true, []byte("of "+name)), fault)
		m, err := a.message(patience)
		if err != nil || m.op != opClose {
			t.Fatalf("%s: %v %v", name, m, err)
		}
		b.barrier()
		if len(b.pong) != 0 {
			t.Errorf("%s: a pong for somebody else: %q", name, b.pong)
		}
	}
}

// What stands in front of a fault in the same read is answered like what came
// earlier, wherever in the message, or in front of it, the fault is found.
func TestPingInFrontOfAFaultIsAnswered(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	const text, big, key = "text is not valid UTF-8", "Message too big", "Invalid handshake key"
	for name, c := range map[string]struct {
		fault  []byte
		code   uint16
		reason string
	}{
		"whole text":        {frame(opText, true, []byte{0xff}), 1007, text},
		"part of a text":    {frame(opText, false, []byte{0xff}), 1007, text},
		"later part":        {append(frame(opText, false, []byte("a")), frame(opCont, false, []byte{0xff})...), 1007, text},
		"end of a text":     {append(frame(opText, false, []byte("a")), frame(opCont, true, []byte{0xc3})...), 1007, text},
		"empty end":         {append(frame(opText, false, []byte{0xc3}), frame(opCont, true, nil)...), 1007, text},
		"beginning of text": {append(frameHead(opText, true, 1000, true), 0xff), 1007, text},
		"size":              {frameHead(opBin, true, maxPayload+1, true), 1009, big},
		"size of the sum":   {append(frame(opBin, false, []byte("a")), frameHead(opCont, true, maxPayload, true)...), 1009, big},
		"size, no mask yet": {frameHead(opBin, true, maxPayload+1, true)[:10], 1009, big},
		"hello":             {frame(opText, true, []byte(`{"type":"hello"}`)), 1008, key},
		"hello in parts":    {append(frame(opText, false, []byte(`{"type":`)), frame(opCont, true, []byte(`"hello"}`))...), 1008, key},
	} {
		s, w := n.v1pair()
		w.raw(frame(opText, true, []byte("first")), frame(opPing, true, []byte("p")), c.fault)
		s.wantText("first")
		w.wantClose(c.code, c.reason)
		if len(w.pong) != 1 || string(w.pong[0]) != "p" {
			t.Errorf("%s: pongs: %q", name, w.pong)
		}
	}
}

// A header in the segment of the upgrade takes another way in than one that
// comes later. It must cost as little.
func TestDeclaredPayloadBehindTheUpgradeIsFree(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	for _, size := range []uint64{1, 40 << 10, 1 << 20, maxPayload} {
		sid := n.sid()
		c := n.client(sid, "c", early(frameHead(opBin, true, size, true)))
		n.data(sid, "c").barrier()
		if got := n.g.Ledger().Snapshot().Ingress; got != 0 {
			t.Errorf("%d declared bytes cost %d weighted", size, got)
		}
		c.bye()
	}
}

// An identity has one closing socket above the ceiling: a second replacement
// resets the first, also when its close frame is out and its FIN is awaited.
func TestReplacementsAtTheCeilingDoNotPileUp(t *testing.T) {
	t.Parallel()
	n := startNode(t, "ACCEPTORS=1", "CONNECTIONS_PER_ACCEPTOR=2")
	n.v1("server", n.sid())
	sid := n.sid()
	var olds []*wsClient
	for range 10 {
		olds = append(olds, n.v1("client", sid))
		olds[len(olds)-1].barrier()
		if got := n.g.Ledger().Snapshot().Sockets; got > 3 {
			t.Fatalf("%d sockets at a ceiling of 2 with one identity replaced", got)
		}
	}
	for _, c := range olds[:len(olds)-2] {
		if m, err := c.message(patience); err != nil || m.code != 1008 {
			t.Fatalf("replaced socket: %v %v", m, err)
		}
	}
	n.refused(wsQuery(n.sid(), "client", 1, "-"), 503, "at capacity")
	olds[len(olds)-2].wantClose(1008, "Replaced by new connection")
	olds[len(olds)-1].barrier()
}

// Frames of a client that left must not wait for ever because another client
// of the same connectionId stays: their budget would be gone.
func TestWaitingFramesOfAClientThatLeft(t *testing.T) {
	t.Parallel()
	n := startNode(t, "DATA_ATTACH_TIMEOUT_MS=400")
	sid := n.sid()
	idle := n.client(sid, "c")

	// Its own timeout.
	a := n.client(sid, "c")
	a.bin(make([]byte, 100000))
	n.untilIngress(100000)
	a.wantClose(1013, "Data socket timeout")
	n.untilIngress(0)

	// A reset.
	b := n.client(sid, "c")
	b.bin(make([]byte, 50000))
	n.untilIngress(50000)
	b.rst()
	n.untilSockets(1)
	n.untilIngress(0)

	// In time they are delivered.
	c := n.client(sid, "c")
	c.text("late, not lost")
	n.untilIngress(14)
	c.rst()
	n.untilSockets(1)
	d := n.data(sid, "c")
	d.wantText("late, not lost")
	idle.text("x")
	d.wantText("x")
}

// More sources than are let go at once, each with input that was read and not
// parsed: nobody asks the loop for the turn in which the rest would go on.
func TestManyGatedSourcesAllGoOn(t *testing.T) {
	t.Parallel()
	n := startNode(t, "LOOPS=1", "TCP_SEND_BUFFER_BYTES=32768")
	const sources = 100
	sid := n.sid()
	var cs []*wsClient
	for i := range sources {
		c := n.client(sid, "c")
		big := make([]byte, 60000)
		binary.BigEndian.PutUint32(big, uint32(i))
		c.raw(frame(opBin, true, big), frame(opText, true, fmt.Appendf(nil, "second %d", i)), frame(opPing, true, []byte("p")))
		cs = append(cs, c)
	}
	n.until("all first frames wait", func() bool { return n.g.Ledger().Snapshot().Ingress >= 4*60000*sources })
	d := n.data(sid, "c", smallBuffers)
	n.untilBlocked(1)
	seen := map[string]int{}
	for range 2 * sources {
		m, err := d.message(patience)
		if err != nil {
			t.Fatalf("after %d messages: %v", len(seen), err)
		}
		if m.op == opBin {
			seen[fmt.Sprintf("first %d", binary.BigEndian.Uint32(m.data))]++
		} else {
			seen[string(m.data)]++
		}
	}
	if len(seen) != 2*sources {
		t.Errorf("%d different messages", len(seen))
	}
	for _, c := range cs {
		c.barrier()
	}
}

// A gathered message and small ones behind it leave in one write of which the
// kernel takes the first message and not all of the others.
func TestPartialWriteBehindAGatheredMessage(t *testing.T) {
	t.Parallel()
	n := startNode(t, "LOOPS=1", "TCP_SEND_BUFFER_BYTES=65536")
	s, c := n.v1pair(smallBuffers)
	fill := func(i, size int) []byte {
		b := bytes.Repeat([]byte{byte(i)}, size)
		binary.BigEndian.PutUint32(b, uint32(i))
		return b
	}
	var sizes []int
	for i := range 400 {
		sizes = append(sizes, []int{30000 + 61*i, 5, 5000, 127, 4}[i%5])
	}
	go func() {
		for i, size := range sizes {
			if c.write(frame(opBin, true, fill(i, size))) != nil {
				return
			}
		}
	}()
	total := 0
	for i, size := range sizes {
		s.want(opBin, fill(i, size))
		total += size
		if i%40 == 0 {
			n.until("the server is blocked", func() bool { return i > 300 || n.g.Ledger().Snapshot().Blocked > 0 })
		}
	}
	n.untilMetric("frames_forwarded_total", float64(len(sizes)))
	n.untilMetric("bytes_forwarded_total", float64(total))
}

// Pongs that the kernel refuses: one waits, the last, and their order holds.
func TestPongsBehindARefusalStayInOrder(t *testing.T) {
	t.Parallel()
	n := startNode(t, "TCP_SEND_BUFFER_BYTES=16384")
	c := n.v1("client", n.sid(), smallBuffers)
	const pings = 60000
	done := make(chan error, 1)
	go func() {
		for i := 0; i < pings; i += 100 {
			var b []byte
			for j := range 100 {
				p := make([]byte, 100)
				binary.BigEndian.PutUint32(p, uint32(i+j+1))
				b = append(b, frame(opPing, true, p)...)
			}
			if err := c.write(b); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	if !overTLS { // there what waits first is ciphertext
		n.untilBlocked(1)
	}
	for last := uint32(0); last != pings; {
		m, err := c.next(patience)
		if err != nil || m.op != opPong || len(m.data) != 100 {
			t.Fatalf("after pong %d: %v %v", last, m, err)
		}
		i := binary.BigEndian.Uint32(m.data)
		if i <= last {
			t.Fatalf("pong %d came behind pong %d", i, last)
		}
		last = i
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	c.barrier()
}

// Sources of one data socket, each with more to send than it takes at once: none
// of them has to stand back for the others, be they more than are let go at once.
func TestSourcesOfADataSocketTakeTurns(t *testing.T) {
	t.Parallel()
	for _, sources := range []int{3, 40} {
		n := startNode(t, "LOOPS=1", "TCP_SEND_BUFFER_BYTES=32768")
		sid := n.sid()
		d := n.data(sid, "c", smallBuffers)
		var senders sync.WaitGroup
		var cs []*wsClient
		for i := range sources {
			c := n.client(sid, "c")
			cs = append(cs, c)
			senders.Go(func() {
				for b := frame(opBin, true, numbered(i, 60000)); c.write(b) == nil; {
				}
			})
			n.untilBlocked(1) // by the first, and then behind it
		}
		const turns = 4
		seen := make([]int, sources)
		for range 2 * turns * sources {
			m, err := d.message(patience)
			if err != nil {
				t.Fatal(err)
			}
			seen[binary.BigEndian.Uint32(m.data)]++
		}
		if least := slices.Min(seen); least < turns {
			t.Errorf("of %d messages one source has %d: %v", 2*turns*sources, least, seen)
		}
		for _, c := range cs {
			c.rst()
		}
		senders.Wait()
	}
}

// A write finds that a data socket is gone which is paused, with a message of it
// unread. Its clients get that before they are told.
func TestUnreadMessagesOutliveAFailedWrite(t *testing.T) {
	t.Parallel()
	n := startNode(t, smallSend)
	big := make([]byte, 2<<20)
	for range 2 {
		sid := n.sid()
		d := n.data(sid, "c")
		slow, quick := n.client(sid, "c", smallBuffers), n.client(sid, "c", smallBuffers)
		d.bin(big)
		quick.want(opBin, big)
		n.untilBlocked(1)
		d.text("unread")
		d.acked()
		d.rst()
		for range 3 { // the first finds out, the others are for nobody
			quick.text("too late")
			quick.barrier()
		}
		slow.want(opBin, big)
		for _, c := range []*wsClient{slow, quick} {
			c.wantText("unread")
			c.wantClose(1012, "Server disconnected")
		}
		n.untilSockets(0)
		n.untilIngress(0)
		n.untilBlocked(0)
	}
}

// acked waits until the other kernel has all that c wrote.
func (c *wsClient) acked() {
	c.t.Helper()
	f, err := c.nc.File()
	if err != nil {
		c.fatal("%v", err)
	}
	defer f.Close()
	raw, err := f.SyscallConn()
	if err != nil {
		c.fatal("%v", err)
	}
	if !poll(func() bool {
		left := -1
		raw.Control(func(fd uintptr) { left, _ = unix.IoctlGetInt(int(fd), unix.TIOCOUTQ) })
		return left == 0
	}) {
		c.fatal("not all that was written is acknowledged")
	}
}
