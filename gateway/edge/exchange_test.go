package edge

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	"sluice/codec/http1"
	"sluice/loop"
)

// A body that comes faster than it is taken stops at PauseBody.
func TestBodyBackpressure(t *testing.T) {
	var conn *HTTPConn
	var got bytes.Buffer
	largest := 0
	s := serve(t, defaultConfig(), func(c *HTTPConn, r *http1.Request) {
		conn = c
		c.Take(&exchange{
			body: func(c *HTTPConn, data []byte) {
				largest = max(largest, len(data))
				got.Write(data)
				c.PauseBody()
			},
			end: func(c *HTTPConn) { c.Reply(200, "", nil) },
		})
		c.ReadBody()
	})
	c := s.dial()
	body := make([]byte, 1<<20)
	for i := range body {
		body[i] = byte(rand.Uint32())
	}
	go func() {
		io.WriteString(c, "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n")
		for rest := body; len(rest) > 0; {
			n := min(len(rest), 1+rand.IntN(5000))
			fmt.Fprintf(c, "%x\r\n%s\r\n", n, rest[:n])
			rest = rest[n:]
		}
		io.WriteString(c, "0\r\n\r\n")
	}()
	s.await("the first part came", func() bool { return got.Len() > 0 })
	before := got.Len()
	c.wantQuiet()
	s.on(s.loops[0], func() {
		if got.Len() != before {
			t.Errorf("%d bytes came while paused", got.Len()-before)
		}
	})
	s.await("everything came", func() bool {
		conn.ResumeBody()
		return conn.state == stateIdle
	})
	c.want(200, "")
	if !bytes.Equal(got.Bytes(), body) || largest > bodyRead {
		t.Fatalf("%d bytes, largest part %d", got.Len(), largest)
	}
}

// Small chunks that come together are given together.
func TestSmallChunksComeTogether(t *testing.T) {
	calls := 0
	s := serve(t, defaultConfig(), func(c *HTTPConn, r *http1.Request) {
		var got []byte
		c.Take(&exchange{
			body: func(c *HTTPConn, data []byte) { calls++; got = append(got, data...) },
			end:  func(c *HTTPConn) { c.Reply(200, "", got) },
		})
		c.ReadBody()
	})
	c := s.dial()
	c.send("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n" + strings.Repeat("1\r\na\r\n2;x=y\r\nbc\r\n", 500) + "0\r\n\r\n")
	c.want(200, strings.Repeat("abc", 500))
	s.on(s.loops[0], func() {
		if calls > 5 {
			t.Errorf("%d calls", calls)
		}
	})
}

