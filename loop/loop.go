// Package loop is the reactor: event loops that own sockets, read and write
// them without blocking, pause a source by not reading it, and keep deadlines.
// It knows sockets, not products: what the bytes mean is a [Handler]'s business.
//
// Everything that has no other note is called on the loop's own goroutine. The
// door from outside is [Loop.Post].
package loop

import (
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"github.com/panjf2000/gnet/v2/pkg/queue"
)

const (
	// ReadBuffer is the size in bytes of a loop's read buffer when Config
	// leaves it 0.
	ReadBuffer = 256 << 10
	// Headroom is how many bytes in front of the read buffer belong to its user
	// during a call: what a connection kept of a split header goes there, so
	// that a header and its payload can be parsed in one piece.
	Headroom = 256

	// defaultSpin is how long a loop asks the poller again before it blocks, when
	// waits have been as short as that: a wake-up costs more than the whole spin.
	defaultSpin = 20 * time.Microsecond
	// defaultYield is how long a busy loop runs before it lets other goroutines
	// have its processor. Without it they, and a stop of the world, wait for
	// the scheduler's own 10 ms and more.
	defaultYield = 500 * time.Microsecond

	// maxMessages bounds the messages of one turn: whoever posts to the loop
	// without a pause, or from a message to its own loop, must not starve sockets.
	maxMessages = 1024
)

// Config holds what a loop is made with. The zero value is usable.
type Config struct {
	ReadBuffer int           // bytes; 0 is ReadBuffer
	Spin       time.Duration // before blocking; 0 is 20 µs, negative none
	Yield      time.Duration // 0 is 500 µs
	Log        *slog.Logger  // nil discards
}

// A Handler is what a connection does. One Handler serves one Conn; all calls
// come from the goroutine of the loop that owns the Conn at that moment. After
// Conn.Close or Conn.Reset no further call comes.
type Handler interface {
	// OnRead is called once a turn while the connection is readable and not
	// paused. The handler makes one call of Read or Readv; what it leaves
	// comes in a later turn, behind everybody else's.
	OnRead(c *Conn)
	// OnWrite is called when a connection that had refused bytes takes some again.
	OnWrite(c *Conn)
	// OnHangup is called when the peer's end of stream, or a reset, is first seen
	// and the connection is paused: once for each at the most. What was sent
	// before it can still be read when the connection resumes. One that was seen
	// before the pause is not told: who pauses asks HungUp.
	OnHangup(c *Conn, reset bool)
	// OnTimer is called when the deadline of SetDeadline has come.
	OnTimer(c *Conn)
}

// A Message goes through the door of a loop: Deliver runs on its goroutine.
type Message interface{ Deliver(l *Loop) }

// Func makes a Message of a function. It allocates; use a type of your own
// where that matters.
type Func func(l *Loop)

// Deliver calls f.
func (f Func) Deliver(l *Loop) { f(l) }

// A TurnHook runs at the end of every turn that did something.
type TurnHook interface{ OnTurn(l *Loop) }

// A Loop is one goroutine with one poller. It owns its connections, its read
// buffer and its timers; nothing in it is locked. Other goroutines use Post,
// Stop, Done, Stats and ID only, and Condemn at the end of the process.
//
// A turn: wait for events; note what became readable and finish what became
// writable; give each readable connection one read, in order; deliver messages;
// fire timers; run the hooks.
type Loop struct {
	// Set by New and before Run, read by anyone afterwards.
	id  int
	cfg Config

	// Loop goroutine only.
	poll     poller
	conns    []*Conn // by descriptor
	ready    []*Conn // to be read, in order; see Conn.enqueue
	spare    []*Conn // the other of two slices that ready swaps with
	wheel    wheel
	spin     spinner
	sleepy   bool  // the last wait had to block
	lent     int   // see Lend
	now      int64 // nanoseconds since start of the process, of this turn
	buf      []byte
	vec      Vec
	hooks    []TurnHook
	accepts  []*acceptor
	stopping bool

	// The door.
	inbox queue.AsyncTaskQueue
	woken atomic.Bool

	// Written by the loop, read by anyone.
	stats Stats
	done  chan struct{}
}

// Stats are figures about a loop, readable from anywhere.
type Stats struct {
	Conns       atomic.Int64 // connections owned now
	Turns       atomic.Int64
	BusyNanos   atomic.Int64 // time spent in turns, without waiting
	LongestTurn atomic.Int64 // nanoseconds, since last taken by Swap
}

var epoch = time.Now()

// Now returns the monotonic clock that loops count in: nanoseconds since the
// process started. It may be called from anywhere.
func Now() int64 { return int64(time.Since(epoch)) }

