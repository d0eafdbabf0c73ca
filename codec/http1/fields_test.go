package http1

import (
	"bytes"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
)

func mustParse(t testing.TB, fields string) *Request {
	t.Helper()
	r := new(Request)
	var m Mark
	if _, err := r.Parse([]byte("GET / HTTP/1.1\r\nHost: h\r\n"+fields+"\r\n"), &DefaultLimits, &m); err != nil {
		t.Fatal(err)
	}
	return r
}

func TestRecognise(t *testing.T) {
	for id := FieldOther + 1; id < numFields; id++ {
		name := id.String()
		if name == "" || name != strings.ToLower(name) {
			t.Fatalf("field %d has the name %q", id, name)
		}
		for _, s := range []string{name, strings.ToUpper(name), strings.ToUpper(name[:1]) + name[1:]} {
			if got := Recognise([]byte(s)); got != id {
				t.Fatalf("%q is recognised as %v", s, got)
			}
		}
		// Look-alikes: what differs in bit 5 only is another name.
		for i := range name {
			s := []byte(name)
			if s[i] ^= 0x20; ValidToken(s) && !strings.EqualFold(string(s), name) && Recognise(s) != FieldOther {
				t.Fatalf("%q is recognised", s)
			}
		}
		if Recognise([]byte(name[1:])) == id || Recognise([]byte(name+"x")) == id {
			t.Fatalf("a part of %q is recognised", name)
		}
	}
	if Recognise([]byte(strings.Repeat("x", 1000))) != FieldOther || Recognise(nil) != FieldOther {
		t.Fatal("something is recognised in nothing")
	}
}

func TestHeadLookup(t *testing.T) {
	r := mustParse(t, "X-A: 1\r\nUpgrade: h2c, WebSocket\r\nx-a: 2\r\nUPGRADE: foo\r\nOrigin:\r\n")
	if v, ok := r.Lookup("x-a"); !ok || string(v) != "1" {
		t.Fatalf("x-a is %q", v)
	}
	if v, ok := r.Lookup("origin"); !ok || v == nil || len(v) != 0 {
		t.Fatalf("the empty Origin is %v, %v", v, ok)
	}
	if v, ok := r.Get(FieldUpgrade); !ok || string(v) != "h2c, WebSocket" {
		t.Fatalf("Upgrade is %q", v)
	}
	if _, ok := r.Get(FieldCookie); ok {
		t.Fatal("there is no Cookie")
	}
	if _, ok := r.Lookup("x-b"); ok {
		t.Fatal("there is no X-B")
	}
	if r.Count(FieldUpgrade) != 2 || r.Count(FieldCookie) != 0 {
		t.Fatal("wrong count")
	}
	for token, want := range map[string]bool{"websocket": true, "h2c": true, "foo": true, "web": false, "": false} {
		if r.HasToken(FieldUpgrade, token) != want {
			t.Fatalf("HasToken(%q) is not %v", token, want)
		}
	}
}

func TestHopByHop(t *testing.T) {
	r := mustParse(t, "Connection: X-A, close\r\nConnection: x-b, Content-Length, Host, Cookie\r\nX-A: 1\r\nx-B: 1\r\nX-C: 1\r\nCookie: c\r\n"+
		"Keep-Alive: 1\r\nProxy-Connection: x\r\nTE: trailers\r\nTrailer: x\r\nUpgrade: x\r\nContent-Length: 5\r\nProxy-Authorization: x\r\n"+
		"Proxy-Authenticate: x\r\n")
	var kept []string
	for i := range r.Fields {
		if !r.HopByHop(&r.Fields[i]) {
			kept = append(kept, string(r.Fields[i].Name))
		}
	}
	if got := strings.Join(kept, " "); got != "Host X-C Content-Length" {
		t.Fatalf("kept %q", got)
	}
	r = mustParse(t, "Connection: keep-alive\r\nX-A: 1\r\n")
	if r.HopByHop(&r.Fields[2]) {
		t.Fatal("X-A is not nominated")
	}
}

func TestValidValueAgainstSlow(t *testing.T) {
	slow := func(b []byte) bool {
		for _, c := range b {
			if c < ' ' && c != '\t' || c == 0x7f {
				return false
			}
		}
		return true
	}
	for n := range 35 {
		base := bytes.Repeat([]byte("x"), n)
		for i := range n {
			for c := range 256 {
				b := bytes.Clone(base)
				b[i] = byte(c)
				if ValidValue(b) != slow(b) {
					t.Fatalf("%q", b)
				}
			}
		}
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 20000 {
		b := make([]byte, rnd.IntN(40))
		for i := range b {
			b[i] = "a\t \x7f\x80\xff\x1f~!\x00"[rnd.IntN(10)]
			if rnd.IntN(4) > 0 {
				b[i] = 'a'
			}
		}
		if ValidValue(b) != slow(b) {
			t.Fatalf("%q", b)
		}
	}
}

func TestEqualFoldAgainstStrings(t *testing.T) {
	for c := range 256 {
		for d := range 128 {
			a, b := []byte{byte(c)}, []byte{byte(d)}
			want := c < 0x80 && strings.EqualFold(string(a), string(b))
			if equalFoldBytes(a, b) != want {
				t.Fatalf("%q %q", a, b)
			}
			if low := strings.ToLower(string(b)); equalFold(a, low) != want {
				t.Fatalf("%q %q", a, low)
			}
		}
	}
}

func TestIPv6AgainstNetip(t *testing.T) {
	f := func(s string) {
		t.Helper()
		a, err := netip.ParseAddr(s)
		want := err == nil && a.Is6() && a.Zone() == ""
		if got := validIPv6([]byte(s)); got != want {
			t.Fatalf("%q: got %v", s, got)
		}
	}
	for _, s := range []string{"", ":", "::", ":::", "::1", "1::", "1:2:3:4:5:6:7:8", "1:2:3:4:5:6:7", "1:2:3:4:5:6:7:8:9", "::1::", "1:2:3:4:5:6:7::",
		"::2:3:4:5:6:7:8", "::1:2:3:4:5:6:7:8", "12345::", "::1.2.3.4", "::1.2.3.256", "::1.2.3", "1:2:3:4:5:6:1.2.3.4", "1:2:3:4:5:6:7:1.2.3.4",
		"::ffff:01.2.3.4", "::1.2.3.4:1", "1:", ":1", "fe80::1%eth0", "1.2.3.4", "::g", "abcd:EF01::"} {
		f(s)
	}
	rnd := rand.New(rand.NewPCG(3, 4))
	for range 200000 {
		var s []byte
		for range rnd.IntN(24) {
			s = append(s, ":::12f.0:"[rnd.IntN(9)])
		}
		f(string(s))
	}
}
