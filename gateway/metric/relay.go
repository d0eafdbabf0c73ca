package metric

import (
	"sync"

	"github.com/VictoriaMetrics/metrics"
)

// A Relay is the page of the WebSocket relay (contract, relay §8). Its methods may be called from
// anywhere; what is hot goes through a RelayShard.
type Relay struct {
	Page     Page
	Reroutes *metrics.Counter // 409 answers

	rejections [rejections]*metrics.Counter
	closes     [closeCodes][bys]*metrics.Counter

	mu     sync.Mutex // guards shards
	shards []*relayPublished

	// Of the page that is being written.
	ledger   RelayLedger
	ledgerOK bool
}

// RelayGauges are asked when a page is written, from the goroutine that writes it.
type RelayGauges struct {
	Ready    func() bool
	Draining func() bool
	// Ledger reports false when the ledger does not answer within a second; its gauges are then
	// left out. It is asked once per page.
	Ledger             func() (RelayLedger, bool)
	IngressBudgetBytes int64
	MemoryBytes        func() int64 // resident
	ClusterNodes       func() int
}

// RelayLedger is what the ledger says about itself at one moment.
type RelayLedger struct {
	ActiveWebSockets     int64
	ActiveSessions       int64 // with at least one socket; v1 and v2 of one serverId are two
	IngressReservedBytes int64 // weighted
	BlockedDeliveries    int64
}

// NewRelay makes the page with every series at zero.
func NewRelay(g RelayGauges) *Relay {
	r := &Relay{}
	p := &r.Page
	p.before = func() { r.ledger, r.ledgerOK = g.Ledger() }

	p.Gauge("paseo_relay_ready", "1 while new work is accepted.", flag(g.Ready))
	p.Gauge("paseo_relay_draining", "1 while the node drains.", flag(g.Draining))
	r.fromLedger("paseo_relay_active_websockets", "Open WebSockets.", func(l *RelayLedger) int64 { return l.ActiveWebSockets })
	r.fromLedger("paseo_relay_active_sessions", "Sessions with at least one socket, v1 and v2 apart.", func(l *RelayLedger) int64 { return l.ActiveSessions })
	r.fromLedger("paseo_relay_ingress_reserved_bytes", "Weighted bytes of admitted messages.", func(l *RelayLedger) int64 { return l.IngressReservedBytes })
	p.Gauge("paseo_relay_ingress_budget_bytes", "The most paseo_relay_ingress_reserved_bytes may be.", func() float64 { return float64(g.IngressBudgetBytes) })
	r.fromLedger("paseo_relay_blocked_deliveries", "Destinations that take no more for now.", func(l *RelayLedger) int64 { return l.BlockedDeliveries })
	p.Gauge("paseo_relay_memory_bytes", "Resident memory of the process.", func() float64 { return float64(g.MemoryBytes()) })
	p.Gauge("paseo_relay_cluster_nodes", "Nodes that are alive, this one included.", func() float64 { return float64(g.ClusterNodes()) })

	r.Reroutes = p.Counter("paseo_relay_reroute_responses_total", "Upgrades answered 409 because another node owns the session.")
	copy(r.rejections[:], p.Counters("paseo_relay_connection_rejections_total", "Connections that got no WebSocket, by reason.", labels("reason", rejectionNames[:])))
	r.fromShards("paseo_relay_frames_forwarded_total", "Messages delivered, counted per destination.", func(s *relayPublished) uint64 { return s.framesForwarded.Load() })
	r.fromShards("paseo_relay_bytes_forwarded_total", "Payload bytes of delivered messages.", func(s *relayPublished) uint64 { return s.bytesForwarded.Load() })
	r.fromShards("paseo_relay_ingress_rejections_total", "Sources closed for want of ingress budget.", func(s *relayPublished) uint64 { return s.ingressRejections.Load() })
	r.fromShards("paseo_relay_slow_consumer_closes_total", "Destinations closed because they took their messages too slowly.", func(s *relayPublished) uint64 { return s.slowConsumerCloses.Load() })
	r.addCloses()
	r.fromShards("paseo_relay_replacement_fights_total", "Identities whose sockets replace each other all the time.", func(s *relayPublished) uint64 { return s.replacementFights.Load() })
	r.fromShards("paseo_relay_handshake_key_rejections_total", "Hellos without a usable key.", func(s *relayPublished) uint64 { return s.handshakeKeyRejections.Load() })

	seconds := make([]float64, len(deliveryBounds))
	for i, d := range deliveryBounds {
		seconds[i] = d.Seconds()
	}
	p.shardedHistogram("paseo_relay_delivery_seconds", "From a complete message to its last byte in the destination's kernel.", seconds, func(b []uint64) float64 {
		return float64(r.sum(b, func(s *relayPublished) *publishedHistogram { return &s.delivery })) / 1e9
	})
	p.shardedHistogram("paseo_relay_frame_bytes", "Payload bytes of admitted messages.", frameBounds[:], func(b []uint64) float64 {
		return float64(r.sum(b, func(s *relayPublished) *publishedHistogram { return &s.frames }))
	})
	return r
}

func flag(f func() bool) func() float64 {
	return func() float64 {
		if f() {
			return 1
		}
		return 0
	}
}

func (r *Relay) fromLedger(name, help string, value func(*RelayLedger) int64) {
	r.Page.GaugeIf(name, help, func() (float64, bool) { return float64(value(&r.ledger)), r.ledgerOK })
}

func (r *Relay) fromShards(name, help string, value func(*relayPublished) uint64) {
	r.Page.CounterFunc(name, help, func() (n uint64) {
		for _, s := range r.allShards() {
			n += value(s)
		}
		return n
	})
}

// sum adds the buckets of all shards to b and returns the sum of their sums.
func (r *Relay) sum(b []uint64, of func(*relayPublished) *publishedHistogram) (sum uint64) {
	for _, s := range r.allShards() {
		h := of(s)
		for i := range b {
			b[i] += h.buckets[i].Load()
		}
		sum += h.sum.Load()
	}
	return sum
}

func (r *Relay) addCloses() {
	var list []string
	for code := range CloseCode(closeCodes) {
		for by := range bys {
			list = append(list, label("code", code.String())+","+label("by", by.String()))
		}
	}
	made := r.Page.Counters("paseo_relay_closes_total", "Ended WebSockets by close code and by who ended them.", list)
	for i, c := range made {
		r.closes[i/int(bys)][i%int(bys)] = c
	}
}

// allShards returns the shards so far; the slice is only ever appended to.
func (r *Relay) allShards() []*relayPublished {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.shards
}

// NewShard adds the part of one loop. What it counted stays counted when the loop ends.
func (r *Relay) NewShard() *RelayShard {
	s := &RelayShard{pub: new(relayPublished)}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.shards = append(r.shards, s.pub)
	return s
}

// Reject counts a connection that got no WebSocket.
func (r *Relay) Reject(why Rejection) { r.rejections[why].Inc() }

// Closed counts the end of a WebSocket.
func (r *Relay) Closed(code CloseCode, by By) { r.closes[code][by].Inc() }
