package mte

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"sluice/codec/frame"
	"sluice/codec/http1"
	"sluice/gateway/edge"
	"sluice/gateway/store"
	"sluice/kyber"
	"sluice/loop"
)

const (
	// stepPairs is how many pairs a worker does at a time, so that four
	// encapsulations go together: some 200 µs, then a loop may have its processor.
	stepPairs = 2
	// keptPairings is how many pairings a loop keeps for later, of at most keptBatch
	// pairs: the room for their parts is used again.
	keptPairings = 4
	keptBatch    = 128
)

// A pairing is one call of POST /api/mte-pair. Its ML-KEM work is a kyber.Job.
// While it waits or is worked at, the connection may go; nothing is stored then.
type pairing struct {
	controlCall
	req   frame.PairRequest
	fault error // of the body
	id    frame.ClientID

	// Written by the workers, each step its own part.
	answers []frame.PairAnswer // their secrets take the place of the keys they are made for
	shared  [][kyber.SharedKeyBytes]byte
	pairs   []store.NewPair
	out     []byte // the answer's body, in a buffer of the shard's

	reason frame.Reason // what the store answered
}

// pair makes pairs for a client. The order of the refusals is the contract's
// (mte-relay §4).
func (s *shard) pair(c *edge.HTTPConn, req *http1.Request, d *domain, to *addressee) {
	r := s.role
	if r.draining.Load() {
		s.refuse(c, to, refusal{reason: frame.StateStoreUnavailable, message: messageDraining})
		return
	}
	if r.rates != nil {
		if wait, ok := r.rates.pair.Allow(r.source(c, req), s.l.Now()); !ok {
			s.rateLimited(c, d, frame.PairPath)
			s.refuseUnread(c, to, refusal{reason: frame.RateLimited, wait: wait})
			return
		}
	}
	x := s.newPairing()
	x.controlCall = controlCall{s: s, c: c, d: d, to: *to, end: x}
	x.begin()
}

func (s *shard) newPairing() *pairing {
	if k := len(s.freePairings) - 1; k >= 0 {
		x := s.freePairings[k]
		s.freePairings[k] = nil
		s.freePairings = s.freePairings[:k]
		return x
	}
	return new(pairing)
}

// release keeps the room for the next pairing.
func (x *pairing) release() {
	s := x.s
	s.bufs.Put(x.out)
	x.req.Reset()
	clear(x.answers)
	clear(x.shared)
	if len(s.freePairings) < keptPairings && cap(x.req.Pairs) <= keptBatch {
		*x = pairing{req: x.req, answers: x.answers[:0], shared: x.shared[:0]}
		s.freePairings = append(s.freePairings, x)
	}
}

func (x *pairing) serve() {
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
	x.id = id
	if r.rates != nil && !x.rate(r.rates.pairClient, id, frame.PairPath) {
		return
	}
	if no := x.judge(); no.reason != frame.NoReason {
		x.refuse(no)
		return
	}
	x.makeRoom()
	x.s.offload(task{call: &x.controlCall, job: x, steps: (len(x.pairs) + stepPairs - 1) / stepPairs})
}

// makeRoom prepares what the workers fill. The states become the store's and are
// new each time, in one piece.
func (x *pairing) makeRoom() {
	r, n := x.s.role, len(x.req.Pairs)
	x.answers = slices.Grow(x.answers[:0], n)[:n]
	x.shared = slices.Grow(x.shared[:0], 2*n)[:2*n]
	x.pairs = make([]store.NewPair, n)
	secret, state := kyber.Strength(r.cfg.KyberStrength).CiphertextBytes(), r.profile.StateBytes()
	states := make([]byte, 2*n*state)
	for i := range n {
		o, a, p := &x.req.Pairs[i], &x.answers[i], &x.pairs[i]
		a.ID, p.ID = o.ID, o.ID
		a.DecoderSecret, a.EncoderSecret = piece(o.EncoderKey, 0, secret), piece(o.DecoderKey, 0, secret)
		p.Decoder, p.Encoder = piece(states, 2*i, state), piece(states, 2*i+1, state)
	}
	x.out = x.s.bufs.Get(frame.PairAnswersBytes(x.answers))
}

// piece is part i of b, of size bytes each.
func piece(b []byte, i, size int) []byte { return b[i*size : (i+1)*size : (i+1)*size] }

// parse implements endpoint.
func (x *pairing) parse() { x.fault = x.check() }

