package mte

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"
)

// An origin that was given time because we did not read has not been slow.
func TestOriginPauseIsNotHeldAgainstIt(t *testing.T) {
	const short = 40 * time.Millisecond
	origin := listenRaw(t, func(c *originPeer) {
		c.request()
		c.send("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel")
		c.r.Peek(1) // until the test lets go
	})
	cfg := testOriginConfig()
	cfg.Body, cfg.Response = short, short
	p := startPool(t, cfg)
	c := p.start(origin.up, "GET", "/", 0, func(c *testCall) { c.onHead = func() { c.o.Pause() } })
	<-c.headed
	time.Sleep(3 * short) // the time that must not count
	p.on(func() {
		if c.failure != nil {
			t.Errorf("failed while paused: %s", c.failure.detail)
		}
		c.o.Resume()
	})
	c.wantFailure(failResponse, originSlowBody)
}

// What the user does not read the origin keeps, and all of it comes in the end.
func TestOriginBackpressureDown(t *testing.T) {
	const size = 64 << 20
	sent := make(chan int, 1)
	origin := listenRaw(t, func(c *originPeer) {
		c.request()
		c.send(fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", size))
		b := make([]byte, 1<<20)
		for range size / len(b) {
			c.Write(b)
		}
		sent <- size
	})
	p := startPool(t, testOriginConfig())
	got := 0
	c := p.start(origin.up, "GET", "/", 0, func(c *testCall) {
		c.onHead = func() { c.o.Pause() }
		c.onData = func(b []byte) { got += len(b); c.body.Reset() }
	})
	<-c.headed
	select {
	case <-sent:
		t.Fatal("the origin got rid of everything while nobody read")
	case <-time.After(50 * time.Millisecond):
	}
	p.on(func() {
		if got > originRead {
			t.Errorf("%d bytes came behind Pause", got)
		}
		c.o.Resume()
	})
	c.wait()
	<-sent
	if c.failure != nil || got != size {
		t.Errorf("got %d bytes of %d, failure %v", got, size, c.failure)
	}
}

// An origin that does not read stops the user, and gets all in the end.
func TestOriginBackpressureUp(t *testing.T) {
	const size = 32 << 20
	start, total := make(chan struct{}), make(chan int64, 1)
	origin := listenRaw(t, func(c *originPeer) {
		c.head()
		<-start
		n, _ := io.CopyN(io.Discard, c.r, size)
		total <- n
		c.send(okHello)
	})
	p := startPool(t, testOriginConfig())
	b := make([]byte, 64<<10)
	release := sync.OnceFunc(func() { close(start) })
	t.Cleanup(release)
	c := newTestCall(p)
	written, seen := 0, 0
	fill := func() {
		for written < size {
			written += len(b)
			if c.o.Write(b) && written < size {
				return
			}
		}
		c.o.End()
	}
	// The first of it waits for the connection, the rest for the origin.
	p.on(func() {
		c.o = p.call(origin.up, &originHead{Method: []byte("POST"), Target: []byte("/"), Length: size}, c)
		fill()
	})
	p.await("OnDrain", func() bool { return c.drains == 1 })
	p.on(fill)
	if written == size {
		t.Fatal("nothing said stop")
	}
	release()
	for seen = 1; written < size; {
		p.await("OnDrain", func() bool { return c.drains > seen })
		p.on(func() {
			if held := cap(c.o.out); held > 1<<20 {
				t.Errorf("%d bytes are kept", held)
			}
			seen = c.drains
			fill()
		})
	}
	c.wantAnswer(200, "hello")
	if n := <-total; n != size {
		t.Errorf("the origin got %d bytes of %d", n, size)
	}
}

func TestOriginCancel(t *testing.T) {
	arrived, gone := make(chan string, 1), make(chan struct{}, 1)
	origin := listenRaw(t, func(c *originPeer) {
		head, ok := c.head()
		if !ok {
			return
		}
		if strings.HasPrefix(head, "GET /answering") {
			c.send("HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\nhello")
		}
		arrived <- head
		c.wantGone()
		gone <- struct{}{}
	})
	p := startPool(t, testOriginConfig())
	f := func(method, target string, length int64) {
		t.Helper()
		c := p.start(origin.up, method, target, length, nil)
		<-arrived
		if target == "/answering" {
			<-c.headed
		}
		p.on(func() {
			c.o.Cancel()
			c.o.Cancel() // twice does nothing
			c.o.Write([]byte("x"))
			c.o.End()
			c.o.Resume()
		})
		<-gone
		p.wantIdle(origin.up, 0)
		p.on(func() {
			if c.ended || c.failure != nil {
				t.Errorf("%s %s: something was told after Cancel", method, target)
			}
		})
	}
	f("GET", "/waiting", 0)
	f("GET", "/answering", 0)
	f("POST", "/sending", -1)
	f("POST", "/sending", 100)
	// Before there is a connection.
	c := newTestCall(p)
	p.on(func() {
		c.o = p.call(origin.up, &originHead{Method: []byte("GET"), Target: []byte("/")}, c)
		c.o.Cancel()
	})
	p.wantIdle(origin.up, 0)
}

func TestOriginAnswersEarly(t *testing.T) {
	origin := listenRaw(t, nil)
	p := startPool(t, testOriginConfig())

	// It goes on reading: it gets everything, and the connection lives.
	whole := make(chan string, 1)
	origin.play(func(c *originPeer) {
		c.head()
		c.send(okHello)
		b := make([]byte, 10)
		io.ReadFull(c.r, b)
		whole <- string(b)
		answerAll(okEmpty)(c)
	})
	c := p.start(origin.up, "POST", "/", 10, nil)
	p.on(func() { c.o.Write([]byte("01234")) })
	c.wantAnswer(200, "hello")
	p.on(func() {
		if c.o.Deaf() {
			t.Error("deaf although the origin reads")
		}
		c.o.Write([]byte("56789"))
		c.o.End()
	})
	if got := <-whole; got != "0123456789" {
		t.Errorf("the origin got %q", got)
	}
	p.wantIdle(origin.up, 1)
	p.start(origin.up, "GET", "/", 0, nil).wantAnswer(200, "")
	p.on(p.closeIdle)

	// It closes behind its answer: the rest is dropped.
	origin.play(func(c *originPeer) {
		c.head()
		c.send("HTTP/1.1 413 X\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello")
	})
	c = p.start(origin.up, "POST", "/", 10, nil)
	p.on(func() { c.o.Write([]byte("01234")) })
	c.wantAnswer(413, "hello")
	p.await("the call to be deaf", func() bool { return c.o.Deaf() })
	p.on(func() {
		if c.o.Write([]byte("56789")) {
			t.Error("a backlog at an origin that is gone")
		}
		c.o.End()
	})
	p.wantIdle(origin.up, 0)

	// It resets before it has answered: a failure.
	origin.play(func(c *originPeer) { c.head(); c.reset() })
	c = p.start(origin.up, "POST", "/", -1, nil)
	p.on(func() { c.o.Write([]byte("01234")) })
	c.wantFailure(failResponse, "")

	// It answers, stays and does not read: it is left alone after a moment.
	stay := make(chan struct{})
	origin.play(func(c *originPeer) { c.head(); c.send(okHello); c.hold(stay) })
	c = p.start(origin.up, "POST", "/", -1, nil)
	p.on(func() { c.o.Write([]byte("x")) })
	c.wantAnswer(200, "hello")
	backlogs := 0
	p.await("the call to be deaf, and OnDrain for each backlog and that", func() bool {
		// The kernel may take a backlog after all, more than once.
		for backlogs <= c.drains && !c.o.Deaf() {
			if c.o.Write(make([]byte, 1<<20)) {
				backlogs++
			}
		}
		return c.o.Deaf() && c.drains >= max(1, backlogs)
	})
	p.on(func() { c.o.End() })
	close(stay)
	p.wantIdle(origin.up, 0)

	// The user gives up: the answer still comes.
	origin.play(func(c *originPeer) {
		c.head()
		io.ReadFull(c.r, make([]byte, 3))
		c.send("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhe")
		time.Sleep(10 * time.Millisecond)
		c.send("llo")
		c.wantGone()
	})
	c = p.start(origin.up, "POST", "/", 10, nil)
	p.on(func() { c.o.Write([]byte("012")) })
	<-c.headed
	p.on(func() { c.o.GiveUp(); c.o.Write([]byte("345")) })
	c.wantAnswer(200, "hello")
	p.on(func() { c.o.End() })
	p.wantIdle(origin.up, 0)
}

// A call of which both sides are done is over whatever becomes of its connection:
// nothing is told any more, and its origin can be forgotten.
func TestOriginGoneBehindAnswerAndEnd(t *testing.T) {
	origin := listenRaw(t, nil)
	p := startPool(t, testOriginConfig())
	wantOver := func(c *testCall) {
		t.Helper()
		p.wantIdle(origin.up, 0)
		p.on(func() {
			if c.drains > 0 {
				t.Errorf("OnDrain was called %d times behind the end", c.drains)
			}
		})
	}
	released, left := make(chan struct{}), make(chan struct{})
	release := sync.OnceFunc(func() { close(released) })
	t.Cleanup(release)

	// The reset comes before the last chunk, and nobody has seen it.
	origin.play(func(c *originPeer) {
		defer close(left)
		c.head()
		c.send(okHello)
		c.hold(released)
		c.reset()
	})
	c := p.start(origin.up, "POST", "/", -1, nil)
	c.wantAnswer(200, "hello")
	p.on(func() {
		release()
		<-left
		c.o.End()
	})
	wantOver(c)

	// The request was ended, but the origin has not taken all of it.
	released = make(chan struct{})
	origin.play(func(c *originPeer) {
		c.send(okHello)
		c.hold(released)
		c.reset()
	})
	c = newTestCall(p)
	p.on(func() {
		fields := []byte("X-A: " + strings.Repeat("a", backedUp) + "\r\n")
		c.o = p.call(origin.up, &originHead{Method: []byte("GET"), Target: []byte("/"), Fields: fields}, c)
	})
	c.wantAnswer(200, "hello")
	close(released)
	wantOver(c)
}

func TestOriginLastTellsTheEnd(t *testing.T) {
	f := func(raw string, closes bool, want bool) {
		t.Helper()
		origin := listenRaw(t, func(c *originPeer) {
			c.head()
			c.send(raw)
			if !closes {
				c.wantGone()
			}
		})
		p := startPool(t, testOriginConfig())
		last := false
		p.start(origin.up, "GET", "/", 0, func(c *testCall) { c.onData = func([]byte) { last = c.o.Last() } }).wantAnswer(200, "hello")
		if last != want {
			t.Errorf("%q: Last was %v", raw, last)
		}
		p.on(p.closeIdle)
	}
	f(okHello, false, true)
	f("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", false, true)
	f("HTTP/1.1 200 OK\r\n\r\nhello", true, false)
}

// A user may begin the next request from within any call.
func TestOriginCallFromCallbacks(t *testing.T) {
	origin := listenRaw(t, answerAll(okHello))
	p := startPool(t, testOriginConfig())
	second := newTestCall(p)
	p.start(origin.up, "GET", "/", 0, func(c *testCall) {
		c.onEnd = func() {
			second.o = p.call(origin.up, &originHead{Method: []byte("GET"), Target: []byte("/")}, second)
		}
	}).wantAnswer(200, "hello")
	second.wantAnswer(200, "hello")
}

func TestOriginCallBugs(t *testing.T) {
	origin := listenRaw(t, func(c *originPeer) { c.wantGone() })
	p := startPool(t, testOriginConfig())
	f := func(want string, length int64, misuse func(o *originCall)) {
		t.Helper()
		c := p.start(origin.up, "POST", "/", length, nil)
		p.on(func() {
			defer c.o.Cancel()
			defer func() {
				if r := recover(); r == nil || !strings.Contains(fmt.Sprint(r), want) {
					t.Errorf("recovered %v, want %q", r, want)
				}
			}()
			misuse(c.o)
		})
	}
	f("after its end", 0, func(o *originCall) { o.Write([]byte("x")) })
	f("more origin body", 3, func(o *originCall) { o.Write([]byte("hello")) })
	f("shorter", 9, func(o *originCall) { o.Write([]byte("hello")); o.End() })
}
