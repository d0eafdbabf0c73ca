package open

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
)

const (
	profileHead  = "mte/open-1;tok=8;drbg=hkdf-sha256;cipher=aes-256-gcm;hash=sha-256;verifiers=seq;kyber="
	probeMember  = "probe="
	probeBytes   = 8
	probePerson  = "mte-relay/2/probe"
	probeMessage = "mte-relay/2/probe"
	probeNonce   = 1
)

// profile is the open profile at one strength of key exchange, with one window.
type profile struct {
	text   string
	window int
}

// New is the open profile. strength (512, 768, 1024) is the key exchange's and only named here;
// window is the decoders' sequence window, MinWindow to MaxWindow.
func New(strength, window int) (Profile, error) {
	if strength != 512 && strength != 768 && strength != 1024 {
		return nil, fmt.Errorf("open codec: strength %d, legal are 512, 768 and 1024", strength)
	}
	if window < MinWindow || window > MaxWindow {
		return nil, fmt.Errorf("open codec: sequence window %d, legal are %d to %d", window, MinWindow, MaxWindow)
	}
	p := &profile{window: window}
	p.text = fmt.Sprintf("%s%d;%s%s", profileHead, strength, probeMember, p.probe())
	return p, nil
}

// probe is a fingerprint of this implementation: two operations of a known direction.
func (p *profile) probe() string {
	var entropy [32]byte
	for i := range entropy {
		entropy[i] = byte(i)
	}
	state := p.AppendInitialState(nil, &entropy, probeNonce, []byte(probePerson))
	e := p.NewEncoder(MKE)
	if err := e.Restore(state); err != nil {
		panic(fmt.Sprintf("BUG: the probe's state: %v", err))
	}
	var out []byte
	for range 2 {
		out, _ = e.AppendEncode(out, []byte(probeMessage)) // a new direction does not refuse
	}
	sum := sha256.Sum256(out)
	return hex.EncodeToString(sum[:probeBytes])
}

func (p *profile) String() string { return p.text }

func (p *profile) Match(peer string) (agree, sameProbe bool) {
	ours, ourProbe := cutProbe(p.text)
	theirs, theirProbe := cutProbe(peer)
	return ours == theirs, ourProbe == theirProbe
}

// cutProbe parts a profile string from its last member if that is the probe. It stands last in every
// string that an implementation of this profile writes; anywhere else it is part of the rest.
func cutProbe(s string) (rest, probe string) {
	if i := strings.LastIndexByte(s, ';'); i >= 0 && strings.HasPrefix(s[i+1:], probeMember) {
		return s[:i], s[i+1+len(probeMember):]
	}
	return s, ""
}

func (p *profile) EncodedBytes(t Type, n int) int {
	switch {
	case t == MKE && n >= 0:
		return n + mkeOverhead
	case t == MTE && n >= 1:
		return mteSeqBytes + tokenBytes*n
	}
	return -1
}

func (p *profile) PlaintextBytes(t Type, n int) int {
	switch {
	case t == MKE && n >= mkeOverhead:
		return n - mkeOverhead
	case t == MTE && n >= mteSeqBytes+tokenBytes:
		return (n - mteSeqBytes) / tokenBytes
	}
	return -1
}

func (p *profile) StateBytes() int { return stateBytes }

func (p *profile) AppendInitialState(dst []byte, entropy *[32]byte, nonce uint64, personalization []byte) []byte {
	return appendInitialState(dst, entropy, nonce, personalization)
}

func (p *profile) NewEncoder(t Type) Encoder {
	switch t {
	case MKE:
		return new(mkeEncoder)
	case MTE:
		return new(mteEncoder)
	}
	panic("BUG: an encoder of no type")
}

func (p *profile) NewDecoder(t Type) Decoder {
	w := window{size: p.window}
	switch t {
	case MKE:
		return &mkeDecoder{direction: direction{window: w}}
	case MTE:
		return &mteDecoder{direction: direction{window: w}}
	}
	panic("BUG: a decoder of no type")
}
