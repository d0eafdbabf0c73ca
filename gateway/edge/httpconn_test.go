package edge

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sluice/codec/http1"
	"sluice/loop"
)

func TestPipeliningKeepsOrder(t *testing.T) {
	s := serve(t, defaultConfig(), func(c *HTTPConn, r *http1.Request) {
		if string(r.Path) != "/later" {
			c.Reply(200, "", []byte(r.Path))
			return
		}
		// The answer comes a few turns later.
		n := 0
		var later loop.Func
		later = func(l *loop.Loop) {
			if n++; n < 5 {
				l.Post(later)
				return
			}
			c.Reply(200, "", []byte("/later"))
		}
		c.Loop().Post(later)
	})
	c := s.dial()
	var in strings.Builder
	paths := []string{"/a", "/later", "/b", "/c", "/later", "/later", "/d"}
	for _, p := range paths {
		in.WriteString("GET " + p + " HTTP/1.1\r\nHost: h\r\n\r\n")
	}
	c.send(in.String())
	for _, p := range paths {
		c.want(200, p)
	}
	// More at once than one read takes, answers included.
	go io.WriteString(c, strings.Repeat(in.String(), 300))
	for range 300 {
		for _, p := range paths {
			c.want(200, p)
		}
	}
}

func TestRequestInPieces(t *testing.T) {
	s := serve(t, defaultConfig(), echo)
	c := s.dial()
	in := "POST /x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;e=1\r\nde\r\n0\r\nT: u\r\n\r\n" +
		"POST /y HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nfgh"
	for i := range in {
		c.send(in[i : i+1])
	}
	c.want(200, "POST /x abcde")
	c.want(200, "POST /y fgh")
	// a head larger than the first buffer
	c.send("GET /z HTTP/1.1\r\nHost: h\r\n")
	for range 100 {
		c.send("X: " + strings.Repeat("a", 600) + "\r\n")
	}
	c.send("\r\n")
	c.want(200, "GET /z ")
}

func TestRefusals(t *testing.T) {
	s := serve(t, defaultConfig(), echo)
	f := func(in string, status int, body string) {
		t.Helper()
		c := s.dial()
		c.send(in + "GET /canary HTTP/1.1\r\nHost: h\r\n\r\n")
		resp := c.want(status, body+"\n")
		if !resp.Close || resp.Header.Get("Content-Type") != "text/plain; charset=utf-8" || resp.Header.Get("Date") == "" {
			t.Fatalf("%q: %v", in, resp.Header)
		}
		c.wantEOF()
	}
	f("rubbish\r\n\r\n", 400, "malformed request line")
	f("GET / HTTP/1.1\r\n\r\n", 400, "missing Host")
	f("GET /"+strings.Repeat("a", 70000)+" HTTP/1.1\r\n", 414, "request line too long")
	f("GET / HTTP/1.1\r\nHost: h\r\n"+strings.Repeat("A: b\r\n", 200), 431, "too many header fields")
	f("GET / HTTP/1.1\r\nHost: h\r\nA: "+strings.Repeat("b", 70000)+"\r\n", 431, "header fields too large")
	f("GET / HTTP/1.1\r\nHost: h\r\nExpect: x\r\n\r\n", 417, "unknown expectation")
	f("GET / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: cow\r\n\r\n", 501, "unknown transfer coding")
	f("GET / HTTP/3.0\r\n", 505, "HTTP version not supported")
	f("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcd", 400, "chunk data longer than its size")

	counts := map[int]int64{}
	s.Stats.Refusals(func(status int, n int64) { counts[status] = n })
	if fmt.Sprint(counts) != "map[400:3 408:0 414:1 417:1 431:2 501:1 505:1]" {
		t.Fatalf("counted %v", counts)
	}
}

// An answer must not be lost to the reset that unread input causes.
func TestRefusalSurvivesUnreadInput(t *testing.T) {
	s := serve(t, defaultConfig(), echo)
	for range 20 {
		c := s.dial()
		c.send("bad\r\n" + strings.Repeat("x", 500000))
		c.CloseWrite()
		c.want(400, "malformed request line\n")
		c.wantEOF()
	}
	s.await("all connections are gone", func() bool { return s.Stats.Open.Load() == 0 })
}

// However much of a body is to come that nobody reads: the answer is there when
// the client has sent it all.
func TestAnswerSurvivesLargeUpload(t *testing.T) {
	s := serve(t, defaultConfig(), func(c *HTTPConn, r *http1.Request) { c.Reply(404, "text/plain", []byte("no")) })
	const size = 16 << 20
	c := s.dial()
	c.send(fmt.Sprintf("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n%s", size, make([]byte, size)))
	c.CloseWrite()
	c.want(404, "no")
	c.wantEOF()
}

