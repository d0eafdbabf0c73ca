package tlsconn

import (
	"math"

	"sluice/loop"
)

// lastWords are the arguments of a Linger that waits for the kernel.
type lastWords struct {
	maxBytes int
	until    int64
	stall    int64
	unacked  int // what the peer had not acknowledged at the last look
	gone     func()
}

// Close closes the socket at once, behind a close_notify if nothing is in its way.
func (t *Conn) Close() {
	if t.state == open && len(t.out) == 0 {
		t.closeNotify()
	}
	t.leave()
	t.raw.Close()
}

// Reset closes the socket with RST.
func (t *Conn) Reset() {
	t.leave()
	t.raw.Reset()
}

// leave takes the connection out of all accounts.
func (t *Conn) leave() {
	if t.hs != nil {
		t.abandon()
	}
	t.state = closed
	t.release()
}

func (t *Conn) closeNotify() {
	if t.broken {
		return
	}
	if t.tls.CloseWrite() == nil {
		t.push()
	}
}

// Linger ends the connection in order, as loop.Conn's Linger does: close_notify
// goes behind what waits, and FIN behind both.
func (t *Conn) Linger(maxBytes int, until, stall int64, gone func()) {
	if t.state == closed || t.raw.Closed() {
		return
	}
	if t.state == open {
		t.closeNotify()
	}
	if t.Flushed() || t.broken {
		t.leave()
		t.raw.Linger(maxBytes, until, stall, gone)
		return
	}
	if t.hs != nil {
		t.abandon()
	}
	t.drop()
	t.state = closing
	t.h = nil
	t.last = &lastWords{maxBytes, until, stall, math.MaxInt, gone}
	t.raw.Pause()
	t.raw.SetDeadline(until)
}

// fin goes on with a Linger whose output the kernel has taken.
func (t *Conn) fin() {
	w := t.last
	t.leave()
	t.raw.Linger(w.maxBytes, w.until, w.stall, w.gone)
}

// stalled looks, when the time of a Linger is over whose output waits, whether the
// peer has stopped taking it.
func (t *Conn) stalled() bool {
	w, n := t.last, t.Unacked()
	if w.stall <= 0 || n >= w.unacked {
		return true
	}
	w.unacked = n
	t.raw.SetDeadline(t.raw.Loop().Now() + w.stall)
	return false
}

// giveUp resets a connection that does not take its last bytes.
func (t *Conn) giveUp() {
	w := t.last
	t.Reset()
	if w.gone != nil {
		w.gone()
	}
}

var _ loop.Mover = (*Conn)(nil)
