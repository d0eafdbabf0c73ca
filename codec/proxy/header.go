// Package proxy reads the PROXY protocol's header, versions 1 and 2: what a
// proxy in front says about the connection that it forwards (HAProxy,
// proxy-protocol.txt, revision 2020/03/05). Names are the document's.
//
// Nothing here allocates, and what is parsed refers to no input.
package proxy

import (
	"bytes"
	"errors"
	"net/netip"
)

// MaxHeader is the most bytes of input that Parse asks for: a header without the
// TLVs behind its addresses.
const MaxHeader = max(maxV1, headV2+addrUnix)

// A Header is one PROXY header.
type Header struct {
	// Source is the client's address. It is not valid when the proxy speaks for
	// itself (LOCAL) or names no address of TCP (UNKNOWN, UNSPEC, datagrams, Unix
	// sockets): then the peer of the socket counts.
	Source netip.AddrPort

	// Rest is how many bytes follow what Parse used that still belong to the
	// header and mean nothing to us: TLVs, at most 65,535.
	Rest int
}

var (
	// ErrNone: the bytes are no PROXY header of either version.
	ErrNone = errors.New("no PROXY header")
	// ErrLine: a header of version 1 that breaks its rules.
	ErrLine = errors.New("malformed PROXY line (version 1)")
	// ErrBinary: a header of version 2 that breaks its rules.
	ErrBinary = errors.New("malformed PROXY header (version 2)")
)

// A Sign says whether bytes begin like a PROXY header.
type Sign uint8

const (
	No    Sign = iota // they do not, whatever follows
	Maybe             // they are too few to tell
	Yes
)

// Begins looks at the first bytes of a connection.
func Begins(b []byte) Sign {
	s := begins(b, signatureV1)
	if s == No {
		s = begins(b, signatureV2)
	}
	return s
}

func begins(b []byte, signature string) Sign {
	n := min(len(b), len(signature))
	switch {
	case string(b[:n]) != signature[:n]:
		return No
	case n < len(signature):
		return Maybe
	}
	return Yes
}

// Parse reads the header at the beginning of b. n is how many bytes it used; 0
// without an error means that more are needed, which is never so with MaxHeader
// bytes. h.Rest bytes behind them are still the header's.
func Parse(b []byte) (h Header, n int, err error) {
	switch {
	case begins(b, signatureV1) == Yes:
		return parseV1(b)
	case begins(b, signatureV2) == Yes:
		return parseV2(b)
	case Begins(b) == Maybe:
		return Header{}, 0, nil
	}
	return Header{}, 0, ErrNone
}

const (
	signatureV1 = "PROXY "
	// maxV1 is the longest line with its CRLF (§2.1): nothing longer is read.
	maxV1 = 107
)

// parseV1 reads a line, b begins with its signature.
//
//	PROXY TCP4 192.0.2.1 198.51.100.1 56324 443\r\n
func parseV1(b []byte) (h Header, n int, err error) {
	line := b[:min(len(b), maxV1)]
	end := bytes.IndexByte(line, '\n')
	switch {
	case end < 0 && len(line) < maxV1:
		return Header{}, 0, nil
	case end < 0, line[end-1] != '\r':
		return Header{}, 0, ErrLine
	}
	n = end + 1
	rest := line[len(signatureV1) : end-1]
	family, rest, more := cut(rest)
	if string(family) == "UNKNOWN" { // the rest of the line must be ignored
		return Header{}, n, nil
	}
	is6 := string(family) == "TCP6"
	if !more || !is6 && string(family) != "TCP4" {
		return Header{}, 0, ErrLine
	}
	src, rest, _ := cut(rest)
	dst, rest, _ := cut(rest)
	srcPort, rest, more := cut(rest)
	source, ok := parseAddr(src, is6)
	_, ok2 := parseAddr(dst, is6)
	port, ok3 := parsePort(srcPort)
	_, ok4 := parsePort(rest)
	if !more || !ok || !ok2 || !ok3 || !ok4 {
		return Header{}, 0, ErrLine
	}
	h.Source = netip.AddrPortFrom(source, port)
	return h, n, nil
}

