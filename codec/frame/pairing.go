package frame

import (
	"errors"
	"fmt"
	"strconv"
)

// A PairOffer is a client's half of one pair. The client's encoder is the relay's decoder.
type PairOffer struct {
	ID            PairID
	EncoderKey    []byte // an encapsulation key, decoded, its length not judged yet
	EncoderPerson []byte
	DecoderKey    []byte
	DecoderPerson []byte
	Profile       []byte
	FrameVersion  int // 0 if it is missing or no integer
}

// A PairRequest is the body of PairPath. It is filled by Parse and used again; what it holds points
// into the body or its own scratch.
type PairRequest struct {
	Token []byte // the text as it was sent
	Pairs []PairOffer

	r reader
}

// Parse reads a body, whose keys it decodes where they stand, and judges all that can be judged without
// knowing keys: members and their types, 1 to maxPairs pairs, ids, the strength and the personalization
// of HTTP. The error is a ControlFault, and then p holds the token if one was read (for the route
// header), and nothing else of use.
func (p *PairRequest) Parse(body []byte, maxPairs, strength int) error {
	p.Token, p.Pairs = nil, p.Pairs[:0]
	r := &p.r
	r.reset(body)
	var fault error
	pairs, over := false, false
	base, ok := r.object()
	for ok {
		var key []byte
		var more bool
		if key, more, ok = r.next(base); !ok || !more {
			break
		}
		switch string(key) {
		case "clientId":
			if p.Token, ok = r.member(); !ok && r.fault == BadMember {
				return ControlFault("clientId must be a string")
			}
		case "pairs":
			pairs = true
			if r.peek() != '[' {
				return ControlFault("pairs must be an array")
			}
			ok = r.each(func() bool {
				if len(p.Pairs) == maxPairs { // a hostile body holds a million
					over = true
					return false
				}
				p.Pairs = append(p.Pairs, PairOffer{})
				err := p.Pairs[len(p.Pairs)-1].parse(r, strength)
				if err != nil && fault == nil && r.fault == 0 {
					fault = ControlFault(fmt.Sprintf("pairs[%d]: %v", len(p.Pairs)-1, err))
				}
				return r.fault == 0
			})
		default:
			_, ok = r.skip()
		}
	}
	switch {
	case over:
		return ControlFault(fmt.Sprintf("more pairs than maxPairsPerBatch, %d (MAX_PAIRS_PER_BATCH)", maxPairs))
	case !ok || !r.end():
		return jsonFault(r)
	case p.Token == nil:
		return ControlFault("clientId is missing")
	case !pairs:
		return ControlFault("pairs is missing")
	case len(p.Pairs) == 0:
		return ControlFault("pairs is empty")
	}
	return fault
}

// Reset forgets the body, so that its memory is not kept alive.
func (p *PairRequest) Reset() {
	p.Token = nil
	clear(p.Pairs)
	p.Pairs = p.Pairs[:0]
	clear(p.r.keys[:cap(p.r.keys)])
	p.r.reset(nil)
}

// parse reads one element of pairs to its end, whatever is wrong with it, unless it is no JSON. The
// error is the first rule it breaks.
func (o *PairOffer) parse(r *reader, strength int) (fault error) {
	const (
		id = 1 << iota
		encoderKey
		encoderPerson
		decoderKey
		decoderPerson
		profile
		kyber
	)
	names := [...]string{"pairId", "encoderPublicKey", "encoderPersonalizationStr", "decoderPublicKey",
		"decoderPersonalizationStr", "mteProfile", "kyberStrength"}
	note := func(err error) {
		if fault == nil {
			fault = err
		}
	}
	if r.peek() != '{' {
		r.skip()
		return errors.New("not an object")
	}
	found := 0
	base, ok := r.object()
	for ok {
		var key []byte
		var more bool
		if key, more, ok = r.next(base); !ok || !more {
			break
		}
		str := func(bit int, f func(s []byte) error) {
			found |= bit
			if r.peek() != '"' {
				note(fmt.Errorf("%s must be a string", key))
				_, ok = r.skip()
				return
			}
			var s []byte
			if s, ok = r.str(); ok {
				if err := f(s); err != nil {
					note(fmt.Errorf("%s: %w", key, err))
				}
			}
		}
		switch string(key) {
		case "pairId":
			str(id, func(s []byte) error {
				var valid bool
				if o.ID, valid = ParsePairID(s); !valid {
					return errors.New("not an id of 16 bytes in base64url, or all zero")
				}
				return nil
			})
		case "encoderPublicKey":
			str(encoderKey, func(s []byte) (err error) { o.EncoderKey, err = decodeBase64(s); return err })
		case "decoderPublicKey":
			str(decoderKey, func(s []byte) (err error) { o.DecoderKey, err = decodeBase64(s); return err })
		case "encoderPersonalizationStr":
			str(encoderPerson, func(s []byte) error { o.EncoderPerson = s; return CheckPerson(HTTP, s) })
		case "decoderPersonalizationStr":
			str(decoderPerson, func(s []byte) error { o.DecoderPerson = s; return CheckPerson(HTTP, s) })
		case "mteProfile":
			str(profile, func(s []byte) error { o.Profile = s; return nil })
		case "kyberStrength":
			found |= kyber
			if n, valid := r.integer(&ok); !valid || n != strength {
				note(fmt.Errorf("kyberStrength must be %d", strength))
			}
		case "frameVersion":
			o.FrameVersion, _ = r.integer(&ok)
		default:
			_, ok = r.skip()
		}
	}
	for i, name := range names {
		if found>>i&1 == 0 {
			note(errors.New(name + " is missing"))
		}
	}
	return fault
}

