package gateway_test

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

// Past the deadline the slow destination is closed and its source goes on.
func TestDeliveryDeadline(t *testing.T) {
	t.Parallel()
	n := startNode(t, smallSend, "DELIVERY_TIMEOUT_MS=400", "TRANSPORT_SEND_TIMEOUT_MS=900")
	// v1: the source stays.
	sid := n.sid()
	s, c := n.v1("server", sid, smallBuffers), n.v1("client", sid)
	st := stuff(c)
	n.untilMetric("slow_consumer_closes_total", 1)
	st.finish()
	c.barrier()
	got := 0
	for {
		m, err := s.message(patience)
		if err != nil {
			break // half a frame was never taken: reset
		}
		if m.op == opClose {
			if m.code != 1013 || m.reason != "Delivery timeout" {
				t.Errorf("closed with %v", m)
			}
			break
		}
		if !bytes.Equal(m.data, numbered(got, stuffed)) {
			t.Fatalf("message %d: %v", got, m)
		}
		got++
	}
	s.rst()
	c.leave(1000)
	// v2: a data socket that is shed takes its clients with it.
	d, cl := n.pair(smallBuffers)
	st = stuff(cl)
	cl.wantCloseFrame(1012, "Server disconnected")
	cl.rst()
	d.rst()
	<-st.done
	n.untilIngress(0)
	n.untilBlocked(0)
	if lines := n.log.with("slow destination shed"); len(lines) != 2 || !strings.Contains(lines[0], "needed_bytes_per_second") || strings.Contains(lines[0], `"waited":"`) {
		t.Errorf("log: %q", lines)
	}
}

// What was not begun at the deadline is not written any more.
func TestDeadlineWritesNothingNew(t *testing.T) {
	t.Parallel()
	n := startNode(t, smallSend, "DELIVERY_TIMEOUT_MS=500", "TRANSPORT_SEND_TIMEOUT_MS=60000")
	sid := n.sid()
	d := n.data(sid, "c", smallBuffers)
	var cs []*wsClient
	for i := range 3 {
		c := n.client(sid, "c")
		c.raw(frame(opBin, true, numbered(i, 2<<20)))
		cs = append(cs, c)
	}
	n.untilMetric("slow_consumer_closes_total", 1)
	m, err := d.message(patience)
	if err != nil || len(m.data) != 2<<20 {
		t.Fatal(m, err)
	}
	d.wantClose(1013, "Delivery timeout")
	for _, c := range cs {
		c.wantClose(1012, "Server disconnected")
	}
	n.untilIngress(0)
}

// The last messages of a peer that left share the budget of their delivery.
func TestDeadlineOfLastMessages(t *testing.T) {
	t.Parallel()
	n := startNode(t, smallSend, "DELIVERY_TIMEOUT_MS=400", "TRANSPORT_SEND_TIMEOUT_MS=700")
	for _, how := range []string{"rst", "close"} {
		d, c := n.pair(smallBuffers)
		go c.write(bytes.Join([][]byte{frame(opBin, true, numbered(0, 1<<20)), closeFrame(1000, "")}, nil))
		n.untilBlocked(1)
		if how == "rst" {
			c.rst()
		}
		n.until("both sockets are gone or closing", func() bool { return n.g.Ledger().Snapshot().Blocked == 0 })
		d.rst()
		c.rst()
		n.untilIngress(0)
		n.untilSockets(0)
	}
}

// A closing frame waits behind the last messages, however slowly they are taken.
func TestFinishBehindTheQueue(t *testing.T) {
	t.Parallel()
	n := startNode(t, smallSend)
	for _, how := range []string{"close", "fin", "rst"} {
		d, c := n.pair(smallBuffers)
		sent := make(chan struct{})
		go func() {
			defer close(sent)
			for i := range 60 {
				c.write(frame(opBin, true, numbered(i, stuffed)))
			}
			switch how {
			case "close":
				c.write(closeFrame(1000, ""))
			case "fin":
				c.fin()
			}
		}()
		n.untilBlocked(1)
		upto := 60
		if how == "rst" {
			n.until("some are held", func() bool { return n.g.Ledger().Snapshot().Ingress > 0 })
			c.rst()
			<-sent
			upto = 0
		}
		for i := 0; ; i++ {
			m, err := d.message(patience)
			if err != nil {
				t.Fatalf("%s: after %d messages: %v", how, i, err)
			}
			if m.op == opClose {
				if m.code != 1001 || m.reason != "Client disconnected" || i < upto {
					t.Errorf("%s: after %d messages: %v", how, i, m)
				}
				break
			}
			if !bytes.Equal(m.data, numbered(i, stuffed)) {
				t.Fatalf("%s: message %d: %v", how, i, m)
			}
		}
		d.rst()
		c.rst()
		n.untilIngress(0)
	}
	// And the other way, to several clients.
	sid := n.sid()
	a, b := n.client(sid, "c", smallBuffers), n.client(sid, "c", smallBuffers)
	d := n.data(sid, "c")
	go func() {
		for i := range 20 {
			d.write(frame(opBin, true, numbered(i, stuffed)))
		}
		d.write(closeFrame(1000, ""))
	}()
	n.untilBlocked(2)
	for _, c := range []*wsClient{a, b} {
		c.wantNumbered(0, 20, stuffed)
		c.wantClose(1012, "Server disconnected")
	}
}

