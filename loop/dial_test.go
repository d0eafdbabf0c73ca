//go:build linux

package loop

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// plainListener is a listener outside of any loop.
func plainListener(t *testing.T) (*net.TCPListener, netip.AddrPort) {
	t.Helper()
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	return ln.(*net.TCPListener), ln.Addr().(*net.TCPAddr).AddrPort()
}

func TestDial(t *testing.T) {
	l := start(t, 1, Config{})[0]
	ln, addr := plainListener(t)
	f := func(name string, addr netip.AddrPort) {
		t.Run(name, func(t *testing.T) {
			type outcome struct {
				c   *Conn
				err error
			}
			dialed := make(chan outcome, 1)
			r := collect(t)
			r.dialed = func(c *Conn, err error) { dialed <- outcome{c, err} }
			var c *Conn
			on(t, l, func() {
				var err error
				if c, err = l.Dial(addr, r); err != nil {
					t.Error(err)
					return
				}
				want(t, "OnDial is not called from within Dial", len(dialed) == 0)
				want(t, "before it nothing can be written", !c.Writable())
				n, err := c.Write([]byte("early"))
				want(t, "and nothing is", n == 0 && err == nil)
				want(t, "the address is known", c.Remote() == addr)
			})
			peer, err := ln.Accept()
			if err != nil {
				t.Fatal(err)
			}
			defer peer.Close()
			o := await(t, "OnDial", dialed)
			want(t, "it went well", o.err == nil && o.c == c)
			on(t, l, func() {
				n, err := unix.GetsockoptInt(int(c.fd), unix.IPPROTO_TCP, unix.TCP_NODELAY)
				want(t, "small writes leave at once", n == 1 && err == nil)
				want(t, "now it can be written to", c.Writable())
				c.Write([]byte("hello"))
			})
			b := make([]byte, 5)
			io.ReadFull(peer, b)
			want(t, "the peer reads it", string(b) == "hello")
			peer.Write([]byte("welcome"))
			peer.Close()
			want(t, "the end is read", await(t, "the end", r.end) == ReadEOF)
			on(t, l, func() {
				want(t, "behind the answer", string(r.got) == "welcome")
				c.Close()
			})
		})
	}
	f("IPv4", addr)
	f("IPv4 in IPv6 notation", netip.AddrPortFrom(netip.AddrFrom16(addr.Addr().As16()), addr.Port()))
}

// TestDialGreeted: a peer that speaks and leaves before the loop looks is read
// to its end: the one event that tells of the connection tells of that too.
func TestDialGreeted(t *testing.T) {
	l := start(t, 1, Config{})[0]
	ln, addr := plainListener(t)
	r := collect(t)
	r.dialed = func(c *Conn, err error) {
		if err != nil {
			t.Error(err)
		}
	}
	var c *Conn
	on(t, l, func() {
		var err error
		if c, err = l.Dial(addr, r); err != nil {
			t.Error(err)
			return
		}
		peer, err := ln.Accept()
		if err != nil {
			t.Error(err)
			return
		}
		peer.Write([]byte("greeting"))
		peer.Close()
		eventually(t, "all of it has arrived", func() bool { return pending(c) == 8 })
	})
	want(t, "the end is read", await(t, "the end", r.end) == ReadEOF)
	on(t, l, func() {
		want(t, "and the greeting before it", string(r.got) == "greeting")
		c.Close()
	})
}

// TestDialHungUp: the same peer, seen by a handler that pauses in OnDial.
func TestDialHungUp(t *testing.T) {
	l := start(t, 1, Config{})[0]
	ln, addr := plainListener(t)
	hung := make(chan bool, 1)
	h := &script{t: t, dialed: func(c *Conn, err error) { c.Pause() }}
	h.hangup = func(c *Conn, reset bool) {
		hung <- reset
		c.Close()
	}
	on(t, l, func() {
		l.Dial(addr, h)
		if peer, err := ln.Accept(); err == nil {
			peer.Close()
		}
	})
	want(t, "its end is told", !await(t, "OnHangup", hung))
}

