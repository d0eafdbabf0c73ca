// Package mte is the encrypting HTTP relay (contract, mte-relay): clients pair
// with it, send encrypted requests over HTTP, and it proxies them to the origin
// of their domain, both ways as a stream.
//
// A request lives on the loop of its connection, and so does what it has with
// its origin; nothing on the data path is locked but, for an instant, the store
// of pairs.
package mte

import (
	"crypto/x509"
	"fmt"
	"log/slog"
	"math"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"sluice/codec/frame"
	"sluice/codec/http1"
	"sluice/codec/open"
	"sluice/gateway/config"
	"sluice/gateway/edge"
	"sluice/gateway/logging"
	"sluice/gateway/metric"
	"sluice/gateway/store"
	"sluice/gateway/tlsconn"
	"sluice/kyber"
	"sluice/loop"
)

const (
	authPerMinute       = 600 // GET /api/mte-relay, per source
	pairPerMinute       = 600 // POST /api/mte-pair, per source
	pairClientPerMinute = 60  // and per client
	keepalivePerMinute  = 120 // POST /api/mte-keepalive, per client

	// kyberQueue is how many steps of ML-KEM work, of two pairs each, may wait for a
	// worker: about a sixth of a second for one core. Past it pairing calls wait in
	// their connections.
	kyberQueue = 1024

	tidyEvery = time.Second
)

// Config is what the role is told.
type Config struct {
	config.MTE
	Client config.Client // of outbound domains

	Version       string // of the build, for discovery
	ConfigVersion uint64 // of the settings that hold Domains
	Drain         time.Duration
	WriteStall    time.Duration
	Limits        http1.Limits // of an origin's response head
	Trusted       edge.TrustedProxies
	RootCAs       *x509.CertPool  // of https origins; nil is the system's
	OriginTLS     *tlsconn.Engine // on the same loops, towards origins

	// Pairs makes the store of pairs, whose instances come from the pools. Nil is
	// the memory store.
	Pairs func(*open.Pools) store.Pairs
}

// A Role is the encrypting relay on a set of loops: the edge.App of its listener.
// Its exported methods may be called from anywhere.
type Role struct {
	cfg     Config
	log     *slog.Logger
	limit   *logging.Limiter[logReason]
	metrics *metric.MTE
	profile open.Profile
	codec   *open.Pools
	pairs   store.Pairs
	kem     *kyber.Pool
	shards  []*shard // by loop id, with gaps where the role has no loop

	scheme      string // of our listener
	maxData     [2]int // application bytes of one DATA, by type
	maxMetadata [2]int // plaintext bytes, by type

	// Nil without RATE_LIMITS.
	rates *rates

	// Live.
	domains  atomic.Pointer[domains]
	maxBody  atomic.Int64 // bytes, 0 without a cap
	draining atomic.Bool

	buffered atomic.Int64 // bytes of request bodies that are kept (CLIENT_BUFFER_BYTES)

	mu   sync.Mutex                 // Apply
	keys map[string]*frame.TokenKey // made up for domains without a secret, by host
	echo *echoOrigin                // nil unless a domain needs it
}

type rates struct {
	auth, pair            *edge.RateLimit[netip.Addr]
	pairClient, keepalive *edge.RateLimit[frame.ClientID]
}

// New makes the role and its part of each loop. Call it before the loops run and
// before the edge.Server that serves it. An error is the operator's: a domain
// whose upstream cannot be used.
func New(cfg Config, loops []*loop.Loop, log *slog.Logger) (*Role, error) {
	profile, err := open.New(cfg.KyberStrength, frame.SequenceWindow)
	if err != nil {
		return nil, fmt.Errorf("KYBER_STRENGTH: %w", err)
	}
	r := &Role{
		cfg:     cfg,
		log:     log,
		limit:   logging.NewLimiter(log, logReasons),
		profile: profile,
		codec:   open.NewPools(profile, cfg.CodecPoolSize),
		kem:     kyber.NewPool(0, kyberQueue),
		keys:    make(map[string]*frame.TokenKey),
	}
	r.scheme = "http"
	if cfg.TLS.On() {
		r.scheme = "https"
	}
	r.maxMetadata[open.MKE], r.maxMetadata[open.MTE] = int(cfg.MaxMetadataBytesMKE), int(cfg.MaxMetadataBytesMTE)
	for _, t := range []open.Type{open.MTE, open.MKE} {
		r.maxData[t] = profile.PlaintextBytes(t, int(cfg.MaxFrameBytes)) - 1
	}
	if cfg.RateLimits {
		r.rates = &rates{
			auth:       edge.NewRateLimit[netip.Addr](authPerMinute),
			pair:       edge.NewRateLimit[netip.Addr](pairPerMinute),
			pairClient: edge.NewRateLimit[frame.ClientID](pairClientPerMinute),
			keepalive:  edge.NewRateLimit[frame.ClientID](keepalivePerMinute),
		}
	}
	if cfg.Pairs != nil {
		r.pairs = cfg.Pairs(r.codec)
	} else {
		r.pairs = store.NewMemoryPairs(store.MemoryLimits{Pairs: cfg.MaxPairs, PerClient: cfg.MaxPairsPerClient, Timeout: cfg.SessionTimeout}, r.codec)
	}
	r.metrics = metric.NewMTE(r.gauges(), Refusals())
	if err := r.Apply(cfg.Domains, cfg.MaxRequestBodyBytes, cfg.ConfigVersion); err != nil {
		r.Close()
		return nil, err
	}
	for _, l := range loops {
		for len(r.shards) <= l.ID() {
			r.shards = append(r.shards, nil)
		}
		r.shards[l.ID()] = newShard(r, l)
	}
	return r, nil
}