// Every other close frame overtakes what has not begun.
func TestCloseOvertakesWaitingMessages(t *testing.T) {
	t.Parallel()
	n := startNode(t, smallSend)
	const size = 200000
	sid := n.sid()
	var cs []*wsClient
	for i := range 30 {
		c := n.client(sid, "c")
		c.raw(frame(opBin, true, numbered(i, size)))
		cs = append(cs, c)
		n.untilIngress(int64(size * (i + 1)))
	}
	d := n.data(sid, "c", smallBuffers)
	n.untilBlocked(1)
	d.raw(frame(3, true, nil))
	for i := 0; ; i++ {
		m, err := d.message(patience)
		if err != nil {
			t.Fatal(err)
		}
		if m.op == opClose {
			if m.code != 1002 || i > 5 {
				t.Errorf("%v after %d messages", m, i)
			}
			break
		}
	}
	d.rst()
	for _, c := range cs {
		c.wantClose(1012, "Server disconnected")
	}
	n.untilIngress(0)
}

// Replacement under load: a half-written frame is finished at the old socket,
// what was not begun goes to the new one, nothing twice, nothing lost.
func TestReplacementUnderLoad(t *testing.T) {
	t.Parallel()
	n := startNode(t, smallSend)
	open := map[string]func(sid string) *wsClient{
		"data":      func(sid string) *wsClient { return n.data(sid, "c", smallBuffers) },
		"v1 server": func(sid string) *wsClient { return n.v1("server", sid, smallBuffers) },
		"v1 client": func(sid string) *wsClient { return n.v1("client", sid, smallBuffers) },
	}
	source := map[string]func(sid string) *wsClient{
		"data":      func(sid string) *wsClient { return n.client(sid, "c") },
		"v1 server": func(sid string) *wsClient { return n.v1("client", sid) },
		"v1 client": func(sid string) *wsClient { return n.v1("server", sid) },
	}
	for kind := range open {
		sid := n.sid()
		src := source[kind](sid)
		dst := open[kind](sid)
		const messages, size = 60, 70000
		go func() {
			for i := range messages {
				if src.write(frame(opBin, true, numbered(i, size))) != nil {
					return
				}
			}
		}()
		next := 0
		for round := range 4 {
			n.untilBlocked(1)
			for range 5 { // some are read, then the socket stalls in the middle of one
				dst.want(opBin, numbered(next, size))
				next++
			}
			young := open[kind](sid)
			for {
				m, err := dst.message(patience)
				if err != nil {
					t.Fatalf("%s, round %d: %v", kind, round, err)
				}
				if m.op == opClose {
					if m.code != 1008 || m.reason != "Replaced by new connection" {
						t.Fatalf("%s: %v", kind, m)
					}
					break
				}
				if !bytes.Equal(m.data, numbered(next, size)) {
					t.Fatalf("%s, round %d: at the old socket, message %d: %v", kind, round, next, m)
				}
				next++
			}
			dst.write(closeFrame(1008, ""))
			dst.wantEOF()
			dst = young
		}
		for ; next < messages; next++ {
			dst.want(opBin, numbered(next, size))
		}
		dst.barrier()
		src.barrier()
		n.untilIngress(0)
		src.rst()
		dst.rst()
	}
}

// A pong goes ahead of what waits.
func TestPongOvertakesWaitingMessages(t *testing.T) {
	t.Parallel()
	n := startNode(t, smallSend)
	sid := n.sid()
	for i := range 30 {
		c := n.client(sid, "c")
		c.raw(frame(opBin, true, numbered(i, 200000)))
		n.untilIngress(int64(200000 * (i + 1)))
	}
	d := n.data(sid, "c", smallBuffers)
	n.untilBlocked(1)
	d.pinged("one")
	d.pinged("now")
	messages, pong := 0, -1
	for messages < 30 {
		m, err := d.next(patience)
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case m.op == opBin && bytes.Equal(m.data, numbered(messages, 200000)):
			messages++
		case m.op == opPong && string(m.data) == "now":
			pong = messages
		case m.op == opPong && string(m.data) == "one" && pong < 0:
		default:
			t.Fatalf("message %d: %v", messages, m)
		}
	}
	if pong < 0 || pong > 5 {
		t.Errorf("the pong came behind %d of 30 messages", pong)
	}
}

// A source that is paused hears a pong every 5 s.
func TestPausedSourceGetsPongs(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	c := n.client(n.sid(), "c")
	start := time.Now()
	c.text("waits")
	m, err := c.next(patience)
	if took := time.Since(start); err != nil || m.op != opPong || len(m.data) != 0 || took < 4900*time.Millisecond || took > patience {
		t.Errorf("%v %v after %v", m, err, took)
	}
}
