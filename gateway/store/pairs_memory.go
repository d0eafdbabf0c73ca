package store

import (
	"sync"
	"sync/atomic"
	"time"

	"sluice/codec/frame"
	"sluice/codec/open"
)

const (
	// memoryShards is how many parts the memory store has, each with a lock of
	// its own that is held for well under a microsecond.
	memoryShards = 64
	// expireSome is how many expired pairs one call removes on its way.
	expireSome = 16
)

// MemoryLimits bound a memory store.
type MemoryLimits struct {
	Pairs     int           // MAX_PAIRS
	PerClient int           // MAX_PAIRS_PER_CLIENT
	Timeout   time.Duration // SESSION_TIMEOUT_SECONDS
}

// MemoryPairs is the store of a node that stands alone. It may be used from
// anywhere.
//
// A pair is kept as two states until its first use, and from then on as keyed
// instances, so that a request restores nothing unless its type is not that of
// the request before.
type MemoryPairs struct {
	limits MemoryLimits
	codec  *open.Pools
	total  atomic.Int64
	shards [memoryShards]memoryShard
}

// memoryShard holds the clients whose ids begin alike.
type memoryShard struct {
	mu      sync.Mutex
	clients map[Client]*memoryClient
	oldest  memoryPair // head of the list of its pairs, in the order of expires
	inUse   int64
}

type memoryClient struct {
	key   Client
	pairs map[frame.PairID]*memoryPair
}

type pairUse uint8

const (
	pairFree   pairUse = iota
	pairInUse          // a request holds it; only that request touches its instances
	pairDoomed         // in use, and dropped or retired as soon as the request ends
)

// A memoryPair is a pair, and the lease on it. use, expires and the links are
// guarded by the shard's lock; the rest belongs to whoever has it in use.
type memoryPair struct {
	store  *MemoryPairs
	client *memoryClient
	id     frame.PairID

	use        pairUse
	expires    int64
	next, prev *memoryPair

	states  []byte // encoder's, then decoder's, until they were first used
	encoder open.Encoder
	decoder open.Decoder
}

// NewMemoryPairs makes an empty store that takes its instances from codec.
func NewMemoryPairs(limits MemoryLimits, codec *open.Pools) *MemoryPairs {
	m := &MemoryPairs{limits: limits, codec: codec}
	for i := range m.shards {
		s := &m.shards[i]
		s.clients = make(map[Client]*memoryClient)
		s.oldest.next, s.oldest.prev = &s.oldest, &s.oldest
	}
	return m
}

func (m *MemoryPairs) shard(c *Client) *memoryShard { return &m.shards[c.ID[0]%memoryShards] }

// Add implements Pairs.
func (m *MemoryPairs) Add(c Client, pairs []NewPair, now int64, _ func(frame.Reason)) (frame.Reason, bool) {
	r := m.add(&c, pairs, now)
	if r == frame.PoolExhausted {
		m.expireAll(now) // expired ones go first
		r = m.add(&c, pairs, now)
	}
	return r, true
}

func (m *MemoryPairs) add(key *Client, pairs []NewPair, now int64) frame.Reason {
	s := m.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire(now, expireSome)
	c := s.clients[*key]
	if c != nil {
		for i := range pairs {
			if p := c.pairs[pairs[i].ID]; p != nil && !p.expired(now) {
				return frame.PairExists
			}
		}
		if len(c.pairs)+len(pairs) > m.limits.PerClient {
			c.expire(s, now)
		}
		if len(c.pairs)+len(pairs) > m.limits.PerClient {
			return frame.PairLimit
		}
	} else if len(pairs) > m.limits.PerClient {
		return frame.PairLimit
	}
	if n := int64(len(pairs)); m.total.Add(n) > int64(m.limits.Pairs) {
		m.total.Add(-n)
		return frame.PoolExhausted
	}
	if c == nil || len(c.pairs) == 0 { // its last pair may have expired just now
		c = &memoryClient{key: *key, pairs: make(map[frame.PairID]*memoryPair, len(pairs))}
		s.clients[*key] = c
	}
	for i := range pairs {
		if p := c.pairs[pairs[i].ID]; p != nil {
			s.remove(p)
			s.clients[*key] = c // it may have been the client's last
		}
		p := &memoryPair{store: m, client: c, id: pairs[i].ID}
		p.states = append(append(make([]byte, 0, len(pairs[i].Encoder)+len(pairs[i].Decoder)), pairs[i].Encoder...), pairs[i].Decoder...)
		clear(pairs[i].Encoder)
		clear(pairs[i].Decoder)
		c.pairs[p.id] = p
		s.touch(p, now)
	}
	return frame.NoReason
}

// Take implements Pairs.
func (m *MemoryPairs) Take(c Client, id frame.PairID, t open.Type, now int64, _ Waiter) (Lease, frame.Reason, bool) {
	s := m.shard(&c)
	s.mu.Lock()
	s.expire(now, expireSome)
	p, r := s.find(&c, id, now)
	if r == frame.NoReason {
		p.use = pairInUse
		s.inUse++
	}
	s.mu.Unlock()
	if r != frame.NoReason {
		return nil, r, true
	}
	if r = p.key(t); r != frame.NoReason {
		p.Retire()
		return nil, r, true
	}
	return p, frame.NoReason, true
}

func (s *memoryShard) find(key *Client, id frame.PairID, now int64) (*memoryPair, frame.Reason) {
	c := s.clients[*key]
	if c == nil {
		return nil, frame.InvalidClientID
	}
	p := c.pairs[id]
	switch {
	case p == nil || p.expired(now):
		c.expire(s, now)
		if len(c.pairs) == 0 {
			return nil, frame.InvalidClientID
		}
		return nil, frame.PairNotFound
	case p.use != pairFree:
		return nil, frame.PairBusy
	}
	return p, frame.NoReason
}

