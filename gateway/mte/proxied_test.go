package mte

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"sluice/gateway/edge"
)

// proxyTo starts a gateway in front of an upstream.
func proxyTo(t testing.TB, up *upstream, change func(g *testGateway)) *testGateway {
	t.Helper()
	g := startGateway(t, "127.0.0.1:0", testOriginConfig(), up, 1)
	if change != nil {
		change(g)
	}
	g.run()
	return g
}

// A proxyClient is a client of a gateway, byte by byte.
type proxyClient struct {
	*net.TCPConn
	t testing.TB
	r *bufio.Reader
}

func (g *testGateway) dial() *proxyClient {
	g.t.Helper()
	conn, err := net.Dial("tcp", g.addr)
	if err != nil {
		g.t.Fatal(err)
	}
	conn.SetDeadline(time.Now().Add(2 * originPatience))
	g.t.Cleanup(func() { conn.Close() })
	return &proxyClient{conn.(*net.TCPConn), g.t, bufio.NewReader(conn)}
}

func (c *proxyClient) send(s string) {
	c.t.Helper()
	if _, err := io.WriteString(c, s); err != nil {
		c.t.Fatalf("sending: %v", err)
	}
}

func (c *proxyClient) answer(method string) (*http.Response, string, error) {
	c.t.Helper()
	resp, err := http.ReadResponse(c.r, &http.Request{Method: method})
	if err != nil {
		c.t.Fatalf("reading an answer: %v", err)
	}
	b, err := io.ReadAll(resp.Body)
	return resp, string(b), err
}

func (c *proxyClient) want(status int, body string) *http.Response {
	c.t.Helper()
	resp, got, err := c.answer("GET")
	if err != nil || resp.StatusCode != status || got != body {
		c.t.Fatalf("got %d %.80q (%v), want %d %.80q", resp.StatusCode, got, err, status, body)
	}
	return resp
}

func TestProxiedHeads(t *testing.T) {
	heads := make(chan string, 1)
	origin := listenRaw(t, func(c *originPeer) {
		for {
			head, ok := c.head()
			if !ok {
				return
			}
			heads <- head
			c.send("HTTP/1.1 200 OK\r\nDate: yesterday\r\nServer: o\r\nX-D: 1\r\nX-E: 2\r\nX-D: 3\r\nKeep-Alive: timeout=5\r\n" +
				"Connection: X-Hop\r\nX-Hop: 1\r\nUpgrade: h2c\r\nStrict: theirs\r\nVary: Accept\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\nContent-Length: 2\r\n\r\nok")
		}
	})
	up, err := newUpstream("http://" + origin.ln.Addr().String() + "/base/")
	if err != nil {
		t.Fatal(err)
	}
	f := func(trusted bool, request, want string) http.Header {
		t.Helper()
		g := proxyTo(t, up, func(g *testGateway) {
			g.route.trusted = trusted
			g.route.request = dress{headers: []edge.Header{{Name: "X-Secret", Value: "s"}}, lines: []byte("X-Secret: s\r\n")}
			g.route.to.dress = &dress{headers: []edge.Header{{Name: "Strict", Value: "ours"}, {Name: "Vary", Value: "Origin"}}, lines: []byte("Strict: ours\r\nVary: Origin\r\n")}
		})
		c := g.dial()
		c.send(request)
		resp := c.want(200, "ok")
		if got := strings.ReplaceAll(<-heads, origin.ln.Addr().String(), "ORIGIN"); got != want {
			t.Errorf("%q\nreached the origin as\n%q\nwant\n%q", request, got, want)
		}
		return resp.Header
	}
	const ours = "X-Forwarded-Proto: http\r\nX-Forwarded-Host: h:1\r\nX-Secret: s\r\n\r\n"
	// What came is passed on in order; who asked is added, and what the domain adds.
	answer := f(false, "GET /a%2Fb?c=;d HTTP/1.1\r\nHost: h:1\r\nX-A: 1\r\ncookie: c\r\nX-A:  2 \r\n\r\n",
		"GET /base/a%2Fb?c=;d HTTP/1.1\r\nHost: ORIGIN\r\nX-A: 1\r\ncookie: c\r\nX-A: 2\r\nX-Forwarded-For: 127.0.0.1\r\n"+ours)
	want := http.Header{"Date": {"yesterday"}, "Server": {"o"}, "X-D": {"1", "3"}, "X-E": {"2"}, "Strict": {"ours"}, "Vary": {"Accept", "Origin"}, "Set-Cookie": {"a=1", "b=2"}, "Content-Length": {"2"}}
	if fmt.Sprint(answer) != fmt.Sprint(want) {
		t.Errorf("the answer's fields are %v, want %v", answer, want)
	}
	// What concerns the hop, Expect, the domain's own and look-alikes stay here.
	f(false, "GET / HTTP/1.1\r\nHost: h:1\r\nConnection: keep-alive, X-Hop\r\nX-Hop: 1\r\nKeep-Alive: 1\r\nTE: trailers\r\nUpgrade: x\r\nProxy-Authorization: x\r\nx-secret: forged\r\nContent_Length: 9\r\nX_Forwarded_For: 6.6.6.6\r\n\r\n",
		"GET /base/ HTTP/1.1\r\nHost: ORIGIN\r\nX-Forwarded-For: 127.0.0.1\r\n"+ours)
	// Lines of X-Forwarded-For are one list; what strangers say otherwise is not told.
	const forwarded = "GET / HTTP/1.1\r\nHost: h:1\r\nX-Forwarded-For: 1.2.3.4, 9.9.9.9\r\nx-forwarded-for:\r\nX-Forwarded-For: 5.6.7.8\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Host: outer\r\nX-Forwarded-Port: 443\r\nForwarded: for=1\r\n\r\n"
	f(false, forwarded, "GET /base/ HTTP/1.1\r\nHost: ORIGIN\r\nX-Forwarded-For: 1.2.3.4, 9.9.9.9, 5.6.7.8, 127.0.0.1\r\n"+ours)
	// What a trusted proxy says is kept.
	f(true, forwarded, "GET /base/ HTTP/1.1\r\nHost: ORIGIN\r\nX-Forwarded-Port: 443\r\nForwarded: for=1\r\nX-Forwarded-For: 1.2.3.4, 9.9.9.9, 5.6.7.8, 127.0.0.1\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Host: outer\r\nX-Secret: s\r\n\r\n")
	// One that says nothing of the rest leaves it to us.
	f(true, "GET / HTTP/1.1\r\nHost: h:1\r\n\r\n", "GET /base/ HTTP/1.1\r\nHost: ORIGIN\r\nX-Forwarded-For: 127.0.0.1\r\n"+ours)
	// An absolute target is what the request is for.
	f(false, "GET http://h:1/x HTTP/1.1\r\nHost: other\r\n\r\n", "GET /base/x HTTP/1.1\r\nHost: ORIGIN\r\nX-Forwarded-For: 127.0.0.1\r\n"+ours)
}

