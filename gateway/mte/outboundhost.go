package mte

import (
	"fmt"
	"sync"
	"time"

	"sluice/codec/frame"
	"sluice/codec/http1"
	"sluice/gateway/client"
	"sluice/gateway/config"
	"sluice/gateway/metric"
	"sluice/loop"
)

// An outboundHost is one outbound entry of DOMAIN_MAP: the other relay, what we
// are to it, and the pairs that all loops share.
//
// The pool is guarded by mu, which is held for moments only. What the pool asks
// for is done on one loop, home, that of the first request: authentication,
// pairing and keepalive calls, one at a time. See outboundcontrol.go.
type outboundHost struct {
	// Set when it is made.
	r     *Role
	host  string
	url   string
	up    *upstream
	token []byte // outbound_token, empty if none is demanded

	mu      sync.Mutex
	pool    pairPool
	home    *shard // nil before the first request, constant afterwards
	told    bool   // a message to home is on its way
	busy    bool   // home is at something and looks again when it is done
	lookAt  int64  // when home looks again by itself
	keptAt  int64  // when the last keepalive call was made
	closed  bool   // no longer in DOMAIN_MAP
	clamped int    // the maxPairsPerClient that was logged last

	// Home's loop only.
	control control
}

func (r *Role) newOutboundHost(c *config.Domain) (*outboundHost, error) {
	up, err := newUpstream(c.Outbound.String())
	if err != nil {
		return nil, err
	}
	k := &r.cfg.Client
	h := &outboundHost{r: r, host: c.Host, url: c.Outbound.String(), up: up, token: []byte(c.OutboundToken), lookAt: never}
	h.pool = newPairPool(poolRules{initial: k.InitialPairs, min: k.MinPairs, max: k.MaxPairs, threshold: k.RefillThreshold})
	// Personalization strings go without a host: its length must not decide how
	// many pairs fit a call.
	h.control.init(h, client.NewSession("sluice/"+r.cfg.Version, ""))
	return h, nil
}

// is reports whether an entry of a new DOMAIN_MAP is served by this host as it is.
func (h *outboundHost) is(c *config.Domain) bool {
	return h.url == c.Outbound.String() && string(h.token) == string(c.OutboundToken)
}

// close lets go of the pairs once the last request is over.
func (h *outboundHost) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	h.look(loop.Now())
}

// wipe zeroes what is left once the loops have ended.
func (h *outboundHost) wipe() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, pair := range h.pool.free {
		pair.wipe()
	}
}

// acquire takes a pair for a request of s, or puts it into the line.
func (h *outboundHost) acquire(s *shard, w *poolWaiter) *pooledPair {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.home == nil {
		h.home = s
	}
	pair := h.pool.Acquire(w)
	h.look(s.l.Now())
	return pair
}

// tooLarge refuses a body of a declared length that the other relay is known not
// to take.
func (h *outboundHost) tooLarge(length int64) error {
	if length <= 0 {
		return nil
	}
	h.mu.Lock()
	id := h.pool.current
	h.mu.Unlock()
	if id == nil {
		return nil // begin finds it out
	}
	return id.tooLarge(length)
}

func (id *identity) tooLarge(length int64) error {
	if limit := id.relay.Load().MaxRequestBodyBytes; limit > 0 && length > limit {
		return &client.RequestTooLarge{Size: length, Limit: limit}
	}
	return nil
}

// leave takes a request out of the line. False means that it got what it waited
// for, and will be told.
func (h *outboundHost) leave(w *poolWaiter) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.pool.Leave(w)
}

