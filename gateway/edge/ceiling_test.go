package edge

import (
	"errors"
	"io"
	"strings"
	"syscall"
	"testing"

	"sluice/codec/http1"
)

// However many requests are under way, one that does not get on makes room.
func TestCeilingFindsHalfRequest(t *testing.T) {
	const longPolls = 200
	for _, half := range []struct{ name, sent, rest string }{
		{"head", "G", "ET /poll HTTP/1.1\r\nHost: h\r\n\r\n"},
		{"body", "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nabc", "defghij"},
	} {
		t.Run(half.name, func(t *testing.T) {
			cfg := defaultConfig()
			cfg.MaxConnections = longPolls + 2
			polls := map[*HTTPConn]bool{}
			s := serve(t, cfg, func(c *HTTPConn, r *http1.Request) {
				if string(r.Path) == "/poll" {
					polls[c] = true
					c.Take(&exchange{})
					return
				}
				c.Reply(200, "", []byte("late"))
			})
			poll := func(n int) {
				t.Helper()
				s.dial().send("GET /poll HTTP/1.1\r\nHost: h\r\n\r\n")
				s.await("a request is under way", func() bool { return len(polls) == n })
			}
			for n := range longPolls {
				poll(n + 1)
			}
			first := func() *HTTPConn { return s.shards[0].half.first() }
			older := s.dial()
			older.send(half.sent)
			s.await("half a request is there", func() bool { return first() != nil })
			var oldest *HTTPConn
			s.on(s.loops[0], func() { oldest = first() })
			newer := s.dial()
			newer.send(half.sent)
			s.await("a second is behind it", func() bool { return oldest.next != &s.shards[0].half.head })

			poll(longPolls + 1)
			if _, err := io.ReadAll(older.r); !errors.Is(err, syscall.ECONNRESET) {
				t.Fatalf("the older half ended with %v, not with a reset", err)
			}
			// One that is complete is half no more, nor is one that is answered.
			newer.send(half.rest)
			if half.name == "body" {
				newer.want(200, "late")
			}
			s.await("nothing is half", func() bool { return first() == nil })
			if half.name == "head" {
				s.dial().wantEOF()
			}
			evicted, refused := s.Stats.EvictedIdle.Load(), s.Stats.RefusedFull.Load()
			if want := map[string]int64{"head": 1}[half.name]; evicted != 1 || refused != want {
				t.Fatalf("evicted %d, refused %d", evicted, refused)
			}
		})
	}
}

// Who is slow to take an answer is not one whose request we wait for.
func TestAnsweredIsNotHalf(t *testing.T) {
	answer := strings.Repeat("answer", 512<<10)
	var conn *HTTPConn
	s := serve(t, defaultConfig(), func(c *HTTPConn, r *http1.Request) {
		conn = c
		c.Reply(200, "", []byte(answer))
	})
	for _, ends := range []struct {
		rest  string
		cut   bool
		state connState
	}{
		{"defghij", false, stateFlushing},
		{"", true, stateClosing},
	} {
		c := s.dial()
		c.send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nabc")
		s.await("the body is waited for", func() bool { return s.shards[0].half.first() != nil })
		s.on(s.loops[0], func() {
			if n := s.Leaving(s.loops[0]); n != 1 {
				t.Errorf("%d answers are due", n)
			}
		})
		c.send(ends.rest)
		if ends.cut {
			c.CloseWrite()
		}
		s.await("the answer waits for the client", func() bool { return conn.state == ends.state && s.shards[0].half.first() == nil })
		c.want(200, answer)
	}
}

// A request that is refused is not half any more.
func TestRefusedIsNotHalf(t *testing.T) {
	s := serve(t, defaultConfig(), func(c *HTTPConn, r *http1.Request) { c.Reply(200, "", []byte("late")) })
	for _, req := range [][2]string{
		{"GET / HT", "ML/1.1\r\n\r\n"},
		{"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n", "x\r\n"},
	} {
		c := s.dial()
		c.send(req[0])
		s.await("half a request is there", func() bool { return s.shards[0].half.first() != nil })
		c.send(req[1])
		if resp, body := c.answer("GET"); resp.StatusCode != 400 {
			t.Fatalf("answered %d %q", resp.StatusCode, body)
		}
		s.await("nothing is half", func() bool { return s.shards[0].half.first() == nil })
	}
}
