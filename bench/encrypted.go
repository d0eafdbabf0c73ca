package main

import (
	"bufio"
	"bytes"
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

const (
	// encryptedBar is what an encrypted request may cost in terms of a plain one
	// through the same process.
	encryptedBar = 1.8
	// allocationsBar is for none: what ticks beside the requests is in it.
	allocationsBar = 0.1

	relayedConnections = 64
	relayedBody        = 1024 // bytes of a request's body
)

// A relayedCost is what one request of a measurement cost the server.
type relayedCost struct {
	cpu         float64 // seconds per million
	allocations float64
	requests    int
	busy        float64 // share of the core
}

// runEncrypted compares a POST of 1 KiB through a pair with the same POST through
// a pass-through route of the same process: one request in flight on each of 64
// connections, each with a pair of its own. Every answer is decoded and compared.
func runEncrypted(l *lab, r *report) error {
	if _, ok := l.target(sluiceName); !ok {
		r.note("encrypted: not run, sluice is not among the targets")
		return nil
	}
	origin, err := l.startOrigin()
	if err != nil {
		return err
	}
	defer origin.stop()
	s, err := l.startRelay(origin.port)
	if err != nil {
		return err
	}
	defer s.stop()
	encrypted, err := encryptedTalkers(s.port)
	if err != nil {
		return err
	}
	kinds := []struct {
		name    string
		talkers []talker
		cpu     []float64
		allocs  []float64
	}{
		{name: "plain", talkers: plainTalkers(relayedHost)},
		{name: "encrypted", talkers: encrypted},
	}
	for round := range l.plan.rounds {
		for i := range kinds {
			k := &kinds[(i+round)%len(kinds)] // turns, as in alternate
			cost, err := l.relayedCost(k.talkers, s)
			if err != nil {
				return fmt.Errorf("%s: %w", k.name, err)
			}
			k.cpu, k.allocs = append(k.cpu, cost.cpu), append(k.allocs, cost.allocations)
			r.raw("encrypted", "round %d, %s: srvcpu_s_per_M=%.3f allocs=%.3f requests=%d busy=%.2f",
				round+1, k.name, cost.cpu, cost.allocations, cost.requests, cost.busy)
		}
	}
	ratio := median(ratios(kinds[1].cpu, kinds[0].cpu))
	t := newTable("POST of 1 KiB, answer of 1 KiB", "CPU s per million", "× plain", "allocations each")
	for i, k := range kinds {
		against := "1.00"
		if i > 0 {
			against = number(ratio)
		}
		allocs := median(k.allocs)
		t.add(k.name, number(median(k.cpu)), against, fmt.Sprintf("%.3f", allocs))
		r.check("allocations per request, "+k.name, allocs, allocationsBar)
	}
	r.check("encrypted request of 1 KiB, CPU, × plain", ratio, encryptedBar)
	r.section(fmt.Sprintf("Encrypted requests, %d connections", relayedConnections), t.String())
	return nil
}

func encryptedTalkers(port int) (all []talker, err error) {
	session, err := authenticate(port)
	if err != nil {
		return nil, err
	}
	pairs, err := makePairs(port, session, relayedConnections)
	if err != nil {
		return nil, err
	}
	body := bytes.Repeat([]byte{'y'}, relayedBody)
	route := session.ClientID().AppendRoute(nil)
	for _, p := range pairs {
		all = append(all, &encryptedTalker{pair: p, body: body, route: route})
	}
	return all, nil
}

// relayedCost runs a load for a warm-up and for a measurement. The load goes to
// the first of the servers; what it costs all of them is added up.
func (l *lab) relayedCost(talkers []talker, servers ...*server) (cost relayedCost, err error) {
	g, err := dialLoad(servers[0].port, talkers)
	if err != nil {
		return cost, err
	}
	defer g.close()
	if _, err := g.run(l.cores.generator, l.plan.warmUp); err != nil {
		return cost, err
	}
	// What a look at the page allocates is measured, too, and taken off. The
	// first look opens its connection.
	var looks [3]float64
	for i := range looks {
		if looks[i], err = sum(servers, (*server).mallocs); err != nil {
			return cost, err
		}
	}
	cpu := func(s *server) (float64, error) { return cpuSeconds(s.pid()) }
	before, err := sum(servers, cpu)
	if err != nil {
		return cost, err
	}
	requests, err := g.run(l.cores.generator, l.plan.seconds)
	if err != nil {
		return cost, err
	}
	after, err := sum(servers, cpu)
	if err != nil {
		return cost, err
	}
	last, err := sum(servers, (*server).mallocs)
	if err != nil {
		return cost, err
	}
	for _, s := range servers {
		if err := s.check(); err != nil {
			return cost, err
		}
	}
	allocated := last - looks[2] - (looks[2] - looks[1])
	return relayedCost{
		cpu:         (after - before) / float64(requests) * 1e6,
		allocations: max(0, allocated) / float64(requests),
		requests:    requests,
		busy:        (after - before) / l.plan.seconds,
	}, nil
}

// sum adds up what is asked of each server.
func sum(servers []*server, ask func(*server) (float64, error)) (total float64, err error) {
	for _, s := range servers {
		v, err := ask(s)
		if err != nil {
			return 0, err
		}
		total += v
	}
	return total, nil
}

// mallocs is how many objects a server of ours has allocated so far.
func (s *server) mallocs() (float64, error) {
	const series = "go_memstats_mallocs_total "
	res, err := control.Get(fmt.Sprintf("http://127.0.0.1:%d/metrics", s.admin))
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("metrics of %s: %s", s.name, res.Status)
	}
	value := ""
	for lines := bufio.NewScanner(res.Body); lines.Scan(); { // to the end, so that the connection is used again
		if v, ok := strings.CutPrefix(lines.Text(), series); ok {
			value = v
		}
	}
	return strconv.ParseFloat(value, 64)
}
