package proxy

import (
	"encoding/binary"
	"net/netip"
)

const (
	signatureV2 = "\r\n\r\n\x00\r\nQUIT\n"
	headV2      = 16 // signature, version and command, family and protocol, length

	commandLocal = 0x20 // with the version in front
	commandProxy = 0x21

	addrInet  = 2*4 + 2*2
	addrInet6 = 2*16 + 2*2
	addrUnix  = 2 * 108
)

// addrBytes returns the size of the addresses of a family and protocol (§2.2).
func addrBytes(family byte) (size int, ok bool) {
	switch family {
	case 0x00: // UNSPEC
		return 0, true
	case 0x11, 0x12: // TCP and UDP over IPv4
		return addrInet, true
	case 0x21, 0x22: // over IPv6
		return addrInet6, true
	case 0x31, 0x32: // Unix stream and datagram
		return addrUnix, true
	}
	return 0, false
}

// parseV2 reads a binary header, b begins with its signature.
func parseV2(b []byte) (h Header, n int, err error) {
	command := byte(commandProxy)
	if len(b) > len(signatureV2) {
		command = b[len(signatureV2)]
	}
	if command != commandLocal && command != commandProxy {
		return Header{}, 0, ErrBinary
	}
	if len(b) < headV2 {
		return Header{}, 0, nil
	}
	length := int(binary.BigEndian.Uint16(b[14:]))
	if command == commandLocal { // whatever its addresses say (§2.2)
		return Header{Rest: length}, headV2, nil
	}
	family := b[13]
	size, ok := addrBytes(family)
	if !ok || length < size {
		return Header{}, 0, ErrBinary
	}
	n = headV2 + size
	if len(b) < n {
		return Header{}, 0, nil
	}
	h.Rest = length - size
	a := b[headV2:n]
	switch family {
	case 0x11:
		h.Source = netip.AddrPortFrom(netip.AddrFrom4([4]byte(a)), binary.BigEndian.Uint16(a[8:]))
	case 0x21:
		h.Source = netip.AddrPortFrom(netip.AddrFrom16([16]byte(a)).Unmap(), binary.BigEndian.Uint16(a[32:]))
	}
	return h, n, nil
}
