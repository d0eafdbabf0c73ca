//go:build linux

package loop

import (
	"bytes"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// socketError returns what the kernel has against a peer's socket: EPIPE, if it
// was reset behind our end.
func socketError(t *testing.T, peer *net.TCPConn) error {
	t.Helper()
	raw, err := peer.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var errno int
	raw.Control(func(fd uintptr) { errno, err = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ERROR) })
	if err != nil {
		t.Fatal(err)
	}
	return unix.Errno(errno)
}

// TestLinger: the last output arrives whole although the peer's input was not
// read, and then the peer sees an end and no reset.
func TestLinger(t *testing.T) {
	l := start(t, 1, Config{})[0]
	gone := make(chan struct{})
	h := &script{t: t}
	c, peer := pair(t, l, h, (*Conn).Pause)
	unread := make([]byte, 60<<10)
	peer.Write(unread)
	last := noise(1, 40<<10)
	on(t, l, func() {
		n, err := c.Write(last)
		want(t, "the output is complete", n == len(last) && err == nil)
		c.Linger(1<<20, far(), 0, func() { close(gone) })
		want(t, "the connection is still there", !c.Closed())
	})
	// The peer goes on sending before it looks.
	for range 10 {
		peer.Write(unread)
	}
	got, err := io.ReadAll(peer)
	want(t, "it reads every byte and an end", err == nil && bytes.Equal(got, last))
	select {
	case <-gone:
		t.Error("the connection did not wait for the peer's end")
	default:
	}
	peer.CloseWrite()
	await(t, "gone is called", gone)
	on(t, l, func() { want(t, "the connection is closed", c.Closed() && l.Stats().Conns.Load() == 0) })
}

// TestCloseLosesOutput shows what Linger is for.
func TestCloseLosesOutput(t *testing.T) {
	l := start(t, 1, Config{})[0]
	c, peer := pair(t, l, &script{t: t}, (*Conn).Pause)
	peer.Write([]byte("unread"))
	on(t, l, func() {})
	eventually(t, "the kernel holds unread input", func() bool { return pending(c) > 0 })
	on(t, l, c.Close)
	_, err := io.ReadAll(peer)
	want(t, "a plain close with unread input is a reset", errors.Is(err, unix.ECONNRESET))
}

// TestLingerBytes: exactly as much input as allowed is dropped in order, one
// byte more resets.
func TestLingerBytes(t *testing.T) {
	f := func(name string, allowed, sent int, reset bool) {
		t.Run(name, func(t *testing.T) {
			l := start(t, 1, Config{ReadBuffer: 1000})[0]
			gone := make(chan struct{})
			c, peer := pair(t, l, &script{t: t}, (*Conn).Pause)
			on(t, l, func() { c.Linger(allowed, far(), 0, func() { close(gone) }) })
			peer.Write(make([]byte, sent))
			if !reset {
				peer.CloseWrite()
			}
			await(t, "gone is called", gone)
			_, err := io.ReadAll(peer)
			want(t, "the peer reads our end, which came first", err == nil)
			want(t, "its kernel knows of a reset", socketError(t, peer) == unix.EPIPE == reset)
		})
	}
	f("none, none sent", 0, 0, false)
	f("none, one sent", 0, 1, true)
	f("all that is allowed", 5000, 5000, false)
	f("one byte more", 5000, 5001, true)
	f("less than a read", 10, 10, false)
	f("less than a read, and more sent", 10, 11, true)
}

// TestLingerTime: a peer that does nothing is reset when its time is over.
func TestLingerTime(t *testing.T) {
	l := start(t, 1, Config{})[0]
	var until int64
	gone := make(chan int64, 1)
	c, peer := pair(t, l, &script{t: t}, nil)
	on(t, l, func() {
		until = l.Now() + int64(30*time.Millisecond)
		c.Linger(1<<20, until, 0, func() { gone <- l.Now() })
	})
	want(t, "its time is not cut short", await(t, "gone is called", gone) >= until)
	want(t, "the peer is reset", socketError(t, peer) == unix.EPIPE)
}

