package frame

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
)

// IDBytes is the length of pair ids and client ids.
const IDBytes = 16

// Base64 in its two forms; strict: bits that encode nothing must be zero, so that a value has one
// text. The decoder drops line breaks, which the callers here rule out.
var (
	b64  = base64.StdEncoding.Strict()
	b64u = base64.RawURLEncoding.Strict()
)

// A PairID names a pair among its client's. All zero is none.
type PairID [IDBytes]byte

// A ClientID names a client of a domain.
type ClientID [IDBytes]byte

// NewPairID draws an id.
func NewPairID() (id PairID) {
	for id == (PairID{}) {
		rand.Read(id[:])
	}
	return id
}

// NewClientID draws an id.
func NewClientID() (id ClientID) {
	rand.Read(id[:])
	return id
}

// ParsePairID reads the text of JSON bodies: base64url without padding, not all zero.
func ParsePairID(text []byte) (id PairID, ok bool) {
	if !decodeURL(id[:], text) || id == (PairID{}) {
		return PairID{}, false
	}
	return id, true
}

// AppendText appends the text of JSON bodies.
func (id PairID) AppendText(dst []byte) []byte { return b64u.AppendEncode(dst, id[:]) }

// AppendHex appends the form of store keys: 32 lower-case hex digits, of which logs show 8.
func (id PairID) AppendHex(dst []byte) []byte { return hex.AppendEncode(dst, id[:]) }

// String is what logs show: the first 8 hex digits.
func (id PairID) String() string { return hex.EncodeToString(id[:4]) }

// RouteHeader is the name of the header that carries a client's id for load balancers. It is a
// routing key, never a credential (contract, mte-relay §3).
const RouteHeader = "X-MTE-Relay-Route"

// RouteBytes is the length of its value: a client id as lower-case hex.
const RouteBytes = 2 * IDBytes

// AppendRoute appends the route header's value for a client.
func (id ClientID) AppendRoute(dst []byte) []byte { return hex.AppendEncode(dst, id[:]) }

// String is what logs show: the first 8 hex digits.
func (id ClientID) String() string { return hex.EncodeToString(id[:4]) }

// ValidRoute tells whether a route header's value is well formed, and so may be echoed.
func ValidRoute[T ~string | ~[]byte](v T) bool {
	if len(v) != RouteBytes {
		return false
	}
	for i := range len(v) {
		if c := v[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// decodeURL decodes base64url without padding that must have exactly len(dst) bytes.
func decodeURL(dst, text []byte) bool {
	if len(text) != b64u.EncodedLen(len(dst)) {
		return false
	}
	// A line break in the text makes the value shorter than its length says, and so is refused.
	n, err := b64u.Decode(dst, text)
	return err == nil && n == len(dst)
}
