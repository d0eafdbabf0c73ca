package edge

import (
	"math"
	"net/netip"
	"time"

	"sluice/codec/http1"
	"sluice/gateway/tlsconn"
	"sluice/loop"
)

const (
	// drainBytes is how much of a body that nobody reads is dropped to keep the
	// connection; with more to come it is closed behind the answer.
	drainBytes = 64 << 10

	// lingerTime bounds what is read and dropped behind the last answer, so that it
	// is not lost to the reset that unread input would cause. A count of bytes does
	// not: a client that sends all of a large body before it looks would lose the
	// answer that refuses it. To a client that has not taken all of the answer by
	// then WRITE_STALL_SECONDS apply: the kernel may hold megabytes of it.
	lingerTime = 5 * time.Second
)

type connState uint8

const (
	// stateProxy: a PROXY header is awaited, or the end of one, or enough bytes to
	// tell that there is none. Nothing else was read. Leaves to stateIdle, with or
	// without TLS, to stateGone when the peer breaks the rule of PROXY_PROTOCOL, and
	// at the idle timeout, which is as in stateIdle and stateHead for a peer that
	// owes no header.
	stateProxy connState = iota
	// stateIdle: no byte of the next request has come. No buffer is held and no
	// output waits. Leaves to stateHead or stateRequest with the first bytes,
	// to stateGone at the idle timeout or when room is needed. Under TLS the
	// handshake is a part of it.
	stateIdle
	// stateHead: a part of a head is in the stash. Leaves to stateRequest when
	// it is complete, to stateClosing when it is faulty or takes too long (408).
	stateHead
	// stateRequest: the app has the request and the answer is not complete. The
	// socket is read only while the app reads the body. Leaves to stateDraining,
	// stateFlushing, stateIdle or stateClosing when the answer is complete.
	stateRequest
	// stateDraining: the answer is complete, the rest of the request's body is
	// read and dropped. The answer was sent, or is deferred until then. Leaves
	// like stateRequest.
	stateDraining
	// stateFlushing: request and answer are complete but the kernel has not
	// taken the answer. The next request is not looked at. Leaves to stateIdle.
	stateFlushing
	// stateClosing: as stateFlushing, for the last answer. Leaves to stateLingering.
	stateClosing
	// stateLingering: FIN is sent, the loop drops input; leaves to stateGone.
	stateLingering
	// stateMoving: the app called MoveTo; the connection leaves the loop when
	// OnRequest has returned, and comes to the other one in stateHead.
	stateMoving
	// stateGone: closed or hijacked. Nothing may be done with it any more, and
	// everything an app calls has no effect.
	stateGone
)

// bodyState says who gets the request's body. It matters in stateRequest only.
type bodyState uint8

const (
	bodyHeld   bodyState = iota // nobody asked for it: it is not read
	bodyFlows                   // read and given to the exchange
	bodyPaused                  // the exchange wants no more for now
	bodyDone                    // its end, or a fault, was told to the exchange
)

// answerState says how far the answer is. It matters in stateRequest only.
type answerState uint8

const (
	answerNone answerState = iota
	answerOpen             // its head is out or held back
	answerDone
)

// An HTTPConn is one HTTP/1.1 connection of a client. It belongs to exactly one
// loop, that of its socket; all methods are called there. Requests are answered
// in order: the next head is parsed when the answer before it was taken by the
// kernel, until then what the client sends ahead waits in a bounded stash and
// in the kernel.
//
// No callback comes from within a call that the app makes. Once the connection
// is gone, which OnAbort tells an exchange, calls have no effect.
//
// An idle connection owns no buffer.
type HTTPConn struct {
	// Loop goroutine only.
	sh   *shard
	sock Socket
	tls  *tlsconn.Conn // what sock is under TLS, else nil
	next *HTTPConn     // in one of the shard's lists
	prev *HTTPConn

	state   connState
	body    bodyState
	answer  answerState
	running bool // OnRead is on the stack: what we change it will see
	paused  bool // the socket is paused
	broken  bool // a write failed; told by the next OnRead

	// Input: what was read and not yet used, in a buffer of the shard's.
	in   []byte
	mark http1.Mark

	// Of the request being served.
	x         Exchange
	bodyLeft  http1.Body
	bodyFault *http1.Error
	current   []byte // head and what follows; during OnRequest only
	headBytes int    // length of the head in current
	drain     int    // stateDraining and stateProxy: bytes we still drop
	isHead    bool   // the method is HEAD
	minor     uint8
	keep      bool // another request may follow
	expect    bool // the client waits for a 100
	toldEOF   bool

	// Of the answer being sent.
	answerLeft int64 // bytes still to come with a length; -1 chunked, -2 until close
	noBody     bool
	held       bool // out was never offered to the kernel
	deferred   bool // out is the whole answer and waits for the end of the body
	backed     bool // Write reported a backlog; OnDrain is owed

	deferredHead int // length of the deferred answer's head

	// Output the kernel has not taken: out[sent:], in a buffer of the shard's.
	out  []byte
	sent int

	// Deadlines in loop time; 0 is none.
	readBy  int64 // for what the peer owes us
	writeBy int64 // for taking a byte
	unacked int   // what the peer had not acknowledged when writeBy was set
	armed   int64 // what the socket's timer is set to, at or before both

	// stateMoving.
	moveTo *loop.Loop
	onward func(*HTTPConn, *http1.Request) // set until the head was parsed again
}

// ID returns the socket's id.
func (c *HTTPConn) ID() uint64 { return c.sock.ID() }

// Loop returns the loop that owns the connection.
func (c *HTTPConn) Loop() *loop.Loop { return c.sh.loop }

