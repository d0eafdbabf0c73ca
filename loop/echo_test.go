package loop

import (
	"net"
	"sync"
	"testing"
)

// echo sends back what it reads. What the kernel refuses it keeps, and reads no
// more until that is gone: the whole discipline of the package in one handler.
type echo struct {
	rest  []byte
	ended bool
	vec   bool // by Readv and Writev, in pieces
	calls struct{ read, write int }
}

func (e *echo) OnRead(c *Conn) {
	e.calls.read++
	buf := c.Loop().Buffer()[Headroom:]
	var n int
	var r ReadResult
	if e.vec {
		v := c.Loop().Vec()
		for i, b := 1, buf; len(b) > 0 && !v.Full(); i += 3 {
			v.Add(b[:min(i*i, len(b))])
			b = b[min(i*i, len(b)):]
		}
		n, r = c.Readv(v)
	} else {
		n, r = c.Read(buf)
	}
	switch r {
	case ReadEOF:
		e.ended = true
		c.Close() // nothing is kept: with a rest it would not have been read
	case ReadReset:
		c.Reset()
	case ReadBytes:
		e.rest = append(e.rest[:0], e.send(c, buf[:n])...)
		if len(e.rest) > 0 {
			c.Pause()
		}
	}
}

// send writes b and returns what the kernel did not take.
func (e *echo) send(c *Conn, b []byte) []byte {
	var n int
	var err error
	if e.vec {
		v := c.Loop().Vec()
		for i, p := 1, b; len(p) > 0 && !v.Full(); i += 2 {
			v.Add(p[:min(i*i, len(p))])
			p = p[min(i*i, len(p)):]
		}
		n, err = c.Writev(v)
	} else {
		n, err = c.Write(b)
	}
	if err != nil {
		c.Reset()
		return nil
	}
	return b[n:]
}

func (e *echo) OnWrite(c *Conn) {
	e.calls.write++
	n := copy(e.rest, e.send(c, e.rest))
	if e.rest = e.rest[:n]; n == 0 && !c.Closed() {
		c.Resume()
	}
}

func (e *echo) OnHangup(c *Conn, reset bool) {
	if reset {
		c.Reset()
	}
}

func (e *echo) OnTimer(*Conn) {}

// echoAll talks over n connections at once and fails on the first wrong byte.
func echoAll(t *testing.T, n, size, chunk int, dial func() *net.TCPConn) {
	t.Helper()
	var wg sync.WaitGroup
	for i := range n {
		c := dial()
		wg.Go(func() {
			if err := talk(c, noise(uint64(i), size+i), chunk); err != nil {
				t.Errorf("connection %d: %v", i, err)
			}
			c.Close()
		})
	}
	wg.Wait()
}

func TestEcho(t *testing.T) {
	f := func(name string, conns, size, chunk int, vec bool, opt SocketOptions) {
		t.Run(name, func(t *testing.T) {
			loops := start(t, 2, Config{})
			ln := serve(t, opt, func(*Conn) Handler { return &echo{vec: vec} }, loops...)
			echoAll(t, conns, size, chunk, func() *net.TCPConn { return connect(t, ln) })
			eventually(t, "no connection is left", func() bool {
				return loops[0].Stats().Conns.Load()+loops[1].Stats().Conns.Load() == 0
			})
		})
	}
	f("nothing but the end", 10, 0, 1, false, SocketOptions{})
	f("key strokes", 50, 200, 1, false, SocketOptions{})
	f("many", 200, 20<<10, 1<<10, false, SocketOptions{})
	f("bulk", 4, 4<<20, 1<<20, false, SocketOptions{})
	f("vectors", 20, 300<<10, 10<<10, true, SocketOptions{})
	f("vectors of key strokes", 20, 50, 1, true, SocketOptions{})
	f("a small send buffer", 10, 300<<10, 64<<10, false, SocketOptions{SendBuffer: 4 << 10})
	f("small buffers, vectors", 10, 300<<10, 64<<10, true, SocketOptions{SendBuffer: 4 << 10, ReceiveBuffer: 4 << 10})
}

// TestEchoSmallReadBuffer: a read is never larger than the buffer, and what is
// left comes in later turns.
func TestEchoSmallReadBuffer(t *testing.T) {
	l := start(t, 1, Config{ReadBuffer: 100})[0]
	want(t, "the buffer has its headroom", len(l.Buffer()) == Headroom+100)
	ln := serve(t, SocketOptions{}, func(*Conn) Handler { return &echo{} }, l)
	echoAll(t, 5, 30<<10, 10<<10, func() *net.TCPConn { return connect(t, ln) })
}

// TestEchoNoSpin: a loop that never asks twice before it blocks serves the same.
func TestEchoNoSpin(t *testing.T) {
	l := start(t, 1, Config{Spin: -1})[0]
	ln := serve(t, SocketOptions{}, func(*Conn) Handler { return &echo{} }, l)
	echoAll(t, 20, 10<<10, 100, func() *net.TCPConn { return connect(t, ln) })
}
