package loop

import (
	"fmt"
	"math"
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/panjf2000/gnet/v2/pkg/socket"
	"golang.org/x/sys/unix"
)

const (
	// acceptBatch bounds the connections one loop takes in a turn, so that the
	// others get their share of a flood and the loop's sockets are not starved.
	acceptBatch = 64
	// acceptBackoff is how long a loop leaves the listener alone after accept
	// failed, most often because descriptors ran out.
	acceptBackoff = 100 * time.Millisecond
	// acceptQuiet is how long accepting must have gone well for the next failure
	// to be told again.
	acceptQuiet = time.Minute
)

// SocketOptions are set on a listener and inherited by what it accepts.
type SocketOptions struct {
	ReceiveBuffer int           // bytes; 0 leaves the kernel's choice
	SendBuffer    int           // bytes; 0 leaves the kernel's choice
	Congestion    string        // congestion control algorithm; empty leaves the system's
	KeepAlive     time.Duration // idle time before probes; 0 is none
	UserTimeout   time.Duration // unacknowledged data for that long breaks the connection; 0 is none
}

// A Listener is a listening TCP socket that several loops accept from. It may
// be used from anywhere.
type Listener struct {
	fd   int
	addr netip.AddrPort

	// AcceptErrors counts failed accepts: descriptors or memory ran out.
	AcceptErrors atomic.Int64

	failedAt atomic.Int64 // Now of the last of them, 0 without one
}

// acceptFailed counts a failed accept and reports whether it is the first of its
// kind for a while, which is worth a line.
func (ln *Listener) acceptFailed(now int64) (first bool) {
	ln.AcceptErrors.Add(1)
	before := ln.failedAt.Swap(now)
	return before == 0 || now-before >= int64(acceptQuiet)
}

// Listen opens a listener on a numeric address, or on the first address of a
// host name. Port 0 takes a free one. No other process can share the port.
func Listen(addr string, opt SocketOptions) (*Listener, error) {
	ints := []socket.Option[int]{
		{SetSockOpt: socket.SetReuseAddr, Opt: 1},
		{SetSockOpt: socket.SetNoDelay, Opt: 1},
	}
	// The kernel takes 32 bits: a larger value would come out as another. Nothing is
	// lost by the cut, since its own bounds of a buffer are far below that, and 24
	// days without an acknowledgement are as good as for ever.
	add := func(set func(fd, v int) error, v int) {
		if v > 0 {
			ints = append(ints, socket.Option[int]{SetSockOpt: set, Opt: min(v, math.MaxInt32)})
		}
	}
	add(socket.SetRecvBuffer, opt.ReceiveBuffer)
	add(socket.SetSendBuffer, opt.SendBuffer)
	add(setKeepAlive, int(opt.KeepAlive/time.Second))
	add(setUserTimeout, int(opt.UserTimeout/time.Millisecond))
	var strs []socket.Option[string]
	if opt.Congestion != "" {
		strs = append(strs, socket.Option[string]{SetSockOpt: setCongestion, Opt: opt.Congestion})
	}
	fd, bound, err := socket.TCPSocket("tcp", addr, true, ints, strs)
	if err != nil {
		return nil, fmt.Errorf("listening on %s: %w", addr, err)
	}
	ln := &Listener{fd: fd}
	if sa, err := unix.Getsockname(fd); err == nil {
		ln.addr = addrPort(sa)
	} else if a, ok := bound.(*net.TCPAddr); ok {
		ln.addr = a.AddrPort()
	}
	return ln, nil
}

func setKeepAlive(fd, idle int) error {
	for _, o := range [...]struct{ level, name, value int }{
		{unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
		{unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, idle},
		{unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, max(1, idle/4)},
		{unix.IPPROTO_TCP, unix.TCP_KEEPCNT, 4},
	} {
		if err := unix.SetsockoptInt(fd, o.level, o.name, o.value); err != nil {
			return err
		}
	}
	return nil
}

func setUserTimeout(fd, ms int) error {
	return unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, ms)
}

func setCongestion(fd int, name string) error {
	return unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, name)
}

// Addr returns the address the listener is bound to.
func (ln *Listener) Addr() netip.AddrPort { return ln.addr }

// Refuse makes the kernel refuse further connections, whatever the loops do.
// Those that no loop has accepted yet are reset.
func (ln *Listener) Refuse() { unix.Shutdown(ln.fd, unix.SHUT_RDWR) }

// Close closes the listening socket. Loops that accept from it must have been
// told by Unlisten first, or have ended.
func (ln *Listener) Close() { unix.Close(ln.fd) }

// An Acceptor decides what a new connection is. OnAccept returns its handler;
// nil closes the connection. It runs on the loop that accepted, may close the
// connection itself, and must not move it.
type Acceptor interface{ OnAccept(c *Conn) Handler }

// acceptor is one loop's share of a listener.
type acceptor struct {
	ln    *Listener
	app   Acceptor
	l     *Loop
	timer Timer // running while accepting is backed off
	ended bool  // by Unlisten
}

// Accept lets the loop take connections from ln. Call it before Run or on the loop.
func (l *Loop) Accept(ln *Listener, app Acceptor) error {
	if err := l.poll.addListener(ln.fd); err != nil {
		return fmt.Errorf("event loop %d: accepting on %s: %w", l.id, ln.addr, err)
	}
	l.accepts = append(l.accepts, &acceptor{ln: ln, app: app, l: l})
	return nil
}

// Unlisten stops accepting from ln on this loop.
func (l *Loop) Unlisten(ln *Listener) {
	for i, a := range l.accepts {
		if a.ln == ln {
			a.ended = true
			a.timer.Stop()
			l.poll.remove(ln.fd)
			l.accepts = append(l.accepts[:i], l.accepts[i+1:]...)
			return
		}
	}
}

func (a *acceptor) onEvent(l *Loop) {
	for n := 0; n < acceptBatch && !a.ended; n++ {
		fd, sa, err := unix.Accept4(a.ln.fd, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
		switch err {
		case nil:
		case unix.EAGAIN:
			return
		case unix.EINTR, unix.ECONNABORTED:
			continue
		case unix.EINVAL: // Listener.Refuse
			l.poll.remove(a.ln.fd)
			return
		default:
			// The listener is level triggered: left registered it would keep
			// the loop turning without ever accepting.
			if a.ln.acceptFailed(l.now) {
				l.cfg.Log.Error("accept failed; new connections wait in the kernel until descriptors or memory are free",
					"listener", a.ln.addr.String(), "error", err)
			}
			l.poll.remove(a.ln.fd)
			l.StartTimer(&a.timer, l.now+int64(acceptBackoff), a)
			return
		}
		c := newConn(l, fd, addrPort(sa))
		if err := l.register(c); err != nil {
			l.cfg.Log.Error("registering a connection failed", "error", err)
			unix.Close(fd)
			continue
		}
		if h := a.app.OnAccept(c); h != nil {
			c.h = h
		} else {
			c.Close()
		}
	}
}

// OnTimer ends the back-off.
func (a *acceptor) OnTimer(int64) {
	if err := a.l.poll.addListener(a.ln.fd); err != nil {
		a.l.StartTimer(&a.timer, a.l.now+int64(acceptBackoff), a)
	}
}
