package mte

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"sluice/loop"
)

const (
	okHello = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
	okEmpty = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
)

func TestOriginRequestFraming(t *testing.T) {
	heads := make(chan string, 1)
	origin := listenRaw(t, func(c *originPeer) {
		for {
			head, ok := c.head()
			if !ok {
				return
			}
			body := ""
			switch {
			case strings.Contains(head, "Content-Length: 5\r\n"):
				b := make([]byte, 5)
				io.ReadFull(c.r, b)
				body = string(b)
			case strings.Contains(head, "chunked"):
				for !strings.HasSuffix(body, "0\r\n\r\n") {
					line, err := c.r.ReadString('\n')
					if err != nil {
						return
					}
					body += line
				}
			}
			heads <- head + body
			c.send(okEmpty)
		}
	})
	p := startPool(t, testOriginConfig())
	host := origin.ln.Addr().String()
	f := func(method string, length int64, write func(o *originCall), want string) {
		t.Helper()
		c := p.start(origin.up, method, "/a?b", length, nil)
		if write != nil {
			p.on(func() { write(c.o) })
		}
		c.wantAnswer(200, "")
		if got := <-heads; got != strings.ReplaceAll(want, "HOST", host) {
			t.Errorf("%s with length %d was sent as %q", method, length, got)
		}
	}
	hello := func(o *originCall) { o.Write([]byte("hello")); o.End() }
	// No body: no word of one.
	f("GET", 0, nil, "GET /a?b HTTP/1.1\r\nHost: HOST\r\nX-A: 1\r\n\r\n")
	f("DELETE", 0, nil, "DELETE /a?b HTTP/1.1\r\nHost: HOST\r\nX-A: 1\r\n\r\n")
	// Where one is expected, that there is none.
	f("POST", 0, nil, "POST /a?b HTTP/1.1\r\nHost: HOST\r\nX-A: 1\r\nContent-Length: 0\r\n\r\n")
	// A length that is known, one that is not, and a body of which nothing came.
	f("POST", 5, hello, "POST /a?b HTTP/1.1\r\nHost: HOST\r\nX-A: 1\r\nContent-Length: 5\r\n\r\nhello")
	f("GET", -1, hello, "GET /a?b HTTP/1.1\r\nHost: HOST\r\nX-A: 1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n")
	f("PUT", -1, (*originCall).End, "PUT /a?b HTTP/1.1\r\nHost: HOST\r\nX-A: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n")
	if n := origin.accepted(); n != 1 {
		t.Errorf("%d connections were made for requests one after the other", n)
	}
	p.wantIdle(origin.up, 1)
}

func TestOriginHeadAndBodyLeaveTogether(t *testing.T) {
	first := make(chan string, 2)
	origin := listenRaw(t, func(c *originPeer) {
		for {
			b := make([]byte, 4096)
			n, err := c.Read(b)
			if err != nil {
				return
			}
			first <- string(b[:n])
			c.send(okEmpty)
		}
	})
	p := startPool(t, testOriginConfig())
	for range 2 { // on a new connection, and on a pooled one
		c := newTestCall(p)
		p.on(func() {
			c.o = p.call(origin.up, &originHead{Method: []byte("POST"), Target: []byte("/"), Length: 5}, c)
			c.o.Write([]byte("hello"))
			c.o.End()
		})
		c.wantAnswer(200, "")
		if got := <-first; !strings.HasSuffix(got, "\r\n\r\nhello") {
			t.Errorf("the first segment was %q", got)
		}
	}
}

