package relay

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"unicode/utf8"
)

// maxIDBytes bounds a serverId and a connectionId after percent decoding. Refused with
// refuseLongServerID and refuseLongConnectionID.
const maxIDBytes = 256

// query is what the address of an upgrade says about the socket (contract, relay §1).
type query struct {
	ServerID     string // 1 to 256 bytes of UTF-8
	ConnectionID string // at most 256 bytes of UTF-8, trimmed; "" if absent or blank, and always in v1
	Server       bool   // role=server, else role=client
	V2           bool
}

// parseQuery reads the part of a request target behind its '?'. Of a repeated parameter the last
// counts. The checks run in the contract's order and refusal is the body of the 400 for the first
// that fails; it is empty if all pass. Nothing of raw is kept.
//
// Values are trimmed of Unicode white space where the contract says trimmed, as the relay we stand
// in for does it: the byte order mark that JavaScript trims too is not white space here.
func parseQuery(raw []byte) (q query, refusal string) {
	var role, serverID, version, connectionID []byte
	var name [16]byte // longer than any name we know
	for len(raw) > 0 {
		var pair []byte
		pair, raw, _ = bytes.Cut(raw, []byte{'&'})
		key, value, _ := bytes.Cut(pair, []byte{'='})
		switch string(appendUnescaped(name[:0], key)) {
		case "role":
			role = value
		case "serverId":
			serverID = value
		case "v":
			version = value
		case "connectionId":
			connectionID = value
		}
	}

	var space [2 * maxIDBytes]byte // a value that needs more moves to the heap
	switch string(appendUnescaped(space[:0], role)) {
	case "server":
		q.Server = true
	case "client":
	default:
		return query{}, refuseRole
	}

	id := appendUnescaped(space[:0], serverID)
	switch {
	case len(id) == 0:
		return query{}, refuseNoServerID
	case len(id) > maxIDBytes:
		return query{}, refuseLongServerID
	case !utf8.Valid(id):
		return query{}, refuseServerIDText
	}
	// The string is made when all checks have passed, so that id needs bytes of its own.
	var other [2 * maxIDBytes]byte
	switch string(bytes.TrimSpace(appendUnescaped(other[:0], version))) {
	case "", "1":
	case "2":
		q.V2 = true
	default:
		return query{}, refuseVersion
	}

	if q.V2 {
		connection := bytes.TrimSpace(appendUnescaped(other[:0], connectionID))
		switch {
		case len(connection) > maxIDBytes:
			return query{}, refuseLongConnectionID
		case !utf8.Valid(connection):
			return query{}, refuseConnectionIDText
		}
		q.ConnectionID = string(connection)
	}
	q.ServerID = string(id)
	return q, ""
}

// appendUnescaped appends s to dst with its percent escapes resolved and '+' as a blank. A '%' that
// two hexadecimal digits do not follow stays as it is.
func appendUnescaped(dst, s []byte) []byte {
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case c == '+':
			c = ' '
		case c == '%' && i+2 < len(s):
			hi, lo := hexDigit(s[i+1]), hexDigit(s[i+2])
			if hi|lo < 16 {
				c = hi<<4 | lo
				i += 2
			}
		}
		dst = append(dst, c)
	}
	return dst
}

// hexDigit returns the value of a hexadecimal digit, or 255.
func hexDigit(c byte) byte {
	switch {
	case '0' <= c && c <= '9':
		return c - '0'
	case 'a' <= c && c <= 'f':
		return c - 'a' + 10
	case 'A' <= c && c <= 'F':
		return c - 'A' + 10
	}
	return 255
}

// newConnectionID names a v2 client that brought no connectionId: "conn_" and 16 random hexadecimal
// digits in lower case. Callable from anywhere.
func newConnectionID() string {
	var random [8]byte
	rand.Read(random[:]) // never fails: it ends the process instead
	return "conn_" + hex.EncodeToString(random[:])
}
