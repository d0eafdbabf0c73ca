package mte

import (
	"crypto/subtle"
	"time"

	"sluice/codec/frame"
	"sluice/codec/http1"
	"sluice/codec/open"
	"sluice/gateway/client"
	"sluice/gateway/edge"
	"sluice/gateway/metric"
	"sluice/loop"
)

type outboundState uint8

const (
	// outboundOver: nothing is held; the request waits to be used again.
	outboundOver outboundState = iota
	// outboundBuffering: the body, whose length is not known, is gathered up to
	// the cap. Leaves to outboundWaiting, or over.
	outboundBuffering
	// outboundWaiting: in the line for a pair; a body is not read. Leaves to
	// outboundGathering or outboundAwaiting with a pair, or over.
	outboundWaiting
	// outboundLeft: the caller has gone, and a pair is on its way to the request.
	// Leaves over.
	outboundLeft
	// outboundGathering: the REQUEST is encoded, and for a moment the body is
	// awaited: one that comes whole leaves with it. Leaves to outboundSending or
	// outboundAwaiting, or over.
	outboundGathering
	// outboundSending: the body is encoded and sent as it comes. Leaves to
	// outboundAwaiting with its end, to outboundAnswering or outboundRefused when
	// the other relay answers before, or over.
	outboundSending
	// outboundAwaiting: END was sent, the answer is awaited. Leaves to
	// outboundAnswering or outboundRefused, or over.
	outboundAwaiting
	// outboundRefused: the other relay's refusal is read. Leaves to
	// outboundResting, or over.
	outboundRefused
	// outboundResting: the same bytes will be sent again in a moment. Leaves to
	// outboundAwaiting, or over.
	outboundResting
	// outboundAnswering: the answer is decoded and goes to the caller. Leaves to
	// outboundTrailing, or over.
	outboundAnswering
	// outboundTrailing: the caller has the whole answer and the pair is back; the
	// end of the HTTP body is awaited, so that the connection can be kept. Leaves
	// over.
	outboundTrailing
)

const (
	// gatherTime is how long a REQUEST waits for the first bytes of its body.
	gatherTime = 10 * time.Millisecond
	// resendBytes is how many bytes of a request are kept to be sent again (contract,
	// mte-relay §9).
	resendBytes = 64 << 10
	// resendWait is the wait before that if the other relay names none, and
	// maxResendWait the longest that a caller is kept waiting for.
	resendWait    = 200 * time.Millisecond
	maxResendWait = 5 * time.Second

	// outboundsKept is how many requests a loop keeps for later.
	outboundsKept = 256

	tokenHeader = "x-mte-outbound-token"
)

// An outbound is one plain request that goes to another relay through a pair, and
// its answer: an edge.Exchange towards the caller, as outboundSink an originSink
// towards the other relay. It belongs to the loop of its connection, but for the
// part that is in the pool's line.
type outbound struct {
	s *shard
	c *edge.HTTPConn
	h *outboundHost

	state    outboundState
	waiter   poolWaiter
	pair     *pooledPair // nil without one
	exchange client.Exchange
	call     *originCall // nil without one
	timer    loop.Timer  // of the state
	left     loop.Timer  // of a caller that has probably gone
	resent   int

	request  outboundRequest // outboundsend.go
	refused  refusedAnswer
	head     edge.Response // of the answer, while it waits for company
	headHeld bool

	prev, next *outbound // in the shard's list
}

