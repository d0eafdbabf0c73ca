package mte

import (
	"sluice/codec/frame"
	"sluice/gateway/store"
	"sluice/loop"
)

// lastAct is what a stream does once its pair is given back.
type lastAct uint8

const (
	sendNothing lastAct = iota // the client has gone
	sendRefusal                // stream.first
	sendAnswer                 // the last bytes of the answer, which hold END
)

// late is what a store answers later.
type late struct {
	act   lastAct
	final []byte // of sendAnswer: the bytes that wait, in a buffer of the shard's

	// Written by the store's goroutine before it posts.
	lease  store.Lease
	reason frame.Reason
}

// giveBack saves and unlocks the pair, or retires it, and only then sends what is
// last: the client may use the pair again as soon as it sees that, and a failed
// save can still be told (contract, mte-relay §6).
func (st *stream) giveBack(act lastAct) {
	if st.doomed {
		st.retire()
	}
	if st.lease == nil {
		st.finish(act, frame.NoReason)
		return
	}
	r, known := st.lease.Release(st.s.l.Now(), st.in.decoded, st)
	st.lease = nil
	if known {
		st.finish(act, r)
		return
	}
	st.late.act = act
	st.c.PauseBody()
	if act == sendAnswer {
		st.late.final = st.s.bufs.Grow(nil, st.s.assembly.b)
		st.s.assembly.drop()
	}
	if act == sendNothing {
		st.setState(streamLeft)
	} else {
		st.setState(streamSaving)
	}
}

// finish sends what is last and ends the stream. r is what the store said.
func (st *stream) finish(act lastAct, r frame.Reason) {
	if r != frame.NoReason {
		act = st.unsaved(act, r)
	}
	// With more of the body to come the answer stays open, see dropper.
	c, more := st.c, st.c.BodyLength() != 0 && !st.in.cut
	if more && act != sendNothing {
		c.CloseAfter()
	}
	switch act {
	case sendNothing:
		more = false
	case sendRefusal:
		if more {
			st.s.refuseOpen(c, &st.to, st.first)
		} else {
			st.s.refuse(c, &st.to, st.first)
		}
	case sendAnswer:
		st.sendLast(more)
	}
	st.setState(streamOver)
	if more {
		st.s.dropBody(c)
	}
}

// unsaved makes a refusal of what was to be last, since the store did not take
// the pair's state: the pair is gone. Behind RESPONSE it is an ERROR frame.
func (st *stream) unsaved(act lastAct, r frame.Reason) lastAct {
	st.s.role.metrics.PairsRetired.Inc()
	if log := st.s.line(logSave, st.c, st.d); log != nil {
		log.Warn("the state of a pair was not saved", "code", r.Code(), "reason", r.String(), "pair", st.pair.String())
	}
	if st.s.assembly.owner == st {
		st.s.assembly.drop()
	}
	st.s.bufs.Put(st.late.final)
	st.late.final = nil
	switch {
	case act == sendNothing:
	case st.answer.started:
		st.appendError(st.own(), refusal{reason: r})
		act = sendAnswer
	default:
		st.first = refusal{reason: r}
		act = sendRefusal
	}
	return act
}

// OnTaken and OnReleased implement store.Waiter, on any goroutine.
func (st *stream) OnTaken(l store.Lease, r frame.Reason) {
	st.late.lease, st.late.reason = l, r
	st.s.l.Post((*lateTaken)(st))
}

func (st *stream) OnReleased(r frame.Reason) {
	st.late.reason = r
	st.s.l.Post((*lateReleased)(st))
}

type (
	lateTaken    stream
	lateReleased stream
)

// Deliver goes on with a REQUEST whose pair was asked for.
func (m *lateTaken) Deliver(*loop.Loop) {
	st := (*stream)(m)
	l, r := st.late.lease, st.late.reason
	st.late.lease = nil
	switch st.state {
	case streamLeft:
		if l == nil {
			st.setState(streamOver)
			return
		}
		st.lease = l
		st.giveBack(sendNothing)
	case streamTaking:
		st.setState(streamOpening)
		if r == frame.NoReason && st.first.reason != frame.NoReason {
			// The process ends meanwhile: the origin is not asked any more.
			st.lease = l
			st.refuseInStep()
			return
		}
		st.resumeTaken(l, r)
	default:
		panic("BUG: mte: a pair that was not asked for")
	}
}

// Deliver ends a stream whose pair was saved, or was not.
func (m *lateReleased) Deliver(*loop.Loop) {
	st := (*stream)(m)
	switch st.state {
	case streamLeft:
		st.setState(streamOver)
	case streamSaving:
		st.finish(st.late.act, st.late.reason)
	default:
		panic("BUG: mte: a pair that was not given back")
	}
}
