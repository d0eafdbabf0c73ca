package loop

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ReadResult says how a read ended.
type ReadResult uint8

const (
	// ReadBytes: n > 0 bytes were read.
	ReadBytes ReadResult = iota
	// ReadAgain: nothing is there now.
	ReadAgain
	// ReadEOF: the peer ended its stream; everything before it has been read.
	// It is said once: OnRead comes again only for a reset, or after Kick.
	ReadEOF
	// ReadReset: the connection is broken; nothing more will come.
	ReadReset
)

// canRead reports whether the handler should be asked to read.
func (c *Conn) canRead() bool { return c.flags&(readable|paused|dialing) == readable && c.fd >= 0 }

// enqueue puts c on its loop's ready list if it should be read.
func (c *Conn) enqueue() {
	if c.flags&(readable|paused|dialing|queued) == readable && c.fd >= 0 {
		c.flags |= queued
		c.loop.ready = append(c.loop.ready, c)
	}
}

// onEvent notes what the poller reported and lets writes go on at once; reads
// wait for the ready list.
func (c *Conn) onEvent(ev event) {
	l, fd := c.loop, c.fd
	if c.flags&dialing != 0 {
		if ev&evWritable == 0 {
			return
		}
		// The event may tell of the peer's first bytes too, and will not again.
		if c.onDialed(); !l.owns(c, fd) {
			return
		}
	}
	before := c.flags
	if ev&evHangup != 0 {
		c.flags |= hangup
		if ev&evReset == evReset {
			c.flags |= reset
		}
	}
	if ev&evReadable != 0 {
		c.flags |= readable
	}
	if ev&evWritable != 0 && before&writable == 0 {
		c.flags |= writable
		if c.h.OnWrite(c); !l.owns(c, fd) {
			return
		}
	}
	if c.flags&paused != 0 && (c.flags&^before)&(hangup|reset) != 0 {
		if c.h.OnHangup(c, c.flags&reset != 0); !l.owns(c, fd) {
			return
		}
	}
	c.enqueue()
}

// Pause stops the reading: OnRead is not called until Resume, the kernel's
// window closes, and so the pressure reaches the sender. It costs no system call.
// A hang-up that is known already is not told again: see HungUp.
func (c *Conn) Pause() {
	c.flags |= paused
}

// Resume lets the reading go on. The connection lines up to be read at once:
// what came during the pause was announced then and will not be again.
func (c *Conn) Resume() {
	c.flags &^= paused
	c.enqueue()
}

// Kick lines the connection up for an OnRead whatever the kernel has: for a
// handler that keeps bytes it has read and not yet used.
func (c *Conn) Kick() {
	c.flags |= readable
	c.enqueue()
}

// Paused reports whether reading is stopped.
func (c *Conn) Paused() bool { return c.flags&paused != 0 }

// Read reads once into b, which must not be empty. A short read means that the
// kernel has no more, unless the peer has hung up: then its end is still to be
// read.
func (c *Conn) Read(b []byte) (n int, r ReadResult) {
	k, _, e := syscall.RawSyscall(unix.SYS_READ, uintptr(c.fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)))
	return c.didRead(int(k), len(b), e)
}

// Readv reads once into the buffers of v, of which there must be some, filling
// them in order.
func (c *Conn) Readv(v *Vec) (n int, r ReadResult) {
	k, _, e := syscall.RawSyscall(unix.SYS_READV, uintptr(c.fd), uintptr(unsafe.Pointer(&v.iov[0])), uintptr(v.n))
	return c.didRead(int(k), v.size, e)
}

func (c *Conn) didRead(n, want int, e syscall.Errno) (int, ReadResult) {
	switch {
	case e == unix.EAGAIN:
		c.flags &^= readable
		return 0, ReadAgain
	case e == unix.EINTR:
		return 0, ReadAgain
	case e != 0, n == 0 && c.flags&reset != 0: // behind a FIN the kernel reads a reset as an end
		c.flags = (c.flags | hangup | reset) &^ readable
		return 0, ReadReset
	case n == 0:
		c.flags = (c.flags | hangup) &^ readable
		return 0, ReadEOF
	}
	if n < want && c.flags&hangup == 0 {
		c.flags &^= readable
	}
	return n, ReadBytes
}

// Readable reports whether the kernel may hold more to read.
func (c *Conn) Readable() bool { return c.flags&readable != 0 }