func TestStreamedAnswers(t *testing.T) {
	s := serve(t, defaultConfig(), func(c *HTTPConn, r *http1.Request) {
		length := Chunked
		if string(r.Path) == "/length" {
			length = 11
		}
		c.StartResponse(Response{Status: 201, Fields: []byte("X-A: b\r\n"), Length: length})
		if string(r.Path) == "/slow" {
			// The head must not wait for the body.
			c.Loop().Post(loop.Func(func(l *loop.Loop) {
				l.Post(loop.Func(func(*loop.Loop) { c.Write([]byte("hello ")); c.Finish([]byte("world")) }))
			}))
			return
		}
		c.Write([]byte("hello "))
		c.Write(nil)
		c.Write([]byte("world"))
		c.EndResponse()
	})
	for _, path := range []string{"/chunked", "/length", "/slow"} {
		c := s.dial()
		for range 3 {
			c.send("GET " + path + " HTTP/1.1\r\nHost: h\r\n\r\n")
			resp := c.want(201, "hello world")
			if resp.Header.Get("X-A") != "b" || (resp.ContentLength == 11) != (path == "/length") {
				t.Fatalf("%s: %v", path, resp)
			}
		}
	}
	// HTTP/1.0 has no chunks: the end of the connection is the end of the body
	c := s.dial()
	c.send("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
	if resp := c.want(201, "hello world"); len(resp.TransferEncoding) > 0 || !resp.Close {
		t.Fatalf("%v", resp)
	}
	c.wantEOF()
}

// An app that heeds Write and OnDrain keeps little in memory, however slow the
// peer is, and nothing is lost.
func TestWriteBackpressure(t *testing.T) {
	const total = 8 << 20
	var conn *HTTPConn
	most, drains := 0, 0
	data := make([]byte, total)
	for i := range data {
		data[i] = byte(i * 7 >> 3)
	}
	s := serve(t, defaultConfig(), func(c *HTTPConn, r *http1.Request) {
		conn = c
		rest := data
		pump := func(c *HTTPConn) {
			for len(rest) > 0 {
				n := min(len(rest), 50000)
				backed := c.Write(rest[:n])
				rest = rest[n:]
				if most = max(most, c.pending()); backed {
					return
				}
			}
			c.EndResponse()
		}
		c.Take(&exchange{drain: func(c *HTTPConn) { drains++; pump(c) }})
		c.StartResponse(Response{Status: 200, Length: Chunked})
		pump(c)
	})
	c := s.dial()
	c.send(get)
	s.await("output waits", func() bool { return conn != nil && conn.pending() > 0 })
	c.want(200, string(data))
	c.send("x") // the connection is still in step
	s.await("the next head begins", func() bool { return conn.state == stateHead && conn.out == nil })
	if drains == 0 || most > 60000 {
		t.Fatalf("%d drains, at most %d bytes pending", drains, most)
	}
}

// flood writes until the peer takes no more.
func flood(c *HTTPConn) {
	for !c.Write(make([]byte, 64<<10)) {
	}
}

func TestWriteStall(t *testing.T) {
	cfg := defaultConfig()
	cfg.WriteStall = 100 * time.Millisecond
	aborted := make(chan Abort, 1)
	s := serve(t, cfg, func(c *HTTPConn, r *http1.Request) {
		c.Take(&exchange{drain: flood, abort: func(c *HTTPConn, why Abort) bool { aborted <- why; return false }})
		c.StartResponse(Response{Status: 200, Length: Chunked})
		flood(c)
	})
	c := s.dial()
	c.send(get)
	if why := <-aborted; why != WriteStalled || !why.Final() || s.Stats.WriteStalls.Load() != 1 {
		t.Fatalf("%v", why)
	}
	if _, err := io.Copy(io.Discard, c.r); err == nil {
		t.Fatal("the connection was not reset")
	}
}

// A peer that takes bytes slowly does not make the socket writable for long,
// and is no stalled one all the same.
type slowSocket struct {
	*loop.Conn
	unacked *int
}

func (s slowSocket) Unacked() int { *s.unacked--; return *s.unacked }

type slowAcceptor struct {
	s       *Server
	unacked *int
}

func (a slowAcceptor) OnAccept(c *loop.Conn) loop.Handler { return a }
func (a slowAcceptor) OnRead(c *loop.Conn) {
	h := a.s.admit(slowSocket{c, a.unacked})
	c.SetHandler(h)
	c.Kick()
}
func (slowAcceptor) OnWrite(*loop.Conn)        {}
func (slowAcceptor) OnHangup(*loop.Conn, bool) {}
func (slowAcceptor) OnTimer(*loop.Conn)        {}

func TestSlowReaderIsNotStalled(t *testing.T) {
	cfg := defaultConfig()
	cfg.WriteStall = 30 * time.Millisecond
	var aborts []Abort
	s := serve(t, cfg, func(c *HTTPConn, r *http1.Request) {
		c.Take(&exchange{drain: flood, abort: func(c *HTTPConn, why Abort) bool { aborts = append(aborts, why); return false }})
		c.StartResponse(Response{Status: 200, Length: Chunked})
		flood(c)
	})
	ln, err := loop.Listen("127.0.0.1:0", loop.SocketOptions{SendBuffer: 64 << 10})
	if err != nil {
		t.Fatal(err)
	}
	unacked := 1 << 20
	s.on(s.loops[0], func() { s.loops[0].Accept(ln, slowAcceptor{s.Server, &unacked}) })
	t.Cleanup(func() { s.on(s.loops[0], func() { s.loops[0].Unlisten(ln) }); ln.Close() })
	s.addr = ln.Addr().String()
	c := s.dial()
	c.send(get)
	s.await("several stall times have passed", func() bool { return unacked < 1<<20-10 })
	s.on(s.loops[0], func() {
		if len(aborts) > 0 {
			t.Errorf("%v", aborts)
		}
	})
}

// hastySocket has no time to linger but what a slow peer is given.
type hastySocket struct{ *loop.Conn }

func (s hastySocket) Linger(maxBytes int, _, stall int64, gone func()) {
	s.Conn.Linger(maxBytes, s.Loop().Now(), stall, gone)
}

type hastyAcceptor struct{ *Server }

func (a hastyAcceptor) OnAccept(c *loop.Conn) loop.Handler { return a.admit(hastySocket{c}) }

// The last answer of a connection reaches a client that takes it slowly: that the
// kernel has all of it is not that the client has.
func TestLastAnswerToSlowReader(t *testing.T) {
	answer := bytes.Repeat([]byte("answer"), 50<<10)
	var conn *HTTPConn
	s := serve(t, defaultConfig(), func(c *HTTPConn, r *http1.Request) {
		conn = c
		c.StartResponse(Response{Status: 200, Length: int64(len(answer)), Close: true})
		c.Finish(answer)
	})
	ln, err := loop.Listen("127.0.0.1:0", loop.SocketOptions{SendBuffer: 4 << 20})
	if err != nil {
		t.Fatal(err)
	}
	s.on(s.loops[0], func() { s.loops[0].Accept(ln, hastyAcceptor{s.Server}) })
	t.Cleanup(func() { s.on(s.loops[0], func() { s.loops[0].Unlisten(ln) }); ln.Close() })
	s.addr = ln.Addr().String()
	c := s.dial()
	c.SetReadBuffer(64 << 10)
	c.send(get)
	s.await("the time to linger is over", func() bool {
		return conn != nil && (conn.state == stateGone || conn.state == stateLingering && conn.sock.Deadline() > conn.now())
	})
	c.want(200, string(answer))
}

func TestBodyAborts(t *testing.T) {
	cfg := defaultConfig()
	cfg.BodyTimeout = 80 * time.Millisecond
	aborted := make(chan Abort, 1)
	s := serve(t, cfg, func(c *HTTPConn, r *http1.Request) {
		answer := string(r.Query) // how OnAbort answers
		c.Take(&exchange{
			abort: func(c *HTTPConn, why Abort) bool {
				aborted <- why
				switch answer {
				case "now":
					c.Reply(499, "", []byte("now"))
				case "later":
					c.Loop().Post(loop.Func(func(*loop.Loop) { c.Reply(499, "", []byte("later")) }))
					return true
				case "goes-on":
					c.Finish([]byte("rest"))
				}
				return false
			},
		})
		if answer == "cut" || answer == "goes-on" {
			c.StartResponse(Response{Status: 200, Length: Chunked})
			c.Write([]byte("begun "))
		}
		c.ReadBody()
	})
	f := func(how, in string, shut bool, why Abort, check func(c *client)) {
		t.Helper()
		c := s.dial()
		c.send("POST /?" + how + " HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n" + in)
		if shut {
			c.CloseWrite()
		}
		if got := <-aborted; got != why || got.Final() {
			t.Fatalf("%q: aborted with %v", in, got)
		}
		check(c)
	}
	want := func(status int, body string) func(c *client) {
		return func(c *client) {
			t.Helper()
			if resp := c.want(status, body); !resp.Close && status != 200 {
				t.Fatal("not closing")
			}
			c.wantEOF()
			c.Close()
		}
	}
	// by default the edge answers
	f("", "3\r\nab", false, BodyStalled, want(408, "request body timed out\n"))
	f("", "3\r\nabcd", false, BodyMalformed, want(400, "chunk data longer than its size\n"))
	f("", "3\r\nab", true, BodyCut, want(400, "body ended early\n"))
	// the app may
	f("now", "3\r\nab", false, BodyStalled, want(499, "now"))
	f("now", "3\r\nabcd", false, BodyMalformed, want(499, "now"))
	f("later", "3\r\nab", false, BodyStalled, want(499, "later"))
	f("later", "3\r\nab", true, BodyCut, want(499, "later"))
	// an answer that had begun is cut visibly, or completed by the app
	f("goes-on", "3\r\nab", false, BodyStalled, want(200, "begun rest"))
	f("cut", "3\r\nabcd", false, BodyMalformed, func(c *client) {
		resp, err := http.ReadResponse(c.r, nil)
		if err != nil {
			t.Fatal(err)
		}
		if b, err := io.ReadAll(resp.Body); err != io.ErrUnexpectedEOF || string(b) != "begun " {
			t.Fatalf("%q %v", b, err)
		}
		c.Close()
	})
	s.await("all connections are gone", func() bool { return s.Stats.Open.Load() == 0 })
}

// Behind a body that is out of step no further request is looked for, also if the
// answer was complete before the fault was told.
func TestFaultBehindAnswer(t *testing.T) {
	for _, stream := range []bool{false, true} {
		s := serve(t, defaultConfig(), func(c *HTTPConn, r *http1.Request) {
			if stream {
				c.StartResponse(Response{Status: 200, Length: 5})
			}
			c.Take(&exchange{body: func(c *HTTPConn, data []byte) {
				if stream {
					c.Finish(data)
				} else {
					c.Reply(200, "", data)
				}
			}})
			c.ReadBody()
		})
		c := s.dial()
		c.send("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nZ")
		if resp := c.want(200, "hello"); !resp.Close && !stream {
			t.Fatal("not closing")
		}
		c.send("0\r\n\r\n" + get)
		c.wantEOF()
		if n := s.Stats.Requests.Load(); n != 1 {
			t.Fatalf("%d requests", n)
		}
		c.Close()
	}
}

func TestPeerReset(t *testing.T) {
	aborted := make(chan Abort, 1)
	s := serve(t, defaultConfig(), func(c *HTTPConn, r *http1.Request) {
		c.Take(&exchange{abort: func(c *HTTPConn, why Abort) bool {
			if !c.Gone() {
				t.Error("not gone")
			}
			c.Reply(200, "", nil) // late calls have no effect
			c.Write(nil)
			c.Abort()
			aborted <- why
			return true
		}})
		if r.MethodID == http1.MethodPost {
			c.ReadBody()
		}
	})
	for i, in := range []string{get, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nab", get + get} {
		c := s.dial()
		c.send(in)
		s.await("the request came", func() bool { return s.Stats.Requests.Load() == int64(i+1) })
		c.SetLinger(0)
		c.Close()
		if why := <-aborted; why != PeerReset {
			t.Fatalf("%q: %v", in, why)
		}
	}
	if n := s.Stats.Open.Load(); n != 0 {
		t.Fatalf("%d open", n)
	}
}

func TestPeerEOF(t *testing.T) {
	eof := make(chan *HTTPConn, 2)
	s := serve(t, defaultConfig(), func(c *HTTPConn, r *http1.Request) {
		c.Take(&exchange{peerEOF: func(c *HTTPConn) { eof <- c }})
	})
	// a client that shuts down its side still gets its answer
	c := s.dial()
	c.send(get)
	c.CloseWrite()
	conn := <-eof
	s.on(s.loops[0], func() { conn.Reply(200, "", []byte("hi")) })
	c.want(200, "hi")
	c.wantEOF()
	// an app that takes it for gone aborts
	c = s.dial()
	c.send(get + "and more")
	c.CloseWrite()
	conn = <-eof
	s.on(s.loops[0], func() { conn.Abort() })
	if _, err := c.r.ReadByte(); err == nil {
		t.Fatal("still answered")
	}
	if len(eof) > 0 {
		t.Fatal("told twice")
	}
}

// What falls short of its stated length must not look complete.
func TestShortAnswerIsCut(t *testing.T) {
	s := serve(t, defaultConfig(), func(c *HTTPConn, r *http1.Request) {
		c.StartResponse(Response{Status: 200, Length: 10})
		c.Write([]byte("short"))
		c.EndResponse()
	})
	c := s.dial()
	c.send(get + get)
	resp, err := http.ReadResponse(c.r, nil)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(resp.Body); err != io.ErrUnexpectedEOF || string(b) != "short" {
		t.Fatalf("%q %v", b, err)
	}
}
