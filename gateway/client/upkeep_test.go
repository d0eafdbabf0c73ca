package client

import (
	"context"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"sluice/codec/frame"
)

type pipes struct{ conns chan net.Conn }

func (p *pipes) Accept() (net.Conn, error) {
	c, ok := <-p.conns
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}

func (p *pipes) Close() error { close(p.conns); return nil }

func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

func TestUpkeep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := relayOffline(t)
		s.url = "http://relay"
		s.relay.SessionTimeoutSeconds, s.relay.TokenMaxAgeSeconds = 300, 1000
		s.handle = func(q *relayRequest) {
			q.readAll()
			if string(q.meta.Path) == "bad" {
				q.refuse(refusal(frame.EncodeFailed))
				return
			}
			q.respond(200, true)
		}
		listener := &pipes{make(chan net.Conn)}
		server := &http.Server{Handler: s}
		go server.Serve(listener)
		defer server.Close()
		c := newClient(t, s, func(o *Options) {
			o.Batch = 3
			o.Dial = func(context.Context, string, string) (net.Conn, error) {
				a, b := net.Pipe()
				listener.conns <- b
				return a, nil
			}
		})
		defer c.Close()
		if err := get(t, c, ""); err != nil {
			t.Fatal(err)
		}
		client := func() frame.ClientID {
			c.mu.Lock()
			defer c.mu.Unlock()
			return c.session.ClientID()
		}
		auth := func(i int) (call authCall) {
			s.locked(func() { call = s.auths[i] })
			return call
		}
		dropped := func(i int) (drop []frame.PairID) {
			s.locked(func() { drop = s.keepalives[i] })
			return drop
		}
		first := client()
		state := func(auths, keepalives int) {
			t.Helper()
			synctest.Wait()
			s.locked(func() {
				if len(s.auths) != auths || len(s.keepalives) != keepalives {
					t.Errorf("%d auths, %d keepalives, want %d and %d", len(s.auths), len(s.keepalives), auths, keepalives)
				}
			})
		}
		state(1, 0)
		time.Sleep(99 * time.Second)
		state(1, 0)
		if err := get(t, c, "bad"); err == nil {
			t.Fatal("not refused")
		}
		time.Sleep(2 * time.Second)
		state(1, 1)
		if len(dropped(0)) != 1 {
			t.Errorf("dropped %v, want the pair that was given up", dropped(0))
		}
		time.Sleep(700 * time.Second) // 801 s
		state(2, 8)
		if auth(1) != (authCall{first, string(first.AppendRoute(nil))}) || client() != first {
			t.Errorf("the refresh %+v", auth(1))
		}
		if len(dropped(7)) != 0 {
			t.Errorf("dropped again: %v", dropped(7))
		}
		if err := get(t, c, ""); err != nil {
			t.Errorf("after the refresh: %v", err)
		}

		// a keepalive that is refused is tried again later; one that says who are you, repairs
		s.locked(func() {
			s.keepalive = func(int) *Refusal {
				r := refusal(frame.RateLimited)
				r.RetryAfter = 50 * time.Second
				return r
			}
		})
		time.Sleep(100 * time.Second)
		n := 0
		s.locked(func() { n = len(s.keepalives) })
		time.Sleep(40 * time.Second)
		state(2, n)
		s.locked(func() { s.keepalive = func(int) *Refusal { return refusal(frame.InvalidToken) } })
		time.Sleep(20 * time.Second)
		state(2, n+1)
		s.locked(func() { s.keepalive = nil })
		if err := get(t, c, ""); err != nil {
			t.Errorf("after the repair: %v", err)
		}
		if client() == first || auth(2) != (authCall{}) {
			t.Errorf("the repair %+v", auth(2))
		}
	})
}