func TestHeadTimeoutIsAbsolute(t *testing.T) {
	cfg := defaultConfig()
	cfg.IdleTimeout = 150 * time.Millisecond
	s := serve(t, cfg, echo)
	c := s.dial()
	begin := time.Now()
	stop := make(chan struct{})
	defer close(stop)
	go func() { // a drip must not extend it
		for _, b := range []byte("GET / HTTP/1.1\r\nHost: h\r\nX: " + strings.Repeat("a", 10000)) {
			if _, err := c.Write([]byte{b}); err != nil {
				return
			}
			select {
			case <-stop:
				return
			case <-time.After(5 * time.Millisecond):
			}
		}
	}()
	if resp := c.want(408, "request head timed out\n"); !resp.Close {
		t.Fatal("not closing")
	}
	if d := time.Since(begin); d < cfg.IdleTimeout {
		t.Fatalf("timed out after %v", d)
	}
}

func TestIdleTimeoutIsSilent(t *testing.T) {
	cfg := defaultConfig()
	cfg.IdleTimeout = 100 * time.Millisecond
	s := serve(t, cfg, echo)
	// before the first request, and behind one
	c := s.dial()
	c.wantEOF()
	c = s.dial()
	c.send(get)
	c.want(200, "GET / ")
	c.wantEOF()
	if n := s.Stats.IdleTimeouts.Load(); n != 2 {
		t.Fatalf("counted %d", n)
	}
}

func TestKeepAlive(t *testing.T) {
	s := serve(t, defaultConfig(), echo)
	f := func(version, connection string, wantHeader string, wantKept bool) {
		t.Helper()
		c := s.dial()
		for range 2 {
			c.send("GET / HTTP/" + version + "\r\nHost: h\r\nConnection: " + connection + "\r\n\r\n")
			resp := c.want(200, "GET / ")
			if got := resp.Header.Get("Connection"); got != wantHeader && !(wantHeader == "close" && resp.Close) {
				t.Fatalf("%s, %q: Connection is %q", version, connection, got)
			}
			if !wantKept {
				c.wantEOF()
				return
			}
		}
	}
	f("1.1", "", "", true)
	f("1.1", "close", "close", false)
	f("1.0", "", "close", false)
	f("1.0", "keep-alive", "keep-alive", true)
	// what follows a request with close is not looked at
	c := s.dial()
	c.send("GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n" + get)
	c.want(200, "GET / ")
	c.wantEOF()
}

func TestHead(t *testing.T) {
	s := serve(t, defaultConfig(), func(c *HTTPConn, r *http1.Request) {
		if string(r.Path) == "/stream" {
			c.StartResponse(Response{Status: 200, Length: Chunked})
			c.Write([]byte("abc"))
			c.Finish([]byte("def"))
			return
		}
		c.Reply(200, "", []byte("hello"))
	})
	c := s.dial()
	for _, path := range []string{"/", "/stream"} {
		c.send("HEAD " + path + " HTTP/1.1\r\nHost: h\r\n\r\n")
		resp, body := c.answer("HEAD")
		if body != "" || path == "/" && resp.ContentLength != 5 {
			t.Fatalf("%s: %q, length %d", path, body, resp.ContentLength)
		}
	}
	c.wantQuiet()
	c.send(get)
	c.want(200, "hello")
}

func TestStatusesWithoutBody(t *testing.T) {
	s := serve(t, defaultConfig(), func(c *HTTPConn, r *http1.Request) {
		switch string(r.Path) {
		case "/204":
			c.Reply(204, "", nil)
		case "/304":
			c.StartResponse(Response{Status: 304, Length: NoBody})
			c.EndResponse()
		}
	})
	c := s.dial()
	c.send("GET /204 HTTP/1.1\r\nHost: h\r\n\r\nGET /304 HTTP/1.1\r\nHost: h\r\n\r\n")
	for _, status := range []int{204, 304} {
		if resp := c.want(status, ""); len(resp.Header["Content-Length"])+len(resp.TransferEncoding) > 0 {
			t.Fatalf("%d has %v", status, resp.Header)
		}
	}
}