// answers are responses with what a user sees of them, and whether another
// request may follow on the connection.
var originAnswers = []struct {
	name, method, raw string
	status            int
	body              string
	closes, reused    bool
}{
	{"a length", "GET", okHello, 200, "hello", false, true},
	{"nothing", "GET", okEmpty, 200, "", false, true},
	{"chunks", "GET", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2;x=y\r\nhe\r\n3\r\nllo\r\n0\r\nX-T: 1\r\n\r\n", 200, "hello", false, true},
	{"until close", "GET", "HTTP/1.1 200 OK\r\n\r\nhello", 200, "hello", true, false},
	{"HTTP/1.0", "GET", "HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello", 200, "hello", false, false},
	{"Connection: close", "GET", "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello", 200, "hello", false, false},
	{"HEAD with a length", "HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n", 200, "", false, true},
	{"204", "GET", "HTTP/1.1 204 No Content\r\n\r\n", 204, "", false, true},
	{"304 with a length", "GET", "HTTP/1.1 304 Not Modified\r\nContent-Length: 500\r\n\r\n", 304, "", false, true},
	{"interim responses", "GET", "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\nHTTP/1.1 102 P\r\n\r\n" + okHello, 200, "hello", false, true},
	{"bytes behind the body", "GET", okHello + "x", 200, "hello", false, false},
	{"a second response", "GET", okHello + okHello, 200, "hello", false, false},
	{"content behind HEAD", "HEAD", okHello, 200, "", false, false},
	{"content behind 304", "GET", "HTTP/1.1 304 X\r\nContent-Length: 5\r\n\r\nhello", 304, "", false, false},
}

func TestOriginAnswers(t *testing.T) {
	for _, a := range originAnswers {
		origin := listenRaw(t, func(c *originPeer) {
			if _, ok := c.head(); !ok {
				return
			}
			c.send(a.raw)
			if !a.closes {
				c.wantGone()
			}
		})
		p := startPool(t, testOriginConfig())
		p.start(origin.up, a.method, "/", 0, nil).wantAnswer(a.status, a.body)
		n := 0
		if a.reused {
			n = 1
		}
		p.await(a.name+": what becomes of the connection", func() bool {
			h := p.hosts[origin.up.key]
			return h.idles == n && h.uses == n
		})
		p.on(p.closeIdle)
	}
}

// Cut anywhere a response is a failure, and byte by byte it is what it is whole.
func TestOriginAnswersCut(t *testing.T) {
	origin := listenRaw(t, nil)
	p := startPool(t, testOriginConfig())
	for _, a := range originAnswers {
		if strings.Contains(a.name, "behind") || strings.Contains(a.name, "second") {
			continue // complete before its end
		}
		origin.play(func(c *originPeer) {
			if _, ok := c.head(); !ok {
				return
			}
			for i := range len(a.raw) {
				c.send(a.raw[i : i+1])
			}
			if !a.closes {
				c.wantGone()
			}
		})
		p.start(origin.up, a.method, "/", 0, nil).wantAnswer(a.status, a.body)
		p.on(p.closeIdle)
		for cut := range len(a.raw) {
			if a.closes && cut >= strings.Index(a.raw, "\r\n\r\n")+4 {
				break
			}
			origin.play(func(c *originPeer) { c.head(); c.send(a.raw[:cut]) })
			c := p.start(origin.up, a.method, "/", 0, nil).wait()
			if c.failure == nil || c.failure.kind != failResponse {
				t.Errorf("%s, cut at %d: not a failure", a.name, cut)
			}
		}
	}
	p.await("everything gone", func() bool { return p.hosts[origin.up.key].uses == 0 })
}

func TestOriginAnswersFailure(t *testing.T) {
	origin := listenRaw(t, nil)
	p := startPool(t, testOriginConfig())
	f := func(answer, want string) {
		t.Helper()
		origin.play(func(c *originPeer) {
			c.head()
			c.send(answer)
			c.wantGone()
		})
		p.start(origin.up, "GET", "/", 0, nil).wantFailure(failResponse, want)
	}
	// Status lines.
	f("this is not http\r\n\r\n", "status line")
	f("HTTP/1.1 abc OK\r\n\r\n", "status line")
	f("HTTP/1.1200 OK\r\n\r\n", "status line")
	f("http/1.1 200 OK\r\n\r\n", "status line")
	f("HTTP/2.0 200 OK\r\n\r\n", "version")
	f("HTTP/1.1 099 X\r\n\r\n", "status code out of range")
	f("HTTP/1.1 600 X\r\n\r\n", "status code out of range")
	// A protocol that we did not ask for.
	f("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n", "101")
	// Fields.
	f("HTTP/1.1 200 OK\nContent-Length: 0\n\n", "bare LF")
	f("HTTP/1.1 200 OK\r\nX-A: b\r\n c\r\n\r\n", "folded")
	f("HTTP/1.1 200 OK\r\nX-A : b\r\n\r\n", "field name")
	f("HTTP/1.1 200 OK\r\nX-A: b\rX-B: c\r\n\r\n", "control byte")
	// Lengths that could be read in two ways.
	f("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!", "repeated Content-Length")
	f("HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\nhello", "malformed Content-Length")
	f("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "together")
	f("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n", "unknown transfer coding")
	f("HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "HTTP/1.0")
	// Chunks.
	f("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "chunk size")
	f("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFFF\r\n", "out of range")
	f("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhello", "longer than its size")
	// Bounds.
	f("HTTP/1.1 200 OK\r\nX-A: "+strings.Repeat("a", 1<<17), "too large")
	f("HTTP/1.1 200 OK\r\n"+strings.Repeat("X-A: a\r\n", 200), "too many")
	f(strings.Repeat("HTTP/1.1 100 Continue\r\n\r\n", maxInterim+1), "interim")
	p.await("everything gone", func() bool { return p.hosts[origin.up.key].uses == 0 })
}

func TestOriginConnectFailure(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	dead := ln.Addr().(*net.TCPAddr).AddrPort()
	ln.Close()
	cfg := testOriginConfig()
	cfg.Connect = 100 * time.Millisecond
	p := startPool(t, cfg)
	f := func(raw, want string) {
		t.Helper()
		up, err := newUpstream(raw)
		if err != nil {
			t.Fatal(err)
		}
		p.start(up, "POST", "/", -1, nil).wantFailure(failConnect, want)
		p.await("everything gone", func() bool { return p.hosts[up.key].uses == 0 })
	}
	// Nobody listens.
	f("http://"+dead.String(), "refused")
	f("http://[::1]:"+fmt.Sprint(dead.Port()), "")
	// No such name: RFC 6761 keeps it from existing, with a resolver or without.
	f("http://nobody.invalid", "nobody.invalid")
}

// A name's addresses are tried in order, within one bound.
func TestOriginSeveralAddresses(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	dead := ln.Addr().(*net.TCPAddr).AddrPort()
	ln.Close()
	origin := listenRaw(t, answerAll(okHello))
	live := origin.ln.Addr().(*net.TCPAddr).AddrPort()
	up, err := newUpstream("http://several.invalid:" + fmt.Sprint(live.Port()))
	if err != nil {
		t.Fatal(err)
	}
	p := startPool(t, testOriginConfig())
	p.on(func() {
		n := &p.hostOf(up).names
		n.addrs, n.until = []netip.AddrPort{dead, dead, live}, p.l.Now()+int64(time.Hour)
	})
	p.start(up, "GET", "/", 0, nil).wantAnswer(200, "hello")
	c := p.start(up, "POST", "/", 5, nil)
	p.on(func() { c.o.Write([]byte("12345")); c.o.End() })
	c.wantAnswer(200, "hello")
}

func TestOriginNameIsLookedUpOnce(t *testing.T) {
	origin := listenRaw(t, answerAll(okHello))
	up, err := newUpstream("http://localhost:" + fmt.Sprint(origin.ln.Addr().(*net.TCPAddr).Port))
	if err != nil {
		t.Fatal(err)
	}
	p := startPool(t, testOriginConfig())
	var calls []*testCall
	for range 5 {
		calls = append(calls, p.start(up, "GET", "/", 0, nil))
	}
	gone := p.start(up, "GET", "/", 0, nil)
	p.on(gone.o.Cancel) // while it waits for the name, or just behind
	for _, c := range calls {
		c.wantAnswer(200, "hello")
	}
	p.on(func() {
		if n := &p.hosts[up.key].names; len(n.addrs) == 0 || n.asking || len(n.waiting) != 0 {
			t.Errorf("after the look-up: %+v", n)
		}
	})
}

func TestOriginIdleConnections(t *testing.T) {
	closeNow := make(chan string)
	origin := listenRaw(t, func(c *originPeer) {
		if _, _, ok := c.request(); !ok {
			return
		}
		c.send(okHello)
		switch <-closeNow {
		case "close":
		case "reset":
			c.reset()
		case "408":
			c.send("HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n")
			c.wantGone()
		}
	})
	p := startPool(t, testOriginConfig())
	f := func(how string) {
		t.Helper()
		p.start(origin.up, "GET", "/", 0, nil).wantAnswer(200, "hello")
		p.wantIdle(origin.up, 1)
		closeNow <- how
		p.wantIdle(origin.up, 0)
	}
	// Whatever an idle connection says makes it useless, at once.
	f("close")
	f("reset")
	f("408")
	// More than MaxIdle are not kept.
	p.on(func() { p.cfg.MaxIdle = 2 })
	var calls []*testCall
	p.on(func() { // all at once, so that none has another's connection
		for range 4 {
			c := newTestCall(p)
			c.o = p.call(origin.up, &originHead{Method: []byte("GET"), Target: []byte("/")}, c)
			calls = append(calls, c)
		}
	})
	for _, c := range calls {
		c.wantAnswer(200, "hello")
	}
	p.wantIdle(origin.up, 2)
	p.on(p.closeIdle)
	for range 4 {
		closeNow <- "close"
	}
}

func TestOriginIdleTimeout(t *testing.T) {
	origin := listenRaw(t, answerAll(okHello))
	cfg := testOriginConfig()
	cfg.Idle = 30 * time.Millisecond
	p := startPool(t, cfg)
	p.start(origin.up, "GET", "/", 0, nil).wantAnswer(200, "hello")
	p.wantIdle(origin.up, 0)
}

// The origin's close is in the kernel, but the loop has not looked: what was not
// sent is sent on a new connection, what was sent is not sent again.
func TestOriginStaleConnection(t *testing.T) {
	origin := listenRaw(t, func(c *originPeer) {
		if _, _, ok := c.request(); ok {
			c.send(okHello)
			if _, _, ok = c.request(); ok {
				return // without a word
			}
		}
	})
	p := startPool(t, testOriginConfig())
	// A request that was sent on a connection that then closes is not repeated.
	p.start(origin.up, "GET", "/", 0, nil).wantAnswer(200, "hello")
	p.wantIdle(origin.up, 1)
	p.start(origin.up, "GET", "/", 0, nil).wantFailure(failResponse, originNoAnswer)
	if n := origin.accepted(); n != 1 {
		t.Errorf("a request that was sent went out again: %d connections", n)
	}
	// One of which nothing was taken is: the head waits for the body here, and
	// the connection ends meanwhile.
	p.start(origin.up, "GET", "/", 0, nil).wantAnswer(200, "hello")
	p.wantIdle(origin.up, 1)
	c := newTestCall(p)
	p.on(func() {
		c.o = p.call(origin.up, &originHead{Method: []byte("POST"), Target: []byte("/"), Length: -1}, c)
		c.o.conn.sock.(*loop.Conn).ShutdownWrite() // makes the write fail like a reset would
		c.o.Write([]byte("hello"))
		c.o.End()
	})
	c.wantAnswer(200, "hello")
	if n := origin.accepted(); n != 3 {
		t.Errorf("%d connections, want a third one for what was not sent", n)
	}
}

func TestOriginTimeouts(t *testing.T) {
	const short = 40 * time.Millisecond
	origin := listenRaw(t, nil)
	f := func(change func(*originConfig), play func(c *originPeer), length int64, kind originFailureKind, want string) {
		t.Helper()
		cfg := testOriginConfig()
		change(&cfg)
		p := startPool(t, cfg)
		origin.play(play)
		c := p.start(origin.up, "POST", "/", length, nil)
		if length < 0 {
			p.on(func() {
				for range 16 {
					c.o.Write(make([]byte, 1<<20))
				}
			})
		}
		c.wantFailure(kind, want)
	}
	silent := func(c *originPeer) { c.request(); c.wantGone() }
	// No head, half a head, a head in front of which interim ones stop.
	f(func(c *originConfig) { c.Response = short }, silent, 0, failResponse, originSlowHead)
	f(func(c *originConfig) { c.Response = short }, func(c *originPeer) { c.request(); c.send("HTTP/1.1 200"); c.wantGone() }, 0, failResponse, originSlowHead)
	f(func(c *originConfig) { c.Response = short }, func(c *originPeer) { c.request(); c.send("HTTP/1.1 102 P\r\n\r\n"); c.wantGone() }, 0, failResponse, originSlowHead)
	// A body that stops.
	f(func(c *originConfig) { c.Body = short }, func(c *originPeer) { c.request(); c.send(okHello[:len(okHello)-1]); c.wantGone() }, 0, failResponse, originSlowBody)
	// An origin that does not read.
	release := make(chan struct{})
	f(func(c *originConfig) { c.WriteStall = short }, func(c *originPeer) { c.hold(release) }, -1, failResponse, originStalled)
	// Nor when the request was whole before there was a connection.
	cfg := testOriginConfig()
	cfg.WriteStall = short
	p := startPool(t, cfg)
	c := newTestCall(p)
	p.on(func() {
		c.o = p.call(origin.up, &originHead{Method: []byte("POST"), Target: []byte("/"), Length: backedUp}, c)
		c.o.Write(make([]byte, backedUp))
		c.o.End()
	})
	c.wantFailure(failResponse, originStalled)
	close(release)
}
