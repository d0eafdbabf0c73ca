package store

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"

	"sluice/codec/frame"
)

const (
	keysPrefix = "sluice:pairs:"
	sealLabel  = "sluice pair states 1"
	tagBytes   = 16 // of a client's key
	// versionBytes stand in front of a sealed state, in the clear.
	versionBytes = 8
	// firstVersionBits are those of a pair's first version, drawn so that two
	// pairs that bore one id, one after the other, have no version in common.
	firstVersionBits = 52
)

// A vault is what a domain's secret makes of its clients: the names of their keys
// in Redis, and the keys under which their states lie there. Who reads Redis
// learns neither a client's id nor a state. It is constant and may be used from
// anywhere.
type vault struct {
	domain string
	name   []byte // makes names
	master []byte // makes keys
}

func newVault(domain, secret string) *vault {
	derive := func(what string) []byte {
		k, err := hkdf.Key(sha256.New, []byte(secret), []byte(sealLabel), what+"\x00"+domain, sha256.Size)
		if err != nil {
			panic(fmt.Sprintf("BUG: HKDF: %v", err)) // lengths are constants
		}
		return k
	}
	return &vault{domain: domain, name: derive("name"), master: derive("seal")}
}

// key is the one key of a client in Redis. What is in braces decides its slot in
// a cluster.
func (v *vault) key(id frame.ClientID) string {
	h := hmac.New(sha256.New, v.name)
	h.Write(id[:])
	return keysPrefix + "{" + base64.RawURLEncoding.EncodeToString(h.Sum(nil)[:tagBytes]) + "}"
}

// aead is the cipher of one pair. A key of its own keeps the number of random
// nonces under one key far from where two might be the same.
func (v *vault) aead(c frame.ClientID, p frame.PairID) cipher.AEAD {
	info := append(append([]byte(nil), c[:]...), p[:]...)
	key, err := hkdf.Expand(sha256.New, v.master, string(info), 32)
	if err != nil {
		panic(fmt.Sprintf("BUG: HKDF: %v", err))
	}
	block, err := aes.NewCipher(key)
	clear(key)
	if err != nil {
		panic(fmt.Sprintf("BUG: AES: %v", err))
	}
	gcm, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		panic(fmt.Sprintf("BUG: GCM: %v", err))
	}
	return gcm
}

// bound is the data that a sealed state is bound to.
func (v *vault) bound(c frame.ClientID, p frame.PairID, version []byte) []byte {
	b := make([]byte, 0, len(v.domain)+1+2*frame.IDBytes+versionBytes)
	b = append(append(b, v.domain...), 0)
	return append(append(append(b, c[:]...), p[:]...), version...)
}

// seal makes version and sealed states of the two states of a pair, which it
// wipes.
func (v *vault) seal(c frame.ClientID, p frame.PairID, version uint64, encoder, decoder []byte) string {
	text := make([]byte, 0, 2+len(encoder)+len(decoder))
	text = binary.BigEndian.AppendUint16(text, uint16(len(encoder)))
	text = append(append(text, encoder...), decoder...)
	clear(encoder)
	clear(decoder)
	const overhead = 12 + 16 // nonce and tag
	b := binary.BigEndian.AppendUint64(make([]byte, 0, versionBytes+len(text)+overhead), version)
	b = v.aead(c, p).Seal(b, nil, text, v.bound(c, p, b[:versionBytes]))
	clear(text)
	return string(b)
}

// open is the reverse. The states are parts of one array, to be wiped by the
// caller. False: this is not what seal made for this pair.
func (v *vault) open(c frame.ClientID, p frame.PairID, sealed string) (version uint64, encoder, decoder []byte, ok bool) {
	if len(sealed) < versionBytes {
		return 0, nil, nil, false
	}
	b := []byte(sealed)
	text, err := v.aead(c, p).Open(nil, nil, b[versionBytes:], v.bound(c, p, b[:versionBytes]))
	if err != nil || len(text) < 2 {
		return 0, nil, nil, false
	}
	n := int(binary.BigEndian.Uint16(text))
	if text = text[2:]; n > len(text) {
		return 0, nil, nil, false
	}
	return binary.BigEndian.Uint64(b), text[:n:n], text[n:], true
}

// versionText is a version as it stands in front of a sealed state.
func versionText(version uint64) string {
	return string(binary.BigEndian.AppendUint64(nil, version))
}

func firstVersion() uint64 {
	var b [8]byte
	rand.Read(b[:])
	return binary.BigEndian.Uint64(b[:]) >> (64 - firstVersionBits)
}

// newToken draws the name of one lock, lease or call.
func newToken() string {
	var b [16]byte
	rand.Read(b[:])
	return string(b[:])
}

// hexID is a pair's field in the hash of its client.
func hexID(p frame.PairID) string { return string(p.AppendHex(make([]byte, 0, 2*frame.IDBytes))) }
