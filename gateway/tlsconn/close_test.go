package tlsconn

import (
	"crypto/tls"
	"io"
	"net"
	"testing"
	"time"

	"sluice/loop"
)

// A giver writes what the kernel takes and a little more, and leaves at once.
type giver struct {
	t    *Conn
	took int
	gone chan struct{}
}

func (g *giver) OnHandshake(error) {
	g.took, _ = g.t.Write(make([]byte, 16<<20))
	g.t.Linger(1<<20, loop.Now(), int64(time.Hour), func() { close(g.gone) })
}

func (g *giver) OnRead(*loop.Conn)         {}
func (g *giver) OnWrite(*loop.Conn)        {}
func (g *giver) OnHangup(*loop.Conn, bool) {}
func (g *giver) OnTimer(*loop.Conn)        {}

// What waits when a connection is left reaches a peer that takes it slowly, with
// its end.
func TestLingerSlowPeer(t *testing.T) {
	l, err := loop.New(0, loop.Config{Spin: -1})
	if err != nil {
		t.Fatal(err)
	}
	e := New([]*loop.Loop{l}, Limits{})
	raw, err := loop.Listen("127.0.0.1:0", loop.SocketOptions{SendBuffer: 32 << 10})
	if err != nil {
		t.Fatal(err)
	}
	g := &giver{gone: make(chan struct{})}
	accept := acceptFunc(func(c *loop.Conn) loop.Handler {
		cfg := &tls.Config{Certificates: []tls.Certificate{certificate()}}
		g.t = e.Server(c, cfg, g, patience, nil)
		return g.t
	})
	if err := l.Accept(raw, accept); err != nil {
		t.Fatal(err)
	}
	go l.Run()
	t.Cleanup(func() { l.Stop(); <-l.Done(); raw.Close() })

	conn, err := net.Dial("tcp", raw.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(patience))
	c := tls.Client(conn, &tls.Config{InsecureSkipVerify: true})
	if err := c.Handshake(); err != nil {
		t.Fatal(err)
	}
	for looked := false; !looked; time.Sleep(time.Millisecond) { // between two looks
		done := make(chan struct{})
		l.Post(loop.Func(func(*loop.Loop) {
			defer close(done)
			looked = g.t.Closed() || g.t.state == closing && g.t.Deadline() > loop.Now()
		}))
		<-done
	}
	got, err := io.ReadAll(c)
	if err != nil || g.took == 0 || len(got) != g.took {
		t.Errorf("%d bytes of %d, %v", len(got), g.took, err)
	}
	c.Close()
	select {
	case <-g.gone:
	case <-time.After(patience):
		t.Error("the connection is left")
	}
}

type acceptFunc func(c *loop.Conn) loop.Handler

func (f acceptFunc) OnAccept(c *loop.Conn) loop.Handler { return f(c) }
