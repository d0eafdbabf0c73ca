package gateway_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// smallSend keeps the relay's kernel buffers small, so that pressure is felt
// after a few hundred kilobytes instead of a few megabytes.
const smallSend = "TCP_SEND_BUFFER_BYTES=32768"

// numbered is message i of a source: its payload says so all over.
func numbered(i, size int) []byte {
	b := bytes.Repeat([]byte{byte(i)}, size)
	binary.BigEndian.PutUint32(b, uint32(i))
	return b
}

// A stuffer sends numbered messages without an end until it is stopped.
type stuffer struct {
	c     *wsClient
	sent  atomic.Int64 // whole messages that the kernel took
	bytes atomic.Int64
	quit  chan struct{}
	done  chan struct{}
}

const stuffed = 32 << 10 // payload of a stuffer's message

func stuff(c *wsClient) *stuffer {
	s := &stuffer{c: c, quit: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(s.done)
		if p, ok := c.nc.(tlsPeer); ok {
			defer p.settle()
		}
		for i := 0; ; i++ {
			select {
			case <-s.quit:
				return
			default:
			}
			b := append(frameHead(opBin, true, stuffed, true), numbered(i, stuffed)...)
			for len(b) > 0 {
				c.nc.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
				n, err := c.nc.Write(b)
				s.bytes.Add(int64(n))
				if b = b[n:]; err != nil && ended(err) == errReset {
					return
				}
				if err != nil && !strings.Contains(err.Error(), "timeout") {
					return
				}
			}
			s.sent.Add(1)
		}
	}()
	return s
}

// stopped waits until nothing more is taken for a while: the source is paused.
func (s *stuffer) stopped() {
	s.c.t.Helper()
	last, since := int64(-1), time.Now()
	if !poll(func() bool {
		if n := s.bytes.Load(); n != last {
			last, since = n, time.Now()
		}
		return time.Since(since) > 300*time.Millisecond
	}) {
		s.c.fatal("the source is never stopped: %s taken", mib(s.bytes.Load()))
	}
}

// finish lets the message under way go out and waits for it.
func (s *stuffer) finish() int {
	close(s.quit)
	<-s.done
	return int(s.sent.Load())
}

// wantNumbered reads the messages from to upto.
func (c *wsClient) wantNumbered(from, upto, size int) {
	c.t.Helper()
	for i := from; i < upto; i++ {
		c.want(opBin, numbered(i, size))
	}
}

// ways are the four ways a message can take: its source and its destination.
var ways = []string{"v1 client", "v1 server", "client", "data"}

// The source of a stalled destination is not read; the opposite direction and
// everybody else go on; when the destination reads again everything is there.
func TestStalledDestinationStopsItsSource(t *testing.T) {
	t.Parallel()
	n := startNode(t, smallSend, "LOOPS=1")
	others, otherc := n.pair()
	for _, way := range ways {
		sid := n.sid()
		var src, dst *wsClient
		switch way {
		case "v1 client":
			dst, src = n.v1("server", sid, smallBuffers), n.v1("client", sid, smallBuffers)
		case "v1 server":
			dst, src = n.v1("client", sid, smallBuffers), n.v1("server", sid, smallBuffers)
		case "client":
			dst, src = n.data(sid, "c", smallBuffers), n.client(sid, "c", smallBuffers)
		case "data":
			dst, src = n.client(sid, "c", smallBuffers), n.data(sid, "c", smallBuffers)
		}
		st := stuff(src)
		st.stopped()
		n.untilBlocked(1)
		if got := st.bytes.Load(); got > 8<<20 {
			t.Errorf("%s: %s taken behind a stalled destination", way, mib(got))
		}
		if got := n.g.Ledger().Snapshot().Ingress / 4; got > 1<<20 {
			t.Errorf("%s: %s held", way, mib(got))
		}
		for i := range 50 {
			dst.raw(frame(opBin, true, numbered(i, 1000)))
			src.want(opBin, numbered(i, 1000))
			otherc.text("others")
			others.wantText("others")
		}
		sent := make(chan int, 1)
		go func() {
			n := st.finish()
			src.text("last")
			sent <- n
		}()
		for received := 0; ; received++ {
			m, err := dst.message(patience)
			if err != nil {
				t.Fatalf("%s: %v", way, err)
			}
			if m.op == opText {
				if n := <-sent; received != n {
					t.Errorf("%s: %d of %d messages", way, received, n)
				}
				break
			}
			if !bytes.Equal(m.data, numbered(received, stuffed)) {
				t.Fatalf("%s: message %d: %v", way, received, m)
			}
		}
		dst.barrier()
		src.barrier()
		n.untilIngress(0)
		n.untilBlocked(0)
	}
}

// Simultaneous pressure in both directions cannot deadlock.
func TestPressureInBothDirections(t *testing.T) {
	t.Parallel()
	n := startNode(t, smallSend)
	for _, kind := range []string{"v1 client", "client"} {
		a, b := n.kind(kind, smallBuffers)
		sa, sb := stuff(a), stuff(b)
		sa.stopped()
		sb.stopped()
		n.untilBlocked(2)
		read := func(c *wsClient, done chan error) {
			for i := range 300 {
				m, err := c.message(patience)
				if err != nil || !bytes.Equal(m.data, numbered(i, stuffed)) {
					done <- fmt.Errorf("%s: message %d: %v %v", c.name, i, m, err)
					return
				}
			}
			done <- nil
		}
		done := make(chan error, 2)
		go read(a, done)
		go read(b, done)
		for range 2 {
			if err := <-done; err != nil {
				t.Fatal(err)
			}
		}
		a.rst()
		b.rst()
		n.untilIngress(0)
		n.untilBlocked(0)
	}
}