// check makes the checks that are 490 invalid_request.
func (x *pairing) check() error {
	cfg := &x.s.role.cfg
	if err := x.req.Parse(x.body, cfg.MaxPairsPerBatch, cfg.KyberStrength); err != nil {
		return err
	}
	strength := kyber.Strength(cfg.KyberStrength)
	for i := range x.req.Pairs {
		p := &x.req.Pairs[i]
		if kyber.CheckKey(strength, p.EncoderKey) != nil {
			return fmt.Errorf("pairs[%d]: encoderPublicKey: not an encapsulation key of ML-KEM-%d", i, strength)
		}
		if kyber.CheckKey(strength, p.DecoderKey) != nil {
			return fmt.Errorf("pairs[%d]: decoderPublicKey: not an encapsulation key of ML-KEM-%d", i, strength)
		}
	}
	return nil
}

// judge makes the checks that come behind the client's bucket and need no store.
func (x *pairing) judge() (no refusal) {
	pairs := x.req.Pairs
	for i := range pairs {
		if pairs[i].FrameVersion != frame.Version {
			return refusal{reason: frame.FrameVersionUnsupported, message: fmt.Sprintf("pairs[%d]: frameVersion must be %d", i, frame.Version)}
		}
	}
	ours := x.s.role.profile.String()
	for i := range pairs {
		if string(pairs[i].Profile) == ours {
			continue // as most are, and no copy is made to see it
		}
		agree, sameProbe := x.s.role.profile.Match(string(pairs[i].Profile))
		if !agree {
			return refusal{reason: frame.ProfileMismatch}
		}
		if !sameProbe {
			if log := x.s.line(logProbe, x.c, x.d); log != nil {
				log.Info("a client's codec has another probe", "client", x.id.String())
			}
		}
	}
	seen := make(map[frame.PairID]bool, len(pairs))
	for i := range pairs {
		if seen[pairs[i].ID] {
			return refusal{reason: frame.PairExists}
		}
		seen[pairs[i].ID] = true
	}
	return refusal{}
}

// Step makes stepPairs pairs: from the client's encoder key our decoder, from its
// decoder key our encoder. It runs on a worker.
func (x *pairing) Step(e *kyber.Engine, step int) {
	var room [2 * stepPairs]kyber.Encapsulation
	work := room[:0]
	from, to := step*stepPairs, min((step+1)*stepPairs, len(x.pairs))
	for i := from; i < to; i++ {
		o, a := &x.req.Pairs[i], &x.answers[i]
		work = append(work,
			kyber.Encapsulation{EK: o.EncoderKey, C: a.DecoderSecret, Key: x.shared[2*i][:]},
			kyber.Encapsulation{EK: o.DecoderKey, C: a.EncoderSecret, Key: x.shared[2*i+1][:]})
	}
	if e.Encapsulate(kyber.Strength(x.s.role.cfg.KyberStrength), work...) != nil {
		panic("BUG: mte: a key that passed its check was refused")
	}
	profile := x.s.role.profile
	for i := from; i < to; i++ {
		o, a, p := &x.req.Pairs[i], &x.answers[i], &x.pairs[i]
		a.DecoderNonce, a.EncoderNonce = newNonce(), newNonce()
		profile.AppendInitialState(p.Decoder[:0], &x.shared[2*i], a.DecoderNonce, o.EncoderPerson)
		profile.AppendInitialState(p.Encoder[:0], &x.shared[2*i+1], a.EncoderNonce, o.DecoderPerson)
		clear(x.shared[2*i : 2*i+2])
	}
}

// newNonce draws a nonce with its top bit clear.
func newNonce() uint64 {
	var b [8]byte
	rand.Read(b[:])
	return binary.BigEndian.Uint64(b[:]) >> 1
}

// Done writes the answer, still on a worker, and goes back to the loop.
func (x *pairing) Done() {
	x.out = frame.AppendPairAnswers(x.out, x.answers)
	x.s.l.Post((*encapsulated)(x))
}

// encapsulated is a pairing whose keys are done.
type encapsulated pairing

// Deliver stores the pairs.
func (m *encapsulated) Deliver(*loop.Loop) {
	x := (*pairing)(m)
	if x.stage == callLeft {
		x.forget()
	}
	if !x.s.landed(&x.controlCall) {
		return
	}
	client := store.Client{Domain: x.d.host, ID: x.id}
	reason, known := x.s.role.pairs.Add(client, x.pairs, x.s.l.Now(), func(reason frame.Reason) {
		x.reason = reason
		x.s.l.Post(x)
	})
	if known { // else x is the store's until it answers
		x.reason = reason
		x.Deliver(x.s.l)
	}
}

// forget wipes states that were not stored.
func (x *pairing) forget() {
	for i := range x.pairs {
		clear(x.pairs[i].Encoder)
		clear(x.pairs[i].Decoder)
	}
}

// Deliver answers, once the store has the pairs or has refused them.
func (x *pairing) Deliver(l *loop.Loop) {
	x.s.role.metrics.PairingSeconds.Update(time.Duration(l.Now() - x.begun).Seconds())
	if x.reason != frame.NoReason {
		x.forget()
		x.refuse(refusal{reason: x.reason})
		return
	}
	x.reply(x.out)
}
