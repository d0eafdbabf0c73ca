package metric

import (
	"strconv"

	"github.com/VictoriaMetrics/metrics"
)

// An MTE is the page of the encrypting relay (contract, mte-relay §10). Its counters may be
// bumped from anywhere.
type MTE struct {
	Page Page

	RateLimited  *metrics.Counter
	PairsRetired *metrics.Counter
	// OriginSeconds takes the time from an origin request's first byte to its answer's first,
	// PairingSeconds a pairing call from its whole body to its answer.
	OriginSeconds  *metrics.PrometheusHistogram
	PairingSeconds *metrics.PrometheusHistogram

	requests [requestKinds]*metrics.Counter
	bytes    [directions]*metrics.Counter
	refusals []*metrics.Counter
}

// A Request is what an HTTP request to the role turned out to be.
type Request uint8

const (
	RequestAuth        Request = iota // GET /api/mte-relay
	RequestPair                       // POST /api/mte-pair
	RequestKeepalive                  // POST /api/mte-keepalive
	RequestFrames                     // POST / with frames
	RequestPassThrough                // a listed plain path
	RequestOutbound                   // to an outbound domain
	RequestPreflight                  // answered by us
	RequestOther                      // refused before it was any of these

	requestKinds
)

var requestNames = [requestKinds]string{"auth", "pair", "keepalive", "frames", "pass_through", "outbound", "preflight", "other"}

func (r Request) String() string { return requestNames[r] }

// A Direction is where application bytes go, seen from the client.
type Direction uint8

const (
	DirectionRequest  Direction = iota // decoded request bodies, or encoded ones of outbound domains
	DirectionResponse                  // response bodies

	directions
)

var directionNames = [directions]string{"request", "response"}

// A CodecPool is one of the pools of idle codec instances.
type CodecPool uint8

const (
	PoolMTEEncoder CodecPool = iota
	PoolMTEDecoder
	PoolMKEEncoder
	PoolMKEDecoder

	codecPools
)

var poolNames = [codecPools]string{"mte_encoder", "mte_decoder", "mke_encoder", "mke_decoder"}

// An OutboundState is what a pair of an outbound domain does.
type OutboundState uint8

const (
	OutboundFree     OutboundState = iota // waits for a request
	OutboundInUse                         // carries one
	OutboundPairing                       // was asked for and has not come
	OutboundRetiring                      // given up, and the other relay was not told yet

	outboundStates
)

var outboundNames = [outboundStates]string{"free", "in_use", "pairing", "retiring"}

// MTEGauges are asked when a page is written, from the goroutine that writes it.
type MTEGauges struct {
	Pairs         func() int64
	PairsInUse    func() int64
	PoolIdle      func(CodecPool) int64
	OutboundPairs func(OutboundState) int64
}

// A Refusal is a code and reason of the role's registry.
type Refusal struct {
	Code   int
	Reason string
}

// NewMTE makes the page with every series at zero. refusals are all there are; Refused counts
// them by their index.
func NewMTE(g MTEGauges, refusals []Refusal) *MTE {
	m := &MTE{}
	p := &m.Page
	p.Gauge("mte_relay_pairs", "Pairs that are held; with REDIS_URL only those in use or cached here.", func() float64 { return float64(g.Pairs()) })
	p.Gauge("mte_relay_pairs_in_use", "Pairs that carry a request.", func() float64 { return float64(g.PairsInUse()) })
	p.Gauges("mte_relay_pool_idle", "Idle codec instances.", labels("pool", poolNames[:]), func(i int) float64 { return float64(g.PoolIdle(CodecPool(i))) })
	p.Gauges("mte_relay_outbound_pairs", "Pairs of outbound domains.", labels("state", outboundNames[:]), func(i int) float64 { return float64(g.OutboundPairs(OutboundState(i))) })

	list := make([]string, len(refusals))
	for i, r := range refusals {
		list[i] = label("code", strconv.Itoa(r.Code)) + "," + label("reason", r.Reason)
	}
	m.refusals = p.Counters("mte_relay_refusals_total", "Refused requests.", list)
	copy(m.requests[:], p.Counters("mte_relay_requests_total", "Requests by what they were.", labels("kind", requestNames[:])))
	copy(m.bytes[:], p.Counters("mte_relay_bytes_total", "Application bytes relayed.", labels("direction", directionNames[:])))
	m.RateLimited = p.Counter("mte_relay_rate_limited_total", "Control calls over a rate limit.")
	m.PairsRetired = p.Counter("mte_relay_pairs_retired_total", "Pairs given up because they could not be kept in step.")
	m.OriginSeconds = p.Histogram("mte_relay_origin_seconds", "Time to an origin's first byte.", secondsBounds)
	m.PairingSeconds = p.Histogram("mte_relay_pairing_seconds", "Time of a pairing call.", secondsBounds)
	return m
}

// secondsBounds fit calls over a network: 1 ms to a minute.
var secondsBounds = []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60}

// Request counts a request once it is known what it is.
func (m *MTE) Request(kind Request) { m.requests[kind].Inc() }

// Bytes counts n application bytes.
func (m *MTE) Bytes(d Direction, n int) { m.bytes[d].Add(n) }

// Refused counts the i-th refusal of the registry.
func (m *MTE) Refused(i int) { m.refusals[i].Inc() }
