package gateway

import (
	"bytes"
	"time"

	"sluice/gateway/edge"
	"sluice/gateway/metric"
	"sluice/gateway/tlsconn"
	"sluice/loop"
)

// ledgerAnswer is how long an event loop may owe an answer before what the
// ledger says is not worth showing. Contract, relay §8.
const ledgerAnswer = time.Second

// ledgerGauges answers the relay's gauges. The accounts are always readable, but
// while a loop does not turn over what it owes them is missing.
func (g *Gateway) ledgerGauges() (metric.RelayLedger, bool) {
	if g.watchdog != nil && g.watchdog.Late(ledgerAnswer) {
		return metric.RelayLedger{}, false
	}
	s := g.led.Snapshot()
	return metric.RelayLedger{
		ActiveWebSockets:     s.Sockets,
		ActiveSessions:       g.relay.Sessions(),
		IngressReservedBytes: s.Ingress,
		BlockedDeliveries:    s.Blocked,
	}, true
}

func (g *Gateway) draining() bool {
	switch g.currentState() {
	case stateLameDuck, stateDraining, stateClosing:
		return true
	}
	return false
}

func (g *Gateway) processGauges() metric.ProcessGauges {
	p := metric.ProcessGauges{
		Version: Version,
		Loops:   g.cfg.Loops,
		HTTPConnections: func(l metric.Listener) int64 {
			if l == metric.ListenerRelay && g.front != nil {
				return g.front.Stats.Open.Load()
			}
			if l == metric.ListenerMTE && g.encrypting != nil {
				return g.encrypting.front.Stats.Open.Load()
			}
			if l == metric.ListenerAdmin && g.admin.conns != nil {
				return g.admin.conns.count()
			}
			return 0
		},
		MaxConnections: g.cfg.HTTP.MaxConnections,
		AcceptErrors: func(l metric.Listener) int64 {
			if l == metric.ListenerRelay && g.listener != nil {
				return g.listener.AcceptErrors.Load()
			}
			if l == metric.ListenerMTE && g.encrypting != nil {
				return g.encrypting.listener.AcceptErrors.Load()
			}
			if l == metric.ListenerAdmin {
				return g.admin.acceptErrors.Load()
			}
			return 0
		},
		HTTPCounts:     g.httpCounts(),
		ConfigGauges:   metric.ConfigGauges{ConfigVersion: g.configVersion.Load},
		TLSHandshaking: g.tls.Handshaking,
		TLSFailures:    tlsFailures(),
		LoopGauges: metric.LoopGauges{
			Connections:   func(i int) int64 { return g.loops[i].Stats().Conns.Load() },
			Turns:         func(i int) int64 { return g.loops[i].Stats().Turns.Load() },
			Busy:          func(i int) time.Duration { return time.Duration(g.loops[i].Stats().BusyNanos.Load()) },
			Longest:       g.history.longestTurn,
			OldestBlocked: func() time.Duration { return time.Duration(g.history.blocked.Load()) },
		},
	}
	if g.cfg.Redis.On() {
		p.RedisUp = func() bool { return g.redis.Ready() }
		p.RedisCalls = func() (int64, int64) { return g.redis.InFlight(), g.redis.MaxCalls() }
	}
	if g.cfg.Relay.TLS.On() || g.cfg.MTE.TLS.On() {
		p.CertificateExpiry = g.certs.ends
	}
	if g.cfg.Source.ControlPlaneURL != "" {
		p.ConfigPending = g.configPending.Load
		p.ControlPlaneAge = func() time.Duration { return time.Duration(loop.Now() - g.configAnswer.Load()) }
	}
	return p
}

// httpCounts answers for the HTTP layer of both roles.
func (g *Gateway) httpCounts() metric.HTTPCounts {
	return metric.HTTPCounts{
		Refusals:     func(l metric.Listener, f func(status int, n int64)) { g.httpStats(l).Refusals(f) },
		RefusedFull:  func(l metric.Listener) int64 { return g.httpStats(l).RefusedFull.Load() },
		IdleTimeouts: func(l metric.Listener) int64 { return g.httpStats(l).IdleTimeouts.Load() },
		WriteStalls:  func(l metric.Listener) int64 { return g.httpStats(l).WriteStalls.Load() },
	}
}

// httpStats are the counts of a role's listener; all zero of a role that is off.
func (g *Gateway) httpStats(l metric.Listener) *edge.Stats {
	switch {
	case l == metric.ListenerRelay && g.front != nil:
		return &g.front.Stats
	case l == metric.ListenerMTE && g.encrypting != nil:
		return &g.encrypting.front.Stats
	}
	return new(edge.Stats)
}

// tlsFailures are the reasons for which handshakes fail, by tlsconn.Failure.
func tlsFailures() (names []string) {
	for f := range tlsconn.Failures {
		names = append(names, f.String())
	}
	return names
}

// pages are those of the process and of the roles that are on.
func (g *Gateway) pages() []*metric.Page {
	pages := []*metric.Page{&g.process.Page}
	if g.metrics != nil {
		pages = append(pages, &g.metrics.Page)
	}
	if g.encrypting != nil {
		pages = append(pages, g.encrypting.role.Page())
	}
	return pages
}

// allMetrics writes every page: what the admin listener serves.
func (g *Gateway) allMetrics() []byte {
	var out bytes.Buffer
	metric.WriteAll(&out, g.pages()...)
	return out.Bytes()
}
