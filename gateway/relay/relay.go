package relay

import (
	"hash/maphash"
	"log/slog"
	"sync/atomic"
	"time"

	"sluice/gateway/metric"
	"sluice/gateway/store"
	"sluice/ledger"
	"sluice/loop"
)

// Config is what the relay is told. Contract, settings.
type Config struct {
	ControlQueue int64         // bytes of notifications that may wait for a control socket
	DataAttach   time.Duration // how long a client's frame waits for its data socket
	MessageIdle  time.Duration
	IngressWait  time.Duration
	PingInterval time.Duration // 0: no relay pings
	Deadlines    ledger.Deadlines
	SocketMemory int64 // bytes one socket may hold

	RerouteHeader string
	Log           *slog.Logger

	// Ready reports whether the node accepts new work: what /ready answers. It is
	// called on loops.
	Ready func() bool

	// Forwarded is told, on its loop, whenever a destination has taken payload
	// of others. Nil in production: tests record who forwards.
	Forwarded func(*store.Tenure)
}

// Relay is the WebSocket relay on a set of loops. Its methods may be called
// from anywhere unless they say otherwise.
type Relay struct {
	cfg     Config
	led     *ledger.Ledger
	owner   store.Ownership
	metrics *metric.Relay
	shards  []*shard
	seed    maphash.Seed
	lines   lines

	freed     atomic.Int64 // bytes given up and not yet collected, see TakeFreed
	lastFreed int64        // TakeFreed's own
	sessions  atomic.Int64 // with at least one socket
	pressed   atomic.Bool  // memory is above its watermark
	draining  atomic.Bool  // unowned sessions are refused
}

// New makes the relay's part of each loop. Call it before the loops run.
func New(cfg Config, led *ledger.Ledger, owner store.Ownership, m *metric.Relay, loops []*loop.Loop) *Relay {
	r := &Relay{cfg: cfg, led: led, owner: owner, metrics: m, seed: maphash.MakeSeed(), lines: newLines(cfg.Log)}
	for _, l := range loops {
		r.shards = append(r.shards, newShard(r, l))
	}
	return r
}

// shardOf returns the shard that owns a serverId here.
func (r *Relay) shardOf(serverID string) *shard {
	return r.shards[maphash.String(r.seed, serverID)%uint64(len(r.shards))]
}

// Sessions returns how many sessions have a socket, v1 and v2 apart.
func (r *Relay) Sessions() int64 { return r.sessions.Load() }
