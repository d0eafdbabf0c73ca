package metric

import (
	"github.com/VictoriaMetrics/metrics"
)

// A Process is the page of what belongs to no role: loops, listeners, TLS, Redis, configuration.
// Its counters may be bumped from anywhere.
type Process struct {
	Page Page

	LoopStalls          *metrics.Counter // the watchdog found a loop that did not turn over
	TLSHandshakes       *metrics.Counter
	TLSResumptions      *metrics.Counter
	CertificatesRead    *metrics.Counter
	CertificatesRefused *metrics.Counter
	RedisErrors         *metrics.Counter
	RedisSeconds        *metrics.PrometheusHistogram // one operation with its retries
	Config              *Config

	evictions     [listeners]*metrics.Counter
	proxyRefusals [listeners]*metrics.Counter
	tlsFailures   []*metrics.Counter // as ProcessGauges.TLSFailures
}

// A Listener is one of ours.
type Listener uint8

const (
	ListenerRelay Listener = iota
	ListenerMTE
	ListenerAdmin

	listeners
)

// Listeners is the number of values of Listener.
const Listeners = listeners

var listenerNames = [listeners]string{"relay", "mte", "admin"}

func (l Listener) String() string { return listenerNames[l] }

// ProcessGauges are asked when a page is written, from the goroutine that writes it.
type ProcessGauges struct {
	Version         string // of the build
	Loops           int
	HTTPConnections func(Listener) int64 // without WebSockets
	MaxConnections  int
	AcceptErrors    func(Listener) int64
	HTTPCounts
	ConfigGauges
	LoopGauges
	RedisUp        func() bool // nil without Redis, as the next
	RedisCalls     func() (underWay, most int64)
	TLSHandshaking func() int64
	TLSFailures    []string // the reasons for which handshakes fail
	// CertificateExpiry is the earliest end of a certificate in unix seconds; nil without TLS.
	CertificateExpiry func() float64
}

// NewProcess makes the page with every series at zero.
func NewProcess(g ProcessGauges) *Process {
	m := &Process{}
	p := &m.Page
	p.Gauges("sluice_build_info", "1, the version is in the label.", []string{label("version", safeLabel(g.Version))}, func(int) float64 { return 1 })
	p.Gauge("sluice_loops", "Event loops.", func() float64 { return float64(g.Loops) })
	m.LoopStalls = p.Counter("sluice_loop_stalls_total", "Event loops that did not turn over in time.")
	addLoops(p, g.Loops, &g.LoopGauges)
	names := labels("listener", listenerNames[:])
	p.Gauges("sluice_http_connections", "Connections that are no WebSocket.", names, func(i int) float64 { return float64(g.HTTPConnections(Listener(i))) })
	p.Gauge("sluice_http_connections_max", "The most each listener but the admin one may have of them.", func() float64 { return float64(g.MaxConnections) })
	p.counterFuncs("sluice_accept_errors_total", "Failed accepts: descriptors or memory ran out.", names, func(i int) float64 { return float64(g.AcceptErrors(Listener(i))) })
	copy(m.evictions[:], p.Counters("sluice_http_evictions_total", "Connections closed to make room for new ones.", names))
	addHTTP(p, &g.HTTPCounts)
	copy(m.proxyRefusals[:], p.Counters("sluice_proxy_protocol_refusals_total", "Connections closed for a PROXY header that was missing, wrong or not theirs to send.", names))
	m.TLSHandshakes = p.Counter("sluice_tls_handshakes_total", "Finished TLS handshakes.")
	m.TLSResumptions = p.Counter("sluice_tls_resumptions_total", "Those among them that resumed a session.")
	m.tlsFailures = p.Counters("sluice_tls_handshake_failures_total", "Failed TLS handshakes.", labels("reason", g.TLSFailures))
	p.Gauge("sluice_tls_handshakes_in_progress", "TLS handshakes under way, with clients and with origins.", func() float64 { return float64(g.TLSHandshaking()) })
	m.CertificatesRead = p.Counter("sluice_tls_certificate_reloads_total", "Times that changed certificate files were taken into use.")
	m.CertificatesRefused = p.Counter("sluice_tls_certificate_reload_failures_total", "Times that changed certificate files were no good; what was in use stayed.")
	if g.CertificateExpiry != nil {
		p.Gauge("sluice_tls_certificate_expiry_seconds", "Unix time at which the first certificate ends.", g.CertificateExpiry)
	}
	if g.RedisUp != nil {
		p.Gauge("sluice_redis_up", "1 while the last operation reached Redis.", flag(g.RedisUp))
		p.Gauge("sluice_redis_calls", "Calls of Redis under way.", func() float64 { n, _ := g.RedisCalls(); return float64(n) })
		p.Gauge("sluice_redis_calls_max", "The most there may be; more are refused.", func() float64 { _, n := g.RedisCalls(); return float64(n) })
	}
	m.RedisErrors = p.Counter("sluice_redis_errors_total", "Failed Redis operations.")
	m.RedisSeconds = p.Histogram("sluice_redis_seconds", "Time of a Redis operation.", secondsBounds)
	m.Config = newConfig(p, &g)
	return m
}

// ProxyRefused counts a connection closed for breaking the rule of PROXY_PROTOCOL.
func (m *Process) ProxyRefused(l Listener) { m.proxyRefusals[l].Inc() }

// TLSFailed counts a TLS handshake that came to nothing; why is an index of
// ProcessGauges.TLSFailures.
func (m *Process) TLSFailed(why int) { m.tlsFailures[why].Inc() }

// Evicted counts a connection closed to make room.
func (m *Process) Evicted(l Listener) { m.evictions[l].Inc() }

// safeLabel keeps a build's version from breaking the line.
func safeLabel(s string) string {
	b := []byte(s)
	for i, c := range b {
		if c < ' ' || c > '~' || c == '"' || c == '\\' {
			b[i] = '_'
		}
	}
	return string(b)
}
