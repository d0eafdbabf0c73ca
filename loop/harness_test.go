package loop

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"testing"
	"time"
)

// patience is how long a test waits for what must come. It is no measure of
// anything: a busy machine may need long.
const patience = 30 * time.Second

// want asserts that what the sentence says holds. It may be called on a loop.
func want(t *testing.T, sentence string, holds bool) {
	t.Helper()
	if !holds {
		t.Errorf("not so: %s", sentence)
	}
}

// await returns what comes through ch, or ends the test.
func await[T any](t *testing.T, sentence string, ch <-chan T) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(patience):
		t.Fatalf("waited in vain: %s", sentence)
		panic("unreachable")
	}
}

// eventually asks again and again until holds says yes. It is for what only the
// kernel knows and does not tell.
func eventually(t *testing.T, sentence string, holds func() bool) {
	t.Helper()
	deadline := time.After(patience)
	again := time.NewTicker(time.Millisecond)
	defer again.Stop()
	for !holds() {
		select {
		case <-again.C:
		case <-deadline:
			t.Fatalf("waited in vain: %s", sentence)
		}
	}
}

// start makes n loops and runs them until the end of the test.
func start(t testing.TB, n int, cfg Config) []*Loop {
	t.Helper()
	loops := make([]*Loop, n)
	for i := range loops {
		l, err := New(i, cfg)
		if err != nil {
			t.Fatal(err)
		}
		loops[i] = l
		go l.Run()
		t.Cleanup(func() { stop(t, l) })
	}
	return loops
}

func stop(t testing.TB, l *Loop) {
	t.Helper()
	l.Stop()
	select {
	case <-l.Done():
	case <-time.After(patience):
		t.Error("a loop does not stop")
	}
}

// on runs do on the loop's goroutine and waits for its end.
func on(t *testing.T, l *Loop, do func()) {
	t.Helper()
	done := make(chan struct{})
	l.Post(Func(func(*Loop) {
		defer close(done)
		do()
	}))
	await(t, "the loop delivers a message", done)
}

// turns lets the loop turn n times, and begin another.
func turns(t *testing.T, l *Loop, n int) {
	t.Helper()
	done := make(chan struct{})
	from := l.stats.Turns.Load()
	var look Func
	look = func(l *Loop) {
		if l.stats.Turns.Load() > from+int64(n) {
			close(done)
		} else {
			l.Post(look)
		}
	}
	l.Post(look)
	await(t, "the loop turns", done)
}

// hold keeps the loop busy in a message until release is called: what happens
// meanwhile meets it all at once.
func hold(t *testing.T, l *Loop) (release func()) {
	t.Helper()
	held, free := make(chan struct{}), make(chan struct{})
	l.Post(Func(func(*Loop) {
		close(held)
		<-free
	}))
	await(t, "the loop is held", held)
	return func() { close(free) }
}

// acceptFunc is an Acceptor of a function.
type acceptFunc func(c *Conn) Handler

func (f acceptFunc) OnAccept(c *Conn) Handler { return f(c) }

// serve opens a listener that the loops accept from until the end of the test.
func serve(t *testing.T, opt SocketOptions, accept acceptFunc, loops ...*Loop) *Listener {
	t.Helper()
	ln, err := Listen("127.0.0.1:0", opt)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range loops {
		on(t, l, func() {
			if err := l.Accept(ln, accept); err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(func() {
		for _, l := range loops {
			select {
			case <-l.Done():
			default:
				on(t, l, func() { l.Unlisten(ln) })
			}
		}
		ln.Close()
	})
	return ln
}

// connect opens a plain connection, the peer of one that a loop accepts.
func connect(t testing.TB, ln *Listener) *net.TCPConn {
	t.Helper()
	c, err := net.DialTimeout("tcp4", ln.Addr().String(), patience)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(2 * patience))
	return c.(*net.TCPConn)
}

// pair connects a peer with a connection of l's that h handles; ready, if any,
// runs on the loop when it is accepted.
func pair(t *testing.T, l *Loop, h Handler, ready func(c *Conn)) (*Conn, *net.TCPConn) {
	t.Helper()
	got := make(chan *Conn, 1)
	ln := serve(t, SocketOptions{}, func(c *Conn) Handler {
		if ready != nil {
			ready(c)
		}
		got <- c
		return h
	}, l)
	peer := connect(t, ln)
	return await(t, "the connection is accepted", got), peer
}

// script is a handler of functions. A call that has none is a failure: nothing
// else may come.
type script struct {
	t      *testing.T
	read   func(c *Conn)
	write  func(c *Conn)
	hangup func(c *Conn, reset bool)
	timer  func(c *Conn)
	moved  func(c *Conn)
	dialed func(c *Conn, err error)
}

func (s *script) OnRead(c *Conn) {
	if s.read == nil {
		s.t.Error("unexpected: OnRead")
		c.Pause()
		return
	}
	s.read(c)
}

func (s *script) OnWrite(c *Conn) {
	if s.write == nil {
		s.t.Error("unexpected: OnWrite")
		return
	}
	s.write(c)
}

func (s *script) OnHangup(c *Conn, reset bool) {
	if s.hangup == nil {
		s.t.Errorf("unexpected: OnHangup, reset %v", reset)
		return
	}
	s.hangup(c, reset)
}

func (s *script) OnTimer(c *Conn) {
	if s.timer == nil {
		s.t.Error("unexpected: OnTimer")
		return
	}
	s.timer(c)
}

func (s *script) OnMoved(c *Conn) {
	if s.moved == nil {
		s.t.Error("unexpected: OnMoved")
		return
	}
	s.moved(c)
}

func (s *script) OnDial(c *Conn, err error) {
	if s.dialed == nil {
		s.t.Errorf("unexpected: OnDial, error %v", err)
		return
	}
	s.dialed(c, err)
}

// collector is a handler that keeps what it reads and tells the end.
type collector struct {
	script
	got   []byte
	reads int
	end   chan ReadResult // ReadEOF or ReadReset
}

func collect(t *testing.T) *collector {
	r := &collector{end: make(chan ReadResult, 4)}
	r.t = t
	r.read = func(c *Conn) {
		r.reads++
		b := c.Loop().Buffer()[Headroom:]
		switch n, res := c.Read(b); res {
		case ReadBytes:
			r.got = append(r.got, b[:n]...)
		case ReadEOF, ReadReset:
			r.end <- res
		}
	}
	return r
}

// noise returns n bytes that look random and are the same for a seed.
func noise(seed uint64, n int) []byte {
	var key [32]byte
	key[0], key[1] = byte(seed), byte(seed>>8)
	b := make([]byte, n)
	rand.NewChaCha8(key).Read(b)
	return b
}

// talk sends data, ends its side, and wants back exactly the same.
func talk(c *net.TCPConn, data []byte, chunk int) error {
	sent := make(chan error, 1)
	go func() {
		for b := data; len(b) > 0; {
			n, err := c.Write(b[:min(chunk, len(b))])
			if err != nil {
				sent <- err
				return
			}
			b = b[n:]
		}
		sent <- c.CloseWrite()
	}()
	got, err := io.ReadAll(c)
	if err := errors.Join(err, <-sent); err != nil {
		return err
	}
	if !bytes.Equal(got, data) {
		return errors.New("what came back is not what was sent")
	}
	return nil
}

// far is a deadline that no test reaches.
func far() int64 { return Now() + int64(time.Hour) }

// fullScale reports whether tests are to run at the size of the acceptance.
func fullScale() bool { return os.Getenv("SLUICE_SCALE") == "full" }