// Reply to a request whose body nobody asked for: the body is dropped first.
func TestReplyBeforeBody(t *testing.T) {
	s := serve(t, defaultConfig(), func(c *HTTPConn, r *http1.Request) { c.Reply(404, "text/plain", []byte("no")) })
	// small: dropped, the connection stays
	c := s.dial()
	c.send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello" + get)
	c.want(404, "no")
	c.want(404, "no")
	// in pieces: the answer follows the body's end
	c.send("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nab")
	c.wantQuiet()
	c.send("c\r\n0\r\n\r\n")
	c.want(404, "no")
	// faulty framing is refused in its place
	c.send("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nab")
	c.wantQuiet()
	c.send("cd\r\n0\r\n\r\n")
	c.want(400, "chunk data longer than its size\n")
	c.wantEOF()
	// too much declared: answered at once, and the last
	c = s.dial()
	c.send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 100000\r\n\r\nhello")
	if resp := c.want(404, "no"); !resp.Close {
		t.Fatal("not closing")
	}
	c.wantEOF()
	// too much comes without having been declared
	c = s.dial()
	c.send("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n" + strings.Repeat("400\r\n"+strings.Repeat("x", 1024)+"\r\n", 100))
	if resp := c.want(404, "no"); !resp.Close {
		t.Fatal("not closing")
	}
	c.wantEOF()
	// a client that waits for 100 is not kept waiting
	c = s.dial()
	c.send("POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n")
	if resp := c.want(404, "no"); !resp.Close {
		t.Fatal("not closing")
	}
	c.wantEOF()
}

func TestReplyWithoutBodyTimesOut(t *testing.T) {
	cfg := defaultConfig()
	cfg.IdleTimeout = 100 * time.Millisecond
	s := serve(t, cfg, func(c *HTTPConn, r *http1.Request) { c.Reply(404, "text/plain", []byte("no")) })
	c := s.dial()
	c.send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhell")
	if resp := c.want(404, "no"); !resp.Close {
		t.Fatal("not closing")
	}
	c.wantEOF()
}

// A client that ends its side in the middle of a body nobody reads still gets the
// answer, which had waited for the body or for the client.
func TestReplySurvivesCutBody(t *testing.T) {
	large := strings.Repeat("x", 16<<20) // more than the kernel takes
	s := serve(t, defaultConfig(), func(c *HTTPConn, r *http1.Request) {
		if string(r.Path) == "/large" {
			c.StartResponse(Response{Status: 200, Length: int64(len(large))})
			c.Finish([]byte(large))
			return
		}
		c.Reply(404, "text/plain", []byte("no"))
	})
	f := func(head string, status int, body string) {
		t.Helper()
		c := s.dial()
		c.send("POST " + head + "\r\n\r\nabc")
		c.CloseWrite()
		resp, got := c.answer("POST")
		if resp.StatusCode != status || got != body || status == 404 && !resp.Close {
			t.Fatalf("%s: %d with %d bytes, closing: %v", head, resp.StatusCode, len(got), resp.Close)
		}
		c.wantEOF()
	}
	f("/ HTTP/1.1\r\nHost: h\r\nContent-Length: 10", 404, "no")
	f("/ HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked", 404, "no")
	f("/ HTTP/1.0\r\nHost: h\r\nContent-Length: 10\r\nConnection: keep-alive", 404, "no")
	f("/large HTTP/1.1\r\nHost: h\r\nContent-Length: 10", 200, large)
	s.await("all connections are gone", func() bool { return s.Stats.Open.Load() == 0 })
}

// The answer says one thing about the connection, also if that changed while it waited.
func TestReplyToCutBodySaysClose(t *testing.T) {
	s := serve(t, defaultConfig(), func(c *HTTPConn, r *http1.Request) { c.Reply(404, "text/plain", []byte("no")) })
	for _, head := range []string{"/ HTTP/1.1\r\nHost: h", "/ HTTP/1.0\r\nConnection: keep-alive", "/ HTTP/1.0"} {
		c := s.dial()
		c.send("POST " + head + "\r\nContent-Length: 10\r\n\r\nabc")
		c.CloseWrite()
		b, err := io.ReadAll(c.r)
		if answer := string(b); err != nil || strings.Count(answer, "Connection: ") != 1 ||
			!strings.HasSuffix(answer, "\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno") {
			t.Fatalf("%q: %q %v", head, answer, err)
		}
	}
}

