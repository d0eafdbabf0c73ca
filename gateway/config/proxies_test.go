package config

import (
	"net/netip"
	"slices"
	"testing"
)

func TestParseProxiesSuccess(t *testing.T) {
	f := func(s string, want ...string) {
		t.Helper()
		list, bad, err := parseProxies(s)
		if err != nil {
			t.Errorf("%s: %s refused", s, bad)
			return
		}
		var got []string
		for _, p := range list {
			got = append(got, p.String())
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", s, got, want)
		}
	}
	f("127.0.0.1", "127.0.0.1/32")
	f("127.0.0.1,10.0.0.0/24, 2001:db8:ffff::/48", "127.0.0.1/32", "10.0.0.0/24", "2001:db8:ffff::/48")
	f("::1", "::1/128")
	// IPv4-mapped counts as IPv4
	f("::ffff:10.0.0.1,::ffff:10.0.0.0/104", "10.0.0.1/32", "10.0.0.0/8")
	// one half is not everything
	f("0.0.0.0/1", "0.0.0.0/1")
	f("0.0.0.0/1,128.0.0.0/2,192.0.0.0/3", "0.0.0.0/1", "128.0.0.0/2", "192.0.0.0/3")
	f("0.0.0.0/1,8000::/1", "0.0.0.0/1", "8000::/1")
}

func TestParseProxiesFailure(t *testing.T) {
	f := func(s, want string) {
		t.Helper()
		if _, bad, err := parseProxies(s); err == nil || bad != want {
			t.Errorf("%s: refused %q, want %q", s, bad, want)
		}
	}
	f("proxy.example.com", "proxy.example.com")
	f("10.0.0.1,proxy", "proxy")
	f("10.0.0.1/24", "10.0.0.1/24")
	f("2001:db8::1/32", "2001:db8::1/32")
	f("::ffff:10.0.0.1/104", "::ffff:10.0.0.1/104")
	f("::ffff:0:0/90", "::ffff:0:0/90") // of both families
	f("10.0.0.0/", "10.0.0.0/")
	f("10.0.0.0/33", "10.0.0.0/33")
	f("10.0.0", "10.0.0")
	f("010.0.0.1", "010.0.0.1")
	f("[::1]", "[::1]")
	f("fe80::1%eth0", "fe80::1%eth0")
	f("10.0.0.1:80", "10.0.0.1:80")
	f("10.0.0.1,,10.0.0.2", "")
	f("10.0.0.1,", "")
	// everything, whole and in pieces
	f("0.0.0.0/0", "0.0.0.0/0")
	f("::/0", "::/0")
	f("::ffff:0.0.0.0/96", "::ffff:0.0.0.0/96")
	f("0.0.0.0/1,128.0.0.0/1", "0.0.0.0/1,128.0.0.0/1")
	f("0.0.0.0/1,128.0.0.0/2,192.0.0.0/2", "0.0.0.0/1,128.0.0.0/2,192.0.0.0/2")
	f("::/1,8000::/1", "::/1,8000::/1")
}

// covers agrees with counting, on a space of 256 addresses.
func TestCoversCounting(t *testing.T) {
	base := netip.MustParsePrefix("10.0.0.0/24")
	for seed := range 3000 {
		var list []netip.Prefix
		x := uint32(seed)*2654435761 + 1
		held := map[netip.Addr]bool{}
		for range 2 + seed%9 {
			x = x*1664525 + 1013904223
			p := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(x >> 24)}), 25+int(x>>8)%3).Masked()
			list = append(list, p)
			for a := p.Addr(); p.Contains(a); a = a.Next() {
				held[a] = true
			}
		}
		if got, want := covers(list, base), len(held) == 256; got != want {
			t.Fatalf("%v: %v, want %v", list, got, want)
		}
	}
}