// Clients of one id share a stalled data socket: the order of each holds.
func TestManySourcesOneStalledDestination(t *testing.T) {
	t.Parallel()
	n := startNode(t, smallSend)
	sid := n.sid()
	d := n.data(sid, "c", smallBuffers)
	const sources, each = 200, 10
	for i := range sources {
		c := n.client(sid, "c")
		go func() {
			for j := range each {
				b := numbered(j, 4000)
				binary.BigEndian.PutUint32(b[4:], uint32(i))
				if c.write(frame(opBin, true, b)) != nil {
					return
				}
			}
		}()
	}
	n.untilBlocked(1)
	var next [sources]uint32
	for range sources * each {
		m, err := d.message(patience)
		if err != nil {
			t.Fatal(err)
		}
		i, j := binary.BigEndian.Uint32(m.data[4:]), binary.BigEndian.Uint32(m.data)
		if j != next[i] || len(m.data) != 4000 {
			t.Fatalf("source %d: message %d, expected %d", i, j, next[i])
		}
		next[i]++
	}
	d.barrier()
	n.untilIngress(0)
}

// A blocked destination that vanishes lets its sources go.
func TestBlockedDestinationVanishes(t *testing.T) {
	t.Parallel()
	n := startNode(t, smallSend)
	for _, how := range []func(*wsClient){(*wsClient).rst, (*wsClient).bye} {
		sid := n.sid()
		s, c := n.v1("server", sid, smallBuffers), n.v1("client", sid)
		st := stuff(c)
		st.stopped()
		how(s)
		n.untilBlocked(0)
		st.finish()
		c.barrier()
		n.untilIngress(0)
		c.rst()

		d, cl := n.pair(smallBuffers)
		st = stuff(cl)
		st.stopped()
		how(d)
		cl.wantCloseFrame(1012, "Server disconnected")
		cl.rst()
		<-st.done
		n.untilIngress(0)
	}
}

// Fan-out: one client may lag 1 MiB without being felt; then the source waits
// for it; and not any more when it leaves.
func TestFanOutLag(t *testing.T) {
	t.Parallel()
	n := startNode(t, smallSend)
	for _, end := range []string{"resumes", "leaves", "fault"} {
		sid := n.sid()
		d := n.data(sid, "c", smallBuffers)
		slow, fast := n.client(sid, "c", smallBuffers), n.client(sid, "c", smallBuffers)
		st := stuff(d)
		var got atomic.Int64
		stop := make(chan struct{})
		fastDone := make(chan error, 1)
		go func() {
			for i := 0; ; i++ {
				m, err := fast.message(patience)
				if err != nil || !bytes.Equal(m.data, numbered(i, stuffed)) {
					select {
					case <-stop:
						err = nil
					default:
						err = fmt.Errorf("message %d: %v %v", i, m, err)
					}
					fastDone <- err
					return
				}
				got.Add(1)
			}
		}()
		st.stopped()
		held := n.g.Ledger().Snapshot().Ingress / 4
		if held < 900<<10 || held > 2<<20 {
			t.Errorf("a lagging client holds %s", mib(held))
		}
		if got.Load() < 1<<20/stuffed {
			t.Errorf("the other client got %d messages", got.Load())
		}
		before := got.Load()
		switch end {
		case "resumes":
			slow.wantNumbered(0, 200, stuffed)
		case "leaves":
			slow.rst()
		case "fault":
			slow.raw(frame(3, true, nil))
		}
		n.until("the source goes on", func() bool { return got.Load() > before+100 })
		close(stop)
		d.rst()
		<-st.done
		fast.rst()
		slow.rst()
		if err := <-fastDone; err != nil {
			t.Error(err)
		}
		n.untilIngress(0)
	}
}

// A lagging client that is left alone holds its source up at once, and the
// source goes on when it has caught up.
func TestFanOutSiblingLeaves(t *testing.T) {
	t.Parallel()
	n := startNode(t, smallSend)
	sid := n.sid()
	d := n.data(sid, "c")
	slow, fast := n.client(sid, "c", smallBuffers), n.client(sid, "c")
	go func() {
		for i := range 20 {
			d.write(frame(opBin, true, numbered(i, stuffed)))
		}
	}()
	fast.wantNumbered(0, 20, stuffed)
	n.untilBlocked(1)
	fast.leave(1000)
	go d.write(frame(opBin, true, numbered(20, stuffed)))
	slow.wantNumbered(0, 21, stuffed)
	d.barrier()
	n.untilIngress(0)
}

// A single stalled client holds its source up at once: there is nobody to protect.
func TestNoLagForASingleClient(t *testing.T) {
	t.Parallel()
	n := startNode(t, smallSend)
	sid := n.sid()
	d := n.data(sid, "c", smallBuffers)
	n.client(sid, "c", smallBuffers)
	st := stuff(d)
	st.stopped()
	if held := n.g.Ledger().Snapshot().Ingress / 4; held > 512<<10 {
		t.Errorf("%s held", mib(held))
	}
	d.rst()
	<-st.done
}
