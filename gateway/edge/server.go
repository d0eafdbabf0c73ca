// Package edge is what stands in front of both roles: HTTP/1.1 connections on
// the event loops, the address a client is known by, and rate limits. What is
// answered is a role's business; how long a peer may take, how much it may make
// us keep and in which order answers leave is decided here.
package edge

import (
	"sync/atomic"
	"time"

	"sluice/codec/http1"
	"sluice/gateway/tlsconn"
	"sluice/loop"
)

// An App answers the requests of a Server. One App serves all loops: OnRequest
// runs on the loop that owns the connection, so what it keeps must be per loop
// or safe for several.
type App interface {
	// OnRequest is called with each complete request head. r and everything in
	// it is valid until OnRequest returns. The app does one of these, at once
	// or, but for MoveTo, later on the same loop:
	//
	//   - answer: HTTPConn.Reply, or StartResponse, Write and EndResponse;
	//   - first take the body: Take and ReadBody;
	//   - keep the socket: Hijack;
	//   - go on elsewhere: MoveTo.
	OnRequest(c *HTTPConn, r *http1.Request)
}

// Config is what a Server is made with. All durations and counts must be
// positive.
type Config struct {
	// Limits bound a request head: HTTP_MAX_HEAD_BYTES, HTTP_MAX_HEADERS.
	Limits http1.Limits

	// IdleTimeout bounds, each on its own, the silence between two requests (the
	// connection is closed without a word), the time from the first byte of a
	// head to its last (408; a drip of bytes does not extend it) and the time
	// in which the rest of a body nobody wants must have come
	// (PASEO_RELAY_HTTP_IDLE_TIMEOUT_MS).
	IdleTimeout time.Duration

	// BodyTimeout bounds the silence between two reads of a body that is being
	// read. 0 means IdleTimeout.
	BodyTimeout time.Duration

	// WriteStall is how long a peer may take no byte while output waits before
	// it is reset (WRITE_STALL_SECONDS).
	WriteStall time.Duration

	// MaxConnections is the ceiling of connections that are no WebSocket
	// (HTTP_MAX_CONNECTIONS): over it the one idle longest goes, one with half a request
	// if none waits for its next; if there is neither on the accepting loop, the
	// new one is refused by closing it.
	MaxConnections int

	// OnCeiling, if set, is told of each connection that met the ceiling:
	// evicted says that an idle one went to make room, else the new one was
	// refused. It is called on loops.
	OnCeiling func(evicted bool)

	Proxy *Proxy // nil: a PROXY header is like any other garbage (PROXY_PROTOCOL)
	TLS   *TLS   // nil: plain HTTP
}

// Stats are counts and gauges of a Server, readable from anywhere.
type Stats struct {
	Open         atomic.Int64 // gauge: connections that count against MaxConnections
	Accepted     atomic.Int64
	RefusedFull  atomic.Int64 // at the ceiling with none idle
	EvictedIdle  atomic.Int64 // closed to make room
	IdleTimeouts atomic.Int64
	WriteStalls  atomic.Int64
	Requests     atomic.Int64

	refused [len(refusalStatuses)]atomic.Int64
}

// refusalStatuses are the answers of the HTTP layer itself.
var refusalStatuses = [...]int{400, 408, 414, 417, 431, 501, 505}

// Refusals calls f for each status the HTTP layer refuses with, in a fixed order.
func (s *Stats) Refusals(f func(status int, count int64)) {
	for i, status := range refusalStatuses {
		f(status, s.refused[i].Load())
	}
}

func (s *Stats) countRefusal(status int) {
	for i, known := range refusalStatuses {
		if known == status {
			s.refused[i].Add(1)
			return
		}
	}
	panic("BUG: edge: refusal with an unlisted status")
}

// A Server is one listener's HTTP side, over all loops. It is a loop.Acceptor.
// Everything set at birth is constant; Stats and Drain are for anyone; the rest
// runs on loops.
type Server struct {
	cfg      Config
	app      App
	shards   []*shard // by loop id
	draining atomic.Bool

	Stats Stats
}

// smallestBuffer holds most requests, bytes.
const smallestBuffer = 4 << 10

// shard is what a Server has per loop. It belongs to that loop's goroutine.
type shard struct {
	srv  *Server
	loop *loop.Loop

	req     http1.Request // of the head parsed last
	scratch []byte        // for heads being written
	bufs    loop.Buffers
	date    dateLine
	idle    connList    // longest idle first
	half    connList    // half a head, or a body that nobody reads; the oldest first
	busy    connList    // all others, lingering ones included
	held    []*HTTPConn // have output that waits for the end of the turn
}

