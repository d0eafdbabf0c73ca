package proxy

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"strings"
	"testing"
)

// v2 writes a binary header.
func v2(command, family byte, body string) string {
	b := append([]byte(signatureV2), command, family)
	return string(binary.BigEndian.AppendUint16(b, uint16(len(body)))) + body
}

const (
	inet  = "\xc0\x00\x02\x01\xc6\x33\x64\x01\xdc\x04\x01\xbb" // 192.0.2.1:56324 → 198.51.100.1:443
	inet6 = "\x20\x01\x0d\xb8\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01" +
		"\x20\x01\x0d\xb8\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\xdc\x04\x01\xbb"
	tlvs = "\x04\x00\x03abc\x20\x00\x01\x01"
)

// headers are good ones with what they say.
var headers = []struct {
	in     string
	source string // empty: the peer's
	rest   int
}{
	// Version 1.
	{"PROXY TCP4 192.0.2.1 198.51.100.1 56324 443\r\n", "192.0.2.1:56324", 0},
	{"PROXY TCP4 255.255.255.255 0.0.0.0 65535 0\r\n", "255.255.255.255:65535", 0},
	{"PROXY TCP6 2001:db8::1 2001:db8::2 56324 443\r\n", "[2001:db8::1]:56324", 0},
	{"PROXY TCP6 ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff 65535 65535\r\n", "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535", 0},
	{"PROXY TCP6 ::ffff:192.0.2.1 :: 1 2\r\n", "192.0.2.1:1", 0}, // mapped counts as IPv4
	{"PROXY UNKNOWN\r\n", "", 0},
	{"PROXY UNKNOWN ffff:f...f:ffff whatever 65535 65535\r\n", "", 0},
	// Version 2.
	{v2(commandProxy, 0x11, inet), "192.0.2.1:56324", 0},
	{v2(commandProxy, 0x11, inet+tlvs), "192.0.2.1:56324", len(tlvs)},
	{v2(commandProxy, 0x21, inet6), "[2001:db8::1]:56324", 0},
	{v2(commandProxy, 0x21, inet6+tlvs), "[2001:db8::1]:56324", len(tlvs)},
	{v2(commandProxy, 0x11, inet+strings.Repeat("x", 65535-len(inet))), "192.0.2.1:56324", 65535 - len(inet)},
	{v2(commandLocal, 0x00, ""), "", 0},
	{v2(commandLocal, 0x11, inet+tlvs), "", len(inet) + len(tlvs)}, // the proxy's own: nothing of it counts
	{v2(commandLocal, 0xff, "?"), "", 1},
	{v2(commandProxy, 0x00, tlvs), "", len(tlvs)},
	{v2(commandProxy, 0x12, inet), "", 0}, // datagrams
	{v2(commandProxy, 0x22, inet6), "", 0},
	{v2(commandProxy, 0x31, strings.Repeat("/", addrUnix)+tlvs), "", len(tlvs)},
	{v2(commandProxy, 0x32, strings.Repeat("/", addrUnix)), "", 0},
}

func TestParseSuccess(t *testing.T) {
	for _, x := range headers {
		const behind = "GET / HTTP/1.1\r\n"
		h, n, err := Parse([]byte(x.in + behind))
		if err != nil || n+h.Rest != len(x.in) || h.Rest != x.rest {
			t.Errorf("%.60q: used %d and %d more of %d, error %v", x.in, n, h.Rest, len(x.in), err)
			continue
		}
		if x.source == "" && h.Source.IsValid() || x.source != "" && h.Source.String() != x.source {
			t.Errorf("%.60q: source %v, expected %q", x.in, h.Source, x.source)
		}
		if n > MaxHeader {
			t.Errorf("%.60q: %d bytes asked for", x.in, n)
		}
		// Every prefix asks for more, and says so by Begins.
		for i := range n {
			if _, k, err := Parse([]byte(x.in[:i])); k != 0 || err != nil {
				t.Fatalf("%.60q: the first %d bytes give %d, %v", x.in, i, k, err)
			}
			want := Maybe
			if i >= len(signatureV1) && x.in[0] == 'P' || i >= len(signatureV2) {
				want = Yes
			}
			if got := Begins([]byte(x.in[:i])); got != want {
				t.Fatalf("%.60q: the first %d bytes begin a header: %v, expected %v", x.in, i, got, want)
			}
		}
	}
}

