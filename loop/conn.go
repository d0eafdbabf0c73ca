package loop

import (
	"net/netip"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

type flags uint8

const (
	readable flags = 1 << iota // the kernel may have bytes or the end of the stream
	writable                   // the kernel took the last bytes whole
	paused                     // the handler does not want to read
	queued                     // on the loop's ready list
	hangup                     // the peer's end or a reset was seen; it is read behind the bytes
	reset                      // the hang-up was a reset
	dialing                    // connect is under way
)

// A Conn is one connected socket. It belongs to exactly one Loop at a time and
// only that loop's goroutine touches it, ID, Remote and Accepted apart; MoveTo
// hands it on. It owns no buffer: what is read lands in the loop's buffer or
// in memory of the handler's, and what the kernel refuses stays with the handler.
type Conn struct {
	// Hot: one cache line.
	fd    int32 // -1 once closed
	flags flags
	id    uint64 // never reused, unlike the descriptor; its low half is the poller's generation
	loop  *Loop
	h     Handler
	timer Timer

	// Set at birth. Its remote may be replaced before anybody is told of the
	// connection, and Remote and Accepted read it from anywhere after that; dial
	// is the loop's.
	cold *cold
}

// cold is what a connection is asked for rarely.
type cold struct {
	remote   netip.AddrPort
	accepted int64 // Now() at birth
	dial     DialHandler
}

var lastID atomic.Uint64

func newConn(l *Loop, fd int, remote netip.AddrPort) *Conn {
	return &Conn{fd: int32(fd), id: lastID.Add(1), loop: l, flags: writable,
		cold: &cold{remote: remote, accepted: Now()}}
}

// ID returns a number that no other connection of the process ever has.
func (c *Conn) ID() uint64 { return c.id }

// Remote returns the peer's address.
func (c *Conn) Remote() netip.AddrPort { return c.cold.remote }

// SetRemote replaces the peer's address, on the word of a proxy that the peer is.
// It is called before anybody else has been told of the connection.
func (c *Conn) SetRemote(addr netip.AddrPort) { c.cold.remote = addr }

// Accepted returns when the connection was made, in Now's nanoseconds.
func (c *Conn) Accepted() int64 { return c.cold.accepted }

// Loop returns the loop that owns the connection.
func (c *Conn) Loop() *Loop { return c.loop }

// Closed reports whether the connection is gone.
func (c *Conn) Closed() bool { return c.fd < 0 }

// SetHandler makes h the connection's handler from the next call on.
func (c *Conn) SetHandler(h Handler) { c.h = h }

// HungUp reports whether the peer has ended its stream or reset the connection;
// bytes it sent before may still be unread.
func (c *Conn) HungUp() bool { return c.flags&hangup != 0 }

// WasReset reports whether the connection was reset by the peer.
func (c *Conn) WasReset() bool { return c.flags&reset != 0 }

// SetDeadline asks for one OnTimer at the time when (Now's nanoseconds),
// instead of any asked for before. 0 asks for none.
func (c *Conn) SetDeadline(when int64) {
	if when == 0 {
		c.timer.Stop()
		return
	}
	if c.timer.Active() && c.timer.when == when {
		return
	}
	if c.fd >= 0 {
		c.loop.StartTimer(&c.timer, when, (*connTimer)(c))
	}
}

// Deadline returns the deadline that is set, or 0.
func (c *Conn) Deadline() int64 {
	if !c.timer.Active() {
		return 0
	}
	return c.timer.when
}

type connTimer Conn

func (t *connTimer) OnTimer(int64) {
	if c := (*Conn)(t); c.fd >= 0 {
		c.h.OnTimer(c)
	}
}

// register makes c one of l's connections. A new registration reports at once
// what the socket already holds.
func (l *Loop) register(c *Conn) error {
	for int(c.fd) >= len(l.conns) {
		l.conns = append(l.conns, make([]*Conn, max(64, len(l.conns)))...)
	}
	c.loop = l
	if err := l.poll.add(c.fd, uint32(c.id)); err != nil {
		return os.NewSyscallError("epoll_ctl", err)
	}
	l.conns[c.fd] = c
	l.stats.Conns.Add(1)
	return nil
}

func (l *Loop) forget(c *Conn) {
	if int(c.fd) < len(l.conns) && l.conns[c.fd] == c {
		l.conns[c.fd] = nil
		l.stats.Conns.Add(-1)
	}
	c.timer.Stop()
}

// A Mover is a Handler whose connection can change loops.
type Mover interface {
	Handler
	// OnMoved is the first call on the new loop.
	OnMoved(c *Conn)
}

type move struct {
	c *Conn
	h Mover
}

func (m move) Deliver(l *Loop) {
	if err := l.register(m.c); err != nil {
		l.cfg.Log.Error("moving a connection failed", "error", err)
		m.drop()
		m.h.OnHangup(m.c, true)
		return
	}
	fd := m.c.fd
	m.h.OnMoved(m.c)
	if l.owns(m.c, fd) {
		m.c.enqueue()
	}
}

// drop resets a connection that no loop owns.
func (m move) drop() {
	setResetOnClose(int(m.c.fd))
	unix.Close(int(m.c.fd))
	m.c.fd = -1
}

// MoveTo hands the connection to another loop with h as its handler: h.OnMoved
// is its first call there, and no call comes here any more. What the old
// handler had read stays with the handler; h usually is the same object. The
// deadline is gone. The connection counts as readable and writable there: bytes
// that were refused here are to be offered again by OnMoved. The caller must not
// touch the connection, or anything that goes with it, after MoveTo. A
// connection that is closed or still being dialed cannot move; one that moves to
// a loop that ends is reset.
func (c *Conn) MoveTo(dst *Loop, h Mover) {
	if c.fd < 0 || c.flags&dialing != 0 {
		panic("BUG: loop: MoveTo of a connection that is closed or not yet made")
	}
	l := c.loop
	if c.flags&queued != 0 {
		l.unlist(c)
	}
	l.poll.remove(int(c.fd))
	l.forget(c)
	c.h = h
	c.flags = (c.flags | readable | writable) &^ queued
	dst.Post(move{c, h})
}

// ShutdownWrite sends FIN behind what was written.
func (c *Conn) ShutdownWrite() {
	if c.fd >= 0 {
		unix.Shutdown(int(c.fd), unix.SHUT_WR)
	}
}

// Close closes the socket at once. Bytes that the kernel took are still
// delivered, unless input is left unread: see Linger.
func (c *Conn) Close() {
	if c.fd < 0 {
		return
	}
	c.loop.forget(c)
	unix.Close(int(c.fd)) // leaves the poller by itself
	c.fd = -1
}

// Reset closes the socket with RST, dropping what the kernel still holds.
func (c *Conn) Reset() {
	if c.fd < 0 {
		return
	}
	setResetOnClose(int(c.fd))
	c.Close()
}

func setResetOnClose(fd int) {
	unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
}

// A DialHandler is told how its Dial went.
type DialHandler interface {
	Handler
	// OnDial is the first call. With an error the connection is closed already.
	OnDial(c *Conn, err error)
}

// Dial begins a connection to addr and returns at once; h.OnDial says how it
// went, never from within Dial. When Dial itself fails, as it may for an address
// that refuses at once, there is no connection and OnDial is not called. How
// long it may take is the handler's to bound, by SetDeadline.
func (l *Loop) Dial(addr netip.AddrPort, h DialHandler) (*Conn, error) {
	family, sa := sockaddr(addr)
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, unix.IPPROTO_TCP)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
	if err := unix.Connect(fd, sa); err != nil && err != unix.EINPROGRESS {
		unix.Close(fd)
		return nil, os.NewSyscallError("connect", err)
	}
	c := newConn(l, fd, addr)
	c.h = h
	c.cold.dial = h
	c.flags = dialing
	if err := l.register(c); err != nil {
		unix.Close(fd)
		return nil, err
	}
	return c, nil
}

