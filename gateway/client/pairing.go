package client

import (
	"crypto/rand"
	"encoding/base64"

	"sluice/codec/frame"
	"sluice/kyber"
)

// A Pairing is one batch of pairs on its way to exist: keys are made, the relay is asked, its secrets
// are opened. The two halves of arithmetic are jobs for a kyber.Pool, of Steps steps each:
//
//	p := session.NewPairing(n)
//	… Step for each of Steps, on workers     (phase 1: keys)
//	… send Call, hand its 200 answer to Answered
//	… Step for each of Steps, on workers     (phase 2: secrets)
//	pairs := p.Pairs()
//
// It belongs to one goroutine, except that steps of a phase may run at once. A pairing that is given
// up must be wiped.
type Pairing struct {
	// OnDone is called when a pool has done all steps of a phase.
	OnDone func(*Pairing)

	relay   *Relay
	token   frame.Token
	header  []Header
	answers []frame.PairAnswer // nil in phase 1
	body    []byte             // what answers point into
	pairs   []pairKeys
}

// pairKeys is one pair in the making. Index 0 is the client's encoder, 1 its decoder.
type pairKeys struct {
	offer frame.PairOffer
	dks   [2]*kyber.DecapsulationKey
	state [2][]byte // what phase 2 makes: the initial state of each direction
	bad   [2]bool
}

const randomnessBytes = 18 // 24 characters, more than a personalization needs

// NewPairing begins a batch of n pairs, 1 to the relay's maxPairsPerBatch.
func (s *Session) NewPairing(n int) *Pairing {
	p := &Pairing{relay: s.relay, token: s.token, header: s.headers("application/json"), pairs: make([]pairKeys, n)}
	for i := range p.pairs {
		p.pairs[i].offer = frame.PairOffer{
			ID:            frame.NewPairID(),
			EncoderPerson: personalization(s.host),
			DecoderPerson: personalization(s.host),
			Profile:       []byte(s.relay.Profile.String()),
			FrameVersion:  frame.Version,
		}
	}
	return p
}

// controlBytes is how large the body of a control call may be for certain, MAX_CONTROL_BODY_MIB by
// default; a relay does not advertise its own bound.
const controlBytes = 4 << 20

// MaxBatch is the most pairs that one call can make: the relay's maxPairsPerBatch, or what a control
// body holds. The session must have authenticated.
func (s *Session) MaxBatch() int {
	key := make([]byte, s.relay.strength.EncapsulationKeyBytes())
	person := personalization(s.host)
	offer := frame.PairOffer{EncoderKey: key, DecoderKey: key, EncoderPerson: person, DecoderPerson: person, Profile: []byte(s.relay.Profile.String())}
	size := func(offers ...frame.PairOffer) int {
		return len(frame.AppendPairRequest(nil, &s.token, int(s.relay.strength), offers))
	}
	one, two := size(offer), size(offer, offer)
	return min(s.relay.MaxPairsPerBatch, 1+(controlBytes-one)/(two-one))
}

func personalization(host string) []byte {
	var random [randomnessBytes]byte
	rand.Read(random[:])
	p := base64.RawURLEncoding.AppendEncode([]byte(frame.PersonPrefix(frame.HTTP)), random[:])
	if host != "" && len(p)+1+len(host) <= frame.MaxPersonBytes {
		p = append(append(p, '/'), host...)
	}
	return p
}

// Steps is the number of steps of each phase.
func (p *Pairing) Steps() int { return 2 * len(p.pairs) }

// Step does step i of the phase.
func (p *Pairing) Step(e *kyber.Engine, i int) {
	k, side := &p.pairs[i/2], i%2
	if p.answers == nil {
		ek := make([]byte, p.relay.strength.EncapsulationKeyBytes())
		k.dks[side] = e.GenerateKey(p.relay.strength, ek)
		if side == 0 {
			k.offer.EncoderKey = ek
		} else {
			k.offer.DecoderKey = ek
		}
		return
	}
	// The relay's decoder is our encoder's opposite.
	a := &p.answers[i/2]
	secret, nonce, person := a.DecoderSecret, a.DecoderNonce, k.offer.EncoderPerson
	if side == 1 {
		secret, nonce, person = a.EncoderSecret, a.EncoderNonce, k.offer.DecoderPerson
	}
	var entropy [kyber.SharedKeyBytes]byte
	if k.dks[side].Decapsulate(entropy[:], secret) != nil {
		k.bad[side] = true
		return
	}
	k.state[side] = p.relay.Profile.AppendInitialState(nil, &entropy, nonce, person)
	clear(entropy[:])
	k.dks[side].Wipe()
}

// Done makes a Pairing a kyber.Job.
func (p *Pairing) Done() { p.OnDone(p) }

// Call is the request to the relay, after phase 1.
func (p *Pairing) Call() Call {
	offers := make([]frame.PairOffer, len(p.pairs))
	for i := range p.pairs {
		offers[i] = p.pairs[i].offer
	}
	body := frame.AppendPairRequest(nil, &p.token, int(p.relay.strength), offers)
	return Call{Method: "POST", Target: frame.PairPath, Header: p.header, Body: body}
}

// Answered takes the 200 answer of Call and begins phase 2. The pairing keeps body. The error is
// frame.ErrAnswer.
func (p *Pairing) Answered(body []byte) error {
	answers, err := frame.ParsePairAnswers(body)
	if err != nil {
		return err
	}
	if len(answers) != len(p.pairs) {
		return frame.ErrAnswer
	}
	for i := range answers {
		if answers[i].ID != p.pairs[i].offer.ID {
			return frame.ErrAnswer
		}
	}
	p.answers, p.body = answers, body
	return nil
}

// Pairs are the pairs, after phase 2. The error is frame.ErrAnswer: the relay sent a secret that is
// none.
func (p *Pairing) Pairs() ([]*Pair, error) {
	defer p.Wipe()
	pairs := make([]*Pair, len(p.pairs))
	for i := range p.pairs {
		k := &p.pairs[i]
		if k.bad[0] || k.bad[1] {
			return nil, frame.ErrAnswer
		}
		pairs[i] = newPair(k.offer.ID, p.relay, p.token, k.state[0], k.state[1])
	}
	return pairs, nil
}

// Wipe zeroes what is secret.
func (p *Pairing) Wipe() {
	for i := range p.pairs {
		k := &p.pairs[i]
		for side := range k.dks {
			if k.dks[side] != nil {
				k.dks[side].Wipe()
			}
			clear(k.state[side])
		}
	}
}