func TestParseFailure(t *testing.T) {
	f := func(in string, want error) {
		t.Helper()
		h, n, err := Parse([]byte(in))
		if n != 0 || !errors.Is(err, want) || h != (Header{}) {
			t.Errorf("%.80q: %v, %d, %v instead of %v", in, h, n, err, want)
		}
	}
	// No header at all.
	f("GET / HTTP/1.1\r\n", ErrNone)
	f("POST / HTTP/1.1\r\n", ErrNone)
	f("PROXY\r\n", ErrNone)
	f("PROXYTCP4", ErrNone)
	f("\r\n\r\n\x00\r\nQUIX", ErrNone)
	f("\r\nGET / HTTP/1.1", ErrNone)
	f("\x16\x03\x01", ErrNone)
	// Lines that break a rule each.
	f("PROXY \r\n", ErrLine)
	f("PROXY \n", ErrLine)
	f("PROXY TCP4\r\n", ErrLine)
	f("PROXY TCP5 192.0.2.1 198.51.100.1 1 2\r\n", ErrLine)
	f("PROXY tcp4 192.0.2.1 198.51.100.1 1 2\r\n", ErrLine)
	f("PROXY TCP4 192.0.2.1 198.51.100.1 1\r\n", ErrLine)
	f("PROXY TCP4 192.0.2.1 198.51.100.1 1 2 3\r\n", ErrLine)
	f("PROXY TCP4 192.0.2.1 198.51.100.1 1 2 \r\n", ErrLine)
	f("PROXY TCP4  192.0.2.1 198.51.100.1 1 2\r\n", ErrLine)
	f("PROXY TCP4 192.0.2.1 198.51.100.1 1 2\n", ErrLine)
	f("PROXY TCP4 192.0.2.1 198.51.100.1 65536 2\r\n", ErrLine)
	f("PROXY TCP4 192.0.2.1 198.51.100.1 -1 2\r\n", ErrLine)
	f("PROXY TCP4 192.0.2.1 198.51.100.1 01 2\r\n", ErrLine)
	f("PROXY TCP4 192.0.2.1 198.51.100.1 1 \r\n", ErrLine)
	f("PROXY TCP4 192.0.2.256 198.51.100.1 1 2\r\n", ErrLine)
	f("PROXY TCP4 192.0.2 198.51.100.1 1 2\r\n", ErrLine)
	f("PROXY TCP4 192.0.2.01 198.51.100.1 1 2\r\n", ErrLine)
	f("PROXY TCP4 ::1 ::1 1 2\r\n", ErrLine)
	f("PROXY TCP6 192.0.2.1 198.51.100.1 1 2\r\n", ErrLine)
	f("PROXY TCP6 fe80::1%eth0 ::1 1 2\r\n", ErrLine)
	f("PROXY TCP4 192.0.2.1 198.51.100.1 1 2"+strings.Repeat(" ", 80), ErrLine)
	f("PROXY UNKNOWN"+strings.Repeat("x", 107), ErrLine)
	f("PROXY UNKNOWNX\r\n", ErrLine)
	// Binary ones.
	f(v2(0x11, 0x11, inet), ErrBinary) // version 1 in it
	f(v2(0x22, 0x11, inet), ErrBinary)
	f(signatureV2+"\x01", ErrBinary)                         // at once, without waiting for the rest
	f(v2(commandProxy, 0x11, inet[:len(inet)-1]), ErrBinary) // too short for its addresses
	f(v2(commandProxy, 0x21, inet), ErrBinary)
	f(v2(commandProxy, 0x31, "/"), ErrBinary)
	f(v2(commandProxy, 0x10, inet), ErrBinary)
	f(v2(commandProxy, 0x13, inet), ErrBinary)
	f(v2(commandProxy, 0x41, inet), ErrBinary)
}

// Our own reader of addresses agrees with the standard library's.
func TestParseAddr(t *testing.T) {
	for _, s := range []string{
		"::", "::1", "1::", "1::2", "1:2:3:4:5:6:7:8", "1:2:3:4:5:6:7::", "::2:3:4:5:6:7:8", "1:2:3:4:5:6:1.2.3.4",
		"::1.2.3.4", "::ffff:1.2.3.4", "ABCD:ef01::", "0001::0",
		"", ":", ":::", "1:", ":1", "1:2", "1:2:3:4:5:6:7:8:9", "1::2::3", "12345::", "g::", "1:2:3:4:5:6:7::8", "1:2:3:4:5:6:7:8::",
		"1:2:3:4:5:6:7:1.2.3.4", "1.2.3.4::", "::1.2.3", "::1.2.3.4.5", "::1.2.3.256", "1::2:", "::1.2.3.4:5",
	} {
		want, err := netip.ParseAddr(s)
		got, ok := parseIPv6([]byte(s))
		if ok != (err == nil) || ok && got != want.Unmap() {
			t.Errorf("%q: %v %v, the library says %v %v", s, got, ok, want, err)
		}
	}
	for _, s := range []string{"0.0.0.0", "255.255.255.255", "1.2.3", "1.2.3.4.5", "1..2.3", "", ".", "1.2.3.", "a.b.c.d", "1.2.3.4 ", "01.2.3.4", "1.2.3.300", "1.2.3.00"} {
		want, err := netip.ParseAddr(s)
		got, ok := parseIPv4([]byte(s))
		if ok != (err == nil) || ok && got != want {
			t.Errorf("%q: %v %v, the library says %v %v", s, got, ok, want, err)
		}
	}
}

func TestNoAllocation(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	for _, x := range headers {
		in := []byte(x.in)
		if n := testing.AllocsPerRun(100, func() { Parse(in) }); n != 0 {
			t.Errorf("%.60q: %v allocations", x.in, n)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, x := range headers {
		f.Add([]byte(x.in))
	}
	f.Add([]byte("PROXY TCP4 192.0.2.1 198.51.100.1 1 2\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, n, err := Parse(b)
		switch {
		case n < 0 || n > len(b) || n > MaxHeader || err != nil && n != 0 || h.Rest < 0 || h.Rest > 0xffff:
			t.Fatalf("%v, %d of %d, %v", h, n, len(b), err)
		case err == nil && n == 0 && len(b) >= MaxHeader:
			t.Fatal("asks for more than the most")
		case (err == ErrNone) != (Begins(b) == No):
			t.Fatalf("error %v, but it begins like one: %v", err, Begins(b))
		}
		// One byte at a time it is the same.
		for i := range b {
			h2, n2, err2 := Parse(b[:i])
			if n2 == 0 && err2 == nil {
				continue
			}
			if h2 != h || n2 != n || err2 != err {
				t.Fatalf("after %d bytes %v, %d, %v; after all %v, %d, %v", i, h2, n2, err2, h, n, err)
			}
			return
		}
	})
}
