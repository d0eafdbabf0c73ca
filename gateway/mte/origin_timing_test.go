package mte

import (
	"io"
	"net/url"
	"testing"
	"time"

	"sluice/codec/http1"
	"sluice/gateway/config"
)

// startExchange sets up a client that asks and an origin that answers without an
// allocation of their own. The function it returns does one exchange.
func startExchange(t testing.TB, request, answer string, serve func(origin *rawOrigin) *testGateway) func() {
	origin := listenRaw(t, func(c *originPeer) {
		b, out := make([]byte, 64<<10), []byte(answer)
		for {
			n, err := c.Read(b)
			if err != nil {
				return
			}
			// Requests come whole, or in two parts of which the second ends them.
			if string(b[max(0, n-4):n]) == "\r\n\r\n" || n > 4 && b[n-1] == '.' {
				c.Write(out)
			}
		}
	})
	c := serve(origin).dial()
	ask := []byte(request)
	c.send(request)
	if _, _, err := c.answer("GET"); err != nil {
		t.Fatal(err)
	}
	c.SetDeadline(time.Time{})
	c.Write(ask)
	b := make([]byte, 64<<10)
	n, err := c.Read(b) // so long are all of them: the length of Date is constant
	if err != nil {
		t.Fatal(err)
	}
	b = b[:n]
	return func() {
		if _, err := c.Write(ask); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(c, b); err != nil {
			t.Fatal(err)
		}
	}
}

const (
	askGet  = "GET /some/where?a=b HTTP/1.1\r\nHost: plain.test\r\nUser-Agent: test\r\nAccept: */*\r\nCookie: a=b; c=d\r\nX-Forwarded-For: 1.2.3.4\r\n\r\n"
	askPost = "POST /some/where HTTP/1.1\r\nHost: plain.test\r\nContent-Length: 6\r\n\r\nhello."
	askMany = "POST /some/where HTTP/1.1\r\nHost: plain.test\r\nTransfer-Encoding: chunked\r\n\r\n6\r\nhello.\r\n0\r\n\r\n"
)

func TestProxiedAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	f := func(name, request, answer string) {
		t.Helper()
		for _, serve := range []func(*rawOrigin) *testGateway{
			// The proxy alone, and the whole role in front of it.
			func(o *rawOrigin) *testGateway { return proxyTo(t, o.up, nil) },
			func(o *rawOrigin) *testGateway {
				u := &url.URL{Scheme: "http", Host: o.ln.Addr().String()}
				return &testGateway{t: t, addr: servePlain(t, &config.Domain{Upstream: u, PassThroughRoutes: []string{"/*"}})}
			},
		} {
			exchange := startExchange(t, request, answer, serve)
			if n := testing.AllocsPerRun(500, exchange); n >= 1 {
				t.Errorf("%s: %v allocations", name, n)
			}
		}
	}
	f("a small answer", askGet, okHello)
	f("an answer in chunks", askGet, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n")
	f("a body with a length", askPost, okHello)
	f("a body in chunks", askMany, okHello)
}

func BenchmarkProxiedGet(b *testing.B) {
	exchange := startExchange(b, askGet, okHello, func(o *rawOrigin) *testGateway { return proxyTo(b, o.up, nil) })
	b.ReportAllocs()
	for b.Loop() {
		exchange()
	}
}

// The lines of a browser's request, which is most of what we write ourselves.
func BenchmarkPlainRequest(b *testing.B) {
	var req http1.Request
	var m http1.Mark
	raw := []byte(askGet)
	if n, err := req.Parse(raw, &http1.DefaultLimits, &m); n == 0 || err != nil {
		b.Fatal(n, err)
	}
	var dst []byte
	b.ReportAllocs()
	for b.Loop() {
		dst = appendPlainRequest(dst[:0], &req, false, nil)
	}
}
