package edge

import (
	"io"
	"strings"
	"testing"

	"sluice/codec/http1"
	"sluice/loop"
)

// upper sends back what it gets, in upper case.
type upper struct{}

func (upper) OnRead(c *loop.Conn) {
	b := make([]byte, 100)
	n, r := c.Read(b)
	if r == loop.ReadEOF {
		c.Close()
	} else if r == loop.ReadBytes {
		c.Write([]byte(strings.ToUpper(string(b[:n]))))
	}
}
func (upper) OnWrite(*loop.Conn)        {}
func (upper) OnHangup(*loop.Conn, bool) {}
func (upper) OnTimer(*loop.Conn)        {}

func TestHijack(t *testing.T) {
	hijack := func(c *HTTPConn) {
		sock, unread := c.Hijack()
		sock.Write([]byte("HTTP/1.1 101 Switching Protocols\r\n\r\n" + strings.ToUpper(string(unread))))
		sock.SetHandler(upper{})
		sock.Resume()
		if !c.Gone() {
			t.Error("not gone")
		}
		if again, _ := c.Hijack(); again != nil {
			t.Error("hijacked twice")
		}
	}
	s := serve(t, defaultConfig(), func(c *HTTPConn, r *http1.Request) {
		if string(r.Path) == "/now" {
			hijack(c)
			return
		}
		c.Loop().Post(loop.Func(func(l *loop.Loop) {
			l.Post(loop.Func(func(*loop.Loop) { hijack(c) }))
		}))
	})
	for _, path := range []string{"/now", "/later"} {
		c := s.dial()
		// bytes behind the head, and more before the answer
		c.send("GET " + path + " HTTP/1.1\r\nHost: h\r\nConnection: upgrade\r\n\r\nearly ")
		c.send("later ")
		want := "HTTP/1.1 101 Switching Protocols\r\n\r\nEARLY LATER AGAIN"
		got := make([]byte, len(want)-len("AGAIN"))
		if _, err := io.ReadFull(c.r, got); err != nil {
			t.Fatal(err)
		}
		c.send("again")
		rest := make([]byte, len("AGAIN"))
		if _, err := io.ReadFull(c.r, rest); err != nil || string(got)+string(rest) != want {
			t.Fatalf("%q%q %v", got, rest, err)
		}
		s.await("it no longer counts", func() bool { return s.Stats.Open.Load() == 0 })
	}
}

func TestMoveTo(t *testing.T) {
	s := startServer(t, defaultConfig(), 2, func(s *testServer) appFunc {
		return func(c *HTTPConn, r *http1.Request) {
			from := c.Loop().ID()
			c.MoveTo(s.loops[1-from], func(c *HTTPConn, r *http1.Request) {
				if c.Loop().ID() != 1-from {
					t.Error("on the wrong loop")
				}
				if string(r.Path) == "/twice" {
					c.MoveTo(s.loops[from], echo)
					return
				}
				echo(c, r)
			})
		}
	})
	c := s.dial()
	// head, body and the next requests in one piece
	c.send("POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhelloPOST /twice HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n" + get)
	c.want(200, "POST /a hello")
	c.want(200, "POST /twice hi")
	c.want(200, "GET / ")
	// the head alone, from a stash, the body later
	c.send("POST /b HTTP/1.1\r\nHo")
	s.await("the head begins", func() bool { return true })
	c.send("st: h\r\nContent-Length: 5\r\n\r\n")
	c.wantQuiet()
	c.send("hello")
	c.want(200, "POST /b hello")
	// gone on the way
	c.send(get)
	c.SetLinger(0)
	c.Close()
	s.await("it is gone", func() bool { return s.Stats.Open.Load() == 0 })
}
