package gateway_test

import (
	"crypto/rand"
	"fmt"
	"sync"
	"time"
)

// A modelPeer is one socket with a goroutine that reads, unless it is stalled,
// and one that writes.
type modelPeer struct {
	w    *world
	c    *wsClient
	name string
	src  uint32
	seq  int
	at   *place // where what it receives is judged; nil for control

	mu      sync.Mutex
	cond    *sync.Cond
	stalled bool
	writes  [][]byte
	writing bool
	stopped bool // the writer
	notices []string
	pongs   map[string]bool
	closed  *wsMessage // the relay's close frame
	over    error      // how the connection ended
	old     bool       // replaced
	err     error
}

func (w *world) open(query, name string, at *place) (*modelPeer, error) {
	var opts []wsOption
	if w.r.IntN(2) == 0 {
		opts = append(opts, smallBuffers)
	}
	c, err := dialWS(w.m.n.t, w.m.n.addr, query, name, opts...)
	if err != nil {
		return nil, err
	}
	p := &modelPeer{w: w, c: c, name: name, src: w.m.sources.Add(1), at: at, pongs: map[string]bool{}}
	p.cond = sync.NewCond(&p.mu)
	w.peers = append(w.peers, p)
	go p.reader()
	go p.writer()
	return p, nil
}

func (p *modelPeer) reader() {
	seen := map[uint32]int{}
	for {
		p.mu.Lock()
		for p.stalled {
			p.cond.Wait()
		}
		p.mu.Unlock()
		m, err := p.c.next(time.Hour)
		p.mu.Lock()
		switch {
		case err != nil:
			p.over = err
			if p.old && p.at != nil {
				p.at.mu.Lock()
				p.at.olds--
				p.at.mu.Unlock()
			}
			p.cond.Broadcast()
			p.mu.Unlock()
			return
		case m.op == opClose && p.closed == nil:
			p.closed = &m
			p.mu.Unlock()
			p.c.nc.SetWriteDeadline(time.Now().Add(patience))
			p.c.nc.Write(closeFrame(1000, ""))
			p.c.nc.CloseWrite()
			p.mu.Lock()
		case m.op == opPong:
			p.pongs[string(m.data)] = true
		case p.closed != nil:
			p.err = fmt.Errorf("%v behind the close frame", m)
		case p.at == nil && m.op == opText:
			p.notices = append(p.notices, string(m.data))
		case p.at != nil && (m.op == opText || m.op == opBin):
			if err := p.at.receive(m, seen); err != nil && p.err == nil {
				p.err = err
			}
		default:
			p.err = fmt.Errorf("unexpected %v", m)
		}
		p.cond.Broadcast()
		p.mu.Unlock()
	}
}

func (p *modelPeer) writer() {
	for {
		p.mu.Lock()
		p.writing = false
		p.cond.Broadcast()
		for len(p.writes) == 0 && !p.stopped {
			p.cond.Wait()
		}
		if p.stopped {
			p.mu.Unlock()
			return
		}
		b := p.writes[0]
		p.writes = p.writes[1:]
		p.writing = true
		p.mu.Unlock()
		p.c.nc.SetWriteDeadline(time.Now().Add(time.Hour))
		if _, err := p.c.nc.Write(b); err != nil {
			p.mu.Lock()
			p.stopped, p.writes, p.writing = true, nil, false
			p.cond.Broadcast()
			p.mu.Unlock()
			return
		}
	}
}

// until waits for a condition of the peer, which runs with its lock held.
func (p *modelPeer) until(what string, cond func() bool) error {
	late := false
	timer := time.AfterFunc(patience, func() { p.mu.Lock(); late = true; p.cond.Broadcast(); p.mu.Unlock() })
	defer timer.Stop()
	p.mu.Lock()
	defer p.mu.Unlock()
	for !cond() {
		if p.err != nil {
			return fmt.Errorf("%s: %w", p.name, p.err)
		}
		if late {
			return fmt.Errorf("%s: never: %s (closed %v, ended %v)", p.name, what, p.closed, p.over)
		}
		p.cond.Wait()
	}
	return p.err
}

func (p *modelPeer) setStalled(on bool) {
	p.mu.Lock()
	p.stalled = on
	p.cond.Broadcast()
	p.mu.Unlock()
}

func (p *modelPeer) put(b []byte) {
	p.mu.Lock()
	p.writes = append(p.writes, b)
	p.cond.Broadcast()
	p.mu.Unlock()
}

func (p *modelPeer) written() error {
	return p.until("everything is written", func() bool { return len(p.writes) == 0 && !p.writing })
}

// wantEnd expects this close frame and the end of the stream.
func (p *modelPeer) wantEnd(code uint16, reason string) error {
	p.setStalled(false)
	if err := p.until(fmt.Sprintf("close %d %s", code, reason), func() bool { return p.over != nil }); err != nil {
		return err
	}
	if p.closed == nil || p.closed.code != code || p.closed.reason != reason {
		return fmt.Errorf("%s: expected close %d %q, got %v and %v", p.name, code, reason, p.closed, p.over)
	}
	p.c.bye()
	return nil
}

// barrier proves that everything sent was read.
func (p *modelPeer) barrier() error {
	var tag [8]byte
	rand.Read(tag[:])
	p.put(frame(opPing, true, tag[:]))
	return p.until("a pong", func() bool { return p.pongs[string(tag[:])] })
}

// leave ends the peer's connection in one of three ways. Everything that it had
// to write is written before; behind a reset the end of it may be lost.
func (p *modelPeer) leave(how int) error {
	if err := p.written(); err != nil {
		return err
	}
	p.setStalled(false)
	switch how {
	case 0:
		p.put(closeFrame(4000, "model"))
		return p.wantEnd(4000, "")
	case 1:
		p.c.fin()
		return p.until("the end", func() bool { return p.over != nil })
	default:
		p.c.rst()
		return nil
	}
}