// Remote returns the peer's address: the socket's, or what a PROXY header said.
func (c *HTTPConn) Remote() netip.AddrPort { return c.sock.Remote() }

// Gone reports whether the connection is closed or hijacked.
func (c *HTTPConn) Gone() bool { return c.state >= stateLingering }

func (c *HTTPConn) now() int64 { return c.sh.loop.Now() }

// goIdle begins to wait for a request.
func (c *HTTPConn) goIdle() {
	c.state = stateIdle
	c.x = nil
	c.readBy = c.now() + int64(c.sh.srv.cfg.IdleTimeout)
	c.sh.idle.push(c)
}

// settle goes on once the answer is complete.
func (c *HTTPConn) settle() {
	c.x = nil
	c.readBy = 0
	if c.bodyFault != nil {
		c.keep = false // not told to the exchange yet, but what follows is out of step
	}
	switch {
	case !c.keep:
		c.state = stateClosing
		if !c.waits() {
			c.linger()
			return
		}
	case !c.bodyLeft.Done():
		c.startDrain()
	case c.waits():
		c.state = stateFlushing
	default:
		c.goIdle()
	}
	if c.writeBy == 0 && c.waits() {
		c.startStall()
	}
	c.proceed()
}

// startDrain begins to drop the rest of the request's body.
func (c *HTTPConn) startDrain() {
	c.state = stateDraining
	c.x = nil
	c.drain = drainBytes
	c.readBy = c.now() + int64(c.sh.srv.cfg.IdleTimeout)
	c.sh.half.push(c)
}

// proceed lets the reading go on where it should, unless OnRead is at it.
func (c *HTTPConn) proceed() {
	if c.running || c.state >= stateLingering {
		return
	}
	c.arm()
	if !c.wantsInput() {
		return
	}
	if c.paused {
		c.paused = false
		c.sock.Resume()
	}
	if len(c.in) > 0 || c.state == stateRequest && (c.bodyLeft.Done() || c.bodyFault != nil) {
		c.sock.Kick() // the socket may have nothing to announce, but we have
	}
}

// ended deals with the end of the peer's stream while the socket was read. The
// peer may have shut down its side only and wait for the answer.
func (c *HTTPConn) ended() {
	switch {
	case c.state == stateRequest:
		c.toldEOF = true
		c.bodyFails(BodyCut)
		return
	case c.state == stateDraining && (c.deferred || c.waits()):
		c.endDrain(false)
		return
	}
	c.leave()
	c.sock.Close()
}

// hungUp deals with the end of the peer's stream while we do not read. Bytes may
// stand in front of it. The answer is still due: a client may shut down its
// side and wait.
func (c *HTTPConn) hungUp() {
	if c.state == stateRequest && c.x != nil && !c.toldEOF {
		c.toldEOF = true
		c.x.OnPeerEOF(c)
	}
}

// OnHangup is the loop's report of an end or a reset while the socket is paused.
func (c *HTTPConn) OnHangup(_ *loop.Conn, reset bool) {
	if reset {
		c.lose(PeerReset)
		return
	}
	c.hungUp()
}

// OnTimer looks which deadline has passed, if any: the timer is left alone when
// a deadline moves away, which is what happens with every request.
func (c *HTTPConn) OnTimer(*loop.Conn) {
	c.armed = 0
	now := c.now()
	switch {
	case c.writeBy != 0 && now >= c.writeBy && c.tookBytes():
		c.startStall()
		c.arm()
		return
	case c.writeBy != 0 && now >= c.writeBy:
		c.sh.srv.Stats.WriteStalls.Add(1)
		c.lose(WriteStalled)
		return
	case c.readBy == 0 || now < c.readBy:
		c.arm()
		return
	}
	c.readBy = 0
	switch c.state {
	case stateProxy:
		c.proxyTimedOut()
	case stateIdle:
		c.sh.srv.Stats.IdleTimeouts.Add(1)
		c.endHandshake(tlsconn.FailTimeout)
		c.leave()
		c.sock.Close()
	case stateHead:
		c.refuse(errHeadTimeout)
	case stateRequest:
		c.bodyFails(BodyStalled)
	case stateDraining:
		c.endDrain(false)
	default:
		panic("BUG: edge: read deadline in a state that has none")
	}
}

// arm sets the socket's timer if it would come too late.
func (c *HTTPConn) arm() {
	next := c.readBy
	if next == 0 || c.writeBy != 0 && c.writeBy < next {
		next = c.writeBy
	}
	if next != 0 && (c.armed == 0 || next < c.armed) {
		c.armed = next
		c.sock.SetDeadline(next)
	}
}

// linger ends the connection in order.
func (c *HTTPConn) linger() {
	c.release()
	c.state = stateLingering
	c.sh.busy.push(c)
	c.sock.Linger(math.MaxInt, c.now()+int64(lingerTime), int64(c.sh.srv.cfg.WriteStall), c.leave)
}

// lose ends the connection at once and tells the exchange.
func (c *HTTPConn) lose(why Abort) {
	if c.state == stateGone {
		return
	}
	x := c.x
	c.leave()
	c.sock.Reset()
	if x != nil {
		x.OnAbort(c, why)
	}
}

// leave takes the connection out of all accounts. The socket is the caller's.
func (c *HTTPConn) leave() {
	if c.state == stateGone {
		return
	}
	c.release()
	c.state = stateGone
	c.x = nil
	c.unlink()
	c.sh.srv.Stats.Open.Add(-1)
}

// release gives back the buffers.
func (c *HTTPConn) release() {
	c.dropInput()
	c.dropOutput()
}

func (c *HTTPConn) dropInput() {
	if c.in != nil {
		c.sh.bufs.Put(c.in)
		c.in = nil
	}
}