// Keepalive implements Pairs.
func (m *MemoryPairs) Keepalive(c Client, drop []frame.PairID, now int64, _ func(int, frame.Reason)) (int, frame.Reason, bool) {
	s := m.shard(&c)
	s.mu.Lock()
	defer s.mu.Unlock()
	held := s.clients[c]
	if held == nil {
		return 0, frame.NoReason, true
	}
	for _, id := range drop {
		switch p := held.pairs[id]; {
		case p == nil:
		case p.use == pairFree:
			s.remove(p)
		default:
			p.use = pairDoomed
		}
	}
	touched := 0
	held.expire(s, now)
	for _, p := range held.pairs {
		if p.use != pairDoomed {
			touched++
			s.touch(p, now)
		}
	}
	return touched, frame.NoReason, true
}

// SetDomains implements Pairs: nothing leaves this process.
func (m *MemoryPairs) SetDomains(map[string]string) {}

// Close implements Pairs: nobody waits.
func (m *MemoryPairs) Close() {}

// Tidy implements Pairs.
func (m *MemoryPairs) Tidy(now int64) { m.expireAll(now) }

// Count implements Pairs.
func (m *MemoryPairs) Count() int64 { return m.total.Load() }

// InUse implements Pairs.
func (m *MemoryPairs) InUse() (n int64) {
	for i := range m.shards {
		s := &m.shards[i]
		s.mu.Lock()
		n += s.inUse
		s.mu.Unlock()
	}
	return n
}

// Shared implements Pairs.
func (m *MemoryPairs) Shared() bool { return false }

// expireAll removes every expired pair, with the locks given up now and then.
func (m *MemoryPairs) expireAll(now int64) {
	for i := range m.shards {
		for more := true; more; {
			s := &m.shards[i]
			s.mu.Lock()
			more = s.expire(now, expireSome)
			s.mu.Unlock()
		}
	}
}

// expire removes up to n expired pairs, the oldest first, and reports whether
// there may be more. One in use lives on.
func (s *memoryShard) expire(now int64, n int) (more bool) {
	for range n {
		p := s.oldest.next
		switch {
		case p == &s.oldest || now < p.expires:
			return false
		case p.use != pairFree:
			s.touch(p, now)
		default:
			s.remove(p)
		}
	}
	return true
}

// expire removes what has expired of one client.
func (c *memoryClient) expire(s *memoryShard, now int64) {
	for _, p := range c.pairs {
		if p.expired(now) {
			s.remove(p)
		}
	}
}

func (p *memoryPair) expired(now int64) bool { return now >= p.expires && p.use == pairFree }

// touch lets a pair live on from now.
func (s *memoryShard) touch(p *memoryPair, now int64) {
	if p.next != nil {
		p.next.prev, p.prev.next = p.prev, p.next
	}
	p.expires = now + int64(p.store.limits.Timeout)
	p.prev, p.next = s.oldest.prev, &s.oldest
	p.prev.next, p.next.prev = p, p
}

// remove deletes a pair that nobody uses, and its client with its last one.
func (s *memoryShard) remove(p *memoryPair) {
	p.next.prev, p.prev.next = p.prev, p.next
	p.next, p.prev = nil, nil
	delete(p.client.pairs, p.id)
	if len(p.client.pairs) == 0 {
		delete(s.clients, p.client.key)
	}
	p.store.total.Add(-1)
	p.wipe()
}

// key has both ends keyed for a type. The caller has the pair in use.
func (p *memoryPair) key(t open.Type) frame.Reason {
	codec := p.store.codec
	if p.encoder != nil && p.encoder.Type() == t {
		return frame.NoReason
	}
	if p.encoder != nil {
		p.states = p.decoder.AppendState(p.encoder.AppendState(p.states[:0]))
		codec.PutEncoder(p.encoder)
		codec.PutDecoder(p.decoder)
	}
	p.encoder, p.decoder = codec.Encoder(t), codec.Decoder(t)
	half := len(p.states) / 2
	encoder, decoder := p.encoder.Restore(p.states[:half]), p.decoder.Restore(p.states[half:])
	clear(p.states)
	switch {
	case decoder != nil:
		return frame.DecoderRestoreFailed
	case encoder != nil:
		return frame.EncoderRestoreFailed
	}
	return frame.NoReason
}

func (p *memoryPair) wipe() {
	clear(p.states)
	if p.encoder != nil {
		p.store.codec.PutEncoder(p.encoder)
		p.store.codec.PutDecoder(p.decoder)
		p.encoder, p.decoder = nil, nil
	}
}

// Encoder implements Lease.
func (p *memoryPair) Encoder() open.Encoder { return p.encoder }

// Decoder implements Lease.
func (p *memoryPair) Decoder() open.Decoder { return p.decoder }

// Held implements Lease: nothing can take a pair of this store away.
func (p *memoryPair) Held(int64) bool { return true }

// Release implements Lease.
func (p *memoryPair) Release(now int64, used bool, _ Waiter) (frame.Reason, bool) {
	s := p.store.shard(&p.client.key)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch s.giveBack(p); {
	case p.use == pairDoomed:
		p.use = pairFree
		s.remove(p)
	case used:
		p.use = pairFree
		s.touch(p, now)
	default:
		p.use = pairFree
	}
	return frame.NoReason, true
}

// Retire implements Lease.
func (p *memoryPair) Retire() {
	s := p.store.shard(&p.client.key)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.giveBack(p)
	p.use = pairFree
	s.remove(p)
}

func (s *memoryShard) giveBack(p *memoryPair) {
	if p.use == pairFree {
		panic("BUG: store: a pair is given back twice")
	}
	s.inUse--
}
