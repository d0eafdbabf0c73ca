//go:build linux

package loop

import (
	"errors"
	"io"
	"math"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestListenOptions: what is set on the listener holds for what it accepts.
func TestListenOptions(t *testing.T) {
	l := start(t, 1, Config{})[0]
	got := make(chan *Conn, 1)
	ln := serve(t, SocketOptions{
		ReceiveBuffer: 40 << 10,
		SendBuffer:    30 << 10,
		Congestion:    "reno",
		KeepAlive:     80 * time.Second,
		UserTimeout:   45 * time.Second,
	}, func(c *Conn) Handler {
		got <- c
		return &echo{}
	}, l)
	connect(t, ln)
	c := await(t, "the connection", got)
	on(t, l, func() {
		f := func(name string, level, option, exp int) {
			t.Helper()
			if n, err := unix.GetsockoptInt(int(c.fd), level, option); n != exp || err != nil {
				t.Errorf("%s is %d (%v), want %d", name, n, err, exp)
			}
		}
		f("TCP_NODELAY", unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
		f("SO_KEEPALIVE", unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1)
		f("TCP_KEEPIDLE", unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, 80)
		f("TCP_KEEPINTVL", unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, 20)
		f("TCP_KEEPCNT", unix.IPPROTO_TCP, unix.TCP_KEEPCNT, 4)
		f("TCP_USER_TIMEOUT", unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, 45000)
		f("SO_RCVBUF", unix.SOL_SOCKET, unix.SO_RCVBUF, 80<<10) // the kernel doubles it
		f("SO_SNDBUF", unix.SOL_SOCKET, unix.SO_SNDBUF, 60<<10)
		if s, err := unix.GetsockoptString(int(c.fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION); s != "reno" {
			t.Errorf("TCP_CONGESTION is %q (%v), want reno", s, err)
		}
		mode, _ := unix.FcntlInt(uintptr(c.fd), unix.F_GETFL, 0)
		want(t, "the socket does not block", mode&unix.O_NONBLOCK != 0)
		exec, _ := unix.FcntlInt(uintptr(c.fd), unix.F_GETFD, 0)
		want(t, "and is not inherited by other programs", exec&unix.FD_CLOEXEC != 0)
	})
}

// TestListenLargeOptions: a value over 32 bits is as much as there can be, not
// another value, and no fault.
func TestListenLargeOptions(t *testing.T) {
	ln := serve(t, SocketOptions{ReceiveBuffer: 1 << 32, SendBuffer: 1 << 40, UserTimeout: 2 * 365 * 24 * time.Hour}, func(*Conn) Handler { return &echo{} })
	most, err := Listen("127.0.0.1:0", SocketOptions{ReceiveBuffer: math.MaxInt32, SendBuffer: math.MaxInt32})
	if err != nil {
		t.Fatal(err)
	}
	defer most.Close()
	f := func(name string, option int) {
		t.Helper()
		got, err := unix.GetsockoptInt(ln.fd, unix.SOL_SOCKET, option)
		exp, _ := unix.GetsockoptInt(most.fd, unix.SOL_SOCKET, option)
		if err != nil || got != exp {
			t.Errorf("%s is %d (%v), want %d", name, got, err, exp)
		}
	}
	f("SO_RCVBUF", unix.SO_RCVBUF)
	f("SO_SNDBUF", unix.SO_SNDBUF)
	if n, err := unix.GetsockoptInt(ln.fd, unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT); n != math.MaxInt32 || err != nil {
		t.Errorf("TCP_USER_TIMEOUT is %d (%v)", n, err)
	}
}

// TestListenDefaults: without options the kernel's choices stay.
func TestListenDefaults(t *testing.T) {
	ln, err := Listen("127.0.0.1:0", SocketOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	want(t, "it has the address it was given, and a port", ln.Addr().Addr().String() == "127.0.0.1" && ln.Addr().Port() > 0)
	n, _ := unix.GetsockoptInt(ln.fd, unix.SOL_SOCKET, unix.SO_KEEPALIVE)
	want(t, "no keepalive", n == 0)
	n, _ = unix.GetsockoptInt(ln.fd, unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT)
	want(t, "no user timeout", n == 0)
}

func TestListenFailure(t *testing.T) {
	ln, err := Listen("127.0.0.1:0", SocketOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	f := func(sentence, addr string, opt SocketOptions, is error) {
		t.Helper()
		ln, err := Listen(addr, opt)
		if err == nil {
			ln.Close()
			t.Errorf("%s: it was accepted", sentence)
			return
		}
		if is != nil && !errors.Is(err, is) {
			t.Errorf("%s: %v, want %v", sentence, err, is)
		}
		if !strings.Contains(err.Error(), "listening on "+addr) {
			t.Errorf("%s: the error does not name the address: %v", sentence, err)
		}
	}
	f("a port that is taken", ln.Addr().String(), SocketOptions{}, unix.EADDRINUSE)
	f("no port", "127.0.0.1", SocketOptions{}, nil)
	f("a port that is none", "127.0.0.1:70000", SocketOptions{}, nil)
	f("an address that is not ours", "192.0.2.1:0", SocketOptions{}, unix.EADDRNOTAVAIL)
	f("a congestion control that does not exist", "127.0.0.1:0", SocketOptions{Congestion: "hope"}, unix.ENOENT)
}

// TestListenerRefuse: from then on the kernel refuses, and established
// connections go on.
func TestListenerRefuse(t *testing.T) {
	l := start(t, 1, Config{})[0]
	ln := serve(t, SocketOptions{}, func(*Conn) Handler { return &echo{} }, l)
	peer := connect(t, ln)
	peer.Write([]byte("x"))
	io.ReadFull(peer, make([]byte, 1)) // it is accepted
	ln.Refuse()
	_, err := net.DialTimeout("tcp4", ln.Addr().String(), patience)
	want(t, "a new connection is refused", errors.Is(err, unix.ECONNREFUSED))
	if err := talk(peer, noise(1, 1000), 1000); err != nil {
		t.Error(err)
	}
}

// TestOnAccept: what an Acceptor may do with a connection.
func TestOnAccept(t *testing.T) {
	l := start(t, 1, Config{})[0]
	accept := make(chan acceptFunc) // what to do with a connection that is made already
	ln := serve(t, SocketOptions{}, func(c *Conn) Handler { return (<-accept)(c) }, l)

	peer := connect(t, ln)
	accept <- func(c *Conn) Handler { return nil }
	_, err := peer.Read(make([]byte, 1))
	want(t, "without a handler the connection is closed", err == io.EOF)

	// A descriptor closed twice may be somebody else's the second time.
	other := make(chan int, 1)
	peer = connect(t, ln)
	accept <- func(c *Conn) Handler {
		fd := int(c.fd)
		c.Reset()
		unix.Dup3(int(ln.fd), fd, unix.O_CLOEXEC)
		other <- fd
		return nil
	}
	_, err = peer.Read(make([]byte, 1))
	want(t, "it can be reset", errors.Is(err, unix.ECONNRESET))
	fd := <-other
	turns(t, l, 1)
	_, err = unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
	want(t, "and is not closed again", err == nil)
	unix.Close(fd)

	before := Now()
	conns := make(chan *Conn, 1)
	peer = connect(t, ln)
	accept <- func(c *Conn) Handler {
		want(t, "the loop is known", c.Loop() == l)
		want(t, "the time of birth is known", c.Accepted() >= before && c.Accepted() <= Now())
		n, err := c.Write([]byte("welcome"))
		want(t, "it can be written to", n == 7 && err == nil)
		c.SetDeadline(l.Now() + int64(time.Hour))
		c.Pause()
		conns <- c
		return &echo{}
	}
	b := make([]byte, 7)
	io.ReadFull(peer, b)
	c := await(t, "the connection", conns)
	want(t, "what was written comes first", string(b) == "welcome")
	want(t, "the peer's address is known", c.Remote().String() == peer.LocalAddr().String())
	peer.Write([]byte("x"))
	on(t, l, func() {
		want(t, "the handler is set", c.h != nil)
		want(t, "the deadline stands", c.Deadline() != 0)
		c.Resume()
	})
	io.ReadFull(peer, b[:1])
	want(t, "and it was paused only until it resumed", b[0] == 'x')
	want(t, "one connection is left", l.Stats().Conns.Load() == 1)
}

// TestUnlisten: also from within OnAccept, with more connections waiting, the
// loop takes no more.
func TestUnlisten(t *testing.T) {
	l := start(t, 1, Config{})[0]
	ln, err := Listen("127.0.0.1:0", SocketOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	var accepted atomic.Int64
	release := hold(t, l)
	l.Post(Func(func(*Loop) {
		l.Accept(ln, acceptFunc(func(c *Conn) Handler {
			accepted.Add(1)
			l.Unlisten(ln)
			return &echo{}
		}))
	}))
	first := connect(t, ln)
	for range 5 {
		connect(t, ln)
	}
	release()
	first.Write([]byte("x"))
	io.ReadFull(first, make([]byte, 1))
	turns(t, l, 3)
	want(t, "one connection was accepted", accepted.Load() == 1 && l.Stats().Conns.Load() == 1)
	on(t, l, func() { l.Unlisten(ln) }) // harmless

	// Another loop takes over what waits in the kernel.
	rest := make(chan struct{}, 5)
	other := start(t, 1, Config{})[0]
	on(t, other, func() {
		other.Accept(ln, acceptFunc(func(*Conn) Handler {
			rest <- struct{}{}
			return nil
		}))
	})
	for range 5 {
		await(t, "the others are accepted elsewhere", rest)
	}
	on(t, other, func() { other.Unlisten(ln) })
}

// TestAcceptShared: several loops share a listener, and each connection is
// accepted once.
func TestAcceptShared(t *testing.T) {
	loops := start(t, 3, Config{})
	var accepted atomic.Int64
	ids := sync.Map{}
	ln := serve(t, SocketOptions{}, func(c *Conn) Handler {
		accepted.Add(1)
		if _, again := ids.LoadOrStore(c.ID(), true); again {
			t.Errorf("two connections have the id %d", c.ID())
		}
		return &echo{}
	}, loops...)
	echoAll(t, 300, 100, 100, func() *net.TCPConn { return connect(t, ln) })
	want(t, "each connection was accepted once", accepted.Load() == 300)
}

// descriptors counts the open descriptors of the process.
func descriptors(t *testing.T) int {
	t.Helper()
	d, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip("no /proc: ", err)
	}
	return len(d)
}

// leakCheck returns a function that waits until as few descriptors and
// goroutines are left as there are now.
func leakCheck(t *testing.T) func() {
	t.Helper()
	// The runtime's own poller opens with the first connection and stays.
	warm, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	warm.Close()
	fds, routines := descriptors(t), runtime.NumGoroutine()
	return func() {
		t.Helper()
		eventually(t, "every descriptor is closed", func() bool { return descriptors(t) <= fds })
		eventually(t, "every goroutine is gone", func() bool { return runtime.NumGoroutine() <= routines })
	}
}

// TestAcceptCycles connects and closes thousands of times, with all ways to end
// a connection taking turns, and leaves nothing behind.
func TestAcceptCycles(t *testing.T) {
	n := 1000
	if fullScale() {
		n = 10000
	}
	check := leakCheck(t)
	func() {
		loops := make([]*Loop, 2)
		for i := range loops {
			l, err := New(i, Config{})
			if err != nil {
				t.Fatal(err)
			}
			loops[i] = l
			go l.Run()
			defer stop(t, l)
		}
		ln, err := Listen("127.0.0.1:0", SocketOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		ends := []acceptFunc{
			func(*Conn) Handler { return &echo{} }, // the peer ends
			func(*Conn) Handler { return nil },
			func(c *Conn) Handler {
				c.Reset()
				return nil
			},
			func(c *Conn) Handler { // we end in order
				c.Linger(100, Now()+int64(time.Minute), 0, nil)
				return c.h
			},
			func(c *Conn) Handler { // a deadline ends it
				c.SetDeadline(Now())
				h := collect(t)
				h.timer = (*Conn).Close
				return h
			},
		}
		var turn atomic.Int64
		for _, l := range loops {
			on(t, l, func() {
				l.Accept(ln, acceptFunc(func(c *Conn) Handler { return ends[int(turn.Add(1))%len(ends)](c) }))
			})
		}
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				b := make([]byte, 16)
				for range n / 4 {
					c, err := net.DialTimeout("tcp4", ln.Addr().String(), patience)
					if errors.Is(err, unix.ECONNRESET) {
						continue // we were that quick
					}
					if err != nil {
						t.Error(err)
						return
					}
					c.(*net.TCPConn).CloseWrite()
					c.SetDeadline(time.Now().Add(patience))
					if _, err := c.Read(b); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
						t.Errorf("the end of a connection reads as %v", err)
					}
					c.Close()
				}
			})
		}
		wg.Wait()
		eventually(t, "every connection was accepted", func() bool { return int(turn.Load()) == n })
		eventually(t, "no connection is left", func() bool {
			return loops[0].Stats().Conns.Load()+loops[1].Stats().Conns.Load() == 0
		})
	}()
	check()
}

// TestResetStorm: peers that send and reset at once, many of them before they
// are even accepted, leave nothing behind and harm nobody.
func TestResetStorm(t *testing.T) {
	check := leakCheck(t)
	func() {
		l, err := New(0, Config{})
		if err != nil {
			t.Fatal(err)
		}
		go l.Run()
		defer stop(t, l)
		ln, err := Listen("127.0.0.1:0", SocketOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		var n atomic.Int64
		on(t, l, func() {
			l.Accept(ln, acceptFunc(func(c *Conn) Handler {
				if n.Add(1)%2 == 0 {
					c.Pause()
				}
				return &echo{}
			}))
		})
		steady := connect(t, ln)
		defer steady.Close()
		steady.Write([]byte("x")) // accepted, and one of those that read
		io.ReadFull(steady, make([]byte, 1))

		for range 5 {
			release := hold(t, l)
			for range 100 {
				c := connect(t, ln)
				c.Write([]byte("hello"))
				c.SetLinger(0)
				c.Close()
			}
			release()
		}
		eventually(t, "only the steady connection is left", func() bool {
			turns(t, l, 1)
			return l.Stats().Conns.Load() == 1
		})
		if err := talk(steady, noise(1, 100), 10); err != nil {
			t.Error(err)
		}
	}()
	check()
}