// Bodies of any size and framing pass both ways, and a connection carries many
// requests.
func TestProxiedBodies(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		w.Header().Set("X-Framing", fmt.Sprint(r.ContentLength, r.TransferEncoding))
		if r.URL.Query().Has("chunked") {
			http.NewResponseController(w).Flush()
		}
		w.Write(b)
	}))
	t.Cleanup(srv.Close)
	up, err := newUpstream(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	g := proxyTo(t, up, nil)
	for _, size := range []int{0, 1, 1000, 70000, 3 << 20} {
		body := bytes.Repeat([]byte("0123456789abcde"), size/15+1)[:size]
		for _, target := range []string{"/", "/?chunked"} {
			for _, chunked := range []bool{false, true} {
				var r io.Reader = bytes.NewReader(body)
				if chunked {
					r = struct{ io.Reader }{r}
				}
				resp, err := http.Post("http://"+g.addr+target, "text/plain", r)
				if err != nil {
					t.Fatal(err)
				}
				got, err := io.ReadAll(resp.Body)
				resp.Body.Close()
				if err != nil || !bytes.Equal(got, body) {
					t.Errorf("%d bytes to %s, chunked %v: got %d bytes, %v", size, target, chunked, len(got), err)
				}
				framing := fmt.Sprint(size, []string(nil))
				if chunked && size > 0 {
					framing = "-1 [chunked]"
				}
				if f := resp.Header.Get("X-Framing"); f != framing && size > 0 {
					t.Errorf("%d bytes, chunked %v: the origin saw %s", size, chunked, f)
				}
			}
		}
	}
}

