package edge

import (
	"io"
	"strings"
	"testing"

	"sluice/codec/http1"
)

var healthBody = []byte(`{"status":"ok"}`)

func healthApp(c *HTTPConn, r *http1.Request) { c.Reply(200, "application/json", healthBody) }

// roundTrip returns a function that makes one request and reads its answer
// without allocating.
func roundTrip(tb testing.TB, s *testServer, request string) func() {
	c := s.dial()
	in := []byte(request)
	c.send(request)
	resp, body := c.answer("GET")
	if resp.StatusCode != 200 {
		tb.Fatalf("%d %q", resp.StatusCode, body)
	}
	// Every answer has the length of the first: measure it with the second.
	c.send(request)
	buf := make([]byte, 8192)
	n, err := c.r.Read(buf)
	if err != nil {
		tb.Fatal(err)
	}
	return func() {
		if _, err := c.Write(in); err != nil {
			tb.Fatal(err)
		}
		if _, err := io.ReadFull(c.TCPConn, buf[:n]); err != nil {
			tb.Fatal(err)
		}
	}
}

func BenchmarkSmallGet(b *testing.B) {
	s := serve(b, defaultConfig(), healthApp)
	run := roundTrip(b, s, "GET /health HTTP/1.1\r\nHost: 127.0.0.1:4000\r\n\r\n")
	b.ReportAllocs()
	for b.Loop() {
		run()
	}
}

func TestAllocationsPerRequest(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	f := func(name, request string, app appFunc) {
		t.Helper()
		run := roundTrip(t, serve(t, defaultConfig(), app), request)
		if n := testing.AllocsPerRun(200, run); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
	f("get", "GET /health HTTP/1.1\r\nHost: h\r\n\r\n", healthApp)
	f("deferred answer", "POST /health HTTP/1.1\r\nHost: h\r\nContent-Length: 100\r\n\r\n"+strings.Repeat("x", 100), healthApp)
	x := &exchange{end: func(c *HTTPConn) {
		c.StartResponse(Response{Status: 200, Length: Chunked})
		c.Finish(healthBody)
	}}
	f("body and streamed answer", "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n", func(c *HTTPConn, r *http1.Request) {
		c.Take(x)
		c.ReadBody()
	})
}
