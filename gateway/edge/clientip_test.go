package edge

import (
	"net/netip"
	"strings"
	"testing"

	"sluice/codec/http1"
)

func trust(prefixes ...string) TrustedProxies {
	var list []netip.Prefix
	for _, p := range prefixes {
		list = append(list, netip.MustParsePrefix(p))
	}
	return NewTrustedProxies(list)
}

func TestTrustedProxies(t *testing.T) {
	f := func(p TrustedProxies, in, out []string) {
		t.Helper()
		for _, s := range in {
			if !p.Contains(netip.MustParseAddr(s)) {
				t.Fatalf("%v does not contain %s", p, s)
			}
		}
		for _, s := range out {
			if p.Contains(netip.MustParseAddr(s)) {
				t.Fatalf("%v contains %s", p, s)
			}
		}
	}
	// nothing
	f(TrustedProxies{}, nil, []string{"127.0.0.1", "::1"})
	// addresses and networks
	f(trust("10.0.0.0/24", "192.0.2.7/32", "2001:db8::/32", "::1/128"), []string{"10.0.0.255", "192.0.2.7", "2001:db8:1::", "::1"},
		[]string{"10.0.1.0", "192.0.2.8", "2001:db9::", "::2"})
	// IPv4 in IPv6 clothes
	f(trust("10.0.0.0/8"), []string{"::ffff:10.1.2.3"}, []string{"::ffff:11.1.2.3", "::10.1.2.3"})
	// a zone does not make another address
	f(trust("fe80::/10"), []string{"fe80::1%eth0"}, nil)
	// half of everything is allowed
	f(trust("0.0.0.0/1", "8000::/1"), []string{"1.2.3.4", "ffff::"}, []string{"128.0.0.0", "::1"})
}

func TestClient(t *testing.T) {
	trusted := trust("10.0.0.0/8", "2001:db8::/32", "127.0.0.1/32")
	f := func(peer, want string, lines ...string) {
		t.Helper()
		var values [][]byte
		fields := ""
		for _, l := range lines {
			values = append(values, []byte(l))
			fields += "X-Forwarded-For: " + l + "\r\n"
		}
		if got := trusted.Client(netip.MustParseAddr(peer), values...); got.String() != want {
			t.Fatalf("peer %s, lines %q: got %s, want %s", peer, lines, got, want)
		}
		var r http1.Request
		var m http1.Mark
		if _, err := r.Parse([]byte("GET / HTTP/1.1\r\nHost: h\r\n"+fields+"\r\n"), &http1.DefaultLimits, &m); err != nil {
			t.Fatal(err)
		}
		if got := trusted.ClientOf(netip.MustParseAddr(peer), &r.Head); got.String() != want {
			t.Fatalf("from a head: peer %s, lines %q: got %s, want %s", peer, lines, got, want)
		}
	}
	// a peer outside the list keys on itself, whatever it says
	f("192.0.2.1", "192.0.2.1", "1.2.3.4")
	f("::ffff:192.0.2.1", "192.0.2.1", "1.2.3.4")
	// no header, an empty one
	f("10.0.0.1", "10.0.0.1")
	f("10.0.0.1", "10.0.0.1", "")
	// the first address from the right that is not listed
	f("10.0.0.1", "1.2.3.4", "1.2.3.4")
	f("10.0.0.1", "5.6.7.8", "1.2.3.4, 5.6.7.8")
	f("10.0.0.1", "5.6.7.8", "1.2.3.4,5.6.7.8\t,10.2.3.4 , 127.0.0.1")
	f("::ffff:10.0.0.1", "5.6.7.8", "5.6.7.8, ::ffff:10.0.0.9")
	f("10.0.0.1", "5.6.7.8", "::ffff:5.6.7.8")
	// several lines are one list
	f("10.0.0.1", "5.6.7.8", "1.2.3.4", "5.6.7.8, 10.0.0.2", "10.0.0.3")
	f("10.0.0.1", "1.2.3.4", "1.2.3.4", "10.0.0.2")
	// the walk runs out, or meets what is no address
	f("10.0.0.1", "10.0.0.3", "10.0.0.3, 10.0.0.2")
	f("10.0.0.1", "10.0.0.2", "1.2.3.4, unknown, 10.0.0.2")
	f("10.0.0.1", "10.0.0.1", "1.2.3.4, ")
	f("10.0.0.1", "10.0.0.2", "1.2.3.4, , 10.0.0.2")
	f("10.0.0.1", "10.0.0.1", "_hidden")
	f("10.0.0.1", "10.0.0.1", "300.1.1.1")
	// ports and brackets
	f("10.0.0.1", "203.0.113.7", "203.0.113.7:51000")
	f("10.0.0.1", "2001:db9::7", "[2001:db9::7]:51000")
	f("10.0.0.1", "2001:db9::7", "[2001:db9::7]")
	f("10.0.0.1", "2001:db9::7", "2001:db9::7")
	f("10.0.0.1", "2001:db9::7", "2001:db9::7, [2001:db8::1]:1, 10.0.0.2:2")
	f("10.0.0.1", "fe80::1", "fe80::1%x")
	for _, bad := range []string{"203.0.113.7:", "203.0.113.7:x", "203.0.113.7:70000", "[2001:db9::7]x", "[2001:db9::7]:", "[2001:db9::7", "[203.0.113.7]:1", "[]", "\"1.2.3.4\"", "1.2.3.4:5:6"} {
		f("10.0.0.1", "10.0.0.2", bad+", 10.0.0.2")
	}
}

func FuzzClient(f *testing.F) {
	f.Add([]byte("1.2.3.4, [::1]:80, 10.0.0.1:3, x"))
	trusted := trust("10.0.0.0/8", "::1/128")
	f.Fuzz(func(t *testing.T, line []byte) {
		peer := netip.MustParseAddr("10.0.0.1")
		got := trusted.Client(peer, line)
		if !got.IsValid() || got.Zone() != "" || got.Is4In6() {
			t.Fatalf("got %v", got)
		}
		if cut := strings.LastIndexByte(string(line), ','); cut >= 0 {
			// Where lines are cut makes no difference.
			if two := trusted.Client(peer, line[:cut], line[cut+1:]); two != got {
				t.Fatalf("%v in two lines, %v in one", two, got)
			}
		}
	})
}
