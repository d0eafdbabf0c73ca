package config

import (
	"errors"
	"net/netip"
	"strings"
)

const legalProxies = "IP addresses and CIDRs without host bits, separated by commas, that do not cover every address"

var errProxies = errors.New("no list of proxies")

// parseProxies reads TRUSTED_PROXIES (contract, mte-relay §8) and names the entry it refuses.
//
// A list that covers all of IPv4 or IPv6 in pieces is refused like one /0: it would let every
// peer choose its own address.
func parseProxies(s string) (list []netip.Prefix, bad string, err error) {
	for entry := range strings.SplitSeq(s, ",") {
		entry = strings.TrimSpace(entry)
		p, ok := parseProxy(entry)
		if !ok {
			return nil, entry, errProxies
		}
		list = append(list, p)
	}
	if coversAll(list) {
		return nil, s, errProxies
	}
	return list, "", nil
}

func parseProxy(s string) (netip.Prefix, bool) {
	if !strings.Contains(s, "/") {
		a, err := netip.ParseAddr(s)
		if err != nil || a.Zone() != "" {
			return netip.Prefix{}, false
		}
		a = a.Unmap()
		return netip.PrefixFrom(a, a.BitLen()), true
	}
	p, err := netip.ParsePrefix(s)
	if err != nil || p != p.Masked() {
		return netip.Prefix{}, false
	}
	if p.Addr().Is4In6() && p.Bits() >= 96 {
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	return p, p.Bits() > 0
}

// coversAll reports whether the prefixes together hold every IPv4 or every IPv6 address.
func coversAll(list []netip.Prefix) bool {
	return covers(list, netip.PrefixFrom(netip.IPv4Unspecified(), 0)) ||
		covers(list, netip.PrefixFrom(netip.IPv6Unspecified(), 0))
}

// covers reports whether the prefixes together hold all of p.
func covers(list []netip.Prefix, p netip.Prefix) bool {
	var inside []netip.Prefix
	for _, q := range list {
		switch {
		case !q.Overlaps(p):
		case q.Bits() <= p.Bits():
			return true
		default:
			inside = append(inside, q)
		}
	}
	if len(inside) == 0 {
		return false
	}
	lower := netip.PrefixFrom(p.Addr(), p.Bits()+1)
	b := p.Addr().AsSlice()
	b[p.Bits()/8] |= 0x80 >> (p.Bits() % 8)
	a, _ := netip.AddrFromSlice(b)
	return covers(inside, lower) && covers(inside, netip.PrefixFrom(a, lower.Bits()))
}
