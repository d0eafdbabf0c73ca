package store

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// OwnerTimes are the durations of shared ownership. Contract, relay §7.
type OwnerTimes struct {
	Lease       time.Duration // of a claim in Redis, by Redis's clock
	Renew       time.Duration // between two renewals
	Margin      time.Duration // before the end of the lease the node gives it up, by its own clock
	Reservation time.Duration // of a claim that no socket has attached to
	Linger      time.Duration // of a claim behind its last socket
	Beat        time.Duration // between two signs of life of a node
	Dead        time.Duration // silence after which a node does not count, by Redis's clock
	Retry       time.Duration // between two attempts at a Redis that failed
}

// DefaultOwnerTimes are the contract's.
var DefaultOwnerTimes = OwnerTimes{
	Lease: 30 * time.Second, Renew: 8 * time.Second, Margin: 2 * time.Second,
	Reservation: 5 * time.Second, Linger: 30 * time.Second,
	Beat: 3 * time.Second, Dead: 10 * time.Second, Retry: 500 * time.Millisecond,
}

// OwnerConfig is what shared ownership is told.
type OwnerConfig struct {
	Target    string        // PASEO_RELAY_OWNERSHIP_TARGET
	MinNodes  int           // PASEO_RELAY_MIN_CLUSTER_SIZE
	OpTimeout time.Duration // REDIS_OP_TIMEOUT_SECONDS
	Times     OwnerTimes
	Log       *slog.Logger
	Now       func() int64 // the loops' clock, monotonic nanoseconds
}

const (
	// ownerTags is into how many parts the serverIds fall. The keys of one part
	// share a hash slot, so that one script renews many leases, and a cluster's
	// nodes share the parts. All nodes of a fleet must agree on the number.
	ownerTags = 64
	// ownerBatch is how many leases one script deals with at most: a few tenths
	// of a millisecond in which Redis does nothing else.
	ownerBatch = 256
	// ownerScripts is how many scripts that renew leases are sent at once, behind the
	// first of each part.
	ownerScripts = 16
	// ownerCallers is how many calls with claims and releases are under way at once.
	ownerCallers = 4
	// ownerAsking is how many claims may wait for Redis; of more, the store is
	// unavailable.
	ownerAsking = 1 << 16
	// ownerIdle is how many claims may outlive their last socket; more are given
	// up with it, so that a flood of short sessions leaves no more behind.
	ownerIdle = 1 << 16
	// ownerSweeps is the time between two looks for leases that ended.
	ownerSweeps = 100 * time.Millisecond
	// ownerClosing bounds what Close waits for releases that are under way, and
	// ownerLast those that it sends itself.
	ownerClosing = time.Second
	ownerLast    = 200 * time.Millisecond
)

// RedisOwnership shares ownership between the nodes of a fleet: a claim is a
// lease in Redis with a token that nobody else can have, and it is the node's
// only as long as that provably stands, by a clock that began before Redis was
// asked. It may be used from anywhere.
//
// Of each serverId at most one call to Redis is under way: claims and releases
// pass through a queue to a few goroutines, each of which takes what has
// gathered and asks for all of it in one round trip; renewals are made part by
// part by a goroutine of their own. No goroutine and no timer belongs to a
// session.
type RedisOwnership struct {
	cfg   OwnerConfig
	redis leaseCalls
	node  string // random, of this start; the beginning of its tokens
	lost  func(*Tenure)

	tokens    atomic.Uint64
	draining  atomic.Bool
	abandoned atomic.Bool
	beaten    atomic.Bool // the last sign of life was answered
	nodes     atomic.Int64
	beatAt    atomic.Int64 // when the last answered one was sent
	asking    atomic.Int64 // claims that wait for Redis
	idle      atomic.Int64 // claims without a socket
	lapsed    atomic.Int64 // tenures that ended because Redis did not answer
	moved     atomic.Int64 // those that another node had

	queue     askQueue
	shards    [ownerTags]ownerShard
	renewFrom int // the part that is renewed first; the renewer's own

	ctx    context.Context // of every call; ends with Close
	cancel context.CancelFunc
	done   sync.WaitGroup
}

// An ownerShard is one part of the serverIds.
type ownerShard struct {
	mu      sync.Mutex
	tenures map[string]*Tenure // of every state but tenureEnded
	next    int64              // no lease here has anything due before
	renewAt int64              // the renewer's own
}

