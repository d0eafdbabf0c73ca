package main

import (
	"sync"
	"sync/atomic"
)

// A seat is one socket of a pair. The peer is read once per message, from
// whatever goroutine the library reads on, hence the atomic.
type seat[C any] struct {
	conn C
	key  string // serverId
	role string
	peer atomic.Pointer[seat[C]]
}

// A lobby brings the two sockets of a serverId together. It is safe for
// concurrent use; its lock is taken when a socket comes or goes, never per
// message.
type lobby[C any] struct {
	mu    sync.Mutex
	pairs map[string]*pair[C]
}

type pair[C any] struct {
	server, client *seat[C]
}

func newLobby[C any]() *lobby[C] {
	return &lobby[C]{pairs: make(map[string]*pair[C])}
}

// enter seats conn and introduces it to its peer if that is there. A second
// socket of the same role takes the seat.
func (l *lobby[C]) enter(key, role string, conn C) *seat[C] {
	s := &seat[C]{conn: conn, key: key, role: role}
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.pairs[key]
	if p == nil {
		p = new(pair[C])
		l.pairs[key] = p
	}
	if role == "server" {
		p.server = s
	} else {
		p.client = s
	}
	if p.server != nil && p.client != nil {
		p.server.peer.Store(p.client)
		p.client.peer.Store(p.server)
	}
	return s
}

// leave gives the seat up; messages for it are dropped from now on.
func (l *lobby[C]) leave(s *seat[C]) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if peer := s.peer.Load(); peer != nil {
		peer.peer.CompareAndSwap(s, nil)
	}
	p := l.pairs[s.key]
	if p == nil {
		return
	}
	if p.server == s {
		p.server = nil
	}
	if p.client == s {
		p.client = nil
	}
	if p.server == nil && p.client == nil {
		delete(l.pairs, s.key)
	}
}
