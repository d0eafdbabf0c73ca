package mte

import (
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	"sluice/codec/frame"
	"sluice/codec/http1"
	"sluice/gateway/config"
	"sluice/gateway/edge"
	"sluice/loop"
)

// servePlain runs the whole role with one domain and returns its address.
func servePlain(t *testing.T, d *config.Domain) string {
	t.Helper()
	l, err := loop.New(0, loop.Config{Spin: -1})
	if err != nil {
		t.Fatal(err)
	}
	ln, err := loop.Listen("127.0.0.1:0", loop.SocketOptions{})
	if err != nil {
		t.Fatal(err)
	}
	d.Host = "plain.test"
	d.Secret = config.Secret(strings.Repeat("s", 32))
	cfg := Config{MTE: config.MTE{
		Listen: config.Listen{Host: netip.MustParseAddr("127.0.0.1"), Port: ln.Addr().Port()}, Domains: config.Domains{d.Host: d}, KyberStrength: 512,
		SessionTimeout: time.Hour, TokenMaxAge: time.Hour, MaxControlBodyBytes: 1 << 20, MaxFrameBytes: 65536,
		MaxMetadataBytesMKE: 61439, MaxMetadataBytesMTE: 7168, MaxPairsPerBatch: 1, MaxPairsPerClient: 1, MaxPairs: 1,
		MaxRequestTime: originPatience, MaxResponseTime: originPatience, CodecPoolSize: 1, CodecPoolCeiling: 1,
		OriginConnectTimeout: originPatience, OriginIdle: originPatience, OriginMaxIdle: 4,
	}, WriteStall: originPatience, Limits: http1.DefaultLimits}
	role, err := New(cfg, []*loop.Loop{l}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	srv := edge.NewServer(edge.Config{Limits: http1.DefaultLimits, IdleTimeout: originPatience, WriteStall: originPatience, MaxConnections: 100}, role, []*loop.Loop{l})
	if err := l.Accept(ln, srv); err != nil {
		t.Fatal(err)
	}
	go l.Run()
	t.Cleanup(func() {
		l.Stop()
		<-l.Done()
		ln.Close()
		role.Close()
	})
	return ln.Addr().String()
}

func TestPassThrough(t *testing.T) {
	origin := listenRaw(t, answerAll("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nAccess-Control-Allow-Origin: theirs\r\n\r\nhello"))
	at := func(addr string) *url.URL { return &url.URL{Scheme: "http", Host: addr} }
	addr := servePlain(t, &config.Domain{
		Upstream: at(origin.ln.Addr().String()), PassThroughRoutes: []string{"/public/*", "/health"}, CORSOrigins: []string{"https://app.example"},
		Headers: []config.Header{{Name: "X-Added", Value: "1"}},
	})
	f := func(addr, request string, status int, check func(r *http.Response, body string)) {
		t.Helper()
		g := &testGateway{t: t, addr: addr}
		c := g.dial()
		c.send(strings.ReplaceAll(request, " H", " HTTP/1.1\r\nHost: plain.test\r\n") + "\r\n")
		resp, body, err := c.answer("GET")
		if err != nil || resp.StatusCode != status {
			t.Fatalf("%q: %d %q, %v", request, resp.StatusCode, body, err)
		}
		if resp.Header.Get("X-Added") != "1" {
			t.Errorf("%q: the domain's header is missing", request)
		}
		if check != nil {
			check(resp, body)
		}
	}
	plain := func(_ *http.Response, body string) {
		if body != "hello" {
			t.Errorf("got %q", body)
		}
	}
	f(addr, "GET /public/a H", 200, plain)
	f(addr, "GET /health?x H", 200, plain)
	f(addr, "PROPFIND /public/ H", 200, plain)
	f(addr, "OPTIONS /public/ H", 200, plain)
	// A listed page gets the domain's leave, not the origin's.
	f(addr, "GET /health HOrigin: https://app.example\r\n", 200, func(r *http.Response, _ string) {
		if v := r.Header["Access-Control-Allow-Origin"]; len(v) != 1 || v[0] != "https://app.example" {
			t.Errorf("Access-Control-Allow-Origin is %q", v)
		}
	})
	// Methods that are tunnels or mirrors, paths that are read in two ways.
	f(addr, "TRACE /public/a H", 405, func(r *http.Response, _ string) {
		if r.Header.Get("Allow") != passedMethods {
			t.Errorf("Allow is %q", r.Header.Get("Allow"))
		}
	})
	f(addr, "GET /public/../x H", 400, nil)
	f(addr, "GET /public/%2E%2e/x H", 400, nil)
	f(addr, "GET /private H", 404, nil)

	// An origin that is not there, and one that is none.
	refused := func(reason frame.Reason) func(r *http.Response, body string) {
		return func(r *http.Response, body string) {
			t.Helper()
			if v := r.Header.Get(frame.ErrorHeader); v != string(frame.AppendErrorHeader(nil, reason)) || r.Header.Get("Content-Type") != typeFrames || !strings.Contains(body, reason.String()) {
				t.Errorf("refused with %q, %q", v, body)
			}
		}
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	dead := servePlain(t, &config.Domain{Upstream: at(ln.Addr().String()), PassThroughRoutes: []string{"/*"}, Headers: []config.Header{{Name: "X-Added", Value: "1"}}})
	ln.Close()
	f(dead, "GET / H", 502, refused(frame.UpstreamConnectFailed))
	f(dead, "POST / HContent-Length: 5\r\n\r\nhello", 502, refused(frame.UpstreamConnectFailed))
	origin.play(func(c *originPeer) { c.head(); c.send("none\r\n\r\n") })
	none := servePlain(t, &config.Domain{Upstream: at(origin.ln.Addr().String()), PassThroughRoutes: []string{"/*"}, Headers: []config.Header{{Name: "X-Added", Value: "1"}}})
	f(none, "GET / H", 502, refused(frame.UpstreamResponseFailed))
}
