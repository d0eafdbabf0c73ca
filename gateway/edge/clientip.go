package edge

import (
	"net/netip"
	"strings"

	"sluice/codec/http1"
)

// A TrustedProxies is the list of addresses whose word about the client's
// address is believed (TRUSTED_PROXIES; contract, mte-relay §8). The zero value
// trusts nobody. It does not change and may be used from anywhere.
type TrustedProxies struct{ prefixes []netip.Prefix }

// NewTrustedProxies trusts the addresses in these prefixes, which must be as
// config.Edge has them: IPv4-mapped ones as IPv4, and no list that covers a
// whole family. The list is kept.
func NewTrustedProxies(prefixes []netip.Prefix) TrustedProxies {
	return TrustedProxies{prefixes}
}

// Contains reports whether a is in the list. IPv4-mapped addresses count as
// IPv4, zones do not count.
func (t TrustedProxies) Contains(a netip.Addr) bool {
	a = a.Unmap().WithZone("")
	for _, p := range t.prefixes {
		if p.Contains(a) {
			return true
		}
	}
	return false
}

// Client returns the address that a request counts for. Of a peer outside the
// list that is the peer itself; of a peer in the list it is found by walking
// X-Forwarded-For from its right end: listed addresses are skipped, the first
// other one is it. When the walk runs out, or meets something that is no
// address, an empty element included, it is the last trusted address read.
//
// lines are the values of all X-Forwarded-For lines in order; they are one
// list. An entry may carry a port, an IPv6 address brackets.
func (t TrustedProxies) Client(peer netip.Addr, lines ...[]byte) netip.Addr {
	last := peer.Unmap().WithZone("")
	if !t.Contains(last) {
		return last
	}
	for i := len(lines) - 1; i >= 0; i-- {
		for rest, more := string(lines[i]), true; more; {
			var entry string
			if comma := strings.LastIndexByte(rest, ','); comma >= 0 {
				rest, entry = rest[:comma], rest[comma+1:]
			} else {
				rest, entry, more = "", rest, false
			}
			a, ok := parseForwarded(strings.Trim(entry, " \t"))
			if !ok {
				return last
			}
			last = a
			if !t.Contains(a) {
				return a
			}
		}
	}
	return last
}

// ClientOf is Client for a request's head.
func (t TrustedProxies) ClientOf(peer netip.Addr, h *http1.Head) netip.Addr {
	if !t.Contains(peer) {
		return t.Client(peer)
	}
	var lines [][]byte
	for i := range h.Fields {
		if h.Fields[i].ID == http1.FieldXForwardedFor {
			lines = append(lines, h.Fields[i].Value)
		}
	}
	return t.Client(peer, lines...)
}

// parseForwarded reads one entry: an address, an address with a port, or an
// IPv6 address in brackets with or without a port.
func parseForwarded(s string) (netip.Addr, bool) {
	if inner, ok := strings.CutPrefix(s, "["); ok {
		host, port, ok := strings.Cut(inner, "]")
		if !ok || port != "" && (port[0] != ':' || !validPort(port[1:])) {
			return netip.Addr{}, false
		}
		a, err := netip.ParseAddr(host)
		if err != nil || !a.Is6() {
			return netip.Addr{}, false
		}
		return a.Unmap().WithZone(""), true
	}
	if host, port, ok := strings.Cut(s, ":"); ok && !strings.Contains(port, ":") {
		if !validPort(port) {
			return netip.Addr{}, false
		}
		s = host // one colon: IPv4 with a port
	}
	a, err := netip.ParseAddr(s)
	if err != nil {
		return netip.Addr{}, false
	}
	return a.Unmap().WithZone(""), true
}

func validPort(s string) bool {
	n := 0
	for _, c := range []byte(s) {
		if c < '0' || c > '9' {
			return false
		}
		if n = n*10 + int(c-'0'); n > 65535 {
			return false
		}
	}
	return s != ""
}