// outbound serves a request to an outbound host (contract, mte-relay §9).
func (s *shard) outbound(c *edge.HTTPConn, req *http1.Request, h *outboundHost) {
	if len(h.token) > 0 {
		v, _ := req.Lookup(tokenHeader)
		if subtle.ConstantTimeCompare(v, h.token) != 1 {
			s.refusePlain(c, refusal{reason: frame.Unauthorized, message: messageToken}, false)
			return
		}
	}
	switch req.MethodID {
	case http1.MethodConnect, http1.MethodTrace:
		s.refusePlain(c, refusal{reason: frame.MethodNotAllowed}, false)
		return
	}
	length, limit := c.BodyLength(), s.role.maxBody.Load()
	if limit > 0 && length > limit {
		s.refusePlain(c, refusal{reason: frame.BodyTooLarge, message: messageBody}, false)
		return
	}
	if err := h.tooLarge(length); err != nil {
		s.refusePlain(c, refusalFor(err), false)
		return
	}
	x := s.newOutbound()
	x.c, x.h = c, h
	if err := x.request.compose(s, req); err != nil {
		x.refuse(refusalFor(err))
		return
	}
	c.Take(x)
	x.request.length = length
	if limit > 0 && length < 0 {
		x.request.limit = limit
		x.setState(outboundBuffering)
		c.ReadBody()
		return
	}
	x.acquire()
}

func (s *shard) newOutbound() (x *outbound) {
	if n := len(s.freeOutbounds); n > 0 {
		x = s.freeOutbounds[n-1]
		s.freeOutbounds = s.freeOutbounds[:n-1]
	} else {
		x = &outbound{s: s}
	}
	s.active.Add(1)
	if x.next = s.outbounds; x.next != nil {
		x.next.prev = x
	}
	s.outbounds = x
	return x
}

// setState changes the state. Leaving for over gives everything back.
func (x *outbound) setState(to outboundState) {
	if x.state = to; to != outboundOver {
		return
	}
	if x.pair != nil || x.call != nil || x.waiter.queued {
		panic("BUG: mte: an outbound request ends with a pair, a call or a place in the line")
	}
	s := x.s
	x.timer.Stop()
	x.left.Stop()
	x.request.clean(s)
	x.exchange.Clean()
	if x.prev != nil {
		x.prev.next = x.next
	} else {
		s.outbounds = x.next
	}
	if x.next != nil {
		x.next.prev = x.prev
	}
	s.active.Add(-1)
	*x = outbound{s: s, exchange: x.exchange, request: outboundRequest{text: x.request.text}}
	if len(s.freeOutbounds) < outboundsKept {
		s.freeOutbounds = append(s.freeOutbounds, x)
	}
}

// acquire asks for a pair.
func (x *outbound) acquire() {
	x.waiter.user = x
	x.setState(outboundWaiting)
	if pair := x.h.acquire(x.s, &x.waiter); pair != nil {
		x.begin(pair)
		return
	}
	x.startTimer(x.s.role.cfg.Client.AcquireWait)
}

func (x *outbound) startTimer(d time.Duration) {
	x.s.l.StartTimer(&x.timer, x.s.l.Now()+int64(d), x)
}

// Awake implements poolUser, on any goroutine.
func (x *outbound) Awake() { x.s.l.Post((*outboundAwake)(x)) }

// outboundAwake is a request whose wait is over.
type outboundAwake outbound

// Deliver goes on with what came of the wait.
func (m *outboundAwake) Deliver(*loop.Loop) {
	x := (*outbound)(m)
	x.timer.Stop()
	pair, no := x.waiter.pair, x.waiter.no
	x.waiter.pair, x.waiter.no = nil, nil
	switch {
	case x.state == outboundLeft:
		if pair != nil {
			x.h.release(pair, pairKept, x.s.l.Now())
		}
		x.setState(outboundOver)
	case pair != nil:
		x.begin(pair)
	default:
		x.refuse(*no)
	}
}

// OnTimer ends the wait of a state.
func (x *outbound) OnTimer(int64) {
	switch x.state {
	case outboundWaiting:
		if x.h.leave(&x.waiter) {
			x.refuse(x.h.capacity(x.s.l.Now()))
		}
	case outboundGathering:
		x.startCall(edge.Chunked)
		x.setState(outboundSending)
	case outboundResting:
		x.resend()
	default:
		panic("BUG: mte: timer of an outbound request that waits for nothing")
	}
}