// TestDialRefused: a refusal comes from Dial or by OnDial, once, and nothing is
// left of the connection.
func TestDialRefused(t *testing.T) {
	check := leakCheck(t)
	func() {
		l, err := New(0, Config{})
		if err != nil {
			t.Fatal(err)
		}
		go l.Run()
		defer stop(t, l)
		ln, addr := plainListener(t)
		ln.Close()
		for range 20 {
			failed := make(chan error, 2)
			h := &script{t: t}
			h.dialed = func(c *Conn, err error) {
				want(t, "the connection is closed already", c.Closed())
				failed <- err
			}
			on(t, l, func() {
				if _, err := l.Dial(addr, h); err != nil {
					failed <- err
				}
			})
			err := await(t, "the refusal", failed)
			want(t, "it is a refusal", errors.Is(err, unix.ECONNREFUSED))
			turns(t, l, 2)
			want(t, "once", len(failed) == 0)
		}
	}()
	check()
}

// fullListener returns an address where a connection neither comes about nor is
// refused: its queue is full.
func fullListener(t *testing.T) netip.AddrPort {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	if err := unix.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	sa, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	// Fill it: as long as a connection is made at once there is room.
	for {
		c, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Close(c) })
		unix.Connect(c, sa)
		p := []unix.PollFd{{Fd: int32(c), Events: unix.POLLOUT}}
		if n, _ := unix.Poll(p, 100); n == 0 {
			return addrPort(sa)
		}
	}
}

// TestDialCancelled: closed while the dialing is under way, OnDial does not
// come; a deadline bounds it.
func TestDialCancelled(t *testing.T) {
	l := start(t, 1, Config{})[0]
	addr := fullListener(t)
	on(t, l, func() {
		c, err := l.Dial(addr, &script{t: t})
		if err != nil {
			t.Error(err)
			return
		}
		l.Post(Func(func(*Loop) { c.Close() }))
	})
	turns(t, l, 3)
	want(t, "nothing is left", l.Stats().Conns.Load() == 0)

	timeout := make(chan struct{})
	on(t, l, func() {
		c, err := l.Dial(addr, &script{t: t, timer: func(c *Conn) {
			want(t, "it is not read while it is dialed", c.flags&queued == 0)
			c.Close()
			close(timeout)
		}})
		if err != nil {
			t.Error(err)
			return
		}
		c.Kick()
		c.SetDeadline(l.Now() + int64(10*time.Millisecond))
	})
	await(t, "the deadline of a dial", timeout)
	turns(t, l, 3)
	want(t, "nothing is left", l.Stats().Conns.Load() == 0)
}

// TestDialFailsAtOnce: an address that can be no one's makes Dial itself fail.
func TestDialFailsAtOnce(t *testing.T) {
	l := start(t, 1, Config{})[0]
	before := descriptors(t)
	on(t, l, func() {
		c, err := l.Dial(netip.MustParseAddrPort("255.255.255.255:1"), &script{t: t})
		want(t, "an error and no connection", err != nil && c == nil)
	})
	want(t, "nothing is left", l.Stats().Conns.Load() == 0 && descriptors(t) <= before)
}

// TestDialItself: a socket that got connected to itself, as the kernel does when
// nobody listens on a port and it happens to choose the same port for our end,
// counts as refused.
func TestDialItself(t *testing.T) {
	l := start(t, 1, Config{})[0]
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	sa, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Connect(fd, sa); err != nil && err != unix.EINPROGRESS {
		t.Fatal(err)
	}
	failed := make(chan error, 1)
	on(t, l, func() {
		h := &script{t: t, dialed: func(c *Conn, err error) {
			want(t, "the connection is closed", c.Closed())
			failed <- err
		}}
		c := newConn(l, fd, addrPort(sa))
		c.h, c.cold.dial, c.flags = h, h, dialing
		if err := l.register(c); err != nil {
			t.Error(err)
		}
	})
	want(t, "it counts as refused", errors.Is(await(t, "OnDial", failed), unix.ECONNREFUSED))
}
