package redistest

import (
	"net"
	"sync"
	"testing"
	"time"
)

// A Proxy stands between a client and a server of a test and does to the
// connection what networks do. Its methods may be called from anywhere.
type Proxy struct {
	Addr string

	t      testing.TB
	target string
	ln     net.Listener
	done   sync.WaitGroup

	mu     sync.Mutex
	change *sync.Cond
	cut    bool
	paused [2]bool // by direction: towards the server, towards the client
	delay  time.Duration
	closed bool
	conns  map[net.Conn]bool
}

// Directions of a Proxy.
const (
	ToServer = iota
	ToClient
)

// StartProxy starts a proxy in front of an address.
func StartProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{Addr: ln.Addr().String(), t: t, target: target, ln: ln, conns: map[net.Conn]bool{}}
	p.change = sync.NewCond(&p.mu)
	p.done.Add(1)
	go p.accept()
	t.Cleanup(p.close)
	return p
}

// URL is the REDIS_URL of the proxy in front of a server.
func (p *Proxy) URL() string { return "redis://" + p.Addr }

// Cut ends every connection and refuses new ones, until Heal.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = true
	for c := range p.conns {
		c.Close()
	}
}

// Pause keeps back what is sent in one direction, until Heal: nothing is lost.
func (p *Proxy) Pause(direction int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.paused[direction] = true
}

// Delay holds up each piece that is sent, in either direction.
func (p *Proxy) Delay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// Turn leads new connections elsewhere, and ends those there are, as a fleet's
// virtual address does in a failover.
func (p *Proxy) Turn(target string) {
	p.mu.Lock()
	p.target = target
	p.mu.Unlock()
	p.Break()
}

// Break ends every connection, and loses what was kept back.
func (p *Proxy) Break() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.Close()
	}
}

// Heal ends cuts, pauses and delays.
func (p *Proxy) Heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut, p.paused, p.delay = false, [2]bool{}, 0
	p.change.Broadcast()
}

func (p *Proxy) close() {
	p.mu.Lock()
	p.closed = true
	for c := range p.conns {
		c.Close()
	}
	p.change.Broadcast()
	p.mu.Unlock()
	p.ln.Close()
	p.done.Wait()
}

func (p *Proxy) accept() {
	defer p.done.Done()
	for {
		c, err := p.ln.Accept()
		if err != nil {
			return
		}
		p.done.Add(1)
		go p.serve(c)
	}
}

// keep notes a connection, unless it may not be.
func (p *Proxy) keep(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cut || p.closed {
		c.Close()
		return false
	}
	p.conns[c] = true
	return true
}

func (p *Proxy) serve(client net.Conn) {
	defer p.done.Done()
	if !p.keep(client) {
		return
	}
	p.mu.Lock()
	target := p.target
	p.mu.Unlock()
	server, err := net.DialTimeout("tcp", target, patience)
	if err != nil {
		client.Close()
		return
	}
	if !p.keep(server) {
		client.Close()
		return
	}
	var both sync.WaitGroup
	both.Go(func() { p.pump(server, client, ToServer) })
	both.Go(func() { p.pump(client, server, ToClient) })
	both.Wait()
	p.mu.Lock()
	delete(p.conns, client)
	delete(p.conns, server)
	p.mu.Unlock()
}

// pump carries one direction.
func (p *Proxy) pump(to, from net.Conn, direction int) {
	defer to.Close()
	defer from.Close()
	b := make([]byte, 32<<10)
	for {
		n, err := from.Read(b)
		if n > 0 {
			p.mu.Lock()
			delay := p.delay
			for p.paused[direction] && !p.closed && p.conns[to] {
				p.change.Wait()
			}
			p.mu.Unlock()
			if delay > 0 {
				time.Sleep(delay) // it is the thing that is tested
			}
			if _, err := to.Write(b[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
