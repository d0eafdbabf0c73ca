package mte

import (
	"sluice/codec/frame"
	"sluice/loop"
)

// Drain begins or ends a drain: no new pairs, while requests run on. That every
// answer carries Connection: close is the edge.Server's part.
func (r *Role) Drain(on bool) { r.draining.Store(on) }

// Active is how many requests are under way, of any kind.
func (r *Role) Active() (n int64) {
	for _, s := range r.shards {
		if s != nil {
			n += s.active.Load() + s.origins.passing.Load()
		}
	}
	return n
}

// CloseRest ends what is left of the requests: those that have no answer yet are
// refused, an answer under way ends in an ERROR frame, or cut short where it is a
// plain one, and their connections close behind that.
func (r *Role) CloseRest() {
	for _, s := range r.shards {
		if s != nil {
			s.l.Post((*closeRest)(s))
		}
	}
}

type closeRest shard

// Deliver ends the streams of one loop.
func (m *closeRest) Deliver(*loop.Loop) {
	s := (*shard)(m)
	if st := s.assembly.owner; st != nil {
		st.flush() // it may end that stream, so not in the middle of the list
	}
	for st := s.streams; st != nil; {
		next := st.next
		st.shutDown()
		st = next
	}
	for x := s.outbounds; x != nil; {
		next := x.next
		x.shutDown()
		x = next
	}
	for x := s.origins.proxied; x != nil; {
		next := x.next
		x.shutDown()
		x = next
	}
}

// shutDown ends a stream because the process does.
func (st *stream) shutDown() {
	no := refusal{reason: frame.UpstreamResponseFailed, message: messageShutdown}
	st.c.CloseAfter()
	switch st.state {
	case streamOpening:
		st.reject(refusal{reason: frame.StateStoreUnavailable, message: messageShutdown})
	case streamUploading, streamHolding, streamDraining:
		st.breakOff(no)
	case streamEnded:
		if st.first.reason == frame.NoReason {
			st.first = no
		}
		st.dropOrigin()
		st.refuseInStep()
	case streamAwaiting:
		st.fail(no)
	case streamAnswering:
		st.abortWith(no)
	case streamTaking:
		// The pair that the store may still give goes back as it is.
		st.first = refusal{reason: frame.StateStoreUnavailable, message: messageShutdown}
	case streamSaving, streamLeft:
		// The store answers within its own bound.
	default:
		panic("BUG: mte: no such stream state")
	}
}
