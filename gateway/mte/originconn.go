package mte

import (
	"errors"
	"time"

	"sluice/gateway/edge"
	"sluice/gateway/tlsconn"
	"sluice/loop"
)

type originConnState uint8

const (
	// originDialing: connect is under way for call. Leaves to originHandshaking,
	// originBusy or originClosed.
	originDialing originConnState = iota
	// originHandshaking: the TLS handshake for call is under way. Leaves, by
	// OnHandshake, to originBusy or originClosed.
	originHandshaking
	// originBusy: carries call. Leaves to originIdle when request and response
	// are complete and allow it, else to originClosed.
	originBusy
	// originIdle: in its host's list, with no call and no buffer. Anything the
	// origin does, and the idle timeout, close it.
	originIdle
	originClosed
)

// An originSocket is what a connection runs on: a *loop.Conn, or TLS over one.
type originSocket interface {
	edge.Socket
	Paused() bool
	Readable() bool
}

// earlyGrace is how long an origin that has answered completely may take no
// byte of the rest of the request before it gets no more.
const earlyGrace = time.Second

// An originConn is one connection to an origin. It belongs to its pool's loop.
type originConn struct {
	p    *originPool
	host *originHost
	sock originSocket
	tls  *tlsconn.Conn // what sock is for https, else nil
	call *originCall   // nil when idle
	next *originConn   // in host's list
	prev *originConn

	state  originConnState
	pooled bool // has carried a request before
	broken bool // a write failed
	inRead bool // OnRead is on the stack, and sees to the end of call

	in []byte // an unfinished head, in a buffer of the pool's

	// Deadlines in loop time; 0 is none.
	readBy  int64 // for connecting, for what the origin owes us, for being idle
	writeBy int64 // for taking a byte
	unacked int   // what the origin had not acknowledged when writeBy was set
	armed   int64 // what the socket's timer is set to, at or before both
}

// originEnd says how the input of a connection ended.
type originEnd uint8

const (
	endNone   originEnd = iota
	endClean            // FIN, or close_notify under TLS
	endBroken           // reset, a TLS fault, FIN without close_notify
)

func (c *originConn) now() int64 { return c.p.l.Now() }

// begin gives the connection a call.
func (c *originConn) begin(o *originCall) {
	c.call = o
	c.state = originBusy
	c.readBy = 0
	o.conn = c
	o.state = callOpen
}

// OnDial goes on with a connection that was made, or with the next address.
func (c *originConn) OnDial(raw *loop.Conn, err error) {
	if err != nil {
		c.connectFailed(err)
		return
	}
	if c.host.tls != nil {
		c.state = originHandshaking
		c.tls = c.p.secure().Client(raw, c.host.tls, c, 2*c.p.cfg.Connect)
		c.sock = c.tls
		return
	}
	c.open()
}

// OnHandshake goes on with a connection that speaks TLS, or with the next address.
func (c *originConn) OnHandshake(err error) {
	if err != nil {
		c.connectFailed(err)
		return
	}
	c.open()
}

// open begins the call that the connection was made for.
func (c *originConn) open() {
	o := c.call
	c.begin(o)
	if o.paused {
		c.pause()
	}
	c.arm()
	o.flush()
}

// connectFailed gives up the connection and tries the next address.
func (c *originConn) connectFailed(err error) {
	o := c.call
	c.close()
	if o.state == callConnecting {
		o.conn = nil
		c.p.dial(o, err)
	}
}

// close ends the connection at once. What concerns the call is the caller's.
func (c *originConn) close() {
	if c.state == originClosed {
		return
	}
	if c.state == originIdle {
		c.host.remove(c)
	}
	c.state = originClosed
	c.call = nil
	c.dropInput()
	c.host.uses--
	c.sock.Close()
}

func (c *originConn) dropInput() {
	if c.in != nil {
		c.p.bufs.Put(c.in)
		c.in = nil
	}
}

// release puts the connection into the pool.
func (c *originConn) release() {
	if c.host.idles >= c.p.cfg.MaxIdle || c.sock.HungUp() {
		c.close()
		return
	}
	c.state = originIdle
	c.call = nil
	c.pooled = true
	c.writeBy = 0
	c.readBy = c.now() + int64(c.p.cfg.Idle)
	c.arm()
	c.host.add(c)
	if c.sock.Paused() {
		c.sock.Resume()
	}
}

func (c *originConn) pause() {
	c.readBy = 0
	c.sock.Pause()
}

func (c *originConn) resume() {
	o := c.call
	switch {
	case o.recv == recvBody:
		c.readBy = c.now() + int64(c.p.cfg.Body)
	case o.recv == recvHead && (o.send == sendDone || o.deaf) && !o.waits():
		c.readBy = c.now() + int64(c.p.cfg.Response)
	}
	if c.writeBy != 0 {
		c.writeBy = c.now() + int64(c.p.cfg.WriteStall) // it may have waited for us
	}
	c.arm()
	c.sock.Resume()
	if c.broken {
		c.sock.Kick()
	}
}

