package gateway

import (
	"bytes"
	"time"

	"github.com/VictoriaMetrics/metrics"

	"sluice/gateway/metric"
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
	return metric.ProcessGauges{
		Version: Version,
		Loops:   g.cfg.Loops,
		HTTPConnections: func(l metric.Listener) int64 {
			if l == metric.ListenerRelay && g.front != nil {
				return g.front.Stats.Open.Load()
			}
			if l == metric.ListenerMTE && g.encrypting != nil {
				return g.encrypting.front.Stats.Open.Load()
			}
			return 0
		},
		MaxConnections: g.cfg.HTTP.MaxConnections,
		ConfigVersion:  g.configVersion.Load,
	}
}

// allMetrics writes every page: what the admin listener serves.
func (g *Gateway) allMetrics() []byte {
	var page bytes.Buffer
	if g.metrics != nil {
		g.metrics.Page.WriteTo(&page)
	}
	if g.encrypting != nil {
		g.encrypting.role.Page().WriteTo(&page)
	}
	g.process.Page.WriteTo(&page)
	metrics.WriteProcessMetrics(&page)
	return page.Bytes()
}