func TestProxiedFailures(t *testing.T) {
	origin := listenRaw(t, nil)
	g := proxyTo(t, origin.up, nil)
	const get = "GET / HTTP/1.1\r\nHost: h\r\n\r\n"
	cut := func(raw string) {
		t.Helper()
		origin.play(func(c *originPeer) { c.head(); c.send(raw) })
		c := g.dial()
		c.send(get)
		if _, _, err := c.answer("GET"); err == nil {
			t.Errorf("%q was delivered as if it were whole", raw)
		}
	}
	// Before the answer has begun there is a refusal, behind that it is cut visibly.
	origin.play(func(c *originPeer) { c.head(); c.send("garbage\r\n\r\n") })
	c := g.dial()
	c.send(get)
	c.want(502, "malformed response: malformed status line")
	cut("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello")
	cut("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n")
	cut("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nzz\r\n")
	// The connection goes on behind a refusal.
	origin.play(answerAll(okHello))
	c.send(get)
	c.want(200, "hello")
	// To a client of HTTP/1.0 a body without a length ends with the connection.
	origin.play(answerAll("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"))
	g.closeIdle()
	c = g.dial()
	c.send("GET / HTTP/1.0\r\nHost: h\r\n\r\n")
	if b, err := io.ReadAll(c.r); err != nil || !strings.HasSuffix(string(b), "\r\n\r\nhello") || strings.Contains(string(b), "chunked") {
		t.Errorf("HTTP/1.0 got %q, %v", b, err)
	}
}

// A client that leaves takes its origin request with it.
func TestProxiedClientLeaves(t *testing.T) {
	arrived, gone := make(chan struct{}, 1), make(chan struct{}, 1)
	origin := listenRaw(t, func(c *originPeer) {
		head, ok := c.head()
		if !ok {
			return
		}
		if strings.HasPrefix(head, "GET /half") {
			c.send("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello")
		}
		arrived <- struct{}{}
		c.wantGone()
		gone <- struct{}{}
	})
	g := proxyTo(t, origin.up, nil)
	f := func(request string, leave func(c *proxyClient)) {
		t.Helper()
		c := g.dial()
		c.send(request)
		<-arrived
		leave(c)
		select {
		case <-gone:
		case <-time.After(originPatience):
			t.Errorf("%q: the origin works on", request)
		}
	}
	hangUp := func(c *proxyClient) { c.Close() }
	reset := func(c *proxyClient) { c.SetLinger(0); c.Close() }
	for _, leave := range []func(*proxyClient){hangUp, reset} {
		f("GET / HTTP/1.1\r\nHost: h\r\n\r\n", leave)
		f("GET /half HTTP/1.1\r\nHost: h\r\n\r\n", leave)
		f("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nhello", leave)
		f("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", leave)
	}
	// A body that turns out malformed is never made complete.
	f("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhelloX", func(c *proxyClient) { c.answer("POST") })
}

// A client that only shuts down its side gets an answer that comes soon.
func TestProxiedHalfClose(t *testing.T) {
	origin := listenRaw(t, answerAll(okHello))
	g := proxyTo(t, origin.up, nil)
	c := g.dial()
	c.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n")
	c.CloseWrite()
	c.want(200, "hello")
}

func TestProxiedEarlyAnswer(t *testing.T) {
	origin := listenRaw(t, nil)
	g := proxyTo(t, origin.up, nil)
	const post = "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"
	// The origin answers and goes on reading: it gets all.
	for _, answer := range []string{okHello, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"} {
		got := make(chan string, 1)
		origin.play(func(c *originPeer) {
			c.head()
			c.send(answer)
			b := make([]byte, len("5\r\nhello\r\n5\r\nworld\r\n0\r\n\r\n"))
			io.ReadFull(c.r, b)
			got <- string(b)
			answerAll(okHello)(c)
		})
		g.closeIdle()
		c := g.dial()
		c.send(post)
		resp, err := http.ReadResponse(c.r, nil)
		if err != nil || resp.StatusCode != 200 {
			t.Fatal(resp, err)
		}
		if _, err := io.ReadFull(resp.Body, make([]byte, 5)); err != nil {
			t.Fatal(err)
		}
		c.send("5\r\nworld\r\n0\r\n\r\n")
		io.Copy(io.Discard, resp.Body)
		if b := <-got; b != "5\r\nhello\r\n5\r\nworld\r\n0\r\n\r\n" {
			t.Errorf("the origin got %q", b)
		}
		if !resp.Close {
			t.Error("the answer does not say that the connection ends with it")
		}
	}
	// It answers and closes: the client gets the answer, whole, at once.
	origin.play(func(c *originPeer) {
		c.head()
		c.send("HTTP/1.1 413 X\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n")
	})
	g.closeIdle()
	c := g.dial()
	c.send(post)
	c.want(413, "hello")
	// It answers and stays, and the client waits for the answer's end before it
	// goes on: it gets that.
	origin.play(func(c *originPeer) {
		c.head()
		c.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n")
		c.wantGone()
	})
	c = g.dial()
	c.send(post)
	c.want(200, "hello")
}