// begin encodes the REQUEST for the pair and sends what there is of the body.
func (x *outbound) begin(pair *pooledPair) {
	x.pair = pair
	pair.key.Renew(pair.of.relay.Load())
	x.exchange.Begin(pair.key, open.MKE)
	if err := x.request.encode(x); err != nil {
		x.giveBack(x.unsent())
		x.refuse(refusalFor(err))
		return
	}
	if x.exchange.Ended() {
		x.startCall(int64(len(x.request.frames)))
		x.setState(outboundAwaiting)
		return
	}
	x.setState(outboundGathering)
	x.startTimer(gatherTime)
	x.c.ReadBody()
}

// giveBack returns the pair.
func (x *outbound) giveBack(fate pairFate) {
	pair := x.pair
	x.pair = nil
	x.h.release(pair, fate, x.s.l.Now())
}

// unsent is the fate of a pair of whose request nothing was sent.
func (x *outbound) unsent() pairFate {
	if x.exchange.NotSent() {
		return pairRetired
	}
	return pairKept
}

// refuse answers the caller instead of the other relay, and ends the request.
func (x *outbound) refuse(no refusal) {
	c, s := x.c, x.s
	reading := x.state == outboundBuffering || x.state > outboundLeft && c.BodyLength() != 0
	x.setState(outboundOver)
	s.refusePlain(c, no, reading)
}

// cancel ends the call. A connection on which it was not complete is closed.
func (x *outbound) cancel() {
	if x.call != nil {
		x.call.Cancel()
		x.call = nil
	}
}

// leave ends the request of a caller that has gone (contract, mte-relay §9): it
// retires its pair if the other relay waits for an END, or has begun to answer.
func (x *outbound) leave() {
	switch x.state {
	case outboundWaiting:
		x.timer.Stop()
		if !x.h.leave(&x.waiter) {
			x.setState(outboundLeft)
			return
		}
	case outboundGathering:
		x.giveBack(x.unsent())
	case outboundSending, outboundAwaiting, outboundRefused, outboundResting, outboundAnswering:
		x.cancel()
		fate := pairCooling
		if x.exchange.GivenUp() {
			fate = pairRetired
		}
		x.giveBack(fate)
	case outboundBuffering:
	case outboundLeft, outboundTrailing, outboundOver:
		return
	default:
		panic("BUG: mte: no such state of an outbound request")
	}
	x.setState(outboundOver)
}

// shutDown ends a request because the process does: it is refused, or its answer
// cut short.
func (x *outbound) shutDown() {
	no := refusal{reason: frame.UpstreamResponseFailed, message: messageShutdown}
	x.c.CloseAfter()
	switch x.state {
	case outboundBuffering:
		x.refuse(no)
	case outboundWaiting:
		if x.h.leave(&x.waiter) {
			x.refuse(no)
		}
	case outboundGathering:
		x.giveBack(x.unsent())
		x.refuse(no)
	case outboundSending, outboundAwaiting, outboundRefused, outboundResting, outboundAnswering:
		x.fail(no)
	case outboundLeft, outboundTrailing:
	default:
		panic("BUG: mte: no such state of an outbound request")
	}
}

// OnPeerEOF implements edge.Exchange: a caller that has probably left gets a
// moment for its answer.
func (x *outbound) OnPeerEOF(c *edge.HTTPConn) {
	if x.state == outboundWaiting || c.BodyLength() == 0 {
		x.s.l.StartTimer(&x.left, x.s.l.Now()+int64(halfCloseGrace), (*outboundLeaver)(x))
	}
}

type outboundLeaver outbound

// OnTimer ends the wait for a caller that has probably left.
func (m *outboundLeaver) OnTimer(int64) {
	x := (*outbound)(m)
	c := x.c
	x.leave()
	c.Abort()
}

// OnAbort implements edge.Exchange. What became of the caller's body is answered
// by the edge.
func (x *outbound) OnAbort(*edge.HTTPConn, edge.Abort) bool {
	x.leave()
	return false
}

// count adds application bytes to the metrics.
func (x *outbound) count(d metric.Direction, n int) { x.s.role.metrics.Bytes(d, n) }
