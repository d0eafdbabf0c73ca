package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

const (
	// outboundBar is what a request through an outbound host, the other relay and
	// to the origin may cost in terms of one through two plain proxy hops of ours.
	outboundBar = 2.2
	// outboundLatencyBar is what it may add to the p99 at half load, in µs.
	outboundLatencyBar = 1000

	outboundHost = "out.test"
	// outboundPairs is the pool: a pair for each connection and some, made in one
	// call.
	outboundPairs = 100
)

// A relayedWay is one of the ways through two processes that are compared.
type relayedWay struct {
	name    string
	talkers []talker
	cpu     []float64
	allocs  []float64
	p50     []float64 // µs, at half load
	p99     []float64
}

// runOutbound compares a POST of 1 KiB that is encrypted between two processes of
// ours with the same POST through pass-through routes of the same two processes:
// one request in flight on each of 64 connections for the cost, and for the
// latency a steady rate, half of what the encrypted way takes at most.
func runOutbound(l *lab, r *report) error {
	if _, ok := l.target(sluiceName); !ok {
		r.note("outbound: not run, sluice is not among the targets")
		return nil
	}
	origin, err := l.startOrigin()
	if err != nil {
		return err
	}
	defer origin.stop()
	inner, err := l.startDomains(map[string]any{"127.0.0.1": relayedDomain(origin.port)})
	if err != nil {
		return err
	}
	defer inner.stop()
	outer, err := l.startDomains(map[string]any{
		relayedHost:  relayedDomain(inner.port),
		outboundHost: map[string]any{"outbound": fmt.Sprintf("http://127.0.0.1:%d", inner.port)},
	},
		fmt.Sprintf("CLIENT_INITIAL_PAIRS=%d", outboundPairs),
		fmt.Sprintf("CLIENT_MIN_PAIRS=%d", outboundPairs),
		fmt.Sprintf("CLIENT_MAX_PAIRS=%d", outboundPairs),
		"CLIENT_PAIR_ACQUIRE_WAIT_MS=10000", // of the first requests
	)
	if err != nil {
		return err
	}
	defer outer.stop()

	ways := []relayedWay{
		{name: "two plain hops", talkers: plainTalkers(relayedHost)},
		{name: "outbound, inbound", talkers: plainTalkers(outboundHost)},
	}
	if err := l.compareCost(r, ways, outer, inner); err != nil {
		return err
	}
	if err := l.compareLatency(r, ways, outer); err != nil {
		return err
	}
	ratio := median(ratios(ways[1].cpu, ways[0].cpu))
	t := newTable("POST of 1 KiB, answer of 1 KiB", "CPU s per million, both processes", "× plain", "allocations each", "p50 at half load, µs", "p99")
	for i := range ways {
		w, against := &ways[i], "1.00"
		if i > 0 {
			against = number(ratio)
		}
		t.add(w.name, number(median(w.cpu)), against, fmt.Sprintf("%.3f", median(w.allocs)), number(median(w.p50)), number(median(w.p99)))
		r.check("allocations per request, "+w.name, median(w.allocs), allocationsBar)
	}
	r.check("outbound and inbound of 1 KiB, CPU, × two plain hops", ratio, outboundBar)
	added := make([]float64, len(ways[0].p99))
	for i := range added {
		added[i] = ways[1].p99[i] - ways[0].p99[i]
	}
	r.check("p99 that outbound and inbound add at half load, µs", median(added), outboundLatencyBar)
	r.section(fmt.Sprintf("Outbound domains, %d connections", relayedConnections), t.String())
	return nil
}

// compareCost measures what a request costs both servers, the ways in turns.
func (l *lab) compareCost(r *report, ways []relayedWay, outer, inner *server) error {
	for round := range l.plan.rounds {
		for i := range ways {
			w := &ways[(i+round)%len(ways)] // turns, as in alternate
			cost, err := l.relayedCost(w.talkers, outer, inner)
			if err != nil {
				return fmt.Errorf("%s: %w", w.name, err)
			}
			w.cpu, w.allocs = append(w.cpu, cost.cpu), append(w.allocs, cost.allocations)
			r.raw("outbound", "round %d, %s: srvcpu_s_per_M=%.3f allocs=%.3f requests=%d busy=%.2f",
				round+1, w.name, cost.cpu, cost.allocations, cost.requests, cost.busy)
		}
	}
	return nil
}