// A client that is not read, since the origin takes nothing for a while, does not say
// nothing: behind an early answer the rest of its body is as welcome as before.
func TestProxiedEarlyAnswerBackpressure(t *testing.T) {
	const size = 16 << 20
	origin := listenRaw(t, nil)
	g := proxyTo(t, origin.up, nil)
	p := &testPool{g.pools[0], t}
	f := func(answersFirst bool) {
		t.Helper()
		answer, read, got := make(chan struct{}), make(chan struct{}), make(chan int, 1)
		origin.play(func(c *originPeer) {
			c.head()
			c.hold(answer)
			c.send(okHello)
			c.hold(read)
			n, _ := io.CopyN(io.Discard, c.r, size)
			got <- int(n)
		})
		await := func(what string, is func(x *proxied) bool) {
			t.Helper()
			p.await(what, func() bool { return p.proxied != nil && is(p.proxied) })
		}
		c := g.dial()
		c.send(fmt.Sprintf("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n", size))
		send := func() { go c.Write(make([]byte, size)) }
		if answersFirst {
			close(answer)
			await("the wait for the body", func(x *proxied) bool { return x.state == proxyEnding && x.wait.Active() })
			send()
		} else {
			send()
			await("a backlog", func(x *proxied) bool { return x.o.backed })
			close(answer)
		}
		await("the answer and a backlog", func(x *proxied) bool {
			if x.state != proxyEnding || !x.o.backed {
				return false
			}
			if x.wait.Active() {
				t.Error("the client is waited for while it is not read")
			}
			x.o.conn.writeBy = p.l.Now() + int64(originPatience) // the origin's own time is another matter
			return true
		})
		close(read)
		c.want(200, "hello")
		if n := <-got; n != size {
			t.Errorf("the origin got %d bytes of %d", n, size)
		}
	}
	f(false)
	f(true)
}

// What is written is at the client at once, not when a buffer is full.
func TestProxiedEventsFlow(t *testing.T) {
	next := make(chan string)
	origin := listenRaw(t, func(c *originPeer) {
		c.head()
		c.send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
		for event := range next {
			c.send(fmt.Sprintf("%x\r\n%s\r\n", len(event), event))
		}
		c.send("0\r\n\r\n")
	})
	g := proxyTo(t, origin.up, nil)
	c := g.dial()
	c.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n")
	resp, err := http.ReadResponse(c.r, nil) // before any event
	if err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		event := fmt.Sprintf("data: %d\n\n", i)
		next <- event
		b := make([]byte, len(event))
		if _, err := io.ReadFull(resp.Body, b); err != nil || string(b) != event {
			t.Fatalf("got %q, %v", b, err)
		}
	}
	close(next)
	if b, err := io.ReadAll(resp.Body); err != nil || len(b) > 0 {
		t.Errorf("at the end: %q, %v", b, err)
	}
}

// A client that does not read stops its origin, and the other way round; what
// the gateway keeps stays small.
func TestProxiedBackpressure(t *testing.T) {
	const size = 24 << 20
	total := make(chan int64, 1)
	go1 := make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == "POST" {
			<-go1
			n, _ := io.Copy(io.Discard, r.Body)
			total <- n
			return
		}
		b := make([]byte, 1<<20)
		n := int64(0)
		for range size / len(b) {
			k, err := w.Write(b)
			if n += int64(k); err != nil {
				break
			}
		}
		total <- n
	}))
	t.Cleanup(srv.Close)
	up, err := newUpstream(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	g := proxyTo(t, up, nil)
	c := g.dial()
	c.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n")
	select {
	case <-total:
		t.Fatal("the origin got rid of everything while nobody read")
	case <-time.After(100 * time.Millisecond):
	}
	_, body, err := c.answer("GET")
	if err != nil || len(body) != size || <-total != size {
		t.Fatalf("got %d bytes of %d, %v", len(body), size, err)
	}

	c = g.dial()
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n", size)
		b := make([]byte, 1<<20)
		for range size / len(b) {
			c.Write(b)
		}
	}()
	select {
	case <-sent:
		t.Fatal("the client got rid of everything while the origin did not read")
	case <-time.After(100 * time.Millisecond):
	}
	close(go1)
	c.want(200, "")
	<-sent
	if n := <-total; n != size {
		t.Errorf("the origin got %d bytes of %d", n, size)
	}
}