// TestLingerSlowPeer: whoever takes the last output slowly has the time for it, as
// long as it takes something.
func TestLingerSlowPeer(t *testing.T) {
	l := start(t, 1, Config{})[0]
	gone := make(chan struct{})
	c, peer := pair(t, l, &script{t: t}, nil)
	stall := int64(time.Hour)
	seen := 0 // not acknowledged at the last look
	look := func() (open bool) {
		on(t, l, func() {
			g := c.h.(*linger)
			c.SetDeadline(0)
			g.OnTimer(c)
			seen, open = g.unacked, !c.Closed()
			want(t, "it is looked at again when a stall is over", !open || c.Deadline() >= Now())
		})
		return open
	}
	on(t, l, func() {
		c.Write(make([]byte, 32<<20))
		c.Linger(1<<20, far(), stall, func() { close(gone) })
	})
	if !look() {
		t.Fatal("no output is on its way")
	}
	for range 3 {
		eventually(t, "the peer takes something", func() bool {
			io.ReadFull(peer, make([]byte, 16<<10))
			left := 0
			on(t, l, func() { left = c.Unacked() })
			return left < seen
		})
		if !look() {
			t.Fatal("a peer that has taken something is reset")
		}
	}
	// What its kernel still had room for counts, too.
	eventually(t, "a peer that took nothing meanwhile is reset", func() bool { return !look() })
	await(t, "gone is called", gone)
}

// TestLingerPeerGone: the peer's end or reset may have come before, and may have
// been read.
func TestLingerPeerGone(t *testing.T) {
	f := func(name string, end func(peer *net.TCPConn), exp ReadResult) {
		t.Run(name, func(t *testing.T) {
			l := start(t, 1, Config{})[0]
			r := collect(t)
			c, peer := pair(t, l, r, nil)
			end(peer)
			want(t, "the handler reads it", await(t, "the end", r.end) == exp)
			gone := make(chan struct{})
			on(t, l, func() {
				c.Linger(100, far(), 0, func() { close(gone) })
				want(t, "it looks at once whether that was it", c.flags&queued != 0)
			})
			await(t, "gone is called", gone)
			want(t, "nothing is left", l.Stats().Conns.Load() == 0)
		})
	}
	f("its end", func(p *net.TCPConn) { p.CloseWrite() }, ReadEOF)
	f("its reset", func(p *net.TCPConn) {
		p.SetLinger(0)
		p.Close()
	}, ReadReset)
}

// TestLingerReset: a peer that resets while we linger ends it at once.
func TestLingerReset(t *testing.T) {
	l := start(t, 1, Config{})[0]
	gone := make(chan struct{})
	c, peer := pair(t, l, &script{t: t}, nil)
	on(t, l, func() { c.Linger(100, far(), 0, func() { close(gone) }) })
	peer.SetLinger(0)
	peer.Close()
	await(t, "gone is called", gone)
}

// TestLingerClosed: a connection that is closed has nothing to linger for.
func TestLingerClosed(t *testing.T) {
	l := start(t, 1, Config{})[0]
	c, _ := pair(t, l, &script{t: t}, nil)
	on(t, l, func() {
		c.Close()
		c.Linger(1, far(), 0, func() { t.Error("gone is called") })
		c.Close()
		c.Reset()
		c.ShutdownWrite()
	})
	turns(t, l, 3)
}

// TestShutdownWrite: the end goes behind what was written, and the other
// direction stays open.
func TestShutdownWrite(t *testing.T) {
	l := start(t, 1, Config{})[0]
	r := collect(t)
	c, peer := pair(t, l, r, nil)
	data := noise(1, 40<<10)
	on(t, l, func() {
		c.Write(data)
		c.ShutdownWrite()
	})
	got, err := io.ReadAll(peer)
	want(t, "everything arrives, and the end", err == nil && bytes.Equal(got, data))
	peer.Write([]byte("thanks"))
	peer.CloseWrite()
	await(t, "the peer's end", r.end)
	on(t, l, func() {
		want(t, "what it said behind our end was read", string(r.got) == "thanks")
		c.Close()
	})
}
