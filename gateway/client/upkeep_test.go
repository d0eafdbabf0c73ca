package client

import (
	"context"
	"net"
	"net/http"
	"strings"
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

// clientInBubble is a client of a relay of the same synctest bubble.
func clientInBubble(t *testing.T, s *testRelay, change func(*Options)) *Client {
	s.url = "http://relay"
	listener := &pipes{make(chan net.Conn)}
	server := &http.Server{Handler: s}
	go server.Serve(listener)
	t.Cleanup(func() { server.Close() })
	return newClient(t, s, func(o *Options) {
		o.Dial = func(context.Context, string, string) (net.Conn, error) {
			a, b := net.Pipe()
			listener.conns <- b
			return a, nil
		}
	}, change)
}

// heldUntil answers a request for the path hold once the channel is closed, and
// others at once.
func heldUntil(free chan struct{}) func(*relayRequest) {
	return func(q *relayRequest) {
		q.readAll()
		if string(q.meta.Path) == "hold" {
			<-free
		}
		q.respond(200, true)
	}
}

// A refresh that brings a new client id makes room for new pairs, whether the old
// ones are in use or not.
func TestRefreshOfAnotherClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := relayOffline(t)
		s.relay.TokenMaxAgeSeconds = 100
		s.forgets = true
		free := make(chan struct{})
		s.handle = heldUntil(free)
		c := clientInBubble(t, s, func(o *Options) { o.MaxPairs, o.Batch = 2, 2 })
		if err := get(t, c, ""); err != nil {
			t.Fatal(err)
		}
		held, next := make(chan error, 2), make(chan error, 1)
		for range 2 {
			go func() {
				_, err := c.Do(t.Context(), &Request{Head: Head{Path: "hold"}})
				held <- err
			}()
		}
		synctest.Wait()
		go func() { // waits for one of them
			_, err := c.Do(t.Context(), &Request{})
			next <- err
		}()
		time.Sleep(81 * time.Second)
		synctest.Wait()
		select {
		case err := <-next:
			if err != nil {
				t.Errorf("after the refresh: %v", err)
			}
		default:
			t.Error("there is no room for a pair of the new client")
		}
		close(free)
		for range 2 {
			if err := <-held; err != nil {
				t.Errorf("a request across the refresh: %v", err)
			}
		}
		time.Sleep(81 * time.Second) // and once more, with all pairs free
		if err := get(t, c, ""); err != nil {
			t.Errorf("after another refresh: %v", err)
		}
		if n := c.pool.count; n < 0 || n > 2 || len(s.auths) != 3 {
			t.Errorf("%d pairs, %d auths", n, len(s.auths))
		}
	})
}

// A refresh brings the relay's bounds of that day to the pairs there are.
func TestRefreshOfBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := relayOffline(t)
		s.relay.TokenMaxAgeSeconds, s.relay.MaxRequestBodyBytes = 100, 10
		c := clientInBubble(t, s, func(o *Options) { o.MaxPairs, o.Batch = 1, 1 })
		f := func(declared int64, ok bool) {
			t.Helper()
			_, _, err := do(t, c, &Request{Head: Head{Method: "POST"}, Body: strings.NewReader("eleven char"), Length: declared})
			if _, tooLarge := err.(*RequestTooLarge); tooLarge == ok || ok && err != nil {
				t.Errorf("declared %d: %v", declared, err)
			}
		}
		if err := get(t, c, ""); err != nil {
			t.Fatal(err)
		}
		f(11, false)
		s.locked(func() { s.relay.MaxRequestBodyBytes = 0 })
		time.Sleep(81 * time.Second)
		f(11, true)
		f(0, true)
		s.locked(func() { s.relay.MaxRequestBodyBytes = 10 })
		time.Sleep(81 * time.Second)
		f(11, false)
		f(0, false)
	})
}

// Who comes while pairing pauses does not wait for a pair to be given back when
// the pause is over.
func TestPauseEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := relayOffline(t)
		s.onPair = func(call, _ int) *Refusal {
			if call != 2 {
				return nil
			}
			r := refusal(frame.RateLimited)
			r.RetryAfter = 5 * time.Second
			return r
		}
		free := make(chan struct{})
		defer close(free)
		s.handle = heldUntil(free)
		c := clientInBubble(t, s, func(o *Options) { o.MaxPairs, o.Batch = 3, 1 })
		go c.Do(t.Context(), &Request{Head: Head{Path: "hold"}})
		synctest.Wait()
		begun := time.Now()
		other := make(chan error)
		go func() { other <- get(t, c, "") }()
		if err := get(t, c, ""); err != nil {
			t.Error(err)
		}
		if err := <-other; err != nil {
			t.Error(err)
		}
		if d := time.Since(begun); d < 5*time.Second || d > 6*time.Second {
			t.Errorf("served after %v", d)
		}
	})
}

func TestUpkeep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := relayOffline(t)
		s.relay.SessionTimeoutSeconds, s.relay.TokenMaxAgeSeconds = 300, 1000
		s.handle = func(q *relayRequest) {
			q.readAll()
			if string(q.meta.Path) == "bad" {
				q.refuse(refusal(frame.EncodeFailed))
				return
			}
			q.respond(200, true)
		}
		c := clientInBubble(t, s, func(o *Options) { o.Batch = 3 })
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
