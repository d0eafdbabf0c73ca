package loop

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// MaxVec is the largest number of buffers of one Vec: the kernel's IOV_MAX.
const MaxVec = 1024

// A Vec is a list of buffers for one Readv or Writev. It refers to the buffers
// until Reset.
type Vec struct {
	iov  [MaxVec]unix.Iovec
	n    int
	size int
}

// Reset empties the vector.
func (v *Vec) Reset() {
	for i := range v.iov[:v.n] {
		v.iov[i].Base = nil // a stale pointer would keep a freed buffer alive
	}
	v.n, v.size = 0, 0
}

// Len returns the number of buffers, Size the bytes in them.
func (v *Vec) Len() int  { return v.n }
func (v *Vec) Size() int { return v.size }

// Full reports whether no further buffer can be added.
func (v *Vec) Full() bool { return v.n == MaxVec }

// Add appends b, which must not be empty; the vector must not be full.
func (v *Vec) Add(b []byte) {
	v.iov[v.n].Base = unsafe.SliceData(b)
	v.iov[v.n].SetLen(len(b))
	v.n++
	v.size += len(b)
}

// Bytes returns the buffer i.
func (v *Vec) Bytes(i int) []byte { return unsafe.Slice(v.iov[i].Base, v.iov[i].Len) }

// Writable reports whether the kernel took everything offered so far. While it
// is false a write is useless: OnWrite tells when to go on.
func (c *Conn) Writable() bool { return c.flags&(writable|dialing) == writable }

// Write offers b to the kernel once and returns how many bytes it took: all, or
// fewer, and then OnWrite will come. The rest is the caller's to keep. An error
// means that the connection is broken; the caller closes it.
func (c *Conn) Write(b []byte) (n int, err error) {
	if c.flags&writable == 0 || len(b) == 0 {
		return 0, nil
	}
	k, _, e := syscall.RawSyscall(unix.SYS_WRITE, uintptr(c.fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)))
	return c.didWrite(int(k), len(b), e)
}

// Writev is Write for the buffers of v, in order, in one call.
func (c *Conn) Writev(v *Vec) (n int, err error) {
	if c.flags&writable == 0 || v.n == 0 {
		return 0, nil
	}
	if v.n == 1 {
		return c.Write(v.Bytes(0))
	}
	k, _, e := syscall.RawSyscall(unix.SYS_WRITEV, uintptr(c.fd), uintptr(unsafe.Pointer(&v.iov[0])), uintptr(v.n))
	return c.didWrite(int(k), v.size, e)
}

// Unacked returns how many bytes the kernel holds that the peer has not
// acknowledged; 0 if it cannot tell. It costs a system call.
func (c *Conn) Unacked() int {
	n, err := unix.IoctlGetInt(int(c.fd), unix.TIOCOUTQ)
	if err != nil {
		return 0
	}
	return n
}

func (c *Conn) didWrite(n, want int, e syscall.Errno) (int, error) {
	if e != 0 {
		switch e {
		case unix.EAGAIN:
			c.flags &^= writable
			return 0, nil
		case unix.EINTR:
			return 0, nil
		}
		c.flags |= hangup | reset
		return 0, e
	}
	if n < want {
		c.flags &^= writable
	}
	return n, nil
}
