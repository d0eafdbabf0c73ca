package gateway

import (
	"context"
	"net"
	"sync"
	"time"
)

// adminGrace is how long an answer that is under way may take when the admin
// listener ends.
const adminGrace = 500 * time.Millisecond

// adminConns are the admin listener's connections. fasthttp gives one on which
// nothing was asked yet five seconds before a shutdown closes it, and browsers keep
// such spare ones: a page that somebody looks at must not hold up the end of the
// process.
type adminConns struct {
	net.Listener

	mu   sync.Mutex
	open map[*adminConn]struct{}
}

func newAdminConns(ln net.Listener) *adminConns {
	return &adminConns{Listener: ln, open: make(map[*adminConn]struct{})}
}

// Accept implements net.Listener. How many there may be is the server's to bound.
func (l *adminConns) Accept() (net.Conn, error) {
	nc, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &adminConn{Conn: nc, of: l}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open[c] = struct{}{}
	return c, nil
}

// count returns how many there are. It may be called from anywhere.
func (l *adminConns) count() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return int64(len(l.open))
}

// closeAll closes what is left.
func (l *adminConns) closeAll() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.open {
		c.Conn.Close()
	}
}

type adminConn struct {
	net.Conn
	of *adminConns
}

func (c *adminConn) Close() error {
	c.of.mu.Lock()
	delete(c.of.open, c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}

func (a *admin) stop() {
	if a.server != nil {
		a.conns.Close()
		ctx, cancel := context.WithTimeout(context.Background(), adminGrace)
		defer cancel()
		if a.server.ShutdownWithContext(ctx) != nil {
			a.conns.closeAll()
			a.server.Shutdown()
		}
	}
	<-a.done
}