// awaitAnswer starts the clock for the response's head.
func (c *originConn) awaitAnswer() {
	if o := c.call; o.recv == recvHead && !o.paused {
		c.readBy = c.now() + int64(c.p.cfg.Response)
		c.arm()
	}
}

// hearOn goes on behind a complete response with a request that is not. The
// origin's end is of interest, whatever the user paused.
func (c *originConn) hearOn() {
	c.readBy = 0
	c.call.paused = false
	if c.sock.Paused() {
		c.sock.Resume()
	}
	if c.writeBy != 0 {
		c.startStall()
	}
}

// startStall begins to wait for the origin to take a byte.
func (c *originConn) startStall() {
	patience := c.p.cfg.WriteStall
	if c.call.recv == recvDone {
		patience = min(patience, earlyGrace)
	}
	c.writeBy = c.now() + int64(patience)
	c.unacked = c.sock.Unacked()
	c.arm()
}

func (c *originConn) endStall() { c.writeBy = 0 }

// tookBytes reports whether the origin has taken something since startStall
// although the kernel did not become writable: that it says only when a third
// of a buffer is free.
func (c *originConn) tookBytes() bool { return c.sock.Unacked() < c.unacked }

// arm sets the socket's timer if it would come too late. A deadline that moves
// away, as with every request, leaves the timer alone.
func (c *originConn) arm() {
	next := c.readBy
	if next == 0 || c.writeBy != 0 && c.writeBy < next {
		next = c.writeBy
	}
	if next != 0 && (c.armed == 0 || next < c.armed) {
		c.armed = next
		c.sock.SetDeadline(next)
	}
}

var errConnectShare = errors.New("connecting timed out")

// OnTimer looks which deadline has passed, if any.
func (c *originConn) OnTimer(*loop.Conn) {
	c.armed = 0
	now := c.now()
	if c.writeBy != 0 && now >= c.writeBy {
		c.stalled()
		return
	}
	if c.readBy == 0 || now < c.readBy {
		c.arm()
		return
	}
	c.readBy = 0
	switch c.state {
	case originDialing, originHandshaking:
		c.connectFailed(errConnectShare)
	case originIdle:
		c.close()
	case originBusy:
		if c.call.recv == recvHead {
			c.call.fail(failResponse, originSlowHead)
		} else {
			c.call.fail(failResponse, originSlowBody)
		}
	default:
		panic("BUG: mte: timer of a closed origin connection")
	}
}

const (
	originSlowHead = "no response within MAX_RESPONSE_SECONDS"
	originSlowBody = "the response stopped for MAX_REQUEST_SECONDS"
	originStalled  = "the origin took no byte of the request for WRITE_STALL_SECONDS"
	originEarlyEnd = "the origin closed the connection before its response was complete"
	originNoAnswer = "the origin closed the connection without a response"
	originReset    = "the origin broke the connection"
	originSwitches = "the origin switched protocols (101)"
	originInterims = "too many interim responses"
)

// stalled deals with an origin that takes nothing. One that has begun to answer
// is heard to the end.
func (c *originConn) stalled() {
	o := c.call
	switch {
	case c.tookBytes():
		c.startStall()
	case o.paused:
		// It may wait for us to read: that is no stall of its own.
		c.startStall()
	case o.recv == recvHead:
		o.fail(failResponse, originStalled)
	default:
		o.silence()
	}
}

// OnWrite goes on with what waits.
func (c *originConn) OnWrite(*loop.Conn) {
	if c.broken {
		return
	}
	if c.tls != nil && c.tls.Broken() {
		c.broken = true
		switch c.state {
		case originBusy:
			c.call.sendFailed(nil)
		case originIdle:
			c.close()
		}
		return
	}
	if c.state != originBusy {
		return
	}
	if c.writeBy != 0 {
		c.startStall()
	}
	if o := c.call; o.send != sendHeld && !c.pending() {
		o.flush()
	}
}

// OnHangup is the loop's report of an end or a reset while the socket is
// paused. What the origin sent before is read when the user resumes; what it
// was still to get is lost if it is a reset.
func (c *originConn) OnHangup(_ *loop.Conn, reset bool) {
	if reset && c.state == originBusy && c.call.waits() {
		c.broken = true
		c.call.silence()
	}
}

// writable reports whether the connection takes bytes now.
func (c *originConn) writable() bool { return c.sock.Writable() }

// pending reports whether the connection itself keeps output.
func (c *originConn) pending() bool { return c.tls != nil && !c.tls.Flushed() }

// offer gives out and the parts behind it to the connection, in one system call
// if possible, and returns how many bytes it took.
func (c *originConn) offer(out []byte, parts *[3][]byte) (n int, err error) {
	if len(out) == 0 && len(parts[1]) == 0 && len(parts[2]) == 0 {
		return c.sock.Write(parts[0])
	}
	v := c.p.l.Vec()
	if len(out) > 0 {
		v.Add(out)
	}
	for _, b := range parts {
		if len(b) > 0 {
			v.Add(b)
		}
	}
	n, err = c.sock.Writev(v)
	v.Reset() // it must not keep the user's memory alive
	return n, err
}
