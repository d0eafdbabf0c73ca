package mte

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"time"

	"sluice/codec/frame"
	"sluice/codec/http1"
	"sluice/gateway/edge"
	"sluice/gateway/store"
	"sluice/kyber"
	"sluice/loop"
)

// pairRetry is how soon a pairing call tries again for a worker when no call of
// its own loop, whose end would tell, is with one.
const pairRetry = 5 * time.Millisecond

// A pairing is one call of POST /api/mte-pair. Its ML-KEM work is a kyber.Job: a
// step is one direction of one pair. While it waits or is worked at, the
// connection may go; nothing is stored then.
type pairing struct {
	controlCall
	req   frame.PairRequest
	id    frame.ClientID
	begun int64 // when the body was complete

	// Written by the workers, each step its own part.
	answers []frame.PairAnswer
	pairs   []store.NewPair
	out     []byte // the answer's body

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
			s.refuse(c, to, refusal{reason: frame.RateLimited, wait: wait})
			return
		}
	}
	x := &pairing{controlCall: controlCall{s: s, c: c, d: d, to: *to}}
	x.controlCall.serve = x.serve
	x.begin()
}

func (x *pairing) serve() {
	r := x.s.role
	x.begun = x.s.l.Now()
	if err := x.check(); err != nil {
		x.presented(x.req.Token)
		x.refuse(refusal{reason: frame.InvalidRequest, message: err.Error()})
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
	x.s.waiting = append(x.s.waiting, x)
	x.s.submit()
}

// makeRoom allocates what the workers fill, in one piece each.
func (x *pairing) makeRoom() {
	r, n := x.s.role, len(x.req.Pairs)
	x.answers = make([]frame.PairAnswer, n)
	x.pairs = make([]store.NewPair, n)
	secret, state := kyber.Strength(r.cfg.KyberStrength).CiphertextBytes(), r.profile.StateBytes()
	secrets, states := make([]byte, 2*n*secret), make([]byte, 2*n*state)
	for i := range n {
		a, p := &x.answers[i], &x.pairs[i]
		a.ID, p.ID = x.req.Pairs[i].ID, x.req.Pairs[i].ID
		a.DecoderSecret, a.EncoderSecret = piece(secrets, 2*i, secret), piece(secrets, 2*i+1, secret)
		p.Decoder, p.Encoder = piece(states, 2*i, state), piece(states, 2*i+1, state)
	}
}

// piece is part i of b, of size bytes each.
func piece(b []byte, i, size int) []byte { return b[i*size : (i+1)*size : (i+1)*size] }

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
	for i := range pairs {
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

// submit hands the waiting calls to the workers as far as those take them: their
// queue is bounded, and the rest waits here, where each call holds a connection.
func (s *shard) submit() {
	for len(s.waiting) > 0 {
		x := s.waiting[0]
		if x.stage == callLeft {
			x.done()
		} else if !s.role.kem.Submit(x, 2*len(x.pairs)) {
			if !s.retry.Active() {
				s.l.StartTimer(&s.retry, s.l.Now()+int64(pairRetry), (*retryTimer)(s))
			}
			return
		}
		s.waiting[0] = nil
		s.waiting = s.waiting[1:]
	}
	s.waiting = nil
}

type retryTimer shard

func (t *retryTimer) OnTimer(int64) { (*shard)(t).submit() }

// Step makes one direction: from the client's encoder key our decoder, from its
// decoder key our encoder. It runs on a worker.
func (x *pairing) Step(e *kyber.Engine, step int) {
	i := step / 2
	offer, answer, pair := &x.req.Pairs[i], &x.answers[i], &x.pairs[i]
	if step%2 == 0 {
		answer.DecoderNonce = newNonce()
		x.direction(e, offer.EncoderKey, offer.EncoderPerson, answer.DecoderSecret, answer.DecoderNonce, pair.Decoder)
	} else {
		answer.EncoderNonce = newNonce()
		x.direction(e, offer.DecoderKey, offer.DecoderPerson, answer.EncoderSecret, answer.EncoderNonce, pair.Encoder)
	}
}

// direction encapsulates to ek and derives the state of one direction.
func (x *pairing) direction(e *kyber.Engine, ek, person, secret []byte, nonce uint64, state []byte) {
	var shared [kyber.SharedKeyBytes]byte
	if err := e.Encapsulate(kyber.Strength(x.s.role.cfg.KyberStrength), secret, shared[:], ek); err != nil {
		panic("BUG: mte: a key that passed its check was refused")
	}
	x.s.role.profile.AppendInitialState(state[:0], &shared, nonce, person)
	clear(shared[:])
}

// newNonce draws a nonce with its top bit clear.
func newNonce() uint64 {
	var b [8]byte
	rand.Read(b[:])
	return binary.BigEndian.Uint64(b[:]) >> 1
}

// Done writes the answer, still on a worker, and goes back to the loop.
func (x *pairing) Done() {
	x.out = frame.AppendPairAnswers(make([]byte, 0, frame.PairAnswersBytes(x.answers)), x.answers)
	x.s.l.Post((*encapsulated)(x))
}

// encapsulated is a pairing whose keys are done.
type encapsulated pairing

// Deliver stores the pairs.
func (m *encapsulated) Deliver(*loop.Loop) {
	x := (*pairing)(m)
	defer x.s.submit()
	if x.stage == callLeft {
		x.forget()
		x.done()
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
