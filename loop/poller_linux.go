package loop

import (
	"os"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// event is what the poller saw, in the kernel's own bits.
type event uint32

const (
	evReadable event = unix.EPOLLIN | unix.EPOLLRDHUP | unix.EPOLLHUP | unix.EPOLLERR
	evWritable event = unix.EPOLLOUT | unix.EPOLLHUP | unix.EPOLLERR
	evHangup   event = unix.EPOLLRDHUP | unix.EPOLLHUP | unix.EPOLLERR
	evReset    event = unix.EPOLLERR | unix.EPOLLHUP

	// connEvents is the one registration a connection ever gets: edge triggered
	// in both directions, so that pausing and resuming cost no system call.
	connEvents = unix.EPOLLIN | unix.EPOLLOUT | unix.EPOLLRDHUP | unix.EPOLLET&0xffffffff

	maxEvents = 256
	// longestBlock bounds one wait, so that a clock or wheel gone wrong shows
	// as a late timer and not as a loop that sleeps for ever.
	longestBlock = int64(60e9)
)

// poller is an epoll instance and the eventfd that wakes it. It is our own
// because the pollers of the libraries lack a wait deadline, an end-of-batch
// hook and a generation per registration.
type poller struct {
	ep  int
	evs [maxEvents]unix.EpollEvent

	// The door's bell. The lock keeps a late ring from being written into a
	// descriptor that has got the number since: whoever posts may outlive the loop.
	bell sync.Mutex
	efd  int // -1 once closed
}

func (p *poller) open() error {
	var err error
	if p.ep, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return os.NewSyscallError("epoll_create1", err)
	}
	if p.efd, err = unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC); err != nil {
		unix.Close(p.ep)
		return os.NewSyscallError("eventfd", err)
	}
	if err = unix.EpollCtl(p.ep, unix.EPOLL_CTL_ADD, p.efd,
		&unix.EpollEvent{Fd: int32(p.efd), Events: unix.EPOLLIN | unix.EPOLLET&0xffffffff}); err != nil {
		p.close()
		return os.NewSyscallError("epoll_ctl", err)
	}
	return nil
}

func (p *poller) close() {
	p.bell.Lock()
	defer p.bell.Unlock()
	unix.Close(p.efd)
	p.efd = -1
	unix.Close(p.ep)
}

// add registers a connection's descriptor. gen comes back with its events.
func (p *poller) add(fd int32, gen uint32) error {
	return unix.EpollCtl(p.ep, unix.EPOLL_CTL_ADD, int(fd), &unix.EpollEvent{Fd: fd, Pad: int32(gen), Events: connEvents})
}

// addListener registers a listening descriptor that several loops share: level
// triggered, and one waiting loop at a time is woken.
func (p *poller) addListener(fd int) error {
	return unix.EpollCtl(p.ep, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Fd: int32(fd), Events: unix.EPOLLIN | unix.EPOLLEXCLUSIVE})
}

func (p *poller) remove(fd int) { unix.EpollCtl(p.ep, unix.EPOLL_CTL_DEL, fd, nil) }

// ask looks for events without waiting.
func (p *poller) ask() int {
	n, _, e := syscall.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(p.ep), uintptr(unsafe.Pointer(&p.evs[0])), maxEvents, 0, 0, 0)
	if e != 0 {
		return 0
	}
	return int(n)
}

// block waits for events for at most d nanoseconds. It must be a scheduler-aware
// call: a raw one would hold its processor and hang the garbage collector.
func (p *poller) block(d int64) int {
	d = min(d, longestBlock)
	n, err := unix.EpollWait(p.ep, p.evs[:], int((d+999_999)/1_000_000))
	if err != nil {
		return 0 // EINTR; anything else cannot happen on a descriptor of ours
	}
	return n
}

func (p *poller) event(i int) (fd int, gen uint32, ev event) {
	e := &p.evs[i]
	return int(e.Fd), uint32(e.Pad), event(e.Events)
}

// wake ends a wait, or the next one. It may be called from anywhere, and reports
// false when the poller is closed. Nobody reads the eventfd: it is edge
// triggered, and its counter would take centuries to fill.
func (p *poller) wake() bool {
	p.bell.Lock()
	defer p.bell.Unlock()
	if p.efd < 0 {
		return false
	}
	one := [8]byte{1}
	unix.Write(p.efd, one[:])
	return true
}