// onDialed ends the dialing. What the event says besides is the caller's to note.
func (c *Conn) onDialed() {
	c.flags = c.flags&^dialing | writable
	h := c.cold.dial
	c.cold.dial = nil
	errno, err := unix.GetsockoptInt(int(c.fd), unix.SOL_SOCKET, unix.SO_ERROR)
	switch {
	case err != nil:
	case errno != 0:
		err = unix.Errno(errno)
	case c.toItself():
		err = unix.ECONNREFUSED
	}
	if err != nil {
		c.Close()
		h.OnDial(c, os.NewSyscallError("connect", err))
		return
	}
	h.OnDial(c, nil)
}

// toItself reports whether a socket was connected to itself. The kernel does that
// when nobody listens on the port and it happens to choose that very port for our
// end; kept open it would also keep the real listener from coming back.
func (c *Conn) toItself() bool {
	sa, err := unix.Getsockname(int(c.fd))
	return err == nil && addrPort(sa) == netip.AddrPortFrom(c.cold.remote.Addr().Unmap(), c.cold.remote.Port())
}

func sockaddr(addr netip.AddrPort) (family int, sa unix.Sockaddr) {
	if a := addr.Addr().Unmap(); a.Is4() {
		return unix.AF_INET, &unix.SockaddrInet4{Port: int(addr.Port()), Addr: a.As4()}
	}
	return unix.AF_INET6, &unix.SockaddrInet6{Port: int(addr.Port()), Addr: addr.Addr().As16()}
}

func addrPort(sa unix.Sockaddr) netip.AddrPort {
	switch sa := sa.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(sa.Addr), uint16(sa.Port))
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(sa.Addr).Unmap(), uint16(sa.Port))
	}
	return netip.AddrPort{}
}
