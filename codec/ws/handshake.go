package ws

import (
	"crypto/sha1"
	"encoding/base64"
)

// keyLen is the length of a Sec-WebSocket-Key: base64 of 16 bytes with its padding.
const keyLen = 24

// acceptGUID is appended to a client's key before it is hashed (RFC 6455 §1.3).
const acceptGUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"

// ValidKey reports whether key, trimmed of white space, is the padded base64 of 16 bytes, as a
// client's Sec-WebSocket-Key must be (RFC 6455 §4.2.1). The four bits of the last character that
// no byte uses may be anything: decoders are free to ignore them (RFC 4648 §3.5), and the key is
// only ever hashed as text.
func ValidKey(key []byte) bool {
	if len(key) != keyLen || key[keyLen-2] != '=' || key[keyLen-1] != '=' {
		return false
	}
	for _, c := range key[:keyLen-2] {
		switch {
		case 'A' <= c && c <= 'Z', 'a' <= c && c <= 'z', '0' <= c && c <= '9', c == '+', c == '/':
		default:
			return false
		}
	}
	return true
}

// AppendAccept appends to dst the Sec-WebSocket-Accept that answers key, which must have passed
// ValidKey (RFC 6455 §4.2.2).
func AppendAccept(dst, key []byte) []byte {
	if len(key) != keyLen {
		panic("BUG: ws.AppendAccept with an unchecked key")
	}
	var b [keyLen + len(acceptGUID)]byte
	copy(b[:], key)
	copy(b[keyLen:], acceptGUID)
	sum := sha1.Sum(b[:])
	return base64.StdEncoding.AppendEncode(dst, sum[:])
}
