//go:build linux

package loop

import (
	"errors"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// wanderer is an echo that changes loops every few reads.
type wanderer struct {
	echo
	t     *testing.T
	loops []*Loop
	at    int // index of the loop that owns it
	every int
	moves *atomic.Int64
}

func (w *wanderer) OnRead(c *Conn) {
	if c.Loop() != w.loops[w.at] {
		w.t.Errorf("a call on loop %d, want %d", c.Loop().ID(), w.at)
	}
	if w.echo.OnRead(c); c.Closed() || w.calls.read%w.every != 0 {
		return
	}
	if w.calls.read%(2*w.every) == 0 && !c.Paused() {
		c.Kick() // leaves while it stands in line
	}
	w.at = (w.at + 1) % len(w.loops)
	c.MoveTo(w.loops[w.at], w)
}

func (w *wanderer) OnMoved(c *Conn) {
	w.moves.Add(1)
	if len(w.rest) > 0 {
		w.OnWrite(c) // what was refused is offered again
	}
}

// TestMoveUnderTraffic: connections that change loops all the time lose no byte.
func TestMoveUnderTraffic(t *testing.T) {
	f := func(name string, conns, size, every int, opt SocketOptions) {
		t.Run(name, func(t *testing.T) {
			loops := start(t, 2, Config{ReadBuffer: 4 << 10})
			var moves atomic.Int64
			ln := serve(t, opt, func(c *Conn) Handler {
				return &wanderer{t: t, loops: loops, at: c.Loop().ID(), every: every, moves: &moves}
			}, loops...)
			echoAll(t, conns, size, 10<<10, func() *net.TCPConn { return connect(t, ln) })
			eventually(t, "no connection is left", func() bool {
				return loops[0].Stats().Conns.Load()+loops[1].Stats().Conns.Load() == 0
			})
			want(t, "they really moved", int(moves.Load()) >= conns)
		})
	}
	f("every read", 20, 100<<10, 1, SocketOptions{})
	f("some reads", 20, 300<<10, 7, SocketOptions{})
	f("with unsent output", 10, 100<<10, 2, SocketOptions{SendBuffer: 4 << 10})
}

// TestMoveFromAnyCall moves a connection out of each call that a handler gets.
func TestMoveFromAnyCall(t *testing.T) {
	loops := start(t, 2, Config{})
	from, to := loops[0], loops[1]
	f := func(name string, prepare func(c *Conn, h *script, move func(*Conn)), provoke func(c *Conn, peer *net.TCPConn)) {
		t.Run(name, func(t *testing.T) {
			arrived := make(chan *Loop, 1)
			h := &script{t: t, moved: func(c *Conn) {
				c.Pause()
				arrived <- c.Loop()
			}}
			move := func(c *Conn) {
				h.read, h.write, h.timer = nil, nil, nil
				h.hangup = func(*Conn, bool) {} // the new loop may see it too
				c.MoveTo(to, h)
			}
			c, peer := pair(t, from, h, func(c *Conn) { prepare(c, h, move) })
			provoke(c, peer)
			want(t, "it arrives on the other loop", await(t, "OnMoved", arrived) == to)
			turns(t, from, 3)
			on(t, to, c.Close)
		})
	}
	f("OnRead", func(c *Conn, h *script, move func(*Conn)) { h.read = move },
		func(c *Conn, peer *net.TCPConn) { peer.Write([]byte("x")) })
	f("OnTimer", func(c *Conn, h *script, move func(*Conn)) {
		h.timer = move
		c.SetDeadline(Now())
	}, func(*Conn, *net.TCPConn) {})
	f("OnHangup", func(c *Conn, h *script, move func(*Conn)) {
		h.hangup = func(c *Conn, _ bool) { move(c) }
		c.Pause()
	}, func(c *Conn, peer *net.TCPConn) { peer.CloseWrite() })
	f("OnWrite", func(c *Conn, h *script, move func(*Conn)) {
		h.write = move
		c.Pause()
		c.Write(make([]byte, 32<<20))
	}, func(c *Conn, peer *net.TCPConn) {
		go io.Copy(io.Discard, peer)
	})
	f("a message, while in line", func(c *Conn, h *script, move func(*Conn)) {
		h.read = func(*Conn) { t.Error("read after it moved") }
		from.Post(Func(func(*Loop) {
			c.Kick()
			move(c)
		}))
	}, func(*Conn, *net.TCPConn) {})
}

// TestMoveWithinTheLine: a connection that another one's handler moves away
// while both stand in line is not read by the old loop any more.
func TestMoveWithinTheLine(t *testing.T) {
	loops := start(t, 2, Config{})
	arrived := make(chan struct{})
	second := &script{t: t, moved: func(c *Conn) {
		c.Pause()
		close(arrived)
	}}
	b, peerB := pair(t, loops[0], second, nil)
	_, peerA := pair(t, loops[0], &script{t: t, read: func(c *Conn) {
		c.Read(loops[0].Buffer())
		b.MoveTo(loops[1], second)
		c.Close()
	}}, nil)
	turns(t, loops[0], 2)
	release := hold(t, loops[0])
	peerA.Write([]byte("x"))
	peerB.Write([]byte("y"))
	release()
	await(t, "OnMoved", arrived)
	turns(t, loops[0], 3)
	on(t, loops[1], b.Close)
}

func TestMoveMisuse(t *testing.T) {
	l := start(t, 1, Config{})[0]
	c, _ := pair(t, l, &script{t: t}, nil)
	on(t, l, func() {
		c.Close()
		defer func() { want(t, "moving a closed connection is a bug", recover() != nil) }()
		c.MoveTo(l, &script{t: t})
	})
}

// TestMoveToAnEndedLoop: such a connection is reset, whether the loop ends
// before or after it was posted, and its descriptor is not lost.
func TestMoveToAnEndedLoop(t *testing.T) {
	l := start(t, 1, Config{})[0]
	for range 20 {
		end, err := New(1, Config{})
		if err != nil {
			t.Fatal(err)
		}
		go end.Run()
		h := &script{t: t, moved: func(*Conn) {}}
		h.read = func(c *Conn) { c.MoveTo(end, h) }
		_, peer := pair(t, l, h, nil)
		end.Stop()
		peer.Write([]byte("x"))
		_, err = peer.Read(make([]byte, 1))
		want(t, "the peer sees a reset", errors.Is(err, unix.ECONNRESET))
		<-end.Done()
	}
}

// TestMoveKeeps: what goes with a connection and what does not.
func TestMoveKeeps(t *testing.T) {
	loops := start(t, 2, Config{})
	moved := make(chan struct{})
	h := &script{t: t}
	h.moved = func(c *Conn) {
		want(t, "the new loop owns it", c.Loop() == loops[1])
		want(t, "it is still paused", c.Paused())
		want(t, "its deadline is gone", c.Deadline() == 0)
		want(t, "it is counted here", loops[1].Stats().Conns.Load() == 1)
		close(moved)
	}
	c, peer := pair(t, loops[0], h, (*Conn).Pause)
	id, remote, born := c.ID(), c.Remote(), c.Accepted()
	on(t, loops[0], func() {
		c.SetDeadline(loops[0].Now() + int64(time.Hour))
		c.MoveTo(loops[1], h)
		want(t, "and no longer there", loops[0].Stats().Conns.Load() == 0)
	})
	peer.Write([]byte("x"))
	await(t, "OnMoved", moved)
	want(t, "id, address and birth stay", c.ID() == id && c.Remote() == remote && c.Accepted() == born)
	read := make(chan struct{}, 1)
	on(t, loops[1], func() {
		h.read = func(c *Conn) {
			if _, r := c.Read(loops[1].Buffer()); r == ReadBytes {
				read <- struct{}{}
			}
		}
		c.Resume()
	})
	await(t, "it is read on the new loop", read)
	on(t, loops[1], c.Close)
}

// TestStaleEvent: an event of a descriptor that was closed and used again within
// the batch does not reach the new connection.
func TestStaleEvent(t *testing.T) {
	l := start(t, 1, Config{})[0]
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	to := ln.Addr().(*net.TCPAddr).AddrPort()

	dialed := make(chan *Conn, 1)
	victim, peerB := pair(t, l, &script{t: t}, (*Conn).Pause)
	number := int(victim.fd)
	first := &script{t: t, hangup: func(c *Conn, _ bool) {
		victim.Close() // its own hang-up waits in this very batch
		dial := &script{t: t}
		dial.dialed = func(c *Conn, err error) {
			if err != nil {
				t.Error(err)
			}
			dialed <- c
		}
		n, err := l.Dial(to, dial)
		if err != nil {
			t.Error(err)
		} else if int(n.fd) != number {
			t.Logf("the number %d was not used again, but %d: the test shows nothing", number, n.fd)
		}
		c.Close()
	}}
	_, peerA := pair(t, l, first, (*Conn).Pause)
	turns(t, l, 2)
	release := hold(t, l)
	peerA.CloseWrite()
	peerB.CloseWrite()
	release()
	c := await(t, "OnDial", dialed)
	turns(t, l, 3)
	on(t, l, func() {
		want(t, "the new connection does not inherit the hang-up", !c.HungUp() && !c.Closed())
		want(t, "nor is it read", !c.Readable())

		// The same by hand, for every event there is.
		for _, ev := range []event{unix.EPOLLIN, unix.EPOLLOUT, unix.EPOLLHUP | unix.EPOLLERR, unix.EPOLLRDHUP} {
			l.event(int(c.fd), uint32(c.id)-1, ev)
		}
		want(t, "an event of another generation changes nothing", !c.HungUp() && !c.Readable())
		c.Close()
	})
}
