package tlsconn

import (
	"crypto/tls"
	"encoding/binary"
	"errors"
	"runtime"
	"sync"
	"time"

	"sluice/loop"
)

const (
	// recordType and recordMajor begin every TLS connection: a handshake record
	// of version 3.something. RFC 8446 §5.1.
	recordType  = 0x16
	recordMajor = 3
	// firstRecord is the longest first record: it carries no ciphertext yet.
	firstRecord = headerBytes + maxPlaintext
	// maxAhead is how much is read ahead of the handshake; with more the socket
	// waits.
	maxAhead = 64 << 10
)

// A Failure is why a handshake came to nothing.
type Failure uint8

const (
	// FailPlain: the first bytes are no TLS. A client was sent to http:// at an
	// https port, a scanner, or a PROXY header that nobody expects.
	FailPlain Failure = iota
	// FailClosed: the peer left in the middle. A health check by connecting, or a
	// client that does not like our certificate and says nothing.
	FailClosed
	// FailTimeout: not complete in time. The peer is slow on purpose, or gone.
	FailTimeout
	// FailCrowded: it made room for others, waiting the longest of all.
	FailCrowded
	// FailProtocol: the two ends do not come together: version, cipher suite,
	// ALPN, an alert of the peer, a fault in its messages.
	FailProtocol

	Failures // their number
)

var failureNames = [Failures]string{"plain", "closed", "timeout", "crowded", "protocol"}

func (f Failure) String() string { return failureNames[f] }

// A failure is an error with its Failure.
type failure struct {
	why  Failure
	text string
}

func (f *failure) Error() string { return f.text }

var (
	errPlain      = &failure{FailPlain, "the first bytes are no TLS handshake"}
	errPeerClosed = &failure{FailClosed, "connection closed during the TLS handshake"}
	errCrowded    = &failure{FailCrowded, "too many TLS handshakes"}
	errGivenUp    = &failure{FailTimeout, "the TLS handshake was given up"}
)

// FailureOf returns why a handshake failed with err.
func FailureOf(err error) Failure {
	if f, ok := errors.AsType[*failure](err); ok {
		return f.why
	}
	return FailProtocol
}

// A handshake is what a Conn has until its handshake is over. The fields below
// the lock are shared with its goroutine, which begins with start.
type handshake struct {
	t *Conn
	h Handler

	// Loop only.
	started    bool
	timeout    time.Duration
	next, prev *handshake // as a server: in the shard's list

	mu     sync.Mutex
	more   sync.Cond // fed or ended changed
	fed    []byte    // received and not yet taken
	ended  error     // why no more comes
	paused bool      // the socket waits until fed has been taken
}

func newHandshake(t *Conn, h Handler, timeout time.Duration) *handshake {
	hs := &handshake{t: t, h: h, timeout: timeout}
	hs.more.L = &hs.mu
	return hs
}

// Server begins TLS on an accepted socket; unread is what was read of it and not
// used. h, a handler of the plain bytes, is told when the handshake is over. It
// bounds the time of it by a deadline of its own; timeout is longer and frees
// the goroutine if the loop ends first.
//
// Server must be called on the loop of raw. It becomes the handler of raw.
func (e *Engine) Server(raw *loop.Conn, cfg *tls.Config, h Handler, timeout time.Duration, unread []byte) *Conn {
	t := &Conn{raw: raw, shard: e.on(raw.Loop()), h: h}
	t.tls = tls.Server((*wire)(t), cfg)
	t.hs = newHandshake(t, h, timeout)
	raw.SetHandler(t)
	if len(unread) > 0 {
		t.hs.fed = append([]byte(nil), unread...)
		raw.Kick()
	}
	return t
}

// Client begins TLS on a socket that was dialed; otherwise it is like Server.
func (e *Engine) Client(raw *loop.Conn, cfg *tls.Config, h Handler, timeout time.Duration) *Conn {
	t := &Conn{raw: raw, shard: e.on(raw.Loop()), h: h}
	t.tls = tls.Client((*wire)(t), cfg)
	t.hs = newHandshake(t, h, timeout)
	raw.SetHandler(t)
	t.hs.start()
	return t
}

// feed reads for the handshake.
func (t *Conn) feed() {
	hs := t.hs
	if !hs.started && len(hs.fed) > 0 && t.begin() {
		return // what was unread
	}
	b := t.shard.in
	if !hs.started {
		b = b[:firstRecord+1-min(len(hs.fed), firstRecord)]
	}
	n, r := t.raw.Read(b)
	switch r {
	case loop.ReadBytes:
		hs.feed(b[:n])
		if !hs.started {
			t.begin()
		}
	case loop.ReadEOF, loop.ReadReset:
		t.wire = r
		if !hs.started {
			t.fail(errPeerClosed)
			return
		}
		hs.end(errPeerClosed)
	}
}

// begin looks at the first record: with a whole one the goroutine begins, since
// nobody gets one for an open connection alone. It reports whether it began, or
// the connection is over.
func (t *Conn) begin() bool {
	b := t.hs.fed
	if b[0] != recordType || len(b) > 1 && b[1] != recordMajor {
		t.fail(errPlain)
		return true
	}
	if len(b) < headerBytes {
		return false
	}
	size := headerBytes + int(binary.BigEndian.Uint16(b[3:]))
	if size > firstRecord {
		t.fail(errPlain)
		return true
	}
	if len(b) < size {
		return false
	}
	s := t.shard
	if s.waiting.n >= s.e.perLoop {
		s.waiting.first().t.fail(errCrowded)
	}
	s.waiting.push(t.hs)
	t.hs.start()
	return true
}

