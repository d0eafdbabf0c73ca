package store

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"sluice/codec/frame"
	"sluice/codec/open"
)

const (
	ownTime   = 10 * time.Second // of the lease on a client (contract, mte-relay §8)
	ownMargin = 2 * time.Second  // how long before its end a holder stops
	ownRenew  = 3 * time.Second  // age at which a lease in use is renewed
	// ownIdle is the age at which one that is not in use is given back, so that
	// the client may turn to another node. Every request renews it.
	ownIdle = 5 * time.Second

	cacheShards = 64
	// cachedMost bounds the clients and the pairs that are kept, some 500 bytes
	// each. Past it clients are served without a lease.
	cachedMost = 1 << 16
	// disownAtOnce is how many leases are given back at once at the end.
	disownAtOnce = 256
)

var (
	ownScript    = NewScript("pair_own", true)
	beginScript  = &Script{name: ownScript.name, lua: ownScript.lua} // a lease begins once
	storeScript  = NewScript("pair_store", true)
	disownScript = NewScript("pair_disown", true)
)

// CachedPairs is RedisPairs for sticky routing (LOCAL_STATE_CACHE): the node
// leases a client and keeps the states of its pairs. While the lease provably
// holds, taking a pair is a local matter and saving it one write, fenced by the
// lease's token. Other nodes refuse the client meanwhile.
//
// A lease that ends without being given back has ended with its node, or its node
// is cut off; what it had encoded last nobody knows. Whoever comes next deletes
// the client's pairs (scripts/pair.lua), so that what is safe does not hang on any
// clock.
type CachedPairs struct {
	*RedisPairs
	shards  [cacheShards]cacheShard
	clients atomic.Int64
	pairs   atomic.Int64
}

type cacheShard struct {
	mu       sync.Mutex
	clients  map[Client]*cachedClient
	deleting int       // deletes of dead pairs under way
	deleted  sync.Cond // one was answered; of mu
}

type ownState uint8

const (
	// ownAsking: the lease was asked for. Takes wait. Leaves to ownLeased or
	// ownGone.
	ownAsking ownState = iota
	// ownLeased: it was got. It may have lapsed; as long as nobody else has come
	// it can go on. Leaves to ownLeaving, or ownGone when another has it.
	ownLeased
	// ownLeaving: it is being given back. Takes wait. Leaves to ownGone, to
	// ownLeased if Redis surely did not do it, or to ownDoubtful.
	ownLeaving
	// ownDoubtful: Redis was asked to take it back and may yet do so, as late as it
	// pleases, so nothing goes on under its token. Takes and Tidy ask again; takes
	// wait for that. Leaves to ownGone, once it is answered.
	ownDoubtful
	// ownGone: nothing here is of any use. Whoever still holds a pair loses it.
	ownGone
)

// A cachedClient is a client that this node leases. Its fields are guarded by its
// shard's lock, but for what Held reads.
type cachedClient struct {
	shard *cacheShard
	key   Client
	v     *vault
	token string

	state    ownState
	pairs    map[frame.PairID]*cachedPair
	inUse    int           // of pairs
	waiting  []waitingTake // while asking or leaving, or in doubt
	renewing bool
	leaving  bool  // Redis is being asked to take the lease back
	kept     int64 // the last keepalive

	leased atomic.Int64 // when the lease was asked for that surely holds
	gone   atomic.Bool  // ownGone
}

type cachedUse uint8

const (
	cachedLoading cachedUse = iota // Redis was asked for it
	cachedFree
	cachedInUse
	// cachedDead: it must not be used again, and is deleted in Redis. Until that
	// is certain it is remembered here, for Redis has an older state of it.
	cachedDead
)

// A cachedPair is a pair of a client that is leased. Guarded by the shard's lock,
// but for version and states while it is loading or in use: those are its taker's.
type cachedPair struct {
	id       frame.PairID
	use      cachedUse
	dropped  bool  // by a keepalive, while it is in use
	deleting bool  // Redis was asked to
	touched  int64 // its last use

	version          uint64
	encoder, decoder []byte // the states; nil until they were read
}

func (p *cachedPair) wipe() {
	clear(p.encoder)
	clear(p.decoder)
	p.encoder, p.decoder = nil, nil
}

