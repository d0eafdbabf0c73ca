package mte

import (
	"time"

	"sluice/codec/frame"
	"sluice/codec/http1"
	"sluice/codec/open"
	"sluice/gateway/edge"
	"sluice/gateway/metric"
	"sluice/gateway/store"
	"sluice/loop"
)

type streamState uint8

const (
	// streamOver: nothing is held; the stream waits to be used again.
	streamOver streamState = iota
	// streamOpening: the REQUEST is being read. There is no pair, and what is
	// refused leaves none touched. Leaves to streamTaking, streamUploading,
	// streamEnded, or over by a refusal.
	streamOpening
	// streamTaking: the store was asked for the pair and has not answered. The
	// body is paused, what of it came is kept. Leaves like streamOpening, or to
	// streamLeft.
	streamTaking
	// streamUploading: the REQUEST is decoded and the pair ours. DATA are decoded
	// and go to the origin. Leaves to streamEnded with END, to streamHolding when
	// the origin answers, to streamDraining by a refusal or when the origin has
	// answered and takes no more, or over.
	streamUploading
	// streamHolding: the origin has begun to answer before the body has ended,
	// and for earlyTime the body is paused: most that do so refuse it, and are
	// done in a moment. Leaves to streamDraining when they are, else back to
	// streamUploading.
	streamHolding
	// streamDraining: DATA are decoded and dropped, so that the pair stays in step.
	// A refusal waits, for drainBytes and drainTime at most, or an early answer,
	// for drainTime. Leaves to streamEnded with END, or over.
	streamDraining
	// streamEnded: END was read. Nothing may follow it, and until the HTTP body
	// has ended that is not known, and the origin's request not completed.
	// Leaves to streamAwaiting or streamAnswering, or over.
	streamEnded
	// streamAwaiting: the origin has the whole request, its head is awaited.
	// Leaves to streamAnswering, or over by a refusal.
	streamAwaiting
	// streamAnswering: what the origin sends is encoded and goes to the client.
	// Leaves to streamSaving, or over.
	streamAnswering
	// streamSaving: everything is decided, and the store takes the pair back.
	// What is to be sent waits for it. Leaves over.
	streamSaving
	// streamLeft: the client has gone and the store's answer is awaited. Leaves
	// over.
	streamLeft
)

const (
	// drainBytes and drainTime bound what is decoded only to keep a pair in step
	// (contract, mte-relay §6): plaintext bytes.
	drainBytes = 1 << 20
	drainTime  = 5 * time.Second

	// earlyTime is how long a body is held up when the origin answers before its
	// end, and how long an origin that has may then take no byte of it.
	earlyTime = time.Second

	// streamsKept is how many streams a loop keeps for later.
	streamsKept = 256
	// scratchKept is the largest scratch memory that a kept stream goes on with.
	scratchKept = 16 << 10
)

// A stream is one request through a pair and its answer: an edge.Exchange towards
// the client, as fromOrigin an originSink, a store.Waiter towards the store.
// It belongs to the loop of its connection.
type stream struct {
	// Set when the request begins.
	s       *shard
	c       *edge.HTTPConn
	d       *domain
	to      addressee
	hop     hop   // hop.go
	maxBody int64 // bytes, 0 without a cap
	prev    *stream
	next    *stream // in the shard's lists

	state streamState
	first refusal // the first refusal behind the REQUEST; of NoReason: none yet
	timer loop.Timer

	// The pair, from its REQUEST on.
	client frame.ClientID
	pair   frame.PairID
	typ    open.Type
	lease  store.Lease // nil without one
	doomed bool        // the pair is retired at the end, whatever it is

	in     inbound  // receive.go
	origin outgoing // hop.go, receive.go
	answer answer   // respond.go
	late   late     // give.go

	peerEOF bool // the client's end was seen while its body was paused
}

// frames begins a request that consists of frames.
func (s *shard) frames(c *edge.HTTPConn, req *http1.Request, d *domain, to *addressee) {
	st := s.newStream()
	st.c, st.d, st.to = c, d, *to
	st.maxBody = s.role.maxBody.Load()
	st.hop.read(st, req)
	st.setState(streamOpening)
	c.Take(st)
	c.ReadBody()
}

func (s *shard) newStream() (st *stream) {
	if n := len(s.freeStreams); n > 0 {
		st = s.freeStreams[n-1]
		s.freeStreams = s.freeStreams[:n-1]
	} else {
		st = &stream{s: s}
	}
	s.active.Add(1)
	st.next = s.streams
	if st.next != nil {
		st.next.prev = st
	}
	s.streams = st
	return st
}

