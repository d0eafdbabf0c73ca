package relay

import (
	"bytes"
	"encoding/base64"
)

// The hello check is the one look we take into payloads (contract, relay §4): what a client opens
// its encrypted channel with must carry a usable X25519 key, or the daemon would answer a key that
// everybody can compute with. Everything else stays opaque, broken JSON included.

// helloCandidate looks at the head of a client's payload. decided is false while it holds nothing but
// (a part of) a byte order mark and white space; candidate then says whether an object begins here.
// What is no candidate passes without another look. An undecided head may as well be given to a
// helloScanner, which settles the question by itself.
func helloCandidate(first []byte) (decided, candidate bool) {
	if len(first) < len(byteOrderMark) && bytes.HasPrefix(byteOrderMark, first) {
		return false, false
	}
	for _, c := range bytes.TrimPrefix(first, byteOrderMark) {
		if !isJSONSpace(c) {
			return true, c == '{'
		}
	}
	return false, false
}

// helloScanner reads one message's payload, block by block as it arrives, and says at its end whether
// it is a hello that must be refused. The zero value is ready; a scanner may be used again after Reset.
//
// It is the JSON of jsonscan.go seen with the eyes of the two texts we know: the hello and the ping
// that a control socket may send.
type helloScanner struct {
	json jsonScanner
	kind messageKind
	key  keyState
}

// messageKind is what the last top-level member `type` said so far.
type messageKind uint8

const (
	messageOther messageKind = iota // absent, not a string, or a text we have no use for
	messageHello                    // "hello" or "e2ee_hello"
	messagePing                     // "ping"
)

// keyState is what the last top-level member `key` was so far.
type keyState uint8

const (
	keyUnusable keyState = iota // absent, not a string, or refused by usableKey
	keyUsable
)

// Reset puts s back to the start of a payload. The bit stack is kept if it is small.
func (s *helloScanner) Reset() {
	s.json.reset()
	s.kind, s.key = messageOther, keyUnusable
}

// Write reads the next block of the payload, unmasked. It keeps nothing of block.
func (s *helloScanner) Write(block []byte) {
	for len(block) > 0 {
		n, member := s.json.scan(block)
		block = block[n:]
		// A member counts when its value begins, or for a string when it ends: the
		// last duplicate wins, and one that is no string wipes out what was before.
		switch member {
		case memberNone:
		case memberType:
			s.kind = kindOf(s.json.text())
		case memberKey:
			s.key = keyUnusable
			if usableKey(s.json.text()) {
				s.key = keyUsable
			}
		}
	}
}

// End is called after the last block. It reports whether the payload is a hello whose key is missing
// or unusable.
func (s *helloScanner) End() (reject bool) {
	return s.json.complete() && s.kind == messageHello && s.key == keyUnusable
}

// StackBytes returns the memory in bytes that the bit stack holds beyond the struct, which is
// charged like payload: one bit for every level of nesting below the 64th.
func (s *helloScanner) StackBytes() int { return s.json.stackBytes() }

// isControlPing reports whether the payload of a text frame on a control socket is a JSON object with
// "type":"ping" (contract, relay §2), read as the hello check reads.
func isControlPing(payload []byte) bool {
	var s helloScanner
	s.Write(payload)
	return s.json.complete() && s.kind == messagePing
}

// kindOf reads the value of `type`; text is nil if it is not a string or too long for any of ours.
func kindOf(text []byte) messageKind {
	switch string(text) {
	case "hello", "e2ee_hello":
		return messageHello
	case "ping":
		return messagePing
	default:
		return messageOther
	}
}

const (
	publicKeyBytes = 32
	keyTextBytes   = 44 // publicKeyBytes in padded base64
)

// lowOrder are the canonical X25519 public keys with which the shared secret is zero whatever the
// other side's key: the points of order 1, 2, 4 and 8 on the curve and its twist (RFC 7748 §6.1).
var lowOrder = [...][publicKeyBytes]byte{
	{0: 0},
	{0: 1},
	{
		0xe0, 0xeb, 0x7a, 0x7c, 0x3b, 0x41, 0xb8, 0xae, 0x16, 0x56, 0xe3, 0xfa, 0xf1, 0x9f, 0xc4, 0x6a,
		0xda, 0x09, 0x8d, 0xeb, 0x9c, 0x32, 0xb1, 0xfd, 0x86, 0x62, 0x05, 0x16, 0x5f, 0x49, 0xb8, 0x00,
	},
	{
		0x5f, 0x9c, 0x95, 0xbc, 0xa3, 0x50, 0x8c, 0x24, 0xb1, 0xd0, 0xb1, 0x55, 0x9c, 0x83, 0xef, 0x5b,
		0x04, 0x44, 0x5c, 0xc4, 0x58, 0x1c, 0x8e, 0x86, 0xd8, 0x22, 0x4e, 0xdd, 0xd0, 0x9f, 0x11, 0x57,
	},
	// 2^255 - 20
	{
		0xec, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
		0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f,
	},
}

// usableKey reports whether text is the canonical padded standard base64 of a canonical X25519 public
// key that is not of low order.
func usableKey(text []byte) bool {
	if len(text) != keyTextBytes {
		return false
	}
	var raw [publicKeyBytes + 1]byte // what 44 characters decode to at most
	n, err := base64.StdEncoding.Decode(raw[:], text)
	if err != nil || n != publicKeyBytes {
		return false
	}
	// Encoding again shows unused bits and the line ends that the decoder skips.
	var again [keyTextBytes]byte
	base64.StdEncoding.Encode(again[:], raw[:publicKeyBytes])
	return bytes.Equal(text, again[:]) && canonicalPoint((*[publicKeyBytes]byte)(raw[:])) && !isLowOrder(raw[:publicKeyBytes])
}

// canonicalPoint reports whether the little-endian number in key is below 2^255 - 19.
func canonicalPoint(key *[publicKeyBytes]byte) bool {
	if top := key[publicKeyBytes-1]; top != 0x7f {
		return top < 0x7f
	}
	for _, b := range key[1 : publicKeyBytes-1] {
		if b != 0xff {
			return true
		}
	}
	return key[0] < 0xed
}

func isLowOrder(key []byte) bool {
	for i := range lowOrder {
		if bytes.Equal(key, lowOrder[i][:]) {
			return true
		}
	}
	return false
}
