//go:build linux

package loop

import (
	"fmt"
	"io"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// TestConnSize pins what an idle connection costs, and that a turn finds what it
// needs in one cache line.
func TestConnSize(t *testing.T) {
	var c Conn
	if n := unsafe.Sizeof(c); n > 128 {
		t.Errorf("a Conn has %d bytes, more than 128", n)
	}
	f := func(field string, offset, size uintptr) {
		t.Helper()
		if offset+size > 64 {
			t.Errorf("%s ends at byte %d, outside of the first cache line", field, offset+size)
		}
	}
	f("fd", unsafe.Offsetof(c.fd), unsafe.Sizeof(c.fd))
	f("flags", unsafe.Offsetof(c.flags), unsafe.Sizeof(c.flags))
	f("id", unsafe.Offsetof(c.id), unsafe.Sizeof(c.id))
	f("loop", unsafe.Offsetof(c.loop), unsafe.Sizeof(c.loop))
	f("h", unsafe.Offsetof(c.h), unsafe.Sizeof(c.h))
}

// turnLog notes which connection read in which turn.
type turnLog struct {
	turn  int
	lines []string
}

func (g *turnLog) OnTurn(*Loop) { g.turn++ }

// TestFairness: in a turn every readable connection gets one read, in the order
// in which they lined up; a flood does not hold up a key stroke.
func TestFairness(t *testing.T) {
	l := start(t, 1, Config{})[0]
	log := &turnLog{}
	on(t, l, func() { l.AddHook(log) })
	bytes := map[string]int{}
	done := make(chan struct{})
	reader := func(name string) *script {
		h := &script{t: t}
		h.read = func(c *Conn) {
			n, r := c.Read(l.Buffer()[:1000])
			if r != ReadBytes {
				return
			}
			log.lines = append(log.lines, fmt.Sprint(log.turn, name))
			if bytes[name] += n; bytes["flood"] == 20000 && bytes["a"] == 3000 && bytes["b"] == 1 {
				close(done)
			}
		}
		return h
	}
	_, flood := pair(t, l, reader("flood"), nil)
	_, a := pair(t, l, reader("a"), nil)
	_, b := pair(t, l, reader("b"), nil)
	turns(t, l, 2) // the new sockets' first events are behind us

	release := hold(t, l)
	flood.Write(make([]byte, 20000))
	a.Write(make([]byte, 3000))
	b.Write([]byte("k"))
	release()
	await(t, "everything is read", done)
	on(t, l, func() {
		first := 0
		fmt.Sscan(log.lines[0], &first)
		// Everything arrived while the loop was held: the first turn reads from
		// all three, the next ones from those that have more.
		exp := []string{"+0flood", "+0a", "+0b", "+1flood", "+1a", "+2flood", "+2a"}
		for i := 3; i < 20; i++ {
			exp = append(exp, fmt.Sprintf("+%dflood", i))
		}
		for i, s := range exp {
			var d int
			name := strings.TrimLeft(s, "+0123456789")
			fmt.Sscanf(s, "+%d", &d)
			exp[i] = fmt.Sprint(first+d, name)
		}
		if !slices.Equal(log.lines, exp) {
			t.Errorf("order of reads\n got %v\nwant %v", log.lines, exp)
		}
	})
}

// TestPingPongBesideAFlood: with a connection that never runs dry the others
// are served all the same.
func TestPingPongBesideAFlood(t *testing.T) {
	l := start(t, 1, Config{})[0]
	sink := &script{t: t}
	sink.read = func(c *Conn) {
		if _, r := c.Read(l.Buffer()); r == ReadEOF || r == ReadReset {
			c.Close()
		}
	}
	_, flood := pair(t, l, sink, nil)
	_, ping := pair(t, l, &echo{}, nil)
	var wg sync.WaitGroup
	wg.Go(func() {
		for b := make([]byte, 1<<20); ; {
			if _, err := flood.Write(b); err != nil {
				return
			}
		}
	})
	b := make([]byte, 8)
	for i := range 500 {
		copy(b, fmt.Sprintf("%08d", i))
		ping.Write(b)
		if _, err := io.ReadFull(ping, b); err != nil || string(b) != fmt.Sprintf("%08d", i) {
			t.Fatalf("ping %d came back as %q, %v", i, b, err)
		}
	}
	flood.Close()
	wg.Wait()
}

// numbered is a message of one of several goroutines.
type numbered struct {
	from, n int
	next    []int
	count   *atomic.Int64
	t       *testing.T
}

func (m numbered) Deliver(*Loop) {
	if m.next[m.from] != m.n {
		m.t.Errorf("of goroutine %d message %d came, want %d", m.from, m.n, m.next[m.from])
	}
	m.next[m.from] = m.n + 1
	m.count.Add(1)
}

// TestPost: of many goroutines none loses a message, and each one's come in order.
func TestPost(t *testing.T) {
	l := start(t, 1, Config{})[0]
	const from, each = 16, 5000
	next := make([]int, from)
	var count atomic.Int64
	var wg sync.WaitGroup
	for i := range from {
		wg.Go(func() {
			for n := range each {
				l.Post(numbered{i, n, next, &count, t})
				if n%97 == 0 {
					runtime.Gosched()
				}
			}
		})
	}
	wg.Wait()
	on(t, l, func() {}) // behind all of them: the queue is first in, first out
	want(t, "every message was delivered", count.Load() == from*each)
}

// TestPostWakes: a loop that blocks in the poller is woken by every message.
func TestPostWakes(t *testing.T) {
	l := start(t, 1, Config{Spin: -1})[0]
	for range 2000 {
		on(t, l, func() {})
	}
	blocked := start(t, 1, Config{Spin: -1})[0]
	eventually(t, "an idle loop blocks", func() bool {
		n := blocked.Stats().Turns.Load()
		turns(t, l, 20)
		return blocked.Stats().Turns.Load() == n
	})
	turns(t, blocked, 1)
}

// TestPostWithoutEnd: a message that posts the next one for ever does not keep
// the sockets from being served.
func TestPostWithoutEnd(t *testing.T) {
	l := start(t, 1, Config{})[0]
	_, peer := pair(t, l, &echo{}, nil)
	var again Func
	var over atomic.Bool
	again = func(l *Loop) {
		if !over.Load() {
			l.Post(again)
		}
	}
	l.Post(again)
	for range 50 {
		b := []byte("ping")
		peer.Write(b)
		if _, err := io.ReadFull(peer, b); err != nil {
			t.Fatal(err)
		}
	}
	over.Store(true)
	turns(t, l, 1)
}

// TestPostMany: more messages than one turn takes are all delivered, without
// another to wake the loop.
func TestPostMany(t *testing.T) {
	l := start(t, 1, Config{})[0]
	release := hold(t, l)
	var count atomic.Int64
	done := make(chan struct{})
	const n = 3*maxMessages + 1
	for range n {
		l.Post(Func(func(*Loop) {
			if count.Add(1) == n {
				close(done)
			}
		}))
	}
	release()
	await(t, "the last of many messages", done)
}

// TestHooks: they run at the end of each turn that did something, in order.
func TestHooks(t *testing.T) {
	l := start(t, 1, Config{})[0]
	a, b := &turnLog{}, &turnLog{}
	on(t, l, func() {
		l.AddHook(a)
		l.AddHook(b)
	})
	turns(t, l, 10)
	on(t, l, func() { want(t, "both ran in every turn before", a.turn >= 10 && a.turn == b.turn) })
}

func TestFigures(t *testing.T) {
	l := start(t, 2, Config{})[1]
	want(t, "a loop knows its number", l.ID() == 1)
	turns(t, l, 2)
	on(t, l, func() {
		want(t, "the time of the turn is a time", l.Now() > 0 && l.Now() <= Now())
		want(t, "a loop without a logger discards", l.Log() != nil)
		want(t, "busy time is counted", l.Stats().BusyNanos.Load() > 0)
	})
}

// TestStop: what connections are left are reset without a call of their
// handlers, and the loop takes no more.
func TestStop(t *testing.T) {
	l, err := New(0, Config{})
	if err != nil {
		t.Fatal(err)
	}
	go l.Run()
	_, idle := pair(t, l, &script{t: t}, nil)
	paused, filled := pair(t, l, &script{t: t}, (*Conn).Pause)
	filled.Write([]byte("unread"))
	on(t, l, func() { paused.SetDeadline(l.Now() + int64(time.Hour)) })
	stop(t, l)
	l.Stop() // once more is harmless
	for _, peer := range []*net.TCPConn{idle, filled} {
		_, err := peer.Read(make([]byte, 1))
		want(t, "the peer sees a reset", err != nil && strings.Contains(err.Error(), "reset"))
	}
	want(t, "no connection is left", l.Stats().Conns.Load() == 0)
	l.Post(Func(func(*Loop) { t.Error("a loop that has ended delivered a message") }))
}

// TestStopWhileBusy: a loop stops between messages, and drops the others.
func TestStopWhileBusy(t *testing.T) {
	l, err := New(0, Config{})
	if err != nil {
		t.Fatal(err)
	}
	go l.Run()
	var again Func
	again = func(l *Loop) { l.Post(again) }
	l.Post(again)
	stop(t, l)
}

// TestPostToAnEndedLoop: the number of the descriptor that woke the loop may be
// somebody else's now, who must not find our bytes in it.
func TestPostToAnEndedLoop(t *testing.T) {
	l, err := New(0, Config{})
	if err != nil {
		t.Fatal(err)
	}
	bell := l.poll.efd
	go l.Run()
	stop(t, l)
	// Take numbers until that one is ours.
	for {
		fd, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
		if fd == bell {
			break
		}
		if fd > bell {
			t.Skip("somebody else has the number")
		}
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 100 {
				l.Post(Func(func(*Loop) { t.Error("delivered") }))
			}
		})
	}
	wg.Wait()
	_, err = unix.Read(bell, make([]byte, 8))
	want(t, "nothing was written to the descriptor", err == unix.EAGAIN)
	want(t, "the door is empty", l.inbox.IsEmpty())
}

// TestPostWhileStopping: posts that race with the end of a loop reach nobody
// else's descriptor and are not kept.
func TestPostWhileStopping(t *testing.T) {
	for range 50 {
		l, err := New(0, Config{})
		if err != nil {
			t.Fatal(err)
		}
		go l.Run()
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for range 50 {
					l.Post(Func(func(*Loop) {}))
				}
			})
		}
		l.Stop()
		wg.Wait()
		<-l.Done()
		want(t, "the door is empty", l.inbox.IsEmpty())
	}
}