// A shard is the role's part of one loop. It belongs to that loop's goroutine,
// the last field apart.
type shard struct {
	role    *Role
	l       *loop.Loop
	origins *originPool
	bufs    loop.Buffers

	streams     *stream // under way, linked through next
	freeStreams []*stream
	assembly    assembly

	// Scratch of one call.
	scratch  []byte // an answer's fields or body
	meta     []byte // metadata of a RESPONSE
	metadata frame.Metadata
	writer   frame.MetadataWriter

	outbounds     *outbound // under way, linked through next
	freeOutbounds []*outbound
	gathered      []byte // what one read of an answer holds, decoded

	waiting      []task     // for a worker, oldest first
	retry        loop.Timer // tries the first of them again
	freePairings []*pairing
	tidy         loop.Timer // on the first loop: what happens every second

	active atomic.Int64 // requests under way; sampled from anywhere
}

func newShard(r *Role, l *loop.Loop) *shard {
	s := &shard{role: r, l: l, bufs: newBuffers()}
	s.origins = newOriginPool(l, originConfig{
		TLS:        r.cfg.OriginTLS,
		MaxIdle:    r.cfg.OriginMaxIdle,
		Idle:       r.cfg.OriginIdle,
		Connect:    r.cfg.OriginConnectTimeout,
		Response:   r.cfg.MaxResponseTime,
		Body:       r.cfg.MaxRequestTime,
		WriteStall: r.cfg.WriteStall,
		Limits:     r.cfg.Limits,
		RootCAs:    r.cfg.RootCAs,
		Metrics:    r.metrics,
	})
	l.AddHook(s)
	if l.ID() == 0 {
		l.StartTimer(&s.tidy, loop.Now()+int64(tidyEvery), (*tidyTimer)(s))
	}
	return s
}

// OnTurn sends what was gathered for one write.
func (s *shard) OnTurn(*loop.Loop) {
	if st := s.assembly.owner; st != nil {
		st.flush()
	}
}

type tidyTimer shard

func (t *tidyTimer) OnTimer(now int64) {
	s := (*shard)(t)
	s.role.pairs.Tidy(now)
	s.role.limit.Flush(now)
	s.l.StartTimer(&s.tidy, now+int64(tidyEvery), t)
}

// shard returns the role's part of a loop.
func (r *Role) shard(l *loop.Loop) *shard { return r.shards[l.ID()] }

// Page is the role's metrics.
func (r *Role) Page() *metric.Page { return &r.metrics.Page }

// gauges answers the metrics that are read when the page is written.
func (r *Role) gauges() metric.MTEGauges {
	return metric.MTEGauges{
		Pairs:      r.pairs.Count,
		PairsInUse: r.pairs.InUse,
		PoolIdle: func(p metric.CodecPool) int64 {
			switch p {
			case metric.PoolMTEEncoder:
				return int64(r.codec.IdleEncoders(open.MTE))
			case metric.PoolMTEDecoder:
				return int64(r.codec.IdleDecoders(open.MTE))
			case metric.PoolMKEEncoder:
				return int64(r.codec.IdleEncoders(open.MKE))
			case metric.PoolMKEDecoder:
				return int64(r.codec.IdleDecoders(open.MKE))
			}
			panic("BUG: no such codec pool")
		},
		OutboundPairs: r.outboundPairs,
	}
}

// Close ends what the role runs beside the loops. Call it once those have stopped.
func (r *Role) Close() {
	r.kem.Stop()
	r.pairs.Close()
	if now := r.domains.Load(); now != nil { // else New has failed
		for _, d := range *now {
			if d.out != nil {
				d.out.wipe()
			}
		}
	}
	if r.echo != nil {
		r.echo.Close()
	}
	r.limit.Flush(math.MaxInt64)
}