// cut splits b at its first blank. The fields are parted by exactly one.
func cut(b []byte) (field, rest []byte, found bool) {
	i := bytes.IndexByte(b, ' ')
	if i < 0 {
		return b, nil, false
	}
	return b[:i], b[i+1:], true
}

// maxAddrText is the longest text of an address.
const maxAddrText = len("ffff:ffff:ffff:ffff:ffff:ffff:255.255.255.255")

func parseAddr(b []byte, is6 bool) (netip.Addr, bool) {
	if len(b) == 0 || len(b) > maxAddrText || bytes.IndexByte(b, '%') >= 0 {
		return netip.Addr{}, false
	}
	if !is6 {
		return parseIPv4(b)
	}
	return parseIPv6(b)
}

// parsePort reads a decimal port without leading zeros.
func parsePort(b []byte) (port uint16, ok bool) {
	if len(b) == 0 || len(b) > 5 || b[0] == '0' && len(b) > 1 {
		return 0, false
	}
	v := 0
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, false
		}
		v = 10*v + int(c-'0')
	}
	return uint16(v), v <= 0xffff
}

// parseIPv4 reads a dotted quad without leading zeros.
func parseIPv4(b []byte) (netip.Addr, bool) {
	var a [4]byte
	for i := range a {
		part := b
		if i < 3 {
			dot := bytes.IndexByte(b, '.')
			if dot < 0 {
				return netip.Addr{}, false
			}
			part, b = b[:dot], b[dot+1:]
		}
		v, ok := parsePort(part) // the same digits, and smaller
		if !ok || v > 0xff {
			return netip.Addr{}, false
		}
		a[i] = byte(v)
	}
	return netip.AddrFrom4(a), true
}

// parseIPv6 reads RFC 4291 §2.2 text, without a zone.
func parseIPv6(b []byte) (netip.Addr, bool) {
	var a [16]byte
	n, gap := 0, -1 // bytes set; where :: stood
	if len(b) >= 2 && b[0] == ':' && b[1] == ':' {
		gap, b = 0, b[2:]
	}
	for len(b) > 0 {
		if n == len(a) {
			return netip.Addr{}, false
		}
		end := bytes.IndexByte(b, ':')
		if end < 0 {
			end = len(b)
		}
		if bytes.IndexByte(b[:end], '.') >= 0 { // an IPv4 address at the end
			v4, ok := parseIPv4(b[:end])
			if !ok || end != len(b) || n > len(a)-4 {
				return netip.Addr{}, false
			}
			q := v4.As4()
			n += copy(a[n:], q[:])
			break
		}
		v, ok := parseHex(b[:end])
		if !ok {
			return netip.Addr{}, false
		}
		a[n], a[n+1] = byte(v>>8), byte(v)
		n += 2
		if end == len(b) {
			break
		}
		b = b[end+1:]
		if len(b) == 0 {
			return netip.Addr{}, false // ends in one colon
		}
		if b[0] == ':' {
			if gap >= 0 {
				return netip.Addr{}, false
			}
			gap, b = n, b[1:]
		}
	}
	switch {
	case gap < 0 && n < len(a), gap >= 0 && n == len(a):
		return netip.Addr{}, false
	case gap >= 0:
		tail := n - gap
		copy(a[len(a)-tail:], a[gap:n])
		clear(a[gap : len(a)-tail])
	}
	return netip.AddrFrom16(a).Unmap(), true
}

func parseHex(b []byte) (v uint16, ok bool) {
	if len(b) == 0 || len(b) > 4 {
		return 0, false
	}
	for _, c := range b {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c && c <= 'f':
			c -= 'a' - 10
		case 'A' <= c && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		v = v<<4 | uint16(c)
	}
	return v, true
}