// AppendPairRequest appends the body of PairPath.
func AppendPairRequest(dst []byte, t *Token, strength int, pairs []PairOffer) []byte {
	dst = append(t.AppendText(append(dst, `{"clientId":"`...)), `","pairs":[`...)
	for i := range pairs {
		p := &pairs[i]
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(p.ID.AppendText(append(dst, `{"pairId":"`...)), '"')
		dst = append(appendBase64(append(dst, `,"encoderPublicKey":"`...), p.EncoderKey), '"')
		dst = appendString(append(dst, `,"encoderPersonalizationStr":`...), p.EncoderPerson)
		dst = append(appendBase64(append(dst, `,"decoderPublicKey":"`...), p.DecoderKey), '"')
		dst = appendString(append(dst, `,"decoderPersonalizationStr":`...), p.DecoderPerson)
		dst = appendString(append(dst, `,"mteProfile":`...), p.Profile)
		dst = strconv.AppendInt(append(dst, `,"kyberStrength":`...), int64(strength), 10)
		dst = append(dst, `,"frameVersion":2}`...)
	}
	return append(dst, ']', '}')
}

// A PairAnswer is the relay's half of one pair. Its encoder is the client's decoder. Secrets are
// ciphertexts of the key exchange; nonces have their top bit clear.
type PairAnswer struct {
	ID            PairID
	EncoderNonce  uint64
	EncoderSecret []byte
	DecoderNonce  uint64
	DecoderSecret []byte
}

// pairAnswerOverhead is what an answer takes at most besides its secrets: names, id, two nonces.
const pairAnswerOverhead = 160

// PairAnswersBytes returns room enough for AppendPairAnswers.
func PairAnswersBytes(pairs []PairAnswer) int {
	n := 2
	for i := range pairs {
		n += pairAnswerOverhead + b64.EncodedLen(len(pairs[i].EncoderSecret)) + b64.EncodedLen(len(pairs[i].DecoderSecret))
	}
	return n
}

// AppendPairAnswers appends the answer of PairPath.
func AppendPairAnswers(dst []byte, pairs []PairAnswer) []byte {
	dst = append(dst, '[')
	for i := range pairs {
		p := &pairs[i]
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(p.ID.AppendText(append(dst, `{"pairId":"`...)), '"')
		dst = append(strconv.AppendUint(append(dst, `,"encoderNonce":"`...), p.EncoderNonce, 10), '"')
		dst = append(appendBase64(append(dst, `,"encoderSecret":"`...), p.EncoderSecret), '"')
		dst = append(strconv.AppendUint(append(dst, `,"decoderNonce":"`...), p.DecoderNonce, 10), '"')
		dst = append(appendBase64(append(dst, `,"decoderSecret":"`...), p.DecoderSecret), '"', '}')
	}
	return append(dst, ']')
}

// ParsePairAnswers reads the answer of PairPath, in which the secrets are decoded where they stand. The
// error is ErrAnswer.
func ParsePairAnswers(body []byte) ([]PairAnswer, error) {
	var r reader
	var pairs []PairAnswer
	r.reset(body)
	ok := r.each(func() bool {
		pairs = append(pairs, PairAnswer{})
		return pairs[len(pairs)-1].parse(&r)
	})
	if !ok || !r.end() {
		return nil, ErrAnswer
	}
	return pairs, nil
}

func (p *PairAnswer) parse(r *reader) bool {
	if r.peek() != '{' {
		return false
	}
	found := 0
	base, ok := r.object()
	for ok {
		var key, s []byte
		var more bool
		var err error
		if key, more, ok = r.next(base); !ok || !more {
			break
		}
		switch string(key) {
		case "pairId", "encoderNonce", "encoderSecret", "decoderNonce", "decoderSecret":
			found++
			if s, ok = r.member(); !ok {
				return false
			}
		default:
			_, ok = r.skip()
		}
		switch string(key) {
		case "pairId":
			p.ID, ok = ParsePairID(s)
		case "encoderNonce":
			p.EncoderNonce, ok = parseNonce(s)
		case "decoderNonce":
			p.DecoderNonce, ok = parseNonce(s)
		case "encoderSecret":
			p.EncoderSecret, err = decodeBase64(s)
			ok = err == nil
		case "decoderSecret":
			p.DecoderSecret, err = decodeBase64(s)
			ok = err == nil
		}
	}
	return ok && found == 5
}

// parseNonce reads a decimal text without leading zeros whose value has its top bit clear.
func parseNonce(s []byte) (uint64, bool) {
	v, ok := parseUint(s)
	return v, ok && v>>63 == 0 && (len(s) == 1 || s[0] != '0')
}