// NewCachedPairs makes a store that keeps states.
func NewCachedPairs(r *Redis, limits RedisLimits, codec *open.Pools) *CachedPairs {
	s := &CachedPairs{RedisPairs: NewRedisPairs(r, limits, codec)}
	for i := range s.shards {
		s.shards[i].clients = make(map[Client]*cachedClient)
		s.shards[i].deleted.L = &s.shards[i].mu
	}
	return s
}

func (s *CachedPairs) shard(c *Client) *cacheShard { return &s.shards[c.ID[0]%cacheShards] }

// Count implements Pairs.
func (s *CachedPairs) Count() int64 { return s.pairs.Load() }

// hasDead reports whether Redis may have an older state of a pair. The shard is locked.
func (c *cachedClient) hasDead() bool {
	for _, p := range c.pairs {
		if p.use == cachedDead {
			return true
		}
	}
	return false
}

// holds reports whether the lease surely holds.
func (c *cachedClient) holds(now int64) bool {
	return now-c.leased.Load() < int64(ownTime-ownMargin) && !c.gone.Load()
}

// extend notes that the lease was prolonged by a call that began then.
func (c *cachedClient) extend(begun int64) {
	if begun > c.leased.Load() {
		c.leased.Store(begun)
	}
}

// forgetClient removes a client with all that is kept of it. It returns who waited.
// The shard is locked.
func (s *CachedPairs) forgetClient(c *cachedClient) (waiting []waitingTake) {
	if c.state == ownGone {
		return nil
	}
	c.state = ownGone
	c.gone.Store(true)
	delete(c.shard.clients, c.key)
	s.clients.Add(-1)
	for _, p := range c.pairs {
		if p.use == cachedFree { // the others are their takers'
			p.wipe()
		}
	}
	s.pairs.Add(-int64(len(c.pairs)))
	c.pairs = nil
	waiting, c.waiting = c.waiting, nil
	return waiting
}

// removePair removes one pair. The shard is locked.
func (s *CachedPairs) removePair(c *cachedClient, p *cachedPair) {
	p.wipe()
	if c.pairs[p.id] == p {
		delete(c.pairs, p.id)
		s.pairs.Add(-1)
	}
}

// Keepalive implements Pairs.
func (s *CachedPairs) Keepalive(c Client, drop []frame.PairID, now int64, later func(int, frame.Reason)) (int, frame.Reason, bool) {
	sh, token := s.shard(&c), ""
	sh.mu.Lock()
	held := sh.clients[c]
	if held != nil {
		token = held.token
		for _, id := range drop {
			switch p := held.pairs[id]; {
			case p == nil || p.use == cachedDead:
			case p.use == cachedFree:
				s.removePair(held, p)
			default:
				p.dropped = true
			}
		}
	}
	sh.mu.Unlock()
	return s.keepalive(c, token, drop, func(touched int, r frame.Reason) {
		if held != nil && r == frame.NoReason {
			sh.mu.Lock()
			held.kept = now
			sh.mu.Unlock()
		}
		later(touched, r)
	})
}

// Tidy implements Pairs: it renews what is in use and gives back what is not.
func (s *CachedPairs) Tidy(now int64) {
	s.RedisPairs.Tidy(now)
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		for _, c := range sh.clients {
			s.tidy(c, now)
		}
		sh.mu.Unlock()
	}
}

// tidy looks after one client. The shard is locked.
func (s *CachedPairs) tidy(c *cachedClient, now int64) {
	if c.state == ownDoubtful {
		s.leave(c)
	}
	if c.state != ownLeased {
		return
	}
	dead := s.deleteDead(c, now)
	age := now - c.leased.Load()
	switch {
	case c.inUse > 0 || dead:
		if age >= int64(ownRenew) && !c.renewing {
			s.renewLease(c, now)
		}
	case age >= int64(ownIdle) && !c.renewing: // whose late answer would prolong it here
		if s.leave(c) {
			c.state = ownLeaving
		}
	}
}

// leave has Redis take a lease back, unless it is being asked to, and reports whether
// it is. The shard is locked.
func (s *CachedPairs) leave(c *cachedClient) bool {
	if !c.leaving {
		c.leaving = s.disown(c, func(o Outcome) { s.left(c, o) })
	}
	return c.leaving
}