// setState changes the state. Leaving for over gives everything back.
func (st *stream) setState(to streamState) {
	if st.state = to; to != streamOver {
		return
	}
	if st.lease != nil || st.origin.call != nil {
		panic("BUG: mte: a stream ends with a pair or an origin request")
	}
	s := st.s
	if s.assembly.owner == st {
		s.assembly.drop()
	}
	st.timer.Stop()
	s.bufs.Put(st.in.part)
	s.bufs.Put(st.answer.held)
	s.bufs.Put(st.late.final)
	if st.prev != nil {
		st.prev.next = st.next
	} else {
		s.streams = st.next
	}
	if st.next != nil {
		st.next.prev = st.prev
	}
	s.active.Add(-1)
	*st = stream{s: s, hop: st.hop.clean(), origin: st.origin.clean(), answer: st.answer.clean()}
	if len(s.freeStreams) < streamsKept {
		s.freeStreams = append(s.freeStreams, st)
	}
}

// OnBody implements edge.Exchange.
func (st *stream) OnBody(_ *edge.HTTPConn, data []byte) {
	st.receive(data)
	if st.state == streamUploading || st.state == streamEnded {
		st.forward(st.c.BodyLength() == 0)
	}
}

// OnBodyEnd implements edge.Exchange.
func (st *stream) OnBodyEnd(*edge.HTTPConn) {
	switch st.state {
	case streamOpening:
		st.reject(refusal{reason: frame.InvalidFrame, message: messageShort})
	case streamUploading, streamDraining:
		st.breakOff(refusal{})
	case streamEnded:
		st.bodyEnded()
	case streamOver:
	default:
		panic("BUG: mte: end of a body in a state that reads none")
	}
}

// bodyEnded goes on behind END once nothing can follow it.
func (st *stream) bodyEnded() {
	st.timer.Stop()
	switch {
	case st.first.reason != frame.NoReason:
		st.refuseInStep()
	case st.answer.early():
		st.completeOrigin()
		st.deliver()
	default:
		st.completeOrigin()
		st.setState(streamAwaiting)
		if st.peerEOF {
			st.leave()
		}
	}
}

// OnDrain implements edge.Exchange: the client takes bytes again.
func (st *stream) OnDrain(*edge.HTTPConn) {
	if st.state == streamAnswering && st.origin.call != nil {
		st.origin.call.Resume()
	}
}

// OnPeerEOF implements edge.Exchange. While the body is paused there may be more
// of it in front of the end; behind it the client has gone: nobody who wants an
// answer to this protocol shuts down half a connection.
func (st *stream) OnPeerEOF(*edge.HTTPConn) {
	switch st.state {
	case streamAwaiting, streamAnswering, streamSaving:
		st.leave()
	default:
		st.peerEOF = true
	}
}

// leave ends the connection of a client that has gone.
func (st *stream) leave() {
	st.c.Abort()
	st.gone()
}

// OnAbort implements edge.Exchange.
func (st *stream) OnAbort(_ *edge.HTTPConn, why edge.Abort) (answered bool) {
	if why.Final() {
		st.gone()
		return false
	}
	st.in.cut = true
	message := ""
	switch why {
	case edge.BodyMalformed:
		// The edge answers 400; the body is lost like one of a client that left.
		st.gone()
		return false
	case edge.BodyStalled:
		message = messageStall
	}
	switch st.state {
	case streamOpening:
		if message == "" {
			message = messageShort
		}
		st.reject(refusal{reason: frame.InvalidFrame, message: message})
	case streamUploading, streamDraining:
		st.breakOff(refusal{message: message})
	case streamEnded:
		if st.first.reason != frame.NoReason {
			st.refuseInStep()
		} else {
			st.trailing()
		}
	case streamOver:
		return false
	default:
		panic("BUG: mte: a body fails in a state that reads none")
	}
	return true
}

// gone ends the stream of a client that has left. Gone in the middle of either
// body the pair cannot be in step; gone between them it is.
func (st *stream) gone() {
	st.dropOrigin()
	switch st.state {
	case streamOver, streamLeft:
	case streamTaking, streamSaving:
		st.setState(streamLeft)
	case streamOpening:
		st.setState(streamOver)
	case streamUploading, streamHolding, streamDraining, streamAnswering:
		st.retire()
		st.setState(streamOver)
	case streamEnded, streamAwaiting:
		st.giveBack(sendNothing)
	default:
		panic("BUG: mte: no such stream state")
	}
}

