package mte

import (
	"net/netip"
	"time"

	"sluice/codec/frame"
	"sluice/codec/http1"
	"sluice/gateway/edge"
	"sluice/loop"
)

// source is whose bucket a request spends.
func (r *Role) source(c *edge.HTTPConn, req *http1.Request) netip.Addr {
	return r.cfg.Trusted.ClientOf(c.Remote().Addr(), &req.Head)
}

type callStage uint8

const (
	// callReading: the body comes. Leaves to callServing with its end, to callDone
	// with a refusal or the client.
	callReading callStage = iota
	// callServing: the answer is being made, perhaps by a worker or a store.
	// Leaves to callDone with it, to callLeft when the client goes.
	callServing
	// callLeft: as callServing, and nobody is to be answered.
	callLeft
	// callDone: it no longer counts.
	callDone
)

// A controlCall is a call of an endpoint with a body: an edge.Exchange that takes
// the body and then gives it to its endpoint.
type controlCall struct {
	s     *shard
	c     *edge.HTTPConn
	d     *domain
	to    addressee
	end   endpoint
	stage callStage
	body  []byte // in a buffer of the shard's
	begun int64  // when the body was complete
}

// An endpoint is what is particular about a call.
type endpoint interface {
	// parse reads the body. For a large one it runs on a worker.
	parse()
	// serve goes on with what parse has found, on the loop, and ends the call by
	// refuse or reply, at once or later.
	serve()
	// release is told that the call is done, and nobody has a part of it any more.
	release()
}

// begin reads the body, or refuses it by its length.
func (x *controlCall) begin() {
	x.s.active.Add(1)
	if x.c.BodyLength() > x.s.role.cfg.MaxControlBodyBytes {
		x.tooLarge()
		return
	}
	if n := x.c.BodyLength(); n > 0 {
		x.body = x.s.bufs.Get(int(min(n, bodyAhead)))
	}
	x.c.Take(x)
	x.c.ReadBody()
}

// newBuffers holds frames that have not arrived whole, answers that must wait, and
// control calls. The largest holds a pairing of 100, or its answer.
func newBuffers() loop.Buffers {
	return loop.NewBuffers(2<<20, 4<<10, 16<<10, 72<<10, 256<<10, bodyAhead)
}

// bodyAhead bounds the memory that a stated length takes before a byte of it
// has come: a pairing of 100 fits.
const bodyAhead = 512 << 10

func (x *controlCall) tooLarge() {
	x.s.refuseComing(x.c, &x.to, refusal{reason: frame.BodyTooLarge, message: messageControl})
	x.done()
}

// refuseComing refuses a request whose body is still coming, without waiting for
// that: it costs the connection.
func (s *shard) refuseComing(c *edge.HTTPConn, to *addressee, no refusal) {
	c.CloseAfter()
	s.refuseOpen(c, to, no)
	s.dropBody(c)
}

// refuseUnread refuses a request within OnRequest, at once: only a body that has
// come already leaves the connection to the next request.
func (s *shard) refuseUnread(c *edge.HTTPConn, to *addressee, no refusal) {
	if c.BodyCame() {
		s.refuse(c, to, no)
	} else {
		s.refuseComing(c, to, no)
	}
}

// refuse and reply end the call.
func (x *controlCall) refuse(no refusal) {
	if x.stage != callLeft {
		x.s.refuse(x.c, &x.to, no)
	}
	x.done()
}

func (x *controlCall) reply(body []byte) {
	if x.stage != callLeft {
		x.c.Reply(200, typeJSON, body, x.to.headers()...)
	}
	x.done()
}

func (x *controlCall) done() {
	if x.stage == callDone {
		panic("BUG: mte: a control call ends twice")
	}
	x.stage = callDone
	x.s.active.Add(-1)
	x.s.bufs.Put(x.body)
	x.body = nil
	x.end.release()
}

// OnBody implements edge.Exchange.
func (x *controlCall) OnBody(_ *edge.HTTPConn, data []byte) {
	if int64(len(x.body)+len(data)) > x.s.role.cfg.MaxControlBodyBytes {
		x.tooLarge()
		return
	}
	x.body = x.s.bufs.Grow(x.body, data)
}

// OnBodyEnd implements edge.Exchange.
func (x *controlCall) OnBodyEnd(*edge.HTTPConn) {
	x.stage = callServing
	x.begun = x.s.l.Now()
	if len(x.body) > parseHere {
		x.s.offload(task{call: x, job: (*parsing)(x), steps: 1})
		return
	}
	x.end.parse()
	x.end.serve()
}

// OnDrain implements edge.Exchange.
func (x *controlCall) OnDrain(*edge.HTTPConn) {}

// OnPeerEOF implements edge.Exchange: a client that has shut down its side may
// wait for its answer.
func (x *controlCall) OnPeerEOF(*edge.HTTPConn) {}

// OnAbort implements edge.Exchange.
func (x *controlCall) OnAbort(_ *edge.HTTPConn, why edge.Abort) bool {
	switch {
	case x.stage == callReading:
		x.done()
	case why.Final():
		x.stage = callLeft
	}
	return false
}

// presented notes whose token was sent, for the route header of a refusal.
func (x *controlCall) presented(text []byte) {
	if token, ok := frame.ParseToken(text); ok {
		x.to.is(token.Client())
	}
}

// verify checks the token of a control body: its MAC and its age.
func (x *controlCall) verify(text []byte) (id frame.ClientID, ok bool) {
	token, ok := frame.ParseToken(text)
	if !ok {
		return id, false
	}
	x.presented(text)
	return token.Client(), x.d.key.VerifyAge(&token, time.Now().Unix(), x.s.role.tokenAge())
}

// rate spends a token of the client's bucket and refuses the call if there is
// none.
func (x *controlCall) rate(l *edge.RateLimit[frame.ClientID], id frame.ClientID, endpoint string) bool {
	wait, ok := l.Allow(id, x.s.l.Now())
	if !ok {
		x.s.rateLimited(x.c, x.d, endpoint)
		x.refuse(refusal{reason: frame.RateLimited, wait: wait})
	}
	return ok
}
