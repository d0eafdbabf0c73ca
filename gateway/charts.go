package gateway

import (
	"math"

	"sluice/gateway/metric"
)

// charts are the series of the live page, by the roles that are on.
func (g *Gateway) charts() []*chart {
	var list []*chart
	add := func(name, unit string, value func(now, before *metric.Snapshot, seconds float64) float64) {
		list = append(list, &chart{name: name, unit: unit, value: value})
	}
	if g.cfg.Relay.Listen.On() {
		add("WebSockets", "", gaugeOf("paseo_relay_active_websockets"))
		add("Messages a second", "", rateOf("paseo_relay_frames_forwarded_total"))
		add("Payload a second", unitBytes, rateOf("paseo_relay_bytes_forwarded_total"))
		add("Ingress budget in use", unitShare, shareOf("paseo_relay_ingress_reserved_bytes", "paseo_relay_ingress_budget_bytes"))
		add("Blocked deliveries", "", gaugeOf("paseo_relay_blocked_deliveries"))
		add("Delivery, 99 % within", unitSeconds, quantileOf("paseo_relay_delivery_seconds", 0.99))
	}
	if g.cfg.MTE.Listen.On() {
		add("Requests a second", "", rateOf("mte_relay_requests_total"))
		add("Refusals a second", "", rateOf("mte_relay_refusals_total"))
		add("Pairs", "", gaugeOf("mte_relay_pairs"))
		add("Origin, half within", unitSeconds, quantileOf("mte_relay_origin_seconds", 0.5))
		add("Origin, 99 % within", unitSeconds, quantileOf("mte_relay_origin_seconds", 0.99))
	}
	add("Loops busy", unitShare, func(now, before *metric.Snapshot, seconds float64) float64 {
		return rateOf("sluice_loop_busy_seconds_total")(now, before, seconds) / float64(g.cfg.Loops)
	})
	add("Longest turn", unitSeconds, func(*metric.Snapshot, *metric.Snapshot, float64) float64 {
		most := int64(0)
		for _, l := range g.loops {
			most = max(most, l.Stats().LongestTurn.Load())
		}
		return float64(most) / 1e9
	})
	add("Resident memory", unitBytes, func(*metric.Snapshot, *metric.Snapshot, float64) float64 { return float64(residentBytes()) })
	return list
}

type chartValue = func(now, before *metric.Snapshot, seconds float64) float64

// gaugeOf is the sum of a family's series; a gap where the page leaves it out.
func gaugeOf(name string) chartValue {
	return func(now, _ *metric.Snapshot, _ float64) float64 {
		if v, ok := now.Sum(name); ok {
			return v
		}
		return math.NaN()
	}
}

// rateOf is how fast the sum of a family's counters grows.
func rateOf(name string) chartValue {
	return func(now, before *metric.Snapshot, seconds float64) float64 {
		if before == nil {
			return math.NaN()
		}
		v, ok := now.Sum(name)
		was, had := before.Sum(name)
		if !ok || !had {
			return math.NaN()
		}
		return (v - was) / seconds
	}
}

func shareOf(part, whole string) chartValue {
	return func(now, _ *metric.Snapshot, _ float64) float64 {
		p, ok := now.Sum(part)
		w, _ := now.Sum(whole)
		if !ok || w <= 0 {
			return math.NaN()
		}
		return p / w
	}
}

// quantileOf is a quantile of what came to a histogram since the sample before; a
// gap where nothing did.
func quantileOf(name string, q float64) chartValue {
	return func(now, before *metric.Snapshot, _ float64) float64 {
		if before == nil {
			return math.NaN()
		}
		d, _ := now.Distribution(name)
		was, _ := before.Distribution(name)
		return d.Since(was).Quantile(q)
	}
}
