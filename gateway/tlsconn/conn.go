package tlsconn

import (
	"crypto/tls"
	"errors"
	"net/netip"

	"sluice/loop"
)

type state uint8

const (
	// handshaking: what the peer sends goes to the handshake; the handler hears
	// of timers only. Leaves to open or failed, always by OnHandshake, or to closed.
	handshaking state = iota
	// failed: the handshake is over and TLS is not. The handler ends it.
	failed
	// open: plain bytes go both ways.
	open
	// closing: the handler is gone. What waits, close_notify behind it, goes to
	// the kernel, then FIN. Nothing is read. Leaves to closed.
	closing
	// closed: the socket is closed, or the loop's to linger.
	closed
)

// A Handler is what stands above TLS: a loop.Handler that hears of the handshake.
type Handler interface {
	loop.Handler
	// OnHandshake tells that the handshake is over, as the first call and once.
	// With an error, whose reason FailureOf says, the connection is still to be
	// closed: Linger if the peer is to read the alert, else Close.
	OnHandshake(err error)
}

// A Conn is TLS over one *loop.Conn. It has the methods of loop.Conn, with the
// same meaning for the plain bytes, and calls its handler like one. Like that it
// belongs to one loop at a time.
//
// What the kernel refuses of an encrypted chunk stays here, at most chunkBytes
// with their overhead: Write counts it as taken, Writable is false and Flushed
// too until the kernel has it. On the way in at most one record is kept that was
// decrypted and not asked for, and what came with it.
//
// An idle connection keeps what crypto/tls keeps: its keys, and a buffer as
// large as the largest record it has read.
type Conn struct {
	raw   *loop.Conn
	tls   *tls.Conn
	shard *shard
	h     loop.Handler
	hs    *handshake // until it is over
	last  *lastWords // closing only

	state  state
	broken bool // what is written goes nowhere any more
	full   bool // crypto/tls may hold plaintext that nobody asked for yet
	kicked bool // the handler wants an OnRead whatever came
	told   bool // end was told
	notify bool // close_notify was read

	wire loop.ReadResult // how the socket's input ended; ReadBytes while it has not
	end  loop.ReadResult // how the plain input ended; ReadBytes while it has not

	// Of the record at the front of the input: the bytes of its header that
	// crypto/tls has not got, and how many are still to come with them.
	head  [headerBytes]byte
	headN uint8
	left  int

	in   []byte // ciphertext not yet taken by crypto/tls, in shard.in or kept
	kept []byte // buffer of the store's
	out  []byte // ciphertext the kernel has not taken: out[sent:], a buffer of the store's
	sent int
}

var errBroken = errors.New("connection broken")

// ID returns the socket's id.
func (t *Conn) ID() uint64 { return t.raw.ID() }

// Remote returns the peer's address.
func (t *Conn) Remote() netip.AddrPort { return t.raw.Remote() }

// Accepted returns when the socket was made, in loop.Now's nanoseconds.
func (t *Conn) Accepted() int64 { return t.raw.Accepted() }

// Loop returns the loop that owns the connection.
func (t *Conn) Loop() *loop.Loop { return t.raw.Loop() }

// Closed reports whether the connection is gone.
func (t *Conn) Closed() bool { return t.state == closed || t.raw.Closed() }

// SetHandler makes h the connection's handler from the next call on.
func (t *Conn) SetHandler(h loop.Handler) { t.h = h }

// SetDeadline and Deadline are those of loop.Conn.
func (t *Conn) SetDeadline(when int64) { t.raw.SetDeadline(when) }
func (t *Conn) Deadline() int64        { return t.raw.Deadline() }

// Pause stops the reading of ciphertext, and so the peer.
func (t *Conn) Pause() { t.raw.Pause() }

// Resume lets the reading go on.
func (t *Conn) Resume() { t.raw.Resume() }

// Paused reports whether reading is stopped.
func (t *Conn) Paused() bool { return t.raw.Paused() }

// Kick lines the connection up for an OnRead whatever there is to read.
func (t *Conn) Kick() {
	t.kicked = true
	t.raw.Kick()
}

// HungUp and WasReset tell of the socket's hang-up, behind which there may be
// bytes to read.
func (t *Conn) HungUp() bool   { return t.raw.HungUp() }
func (t *Conn) WasReset() bool { return t.raw.WasReset() }

// Readable reports whether there may be something to read.
func (t *Conn) Readable() bool { return t.raw.Readable() || t.holds() }

// Unacked returns how many bytes of ciphertext the peer has not acknowledged.
func (t *Conn) Unacked() int { return t.raw.Unacked() + len(t.out) - t.sent }

// Handshaking reports whether the handshake is under way or awaited.
func (t *Conn) Handshaking() bool { return t.state == handshaking }

// Broken reports whether a write failed, or would.
func (t *Conn) Broken() bool { return t.broken }

// CloseNotified reports whether the peer ended its stream in order. Without that,
// anybody on the way may have cut it.
func (t *Conn) CloseNotified() bool { return t.notify }

// Resumed reports whether the handshake, which is over, resumed a session.
func (t *Conn) Resumed() bool { return t.tls.ConnectionState().DidResume }

// MoveTo hands the connection to another loop, as loop.Conn does. The engine must
// have that loop, and the handshake must be over.
func (t *Conn) MoveTo(dst *loop.Loop, h loop.Mover) {
	if t.state != open {
		panic("BUG: tlsconn: MoveTo of a connection that is not open")
	}
	t.h = h
	t.shard.kept -= cap(t.out)
	t.shard = t.shard.e.shards[dst.ID()]
	t.raw.MoveTo(dst, t)
}

// OnMoved is the loop's first call after MoveTo.
func (t *Conn) OnMoved(c *loop.Conn) {
	t.shard.e.on(t.shard.l)
	t.shard.kept += cap(t.out)
	t.flush()
	t.h.(loop.Mover).OnMoved(c)
}

// OnRead is the loop's call.
func (t *Conn) OnRead(c *loop.Conn) {
	switch t.state {
	case handshaking:
		t.feed()
	case failed:
		t.raw.Pause() // the handler has been told
	case open:
		if t.told && !t.kicked {
			t.discard()
			return
		}
		t.kicked = false
		t.h.OnRead(c)
	}
}

// OnWrite is the loop's call.
func (t *Conn) OnWrite(c *loop.Conn) {
	switch t.state {
	case handshaking:
		t.flush()
	case open:
		if t.flush(); t.Flushed() || t.broken {
			t.h.OnWrite(c)
		}
	case closing:
		if t.flush(); t.broken {
			t.giveUp()
		} else if t.Flushed() {
			t.fin()
		}
	}
}

// OnHangup is the loop's call.
func (t *Conn) OnHangup(c *loop.Conn, reset bool) {
	switch t.state {
	case handshaking:
		if reset {
			t.hs.end(errPeerClosed)
		}
	case open:
		t.h.OnHangup(c, reset)
	case closing:
		if reset {
			t.giveUp()
		}
	}
}

// OnTimer is the loop's call.
func (t *Conn) OnTimer(c *loop.Conn) {
	if t.state == closing {
		if t.stalled() {
			t.giveUp()
		}
		return
	}
	t.h.OnTimer(c)
}

// release gives back what the connection keeps.
func (t *Conn) release() {
	s := t.shard
	s.bufs.Put(t.kept)
	t.in, t.kept = nil, nil
	t.dropOutput()
}