// newOwnership makes the store without anything running; tests drive it by hand.
func newOwnership(cfg OwnerConfig, redis leaseCalls) *RedisOwnership {
	var id [16]byte
	rand.Read(id[:])
	o := &RedisOwnership{cfg: cfg, redis: redis, node: hex.EncodeToString(id[:])}
	o.nodes.Store(1)
	o.queue.more = make(chan struct{}, ownerCallers)
	o.ctx, o.cancel = context.WithCancel(context.Background())
	now := cfg.Now()
	for i := range o.shards {
		s := &o.shards[i]
		s.tenures = make(map[string]*Tenure)
		s.renewAt = now + int64(cfg.Times.Renew)*int64(i+1)/ownerTags
	}
	return o
}

// Start implements Ownership.
func (o *RedisOwnership) Start(lost func(*Tenure)) {
	o.lost = lost
	for range ownerCallers {
		o.done.Go(o.serve)
	}
	o.done.Go(func() { o.every(ownerSweeps, func() time.Duration { o.sweep(o.cfg.Now()); return ownerSweeps }) })
	step := o.cfg.Times.Renew / ownerTags
	o.done.Go(func() { o.every(step, func() time.Duration { o.renew(); return step }) })
	o.done.Go(func() { o.every(0, o.beat) })
}

// every calls f again and again, each time after what the last one returned.
func (o *RedisOwnership) every(first time.Duration, f func() time.Duration) {
	t := time.NewTimer(first)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			t.Reset(f())
		case <-o.ctx.Done():
			return
		}
	}
}

// Drain implements Ownership.
func (o *RedisOwnership) Drain(on bool) {
	o.draining.Store(on)
	if on {
		o.giveUpAll(func(t *Tenure) bool { return !t.lease.attached && t.lease.pending == 0 })
	}
}

// Abandon implements Ownership.
func (o *RedisOwnership) Abandon() {
	o.abandoned.Store(true)
	o.giveUpAll(func(*Tenure) bool { return true })
}

// Ready implements Ownership.
func (o *RedisOwnership) Ready() (bool, Verdict) {
	switch {
	case !o.up() || o.abandoned.Load():
		return false, Unavailable
	case o.Nodes() < o.cfg.MinNodes:
		return false, BelowFloor
	}
	return true, Owned
}

// up reports whether Redis can be asked.
func (o *RedisOwnership) up() bool { return o.beaten.Load() && o.redis.ready() }

// Nodes implements Ownership. A node that Redis has not answered for as long as
// others count without a sign of life knows of itself alone.
func (o *RedisOwnership) Nodes() int {
	if o.cfg.Now()-o.beatAt.Load() > int64(o.cfg.Times.Dead) {
		return 1
	}
	return int(o.nodes.Load())
}

// Close implements Ownership.
func (o *RedisOwnership) Close() {
	ctx, cancel := context.WithTimeout(o.ctx, ownerClosing)
	defer cancel()
	o.Abandon()
	if o.up() {
		for o.queue.busy() && ctx.Err() == nil {
			select {
			case <-time.After(time.Millisecond):
			case <-ctx.Done():
			}
		}
		o.releaseRest()
		o.redis.beat(ctx, o.node, o.cfg.Times.Dead, false)
	}
	o.cancel()
	o.done.Wait()
}

// beat gives a sign of life and returns when the next is due.
func (o *RedisOwnership) beat() time.Duration {
	ctx, cancel := context.WithTimeout(o.ctx, o.cfg.OpTimeout)
	defer cancel()
	sent := o.cfg.Now()
	nodes, err := o.redis.beat(ctx, o.node, o.cfg.Times.Dead, true)
	if err != nil {
		o.beaten.Store(false)
		return o.cfg.Times.Retry
	}
	o.nodes.Store(int64(max(nodes, 1)))
	o.beatAt.Store(sent)
	o.beaten.Store(true)
	return max(o.cfg.Times.Beat-time.Duration(o.cfg.Now()-sent), 0)
}

// shardOf returns the part that a serverId belongs to.
func (o *RedisOwnership) shardOf(serverID string) *ownerShard { return &o.shards[ownerTag(serverID)] }

// ownerTag hashes a serverId, FNV-1a: the same on every node and in every version.
func ownerTag(serverID string) int {
	h := uint32(2166136261)
	for i := range len(serverID) {
		h = (h ^ uint32(serverID[i])) * 16777619
	}
	return int((h ^ h>>16) % ownerTags)
}

// targetOf takes the target out of what another node wrote. One that no header
// could carry, or that is none of ours, is refused.
func targetOf(value string) (string, bool) {
	_, target, ok := strings.Cut(value, " ")
	if !ok || target == "" || len(target) > 256 {
		return "", false
	}
	for i := range len(target) {
		if target[i] <= ' ' || target[i] > '~' {
			return "", false
		}
	}
	return target, true
}
