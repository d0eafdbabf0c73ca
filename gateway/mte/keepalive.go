package mte

import (
	"sluice/codec/frame"
	"sluice/gateway/edge"
	"sluice/gateway/store"
	"sluice/loop"
)

// A keptAlive is one call of POST /api/mte-keepalive.
type keptAlive struct {
	controlCall
	req   frame.Keepalive
	fault error // of the body

	// What the store answered, if not at once.
	touched int
	reason  frame.Reason
}

// keepalive refreshes a client's pairs and drops those it names. The order of the
// refusals is the contract's (mte-relay §4).
func (s *shard) keepalive(c *edge.HTTPConn, d *domain, to *addressee) {
	x := &keptAlive{controlCall: controlCall{s: s, c: c, d: d, to: *to}}
	x.end = x
	x.begin()
}

func (x *keptAlive) parse() { x.fault = x.req.Parse(x.body, x.s.role.cfg.MaxPairsPerClient) }

func (x *keptAlive) release() {}

func (x *keptAlive) serve() {
	r := x.s.role
	if x.fault != nil {
		x.presented(x.req.Token)
		x.refuse(refusal{reason: frame.InvalidRequest, message: x.fault.Error()})
		return
	}
	id, ok := x.verify(x.req.Token)
	if !ok {
		x.refuse(refusal{reason: frame.InvalidToken})
		return
	}
	if r.rates != nil && !x.rate(r.rates.keepalive, id, frame.KeepalivePath) {
		return
	}
	client := store.Client{Domain: x.d.host, ID: id}
	touched, reason, known := r.pairs.Keepalive(client, x.req.Drop, x.s.l.Now(), func(touched int, reason frame.Reason) {
		x.touched, x.reason = touched, reason
		x.s.l.Post(x)
	})
	if known { // else x is the store's until it answers
		x.touched, x.reason = touched, reason
		x.Deliver(x.s.l)
	}
}

// Deliver answers.
func (x *keptAlive) Deliver(*loop.Loop) {
	if x.reason != frame.NoReason {
		x.refuse(refusal{reason: x.reason})
		return
	}
	x.s.scratch = frame.AppendTouched(x.s.scratch[:0], x.touched)
	x.reply(x.s.scratch)
}