// release gives a pair back.
func (h *outboundHost) release(pair *pooledPair, fate pairFate, now int64) {
	if fate >= pairRetired {
		h.r.metrics.PairsRetired.Inc()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.pool.Release(pair, fate, now)
	h.look(now)
}

// repair gives up an identity that the other relay does not accept any more.
func (h *outboundHost) repair(id *identity, no *client.Refusal, now int64) {
	h.mu.Lock()
	done := h.pool.Forget(id, now)
	h.look(now)
	h.mu.Unlock()
	if !done {
		return // another request has met the same
	}
	if log := h.r.limit.Line(logRepair, now); log != nil {
		log.Warn("the other relay does not know us any more; authenticating anew", "host", h.host, "code", no.Code, "reason", no.Reason)
	}
}

// capacity is the refusal of a request that waited in vain.
func (h *outboundHost) capacity(now int64) refusal {
	h.mu.Lock()
	defer h.mu.Unlock()
	no := refusal{reason: frame.UpstreamCapacity, message: messageCapacity, wait: max(h.pool.Paused(now), time.Second)}
	if f := h.pool.failed; f != nil {
		no.cause = f.cause
	}
	return no
}

// look has home look at the pool if there is something to be done sooner than it
// would by itself. mu is held.
func (h *outboundHost) look(now int64) {
	if h.told || h.busy || h.home == nil {
		return
	}
	_, at := h.pool.Refill(now)
	if h.pool.DropsDue() {
		at = min(at, h.keptAt+dropsEvery)
	}
	if h.closed && h.idle() {
		at = now
	}
	if at < h.lookAt {
		h.told = true
		h.home.l.Post(h)
	}
}

// idle says that no request has or wants a pair. mu is held.
func (h *outboundHost) idle() bool { return h.pool.inUse+h.pool.old+h.pool.waiting == 0 }

// Deliver looks at the pool, on home's loop.
func (h *outboundHost) Deliver(*loop.Loop) {
	h.mu.Lock()
	h.told = false
	h.mu.Unlock()
	h.control.next()
}

// know tells the pool what an authentication has brought.
func (h *outboundHost) know(s *client.Session, now int64) {
	relay := s.Relay()
	h.mu.Lock()
	id := h.pool.current
	if id != nil && id.client != s.ClientID() {
		h.pool.Forget(id, now) // our token was not good any more
		id = nil
	}
	if id == nil {
		id = newIdentity(s)
	}
	id.relay.Store(relay)
	lower := relay.MaxPairsPerClient > 0 && relay.MaxPairsPerClient < h.pool.rules.max
	news := lower && h.clamped != relay.MaxPairsPerClient
	h.clamped = relay.MaxPairsPerClient
	h.pool.Know(id, s.MaxBatch(), relay.MaxPairsPerClient)
	h.mu.Unlock()
	if news {
		h.r.log.Warn("Clamping the pool to the server's maxPairsPerClient", "host", h.host,
			"maxPairsPerClient", relay.MaxPairsPerClient, "CLIENT_MAX_PAIRS", h.pool.rules.max)
	}
}

func newIdentity(s *client.Session) *identity {
	id := &identity{client: s.ClientID()}
	for _, f := range s.DataHeader() {
		id.lines = http1.AppendField(id.lines, f.Name, f.Value)
	}
	return id
}

// pairs counts the pairs in a state, for the gauge.
func (h *outboundHost) pairs(s metric.OutboundState) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch s {
	case metric.OutboundFree:
		return len(h.pool.free)
	case metric.OutboundInUse:
		return h.pool.inUse + h.pool.old
	case metric.OutboundPairing:
		return h.pool.asked
	case metric.OutboundRetiring:
		return len(h.pool.retiring)
	}
	panic("BUG: no such state of outbound pairs")
}

// outboundPairs counts the pairs of all hosts in a state.
func (r *Role) outboundPairs(s metric.OutboundState) (n int64) {
	for _, d := range *r.domains.Load() {
		if d.out != nil {
			n += int64(d.out.pairs(s))
		}
	}
	return n
}

// CheckPairs finds a pair of an outbound host that was lost or counted twice. It
// may be called from anywhere; tests do.
func (r *Role) CheckPairs() error {
	for _, d := range *r.domains.Load() {
		if d.out == nil {
			continue
		}
		d.out.mu.Lock()
		err := d.out.pool.check()
		d.out.mu.Unlock()
		if err != nil {
			return fmt.Errorf("host %s: %w", d.host, err)
		}
	}
	return nil
}