// reject ends a request before or at the decode of its REQUEST: the pair is as it
// was.
func (st *stream) reject(no refusal) {
	st.first = no
	st.giveBack(sendRefusal)
}

// fail is the first refusal behind the REQUEST. What of the body is still to come
// is drained before it is told.
func (st *stream) fail(no refusal) {
	if st.first.reason != frame.NoReason {
		return
	}
	st.first = no
	st.answer.forget(st)
	st.dropOrigin()
	switch st.state {
	case streamUploading, streamHolding:
		st.startDrain()
	case streamDraining:
		st.in.drained = 0 // what an early answer's drain took has no such bound
		st.boundDrain()
	case streamEnded:
		st.boundDrain()
	case streamAwaiting:
		st.refuseInStep()
	default:
		panic("BUG: mte: a refusal in a state that has none")
	}
}

// startDrain begins to drop what comes of the body.
func (st *stream) startDrain() {
	st.setState(streamDraining)
	st.boundDrain()
}

// boundDrain bounds the time in which the rest of the body must come.
func (st *stream) boundDrain() {
	st.s.l.StartTimer(&st.timer, st.s.l.Now()+int64(drainTime), st)
	st.c.ResumeBody()
}

// OnTimer implements loop.TimerHandler: the drain took too long, or the origin
// that has answered was held up, or did not take a byte, for earlyTime.
func (st *stream) OnTimer(int64) {
	switch st.state {
	case streamHolding:
		st.setState(streamUploading)
		if !st.origin.backed {
			st.c.ResumeBody()
		} else {
			st.expectDrain()
		}
	case streamUploading:
		if st.origin.tookBytes() {
			st.expectDrain()
		} else {
			st.giveUpOrigin()
		}
	case streamDraining:
		st.drainExceeded()
	case streamEnded:
		switch {
		case st.first.reason != frame.NoReason:
			st.c.CloseAfter()
			st.refuseInStep()
		case st.origin.backed && st.origin.call != nil:
			if st.origin.tookBytes() {
				st.expectDrain()
				return
			}
			st.origin.call.GiveUp() // then OnDrain lets the rest of the HTTP body come
			st.boundDrain()
		default:
			st.drainExceeded()
		}
	}
}

// drainExceeded gives the drain up. An early answer is delivered all the same,
// and the pair retired either way.
func (st *stream) drainExceeded() {
	st.c.CloseAfter()
	if st.first.reason == frame.NoReason && st.answer.early() {
		switch {
		case st.answer.whole:
			st.dropOrigin()
		case st.origin.call != nil:
			st.origin.call.GiveUp() // its request is not completed any more
		}
		st.doomed = true
		st.c.PauseBody()
		st.deliver()
		return
	}
	st.breakOff(refusal{})
}

// refuseInStep tells the first refusal; the pair goes on.
func (st *stream) refuseInStep() { st.giveBack(sendRefusal) }

// breakOff ends a request whose body cannot be carried on, and retires the pair.
// The first refusal is the cause; why is what broke, if there was none before.
func (st *stream) breakOff(why refusal) {
	if st.first.reason == frame.NoReason {
		st.first = why
	}
	no := refusal{reason: frame.EOFBeforeEnd, message: st.first.message}
	if st.first.reason != frame.NoReason {
		no.cause = frame.CauseOf(st.first.reason)
		if no.message == "" {
			no.message = messageOf(st.first.reason)
		}
	}
	st.dropOrigin()
	st.answer.forget(st)
	st.first = no
	st.doomed = true
	st.giveBack(sendRefusal)
}

// trailing refuses bytes behind END, or an HTTP body that does not end there. The
// pair is in step, the connection is not.
func (st *stream) trailing() {
	no := refusal{reason: frame.InvalidFrame, message: messageTrailing}
	if st.first.reason != frame.NoReason {
		no.cause = frame.CauseOf(st.first.reason)
	}
	st.dropOrigin()
	st.answer.forget(st)
	st.first = no
	st.c.CloseAfter()
	st.giveBack(sendRefusal)
}

// retire gives the pair up.
func (st *stream) retire() {
	if st.lease != nil {
		st.lease.Retire()
		st.lease = nil
		st.s.role.metrics.PairsRetired.Inc()
	}
}

// count counts application bytes.
func (st *stream) count(d metric.Direction, n int) {
	if n > 0 {
		st.s.role.metrics.Bytes(d, n)
	}
}