func TestExpectContinue(t *testing.T) {
	s := serve(t, defaultConfig(), echo)
	c := s.dial()
	for range 2 {
		c.send("POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-Continue\r\nContent-Length: 5\r\n\r\n")
		resp, err := http.ReadResponse(c.r, nil)
		if err != nil || resp.StatusCode != 100 {
			t.Fatalf("%v %v", resp, err)
		}
		c.wantQuiet()
		c.send("hello")
		c.want(200, "POST / hello")
	}
}

func TestIdleConnectionOwnsNoBuffer(t *testing.T) {
	var conn *HTTPConn
	s := serve(t, defaultConfig(), func(c *HTTPConn, r *http1.Request) { conn = c; echo(c, r) })
	c := s.dial()
	body := strings.Repeat("x", 200000)
	c.send("POST / HTTP/1.1\r\nHost: h\r\n")
	c.send(fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(body), body))
	c.want(200, "POST / "+body)
	s.await("the connection is idle without buffers", func() bool {
		return conn.state == stateIdle && conn.in == nil && conn.out == nil && conn.x == nil && s.shards[0].idle.first() == conn
	})
}

func TestConnectionCeiling(t *testing.T) {
	cfg := defaultConfig()
	cfg.MaxConnections = 3
	s := serve(t, cfg, func(c *HTTPConn, r *http1.Request) {
		if string(r.Path) != "/never" {
			echo(c, r)
		}
	})
	var conns [3]*client
	for i := range conns {
		conns[i] = s.dial()
		conns[i].send(get)
		conns[i].want(200, "GET / ")
	}
	// 0 was used last, so 1 is the longest idle.
	conns[0].send(get)
	conns[0].want(200, "GET / ")
	d := s.dial()
	d.send(get)
	d.want(200, "GET / ")
	conns[1].wantEOF()
	// Busy connections are not touched: with none idle the new one goes.
	for _, c := range []*client{conns[0], conns[2], d} {
		c.send("GET /never HTTP/1.1\r\nHost: h\r\n\r\n")
	}
	s.await("no connection is idle", func() bool { return s.shards[0].idle.first() == nil })
	s.dial().wantEOF()
	if s.Stats.Open.Load() != 3 || s.Stats.EvictedIdle.Load() != 1 || s.Stats.RefusedFull.Load() != 1 || s.Stats.Accepted.Load() != 4 {
		t.Fatalf("open %d, evicted %d, refused %d, accepted %d", s.Stats.Open.Load(), s.Stats.EvictedIdle.Load(), s.Stats.RefusedFull.Load(), s.Stats.Accepted.Load())
	}
	conns[0].Close()
	conns[2].Close()
	d.Close()
}

func TestDrain(t *testing.T) {
	s := serve(t, defaultConfig(), echo)
	idle, c := s.dial(), s.dial()
	idle.send(get)
	idle.want(200, "GET / ")
	c.send(get)
	c.want(200, "GET / ")
	s.Drain(true)
	c.send(get)
	if resp := c.want(200, "GET / "); !resp.Close {
		t.Fatal("not closing")
	}
	c.wantEOF()
	s.on(s.loops[0], func() { s.CloseIdle(s.loops[0]) })
	idle.wantEOF()
}

// The standard client, several at once, over two loops.
func TestManyClients(t *testing.T) {
	var moved atomic.Int64
	s := startServer(t, defaultConfig(), 2, func(s *testServer) appFunc {
		return func(c *HTTPConn, r *http1.Request) {
			if string(r.Path) == "/move" {
				from := c.Loop()
				c.MoveTo(s.loops[1-from.ID()], func(c *HTTPConn, r *http1.Request) {
					if c.Loop() != from {
						moved.Add(1)
					}
					echo(c, r)
				})
				return
			}
			echo(c, r)
		}
	})
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			client := &http.Client{Transport: &http.Transport{}}
			defer client.CloseIdleConnections()
			for j := range 30 {
				path := []string{"/stay", "/move"}[j%2]
				body := strings.Repeat(fmt.Sprint(i), j*1000)
				var in io.Reader = strings.NewReader(body)
				if j%3 == 0 {
					in = io.MultiReader(in) // hides the length: chunked
				}
				resp, err := client.Post("http://"+s.addr+path, "text/plain", in)
				if err != nil {
					t.Error(err)
					return
				}
				got, err := io.ReadAll(resp.Body)
				resp.Body.Close()
				if err != nil || string(got) != "POST "+path+" "+body {
					t.Errorf("%d bytes, %v", len(got), err)
					return
				}
			}
		})
	}
	wg.Wait()
	if moved.Load() != 8*15 {
		t.Fatalf("%d requests were moved", moved.Load())
	}
}
