package gateway

import (
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"sluice/loop"
)

// A notifier tells systemd, or whoever else speaks sd_notify(3), when the
// process is ready, stops, reloads, and that its loops turn. The zero of
// everything is a nil notifier, which tells nobody: NOTIFY_SOCKET is unset.
//
// Its methods may be called from anywhere. It holds one descriptor for its whole
// life, since a proof of life must not fail for want of descriptors.
type notifier struct {
	to    string // a path, or an abstract name with a leading @
	log   *slog.Logger
	fd    int
	beat  time.Duration // between two proofs of life; 0: nobody waits for them
	quit  chan struct{}
	done  chan struct{}
	mute  atomic.Bool // the last datagram did not get through
	begun bool        // watch was called; the goroutine that starts and stops us
}

const (
	// notifyTimeout is how long a supervisor may take to accept one datagram.
	notifyTimeout = time.Second
	// beatsPerTimeout leaves room for beats that come late or get lost.
	beatsPerTimeout = 4
	// stopMargin is what a stop takes beside the drain: close frames, the loops'
	// end, the last log lines.
	stopMargin = 10 * time.Second
	// maxSocketName is the room for a path in a Unix socket's address.
	maxSocketName = 107
)

// dialNotifier prepares to answer the supervisor that environ names. A socket
// that cannot be used is a warning: the process serves all the same, and the
// supervisor will say that it heard nothing.
func dialNotifier(environ []string, pid int, log *slog.Logger) *notifier {
	name := variable(environ, "NOTIFY_SOCKET")
	if name == "" {
		return nil
	}
	if name[0] != '/' && name[0] != '@' || len(name) > maxSocketName {
		log.Warn("NOTIFY_SOCKET is no path and no abstract name; the supervisor is told nothing", "given", name)
		return nil
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		log.Warn("no socket towards NOTIFY_SOCKET; the supervisor is told nothing", "error", err)
		return nil
	}
	limit := unix.NsecToTimeval(int64(notifyTimeout))
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &limit); err != nil {
		panic("BUG: a send timeout of a second: " + err.Error())
	}
	return &notifier{
		to:   name,
		log:  log,
		fd:   fd,
		beat: beatOf(environ, pid),
		quit: make(chan struct{}),
		done: make(chan struct{}),
	}
}

// beatOf returns how often the supervisor wants to hear from this process, with
// room to spare; 0 if it does not, or waits for another process.
func beatOf(environ []string, pid int) time.Duration {
	if of := variable(environ, "WATCHDOG_PID"); of != "" && of != strconv.Itoa(pid) {
		return 0
	}
	usec, err := strconv.ParseInt(variable(environ, "WATCHDOG_USEC"), 10, 64)
	const most = int64(24 * time.Hour / time.Microsecond)
	if err != nil || usec <= 0 {
		return 0
	}
	return max(time.Duration(min(usec, most))*time.Microsecond/beatsPerTimeout, time.Millisecond)
}

// variable returns the value of a variable of environ; of one given twice the
// first counts.
func variable(environ []string, name string) string {
	for _, e := range environ {
		if key, value, _ := strings.Cut(e, "="); key == name {
			return value
		}
	}
	return ""
}

// send writes one datagram. It waits for a supervisor that is slow, for at most
// notifyTimeout; what it does not take is lost, and the first
// loss after a success is logged.
func (n *notifier) send(lines ...string) {
	if n == nil {
		return
	}
	to := unix.SockaddrUnix{Name: n.to} // Sendto writes to it
	err := error(unix.EINTR)
	for err == unix.EINTR {
		err = unix.Sendto(n.fd, []byte(strings.Join(lines, "\n")), unix.MSG_NOSIGNAL, &to)
	}
	if lost := err != nil; n.mute.Swap(lost) != lost && lost {
		n.log.Warn("the supervisor cannot be told", "socket", n.to, "error", err)
	}
}

// ready says that the gateway serves.
func (n *notifier) ready(g *Gateway) { n.send("READY=1", status(g)) }

// reload says that settings are looked at while do runs.
func (n *notifier) reload(g *Gateway, do func()) {
	n.send("RELOADING=1", "MONOTONIC_USEC="+strconv.FormatInt(monotonicMicroseconds(), 10))
	do()
	n.ready(g)
}

// stopping says that the process is going down, and how long that may take: a
// drain that is longer than the supervisor's patience is not cut off.
func (n *notifier) stopping(within time.Duration) {
	n.send("STOPPING=1", "STATUS=stopping", "EXTEND_TIMEOUT_USEC="+strconv.FormatInt((within+stopMargin).Microseconds(), 10))
}

// watch begins to prove to the supervisor that the loops turn, if it asked.
func (n *notifier) watch(g *Gateway) {
	if n == nil || n.beat == 0 {
		return
	}
	n.begun = true
	go n.run(g)
}

// stop ends the proofs and closes the socket.
func (n *notifier) stop() {
	if n == nil {
		return
	}
	close(n.quit)
	if n.begun {
		<-n.done
	}
	unix.Close(n.fd)
}

// run sends a proof of life whenever every loop has answered since the last one,
// and then asks again. The loops are asked here, and not their watchdog: it may
// be what hangs.
func (n *notifier) run(g *Gateway) {
	defer close(n.done)
	tick := time.NewTicker(n.beat)
	defer tick.Stop()
	var pulse pulse
	pulse.ask(g.loops)
	for {
		select {
		case <-n.quit:
			return
		case <-tick.C:
		}
		if pulse.missing.Load() == 0 {
			n.send("WATCHDOG=1", status(g))
			pulse.ask(g.loops)
		}
	}
}

// A pulse is a question to every loop. missing counts the answers that are owed;
// it is asked again only when there are none, so one message waits per loop.
type pulse struct{ missing atomic.Int64 }

func (p *pulse) ask(loops []*loop.Loop) {
	p.missing.Store(int64(len(loops)))
	for _, l := range loops {
		l.Post(p)
	}
}

// Deliver is the answer of one loop.
func (p *pulse) Deliver(*loop.Loop) { p.missing.Add(-1) }

// status is a line for people: systemctl status shows it.
func status(g *Gateway) string {
	state := "ready"
	if ok, why := g.readiness(); !ok {
		state = "not ready: " + why
	}
	return fmt.Sprintf("STATUS=%s; %d sockets and encrypted requests", state, g.sockets())
}

// monotonicMicroseconds is the kernel's CLOCK_MONOTONIC, which a reload is
// stamped with.
func monotonicMicroseconds() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return 0
	}
	return ts.Nano() / 1000
}
