package client

import (
	"fmt"
	"time"

	"sluice/codec/frame"
	"sluice/codec/open"
)

// A Pair is a client's end of a pair. It carries one request at a time and belongs to the goroutine
// that has it; nothing in it is locked.
type Pair struct {
	ID frame.PairID
	// LastUsed is when its last request ended, for whoever releases idle pairs.
	LastUsed time.Time

	relay *Relay
	token frame.Token // of its client

	// Keyed for the type that was used last; the other type takes the state over.
	enc open.Encoder
	dec open.Decoder

	// undecoded counts operations that the relay may never have decoded, since the last it did. Its
	// window bears so many; a pair over that is of no more use.
	undecoded int
}

// newPair takes the states over: they are zeroed.
func newPair(id frame.PairID, relay *Relay, token frame.Token, encoder, decoder []byte) *Pair {
	p := &Pair{ID: id, relay: relay, token: token}
	p.enc, p.dec = relay.Profile.NewEncoder(open.MKE), relay.Profile.NewDecoder(open.MKE)
	mustRestore(p.enc.Restore(encoder))
	mustRestore(p.dec.Restore(decoder))
	clear(encoder)
	clear(decoder)
	return p
}

func mustRestore(err error) {
	if err != nil {
		panic(fmt.Sprintf("BUG: a pair's own state: %v", err))
	}
}

// use keys the pair for a type.
func (p *Pair) use(t open.Type) {
	if p.enc.Type() == t {
		return
	}
	state := p.enc.AppendState(nil)
	enc := p.relay.Profile.NewEncoder(t)
	mustRestore(enc.Restore(state))
	state = p.dec.AppendState(state[:0])
	dec := p.relay.Profile.NewDecoder(t)
	mustRestore(dec.Restore(state))
	clear(state)
	p.Wipe()
	p.enc, p.dec = enc, dec
}

// Renew has the pair go by what its relay says of itself since, its bounds above all, as long as that
// is still the codec the pair has its keys for. Call it between requests.
func (p *Pair) Renew(r *Relay) {
	if r != p.relay && r.Profile.String() == p.relay.Profile.String() && r.SequenceWindow == p.relay.SequenceWindow {
		p.relay = r
	}
}

// Wipe zeroes the pair's keys; it is of no more use.
func (p *Pair) Wipe() {
	p.enc.Wipe()
	p.dec.Wipe()
}

// worn tells whether the relay's window may not bear another operation.
func (p *Pair) worn() bool {
	span := p.relay.SequenceWindow
	return p.undecoded > max(span, -span)
}