// fail ends the handshake from the loop's side.
func (t *Conn) fail(err error) {
	h := t.hs.h
	t.abandon()
	t.state = failed
	h.OnHandshake(err)
}

// abandon takes the handshake, which may still run, out of all accounts.
func (t *Conn) abandon() {
	hs := t.hs
	hs.end(errGivenUp)
	hs.leave()
	t.state = failed
	t.drop()
}

// leave takes hs off the list.
func (hs *handshake) leave() { hs.t.shard.waiting.remove(hs) }

// start begins the goroutine.
func (hs *handshake) start() {
	hs.started = true
	e := hs.t.shard.e
	e.running.Add(1)
	go hs.run(e, hs.t.shard.l)
}

func (hs *handshake) run(e *Engine, l *loop.Loop) {
	stop := time.AfterFunc(hs.timeout, func() { hs.end(errGivenUp) })
	defer stop.Stop()
	e.enter()
	err := hs.t.tls.Handshake()
	<-e.slots
	e.running.Add(-1)
	l.Post(handshaken{hs, err})
}

// enter waits for the turn to compute. Who got it goes to the end of the global
// run queue first: a loop that has come back from the kernel waits there, and
// handshakes that wake each other would keep it waiting.
func (e *Engine) enter() {
	e.slots <- struct{}{}
	runtime.Gosched()
}

// handshaken tells the loop that a handshake is over.
type handshaken struct {
	hs  *handshake
	err error
}

// Deliver makes the connection the loop's.
func (m handshaken) Deliver(*loop.Loop) {
	hs, t := m.hs, m.hs.t
	if t.state != handshaking {
		return
	}
	hs.leave()
	t.hs = nil
	if m.err != nil || t.broken {
		t.state = failed
		if m.err == nil {
			m.err = errPeerClosed
		}
		hs.h.OnHandshake(m.err)
		return
	}
	t.state = open
	t.in = hs.fed
	if len(t.in) > 0 {
		t.keep()
	}
	hs.h.OnHandshake(nil)
	if t.state == open {
		// What came behind the handshake is still to be looked at, and the
		// socket may have waited for it.
		t.raw.Kick()
		if hs.paused {
			t.raw.Resume()
		}
	}
}

// flight carries what the handshake writes to the loop.
type flight struct {
	t *Conn
	b []byte
}

// Deliver writes a flight.
func (m flight) Deliver(*loop.Loop) {
	t := m.t
	if t.state != handshaking || t.broken {
		return
	}
	t.shard.out = append(t.shard.out, m.b...)
	if t.push() != nil {
		t.hs.end(errPeerClosed)
	}
}

// feed hands what came to the handshake.
func (hs *handshake) feed(b []byte) {
	hs.mu.Lock()
	hs.fed = append(hs.fed, b...)
	if len(hs.fed) >= maxAhead && hs.started {
		hs.paused = true
		hs.t.raw.Pause()
	}
	hs.more.Signal()
	hs.mu.Unlock()
}

// end makes the handshake's reads fail once they have had what was fed. It may
// be called from anywhere.
func (hs *handshake) end(err error) {
	hs.mu.Lock()
	if hs.ended == nil {
		hs.ended = err
	}
	hs.more.Signal()
	hs.mu.Unlock()
}

// goOn lets the loop read again for a handshake that has taken what there was.
type goOn struct{ hs *handshake }

// Deliver resumes the socket.
func (m goOn) Deliver(*loop.Loop) {
	if t := m.hs.t; t.state == handshaking {
		t.raw.Resume()
	}
}

// read is the goroutine's. While it waits for the peer others may compute.
func (hs *handshake) read(t *Conn, b []byte) (n int, err error) {
	hs.mu.Lock()
	if n, hs.fed = t.take(b, hs.fed, nil); n > 0 {
		hs.mu.Unlock()
		return n, nil
	}
	e, l := t.shard.e, t.shard.l
	<-e.slots
	for n == 0 && hs.ended == nil {
		if hs.paused {
			hs.paused = false
			l.Post(goOn{hs})
		}
		hs.more.Wait()
		n, hs.fed = t.take(b, hs.fed, nil)
	}
	err = hs.ended
	hs.mu.Unlock()
	e.enter()
	if n > 0 {
		return n, nil
	}
	return 0, err
}

// handshakeList is the handshakes of a loop's clients, the oldest first.
type handshakeList struct {
	head handshake
	n    int
}

func (q *handshakeList) init() { q.head.next, q.head.prev = &q.head, &q.head }

func (q *handshakeList) first() *handshake { return q.head.next }

func (q *handshakeList) push(hs *handshake) {
	hs.prev, hs.next = q.head.prev, &q.head
	hs.prev.next, hs.next.prev = hs, hs
	q.n++
}

// remove takes hs off the list, if it is on it.
func (q *handshakeList) remove(hs *handshake) {
	if hs.next == nil {
		return
	}
	hs.prev.next, hs.next.prev = hs.next, hs.prev
	hs.next, hs.prev = nil, nil
	q.n--
}