// NewServer makes a server for the given loops, whose ids must be small. Call
// it before the loops run.
func NewServer(cfg Config, app App, loops []*loop.Loop) *Server {
	if cfg.BodyTimeout == 0 {
		cfg.BodyTimeout = cfg.IdleTimeout
	}
	s := &Server{cfg: cfg, app: app}
	for _, l := range loops {
		for len(s.shards) <= l.ID() {
			s.shards = append(s.shards, nil)
		}
		sh := &shard{srv: s, loop: l, bufs: loop.NewBuffers(4<<20, smallestBuffer, 16<<10, 64<<10, 256<<10)}
		sh.idle.init()
		sh.half.init()
		sh.busy.init()
		l.AddHook(sh)
		s.shards[l.ID()] = sh
	}
	return s
}

// OnAccept makes the accepted socket an HTTP connection, behind a PROXY header
// and TLS if so configured, or refuses it at the ceiling.
func (s *Server) OnAccept(c *loop.Conn) loop.Handler {
	h := s.admit(c)
	switch {
	case h == nil:
		return nil
	case s.cfg.Proxy != nil:
		h.awaitProxy()
	case s.cfg.TLS != nil:
		h.startTLS(c, nil)
		return h.tls
	}
	return h
}

// admit counts a connection and makes it, or returns nil at the ceiling.
func (s *Server) admit(sock Socket) *HTTPConn {
	sh := s.shards[sock.Loop().ID()]
	if s.Stats.Open.Add(1) > int64(s.cfg.MaxConnections) {
		victim := sh.longestIdle()
		if victim == nil {
			s.Stats.Open.Add(-1)
			s.Stats.RefusedFull.Add(1)
			s.ceiling(false)
			return nil
		}
		s.Stats.EvictedIdle.Add(1)
		s.ceiling(true)
		half := victim.state != stateIdle
		victim.endHandshake(tlsconn.FailCrowded)
		victim.leave()
		if half {
			victim.sock.Reset()
		} else {
			victim.sock.Close()
		}
	}
	s.Stats.Accepted.Add(1)
	c := &HTTPConn{sh: sh, sock: sock, state: stateGone}
	c.goIdle()
	c.arm()
	return c
}

// longestIdle returns the connection that goes when room is needed: the one that
// has waited longest for a request, or else for the rest of one that nobody
// works at. nil if there is none.
func (sh *shard) longestIdle() *HTTPConn {
	if c := sh.idle.first(); c != nil {
		return c
	}
	return sh.half.first()
}

func (s *Server) ceiling(evicted bool) {
	if s.cfg.OnCeiling != nil {
		s.cfg.OnCeiling(evicted)
	}
}

// Drain makes every answer from now on carry Connection: close, until undone by
// false. It may be called from anywhere.
func (s *Server) Drain(on bool) { s.draining.Store(on) }

// CloseIdle closes the idle connections of one loop. Call it on that loop.
func (s *Server) CloseIdle(l *loop.Loop) {
	sh := s.shards[l.ID()]
	for c := sh.idle.first(); c != nil; c = sh.idle.first() {
		c.endHandshake(tlsconn.FailCrowded)
		c.leave()
		c.sock.Close()
	}
}

// Leaving counts the connections of one loop whose peer has not acknowledged all of
// an answer that is complete. Call it on that loop. It costs a system call for each
// connection that lingers.
func (s *Server) Leaving(l *loop.Loop) (n int) {
	sh := s.shards[l.ID()]
	for _, list := range [...]*connList{&sh.half, &sh.busy} {
		for c := list.head.next; c != &list.head; c = c.next {
			switch c.state {
			case stateDraining, stateFlushing, stateClosing:
				if c.deferred || c.waits() {
					n++
				}
			case stateLingering:
				if c.sock.Unacked() > 0 {
					n++
				}
			}
		}
	}
	return n
}

// OnTurn writes what was held back for company that did not come.
func (sh *shard) OnTurn(*loop.Loop) {
	if len(sh.held) == 0 {
		return
	}
	for i, c := range sh.held {
		sh.held[i] = nil
		if c.held && !c.deferred {
			c.send(nil, nil, nil)
		}
	}
	sh.held = sh.held[:0]
}

// connList is a list of connections, linked through themselves.
type connList struct{ head HTTPConn }

func (l *connList) init() { l.head.next, l.head.prev = &l.head, &l.head }

func (l *connList) first() *HTTPConn {
	if l.head.next == &l.head {
		return nil
	}
	return l.head.next
}

func (l *connList) push(c *HTTPConn) {
	c.unlink()
	c.prev, c.next = l.head.prev, &l.head
	c.prev.next, c.next.prev = c, c
}

func (c *HTTPConn) unlink() {
	if c.next != nil {
		c.prev.next, c.next.prev = c.next, c.prev
		c.prev, c.next = nil, nil
	}
}
