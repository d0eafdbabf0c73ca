package edge

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"sluice/codec/http1"
	"sluice/loop"
)

// patience bounds every wait of a test; passing tests never come near it.
const patience = 10 * time.Second

type appFunc func(c *HTTPConn, r *http1.Request)

func (f appFunc) OnRequest(c *HTTPConn, r *http1.Request) { f(c, r) }

// exchange is an Exchange made of functions; those that are nil do nothing.
type exchange struct {
	body    func(c *HTTPConn, data []byte)
	end     func(c *HTTPConn)
	drain   func(c *HTTPConn)
	peerEOF func(c *HTTPConn)
	abort   func(c *HTTPConn, why Abort) bool
}

func (x *exchange) OnBody(c *HTTPConn, data []byte) {
	if x.body != nil {
		x.body(c, data)
	}
}

func (x *exchange) OnBodyEnd(c *HTTPConn) {
	if x.end != nil {
		x.end(c)
	}
}

func (x *exchange) OnDrain(c *HTTPConn) {
	if x.drain != nil {
		x.drain(c)
	}
}

func (x *exchange) OnPeerEOF(c *HTTPConn) {
	if x.peerEOF != nil {
		x.peerEOF(c)
	}
}

func (x *exchange) OnAbort(c *HTTPConn, why Abort) bool {
	return x.abort != nil && x.abort(c, why)
}

// testServer is a Server on loops of its own, listening on loopback.
type testServer struct {
	*Server
	t     testing.TB
	loops []*loop.Loop
	addr  string
}

func defaultConfig() Config {
	return Config{Limits: http1.DefaultLimits, IdleTimeout: patience, WriteStall: patience, MaxConnections: 1000}
}

func startServer(t testing.TB, cfg Config, loops int, app func(s *testServer) appFunc) *testServer {
	t.Helper()
	s := &testServer{t: t}
	for i := range loops {
		l, err := loop.New(i, loop.Config{Spin: -1})
		if err != nil {
			t.Fatal(err)
		}
		s.loops = append(s.loops, l)
	}
	ln, err := loop.Listen("127.0.0.1:0", loop.SocketOptions{SendBuffer: 64 << 10})
	if err != nil {
		t.Fatal(err)
	}
	s.addr = ln.Addr().String()
	s.Server = NewServer(cfg, app(s), s.loops)
	for _, l := range s.loops {
		if err := l.Accept(ln, s.Server); err != nil {
			t.Fatal(err)
		}
		go l.Run()
	}
	t.Cleanup(func() {
		for _, l := range s.loops {
			l.Stop()
			<-l.Done()
		}
		ln.Close()
	})
	return s
}

// serve starts a server whose app needs no more than its connection.
func serve(t testing.TB, cfg Config, app appFunc) *testServer {
	t.Helper()
	return startServer(t, cfg, 1, func(*testServer) appFunc { return app })
}

// on runs f on a loop and waits for it.
func (s *testServer) on(l *loop.Loop, f func()) {
	done := make(chan struct{})
	l.Post(loop.Func(func(*loop.Loop) { f(); close(done) }))
	<-done
}

// await waits until f, which runs on the first loop, returns true.
func (s *testServer) await(what string, f func() bool) {
	s.t.Helper()
	for end := time.Now().Add(patience); ; {
		var ok bool
		s.on(s.loops[0], func() { ok = f() })
		if ok {
			return
		}
		if time.Now().After(end) {
			s.t.Fatalf("waited in vain: %s", what)
		}
		time.Sleep(time.Millisecond) // between two looks, not for the event
	}
}

// client is the peer's side of a connection.
type client struct {
	*net.TCPConn
	t testing.TB
	r *bufio.Reader
}

func (s *testServer) dial() *client {
	s.t.Helper()
	conn, err := net.Dial("tcp", s.addr)
	if err != nil {
		s.t.Fatal(err)
	}
	conn.SetDeadline(time.Now().Add(patience))
	s.t.Cleanup(func() { conn.Close() })
	return &client{conn.(*net.TCPConn), s.t, bufio.NewReader(conn)}
}

func (c *client) send(s string) {
	c.t.Helper()
	if _, err := io.WriteString(c, s); err != nil {
		c.t.Fatalf("sending: %v", err)
	}
}

// answer reads one answer, whole.
func (c *client) answer(method string) (*http.Response, string) {
	c.t.Helper()
	resp, err := http.ReadResponse(c.r, &http.Request{Method: method})
	if err != nil {
		c.t.Fatalf("reading an answer: %v", err)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		c.t.Fatalf("reading the body of an answer: %v", err)
	}
	return resp, string(body)
}

// want reads one answer to a GET or POST and compares it.
func (c *client) want(status int, body string) *http.Response {
	c.t.Helper()
	resp, got := c.answer("GET")
	if resp.StatusCode != status || got != body {
		c.t.Fatalf("got %d %q, want %d %q", resp.StatusCode, got, status, body)
	}
	return resp
}

// wantEOF expects the connection's orderly end.
func (c *client) wantEOF() {
	c.t.Helper()
	if b, err := io.ReadAll(c.r); err != nil || len(b) > 0 {
		c.t.Fatalf("at the end: %q, %v", b, err)
	}
}

// wantQuiet expects that nothing comes for a moment.
func (c *client) wantQuiet() {
	c.t.Helper()
	c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	b, err := c.r.Peek(1)
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		c.t.Fatalf("expected silence: %q, %v", b, err)
	}
	c.SetDeadline(time.Now().Add(patience))
}

const get = "GET / HTTP/1.1\r\nHost: h\r\n\r\n"

// echo answers with method, path and body once that is complete.
func echo(c *HTTPConn, r *http1.Request) {
	line := string(r.Method) + " " + string(r.Path)
	var body strings.Builder
	c.Take(&exchange{
		body: func(c *HTTPConn, data []byte) { body.Write(data) },
		end:  func(c *HTTPConn) { c.Reply(200, "text/plain", []byte(line+" "+body.String())) },
	})
	c.ReadBody()
}