// compareLatency offers both ways half of what the second one took at most.
func (l *lab) compareLatency(r *report, ways []relayedWay, outer *server) error {
	most, err := l.relayedRate(ways[1].talkers, outer)
	if err != nil {
		return err
	}
	rate := most / 2
	for round := range l.plan.rounds {
		for i := range ways {
			w := &ways[(i+round)%len(ways)]
			took, err := l.relayedLatency(w.talkers, outer, rate)
			if err != nil {
				return fmt.Errorf("%s at %.0f requests a second: %w", w.name, rate, err)
			}
			p50, p99 := percentile(took, 50), percentile(took, 99)
			w.p50, w.p99 = append(w.p50, micros(p50)), append(w.p99, micros(p99))
			r.raw("outbound", "round %d, %s: offered_per_s=%.0f requests=%d p50us=%.1f p99us=%.1f maxus=%.1f",
				round+1, w.name, rate, len(took), micros(p50), micros(p99), micros(took[len(took)-1]))
		}
	}
	return nil
}

// relayedRate is how many requests a second a server answers at most.
func (l *lab) relayedRate(talkers []talker, s *server) (float64, error) {
	g, err := dialLoad(s.port, talkers)
	if err != nil {
		return 0, err
	}
	defer g.close()
	start := time.Now()
	n, err := g.run(l.cores.generator, l.plan.seconds)
	return float64(n) / time.Since(start).Seconds(), err
}

// relayedLatency returns how long requests took that were due at a steady rate,
// shortest first.
func (l *lab) relayedLatency(talkers []talker, s *server, rate float64) ([]time.Duration, error) {
	g, err := dialLoad(s.port, talkers)
	if err != nil {
		return nil, err
	}
	defer g.close()
	if _, err := g.pace(l.cores.generator, l.plan.warmUp, rate); err != nil {
		return nil, err
	}
	took, err := g.pace(l.cores.generator, l.plan.seconds, rate)
	if err == nil && len(took) == 0 {
		err = fmt.Errorf("no request was due")
	}
	slices.Sort(took)
	return took, err
}

// percentile of durations in order, of which there is at least one.
func percentile(sorted []time.Duration, p int) time.Duration {
	return sorted[(len(sorted)-1)*p/100]
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// plainTalkers post the same body, one each for all connections.
func plainTalkers(host string) (all []talker) {
	body := bytes.Repeat([]byte{'y'}, relayedBody)
	for range relayedConnections {
		all = append(all, newPlainTalker(host, body))
	}
	return all
}

// relayedDomain is a domain in front of an origin on a port, all paths of which
// are passed through as well.
func relayedDomain(origin int) map[string]any {
	return map[string]any{
		"upstream":            fmt.Sprintf("http://127.0.0.1:%d", origin),
		"client_id_secret":    "of the benchmark, long enough to be accepted",
		"pass_through_routes": []string{"/*"},
	}
}

// startDomains runs the encrypting role on the server core, one loop, with a
// DOMAIN_MAP. Congestion control is the kernel's, as that of nginx and of wrk.
func (l *lab) startDomains(domains map[string]any, settings ...string) (*server, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(domains)
	if err != nil {
		return nil, err
	}
	env := append([]string{
		"GOMAXPROCS=1",
		"LOOPS=1",
		"DRAIN_SECONDS=0",
		"LOG_LEVEL=error",
		"PASEO_RELAY_PORT=0",
		fmt.Sprintf("PORT=%d", port),
		"DOMAIN_MAP=" + string(text),
	}, settings...)
	return l.startProcess(sluiceName, port, l.cores.server, []string{l.sluicePath(), "serve"}, env)
}