func (s *CachedPairs) renewLease(c *cachedClient, now int64) {
	c.renewing = s.redis.Call(ownScript, []string{c.v.key(c.key.ID)},
		[]string{c.token, "", millis(ownTime), millis(s.limits.Timeout), "0"}, func(m rueidis.RedisMessage, o Outcome) {
			first, _ := word(m)
			c.shard.mu.Lock()
			c.renewing = false
			var waiting []waitingTake
			switch {
			case o == Answered && first == "renewed":
				c.extend(now)
			case o == Answered && first == "lost":
				waiting = s.forgetClient(c)
			}
			c.shard.mu.Unlock()
			s.takeAgain(waiting)
		})
}

// disown gives a lease back.
func (s *CachedPairs) disown(c *cachedClient, done func(Outcome)) bool {
	return s.redis.Call(disownScript, []string{c.v.key(c.key.ID)}, []string{c.token},
		func(_ rueidis.RedisMessage, o Outcome) { done(o) })
}

// left takes the answer to leave.
func (s *CachedPairs) left(c *cachedClient, o Outcome) {
	c.shard.mu.Lock()
	c.leaving = false
	var waiting, refused []waitingTake
	switch {
	case c.state != ownLeaving && c.state != ownDoubtful: // another has it
	case o == Answered:
		waiting = s.forgetClient(c)
	case o == NotExecuted && c.state == ownLeaving:
		c.state = ownLeased
		waiting, c.waiting = c.waiting, nil
	default: // calls overtake each other: a later one could be served, and then this one
		c.state = ownDoubtful
		refused, c.waiting = c.waiting, nil
	}
	c.shard.mu.Unlock()
	s.takeAgain(waiting)
	s.tell(refused, frame.StateStoreUnavailable)
}

// deleteDead has Redis forget a client's dead pairs. It reports whether there are
// any: Redis has older states of them, so the client is not given back before they
// are gone. The shard is locked.
func (s *CachedPairs) deleteDead(c *cachedClient, now int64) (any bool) {
	for _, p := range c.pairs {
		if p.use == cachedDead {
			any = true
			s.delete(c, p, now)
		}
	}
	return any
}

// delete has Redis forget a dead pair. The shard is locked.
func (s *CachedPairs) delete(c *cachedClient, p *cachedPair, now int64) {
	if p.deleting {
		return
	}
	p.deleting = s.redis.Call(storeScript, []string{c.v.key(c.key.ID)},
		[]string{c.token, hexID(p.id), millis(ownTime), millis(s.limits.Timeout)}, func(m rueidis.RedisMessage, o Outcome) {
			first, _ := word(m)
			c.shard.mu.Lock()
			p.deleting = false
			c.shard.deleting--
			c.shard.deleted.Broadcast()
			var waiting []waitingTake
			switch {
			case o == Answered && first == "saved":
				c.extend(now)
				s.removePair(c, p)
			case o == Answered && first == "lost":
				waiting = s.forgetClient(c)
			}
			c.shard.mu.Unlock()
			s.takeAgain(waiting)
		})
	if p.deleting {
		c.shard.deleting++
	}
}

// settle has the dead pairs of all clients deleted and waits for the answers, as
// long as calls to Redis do.
func (s *CachedPairs) settle() {
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		for _, c := range sh.clients {
			s.deleteDead(c, c.leased.Load())
		}
		sh.mu.Unlock()
	}
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		for sh.deleting > 0 {
			sh.deleted.Wait()
		}
		sh.mu.Unlock()
	}
}

// Close gives every lease back, so that other nodes may go on with the clients,
// but for those with a pair that Redis could not be made to forget: they end with
// their lease. Nothing may be in use. It waits for Redis as long as calls do.
func (s *CachedPairs) Close() {
	s.settle()
	var under sync.WaitGroup
	slots := make(chan struct{}, disownAtOnce)
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		var clients []*cachedClient
		for _, c := range sh.clients {
			if (c.state == ownLeased || c.state == ownDoubtful) && c.inUse == 0 && !c.hasDead() {
				clients = append(clients, c)
			}
		}
		sh.mu.Unlock()
		for _, c := range clients {
			slots <- struct{}{}
			under.Add(1)
			done := func(Outcome) { <-slots; under.Done() }
			if !s.disown(c, done) {
				done(NotExecuted)
			}
		}
	}
	under.Wait()
}
