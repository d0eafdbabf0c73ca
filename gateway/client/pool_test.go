package client

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"sluice/codec/frame"
	"sluice/kyber"
)

func TestLeaving(t *testing.T) {
	s := startRelay(t)
	s.loose = true // the relay may notice later than the client sends again
	arrived, leave := make(chan struct{}), make(chan struct{})
	s.handle = func(q *relayRequest) {
		switch string(q.meta.Path) {
		case "before":
			q.readAll()
			arrived <- struct{}{}
			<-leave
		case "inside":
			q.next()
			arrived <- struct{}{}
			<-leave
		case "behind":
			q.readAll()
			q.respond(200, false)
			q.data([]byte("x"), false)
			<-leave
		default:
			q.readAll()
			q.respond(200, true)
		}
	}
	c := newClient(t, s, func(o *Options) { o.MaxPairs, o.Batch = 1, 1 })
	f := func(path string, pairings int, body io.Reader) {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		if path == "behind" {
			res, err := c.Do(ctx, &Request{Head: Head{Path: path}})
			if err != nil {
				t.Fatal(err)
			}
			res.Body.Close()
			if _, err := res.Body.Read(make([]byte, 1)); err == nil {
				t.Error("a closed body was read")
			}
		} else {
			go func() { <-arrived; cancel() }()
			if _, err := c.Do(ctx, &Request{Head: Head{Path: path}, Body: body}); err != context.Canceled {
				t.Errorf("%s: %v", path, err)
			}
		}
		cancel()
		leave <- struct{}{}
		if err := get(t, c, "good"); err != nil || len(s.pairings) != pairings {
			t.Errorf("%s: afterwards %v, %d pairings, want %d", path, err, len(s.pairings), pairings)
		}
	}
	f("before", 1, nil)
	f("before", 1, strings.NewReader("a body"))
	f("behind", 2, nil)
	block := make(chan struct{})
	defer close(block)
	f("inside", 3, io.MultiReader(strings.NewReader("x"), blocked{block}))
}

func TestPairingFaults(t *testing.T) {
	f := func(name string, onPair func(call, pairs int) *Refusal, want frame.Reason, calls ...int) *Client {
		t.Helper()
		s := startRelay(t)
		s.onPair = onPair
		c := newClient(t, s, func(o *Options) { o.Batch = 8 })
		err := get(t, c, "")
		got := frame.NoReason
		if r, ok := err.(*Refusal); ok {
			got, _ = frame.ReasonOf(r.Code, r.Reason)
		}
		if got != want || err != nil && want == 0 || fmt.Sprint(s.pairings) != fmt.Sprint(calls) {
			t.Errorf("%s: %v, calls %v", name, err, s.pairings)
		}
		return c
	}
	f("over the control body", func(_, pairs int) *Refusal {
		if pairs > 2 {
			return refusal(frame.BodyTooLarge)
		}
		return nil
	}, 0, 8, 4, 2)
	f("an aged token, once", func(call, _ int) *Refusal {
		if call == 1 {
			return refusal(frame.InvalidToken)
		}
		return nil
	}, 0, 8, 8)
	f("an aged token, for ever", func(int, int) *Refusal { return refusal(frame.InvalidToken) }, frame.InvalidToken, 8, 8)
	f("profile", func(int, int) *Refusal { return refusal(frame.ProfileMismatch) }, frame.ProfileMismatch, 8)
	c := f("rate", func(int, int) *Refusal {
		r := refusal(frame.RateLimited)
		r.RetryAfter = 100 * time.Second
		return r
	}, frame.RateLimited, 8)
	if err := get(t, c, ""); err == nil || err.(*Refusal).Reason != "rate_limited" {
		t.Errorf("while pairing pauses: %v", err)
	}
}

func TestConcurrent(t *testing.T) {
	s := startRelay(t)
	workers := kyber.NewPool(2, 1000)
	defer workers.Stop()
	c := newClient(t, s, func(o *Options) { o.MaxPairs, o.Batch, o.Kyber = 5, 3, workers })
	var all sync.WaitGroup
	for i := range 40 {
		all.Go(func() {
			r := rand.New(rand.NewPCG(uint64(i), 1))
			for range 5 {
				want := bytes.Repeat([]byte{byte(i)}, r.IntN(1<<r.IntN(18)))
				_, body, err := do(t, c, &Request{Head: Head{Method: "POST"}, Body: bytes.NewReader(want), Length: int64(r.IntN(2) * len(want))})
				if err != nil || !bytes.Equal(body, want) {
					t.Errorf("%d bytes: %d bytes, %v", len(want), len(body), err)
				}
			}
		})
	}
	all.Wait()
	total := 0
	for _, n := range s.pairings {
		total += n
	}
	if total > 5 || s.most > 5 || s.most < 2 {
		t.Errorf("%d pairs, %d requests in flight", total, s.most)
	}
}

func TestWaiting(t *testing.T) {
	s := startRelay(t)
	arrived, free := make(chan struct{}), make(chan struct{})
	s.handle = func(q *relayRequest) {
		q.readAll()
		if string(q.meta.Path) == "hold" {
			arrived <- struct{}{}
			<-free
		}
		q.respond(200, true)
	}
	c := newClient(t, s, func(o *Options) { o.MaxPairs = 1 })
	held := make(chan error)
	go func() { held <- get(t, c, "hold") }()
	<-arrived
	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan error)
	go func() {
		_, err := c.Do(ctx, &Request{})
		gone <- err
	}()
	waiting := func(n int) {
		for {
			c.mu.Lock()
			got := len(c.pool.waiters)
			c.mu.Unlock()
			if got == n {
				return
			}
			runtime.Gosched()
		}
	}
	waiting(1)
	next := make(chan error)
	go func() { next <- get(t, c, "") }()
	waiting(2)
	cancel()
	if err := <-gone; err != context.Canceled {
		t.Errorf("the one who left: %v", err)
	}
	free <- struct{}{}
	if err := <-held; err != nil {
		t.Errorf("the one who held it: %v", err)
	}
	if err := <-next; err != nil {
		t.Errorf("the next: %v", err)
	}
}