// New makes a loop with its poller. Run starts it.
func New(id int, cfg Config) (*Loop, error) {
	if cfg.ReadBuffer == 0 {
		cfg.ReadBuffer = ReadBuffer
	}
	if cfg.Spin == 0 {
		cfg.Spin = defaultSpin
	}
	if cfg.Yield == 0 {
		cfg.Yield = defaultYield
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	l := &Loop{id: id, cfg: cfg, inbox: queue.NewLockFreeQueue(), done: make(chan struct{})}
	l.buf = make([]byte, Headroom+cfg.ReadBuffer)
	l.wheel.init(Now())
	l.spin.limit = int64(cfg.Spin)
	l.now = Now()
	if err := l.poll.open(); err != nil {
		return nil, fmt.Errorf("event loop %d: %w", id, err)
	}
	return l, nil
}

// ID returns the loop's number. It may be called from anywhere.
func (l *Loop) ID() int { return l.id }

// Stats returns the loop's figures. It may be called from anywhere.
func (l *Loop) Stats() *Stats { return &l.stats }

// Now returns the time of this turn, in nanoseconds of the package's clock.
func (l *Loop) Now() int64 { return l.now }

// Log returns the loop's logger.
func (l *Loop) Log() *slog.Logger { return l.cfg.Log }

// Buffer returns the loop's read buffer and, in front of it, Headroom bytes:
// data belongs at b[Headroom:]. Its contents are anybody's after the handler
// has returned.
func (l *Loop) Buffer() []byte { return l.buf }

// Vec returns the loop's vector, empty. It is good until the next call.
func (l *Loop) Vec() *Vec {
	l.vec.Reset()
	return &l.vec
}

// AddHook adds a hook. Call it before Run or on the loop.
func (l *Loop) AddHook(h TurnHook) { l.hooks = append(l.hooks, h) }

// Run turns the loop until Stop. It is the loop's goroutine.
func (l *Loop) Run() {
	defer close(l.done)
	now := Now()
	begun, lastYield, worked := now, now, false
	for !l.stopping {
		n := 0
		if !l.sleepy || l.due() {
			n = l.poll.ask()
		}
		now = Now()
		if l.stats.Turns.Add(1); worked {
			d := now - begun
			l.stats.BusyNanos.Add(d)
			if d > l.stats.LongestTurn.Load() {
				l.stats.LongestTurn.Store(d)
			}
		}
		if now-lastYield > int64(l.cfg.Yield) {
			runtime.Gosched()
			now = Now()
			lastYield = now
		}
		if n == 0 && !l.due() {
			if l.lent > 0 && l.stepAside(now) {
				worked, l.sleepy, lastYield = false, false, Now()
				continue
			}
			if n, now = l.wait(now); l.sleepy {
				lastYield = now // blocking gave the processor away
			}
		}
		begun, l.now = now, now
		worked = l.turn(n)
	}
	l.closeAll()
}

// Lend tells that n more pieces of work that this loop waits for, or less if n is
// negative, are being computed by other goroutines. While there are any, a loop
// that would block lets them have its processor first.
func (l *Loop) Lend(n int) { l.lent += n }

// busyElsewhere is how long a yield takes at least when somebody had use for it.
const busyElsewhere = int64(10 * time.Microsecond)

// stepAside is what a loop with nothing to do tries before it blocks while it waits
// for other goroutines: if all processors are busy, whoever computes goes on here
// and comes back soon. A loop that blocks at once takes its processor into the
// kernel, and only the scheduler's monitor gets it out of there, by looking every
// 20 µs: with one processor, a tenth of what ML-KEM costs. False means that nobody
// wants the processor, or a deadline has come.
func (l *Loop) stepAside(now int64) bool {
	if l.wheel.next() <= now {
		return false
	}
	runtime.Gosched()
	return Now()-now >= busyElsewhere
}

// due reports whether there is something to do without an event.
func (l *Loop) due() bool { return len(l.ready) > 0 || l.woken.Load() }

// briefWait is how soon a blocking wait must end to say that it need not have
// been one: what came was there, or nearly.
const briefWait = int64(3 * time.Microsecond)

// wait blocks until an event, a message or the next deadline; where waits have
// been short of late it first spins. A loop that had to block is sleepy: it will
// most likely have to again, and does not ask first.
func (l *Loop) wait(begin int64) (n int, now int64) {
	next := l.wheel.next()
	now = begin
	if l.spin.worth() {
		for end := begin + l.spin.limit; now < end && now < next; now = Now() {
			if n := l.poll.ask(); n > 0 {
				l.sleepy = false
				now = Now()
				l.spin.waited(now - begin)
				return n, now
			}
		}
	}
	if next <= now {
		l.sleepy = false
		return 0, now
	}
	n = l.poll.block(next - now)
	blocked := now
	now = Now()
	l.sleepy = now-blocked > briefWait
	if n > 0 {
		l.spin.waited(now - begin)
	}
	return n, now
}

// turn handles n events and everything else that is due.
func (l *Loop) turn(n int) bool {
	worked := n > 0 || len(l.ready) > 0
	for i := range n {
		fd, gen, ev := l.poll.event(i)
		l.event(fd, gen, ev)
	}
	l.readAll()
	if l.woken.Load() {
		l.drainInbox()
		worked = true
	}
	if l.now >= l.wheel.next() {
		l.wheel.advance(l.now)
		worked = true
	}
	if worked {
		for _, h := range l.hooks {
			h.OnTurn(l)
		}
	}
	return worked
}

// event notes what the poller said of one descriptor.
func (l *Loop) event(fd int, gen uint32, ev event) {
	if fd < len(l.conns) {
		// A stale event, of a descriptor that was closed and used again within
		// the batch, does not carry the new connection's generation.
		if c := l.conns[fd]; c != nil && uint32(c.id) == gen {
			c.onEvent(ev)
			return
		}
	}
	for _, a := range l.accepts {
		if a.ln.fd == fd {
			a.onEvent(l)
			return
		}
	}
}

// readAll gives every connection on the ready list one read. Those that have
// more to read line up again for the next turn.
func (l *Loop) readAll() {
	batch := l.ready
	l.ready, l.spare = l.spare[:0], batch
	for i, c := range batch {
		if c == nil {
			continue // moved away while it stood in line
		}
		batch[i] = nil
		c.flags &^= queued
		if fd := c.fd; c.canRead() {
			c.h.OnRead(c)
			if l.owns(c, fd) {
				c.enqueue()
			}
		}
	}
}

// owns reports whether c, which had the descriptor fd, is still the loop's. A
// call of its handler may have closed it, or moved it away: then it is another
// goroutine's already and not even its fields may be looked at.
func (l *Loop) owns(c *Conn, fd int32) bool { return l.conns[fd] == c }

// unlist takes c off the ready list.
func (l *Loop) unlist(c *Conn) {
	for _, list := range [...][]*Conn{l.ready, l.spare} { // spare: of the pass under way
		if i := slices.Index(list, c); i >= 0 {
			list[i] = nil
		}
	}
}

// Post hands m to the loop, which delivers it in one of its next turns. It may
// be called from anywhere and never blocks. Messages of one goroutine arrive in
// order. The queue has no bound of its own: whoever posts must have one. A
// loop that has ended delivers nothing.
func (l *Loop) Post(m Message) {
	t := queue.GetTask()
	t.Param = m
	l.inbox.Enqueue(t)
	if l.woken.CompareAndSwap(false, true) && !l.poll.wake() {
		l.dropInbox()
	}
}

func (l *Loop) drainInbox() {
	// The flag goes down first: what is posted from here on wakes us again.
	l.woken.Store(false)
	for range maxMessages {
		if l.stopping {
			return
		}
		t := l.inbox.Dequeue()
		if t == nil {
			return
		}
		m := t.Param.(Message)
		queue.PutTask(t)
		m.Deliver(l)
	}
	l.woken.Store(true) // the rest is for the next turn, and nobody rings for it
}

// dropInbox empties the door of a loop that has ended: at its end, and for
// whoever posts later. A connection on its way here is reset.
func (l *Loop) dropInbox() {
	l.woken.Store(false)
	for t := l.inbox.Dequeue(); t != nil; t = l.inbox.Dequeue() {
		if m, ok := t.Param.(move); ok {
			m.drop()
		}
		queue.PutTask(t)
	}
}

// Stop ends the loop: it resets what connections are left, without calling
// their handlers, and Run returns. It may be called from anywhere, more than
// once. Done tells when.
func (l *Loop) Stop() { l.Post(Func(func(l *Loop) { l.stopping = true })) }

// Discard frees what New made, of a loop that Run was never called on.
func (l *Loop) Discard() { l.closeAll() }

// Condemn has the kernel reset the loop's connections when the process ends. It
// is for a loop that does not turn over any more, right before the end: it
// reads what belongs to the loop.
func (l *Loop) Condemn() {
	for fd, c := range l.conns {
		if c != nil {
			setResetOnClose(fd)
		}
	}
}

// Done is closed when Run has returned.
func (l *Loop) Done() <-chan struct{} { return l.done }

func (l *Loop) closeAll() {
	for _, c := range l.conns {
		if c != nil {
			c.Reset()
		}
	}
	for _, a := range l.accepts {
		a.timer.Stop()
	}
	l.poll.close()
	l.dropInbox()
}
