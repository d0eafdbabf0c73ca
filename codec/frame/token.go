package frame

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/binary"
)

// A token is clientId (16) · uint64 issued-at in unix seconds · MAC (16): the first half of
// HMAC-SHA256(domain secret, tokenDomain || the first 24 bytes) (contract, mte-relay §3).
const (
	TokenBytes     = IDBytes + 8 + tokenMACBytes
	TokenTextBytes = 54 // base64url without padding

	tokenDomain    = "mte-relay/token/2"
	tokenHeadBytes = IDBytes + 8
	tokenMACBytes  = 16

	// MaxTokenAheadSeconds is how far a token's time may lie before us: clocks differ.
	MaxTokenAheadSeconds = 60
)

// A Token is a client's identity at one domain, raw as frames carry it. Nothing in it is to be
// believed before a TokenKey has verified it.
type Token [TokenBytes]byte

// Client is the id in the token.
func (t *Token) Client() ClientID { return ClientID(t[:IDBytes]) }

// IssuedAt is the time in the token, in unix seconds.
func (t *Token) IssuedAt() uint64 { return binary.BigEndian.Uint64(t[IDBytes:]) }

// AppendText appends the form of JSON bodies and queries.
func (t *Token) AppendText(dst []byte) []byte { return b64u.AppendEncode(dst, t[:]) }

// ParseToken reads the text of a token. False for padding and any other text that AppendText would
// not write.
func ParseToken(text []byte) (t Token, ok bool) {
	ok = decodeURL(t[:], text)
	return t, ok
}

// A TokenKey issues and verifies the tokens of one domain. It is constant and may be used from
// anywhere; its operations allocate nothing.
type TokenKey struct {
	inner, outer [sha256.BlockSize]byte // the key, padded and masked (RFC 2104 §2)
}

// NewTokenKey makes the key of a domain's client_id_secret, which is not kept.
func NewTokenKey(secret []byte) *TokenKey {
	k := new(TokenKey)
	if len(secret) > len(k.inner) {
		sum := sha256.Sum256(secret)
		copy(k.inner[:], sum[:])
	} else {
		copy(k.inner[:], secret)
	}
	for i, b := range k.inner {
		k.inner[i], k.outer[i] = b^0x36, b^0x5c
	}
	return k
}

// Issue makes a token for a client at a time in unix seconds.
func (k *TokenKey) Issue(id ClientID, now int64) (t Token) {
	copy(t[:], id[:])
	binary.BigEndian.PutUint64(t[IDBytes:], uint64(now))
	mac := k.mac(&t)
	copy(t[tokenHeadBytes:], mac[:])
	return t
}

// Verify checks the MAC and nothing else: the rule of the data path. A forged token, a damaged one
// and one of another domain take the same path: one MAC, compared in constant time.
func (k *TokenKey) Verify(t *Token) bool {
	mac := k.mac(t)
	return subtle.ConstantTimeCompare(mac[:], t[tokenHeadBytes:]) == 1
}

// VerifyAge checks the MAC, and that the token is neither older than maxAge seconds nor from more
// than MaxTokenAheadSeconds ahead: the rule of the control endpoints.
func (k *TokenKey) VerifyAge(t *Token, now, maxAge int64) bool {
	ok := k.Verify(t)
	at := t.IssuedAt()
	if at > uint64(now)+MaxTokenAheadSeconds {
		return false
	}
	return ok && now-int64(at) <= maxAge
}

func (k *TokenKey) mac(t *Token) [tokenMACBytes]byte {
	const head = sha256.BlockSize + len(tokenDomain)
	var msg [head + tokenHeadBytes]byte
	copy(msg[:], k.inner[:])
	copy(msg[sha256.BlockSize:], tokenDomain)
	copy(msg[head:], t[:])
	sum := sha256.Sum256(msg[:])
	var outer [sha256.BlockSize + sha256.Size]byte
	copy(outer[:], k.outer[:])
	copy(outer[sha256.BlockSize:], sum[:])
	sum = sha256.Sum256(outer[:])
	return [tokenMACBytes]byte(sum[:])
}
