package main

import "fmt"

// runPingPong sends one message back and forth over one pair: two hops through
// an otherwise idle server.
func runPingPong(l *lab, r *report) error {
	servers, err := l.startAll(l.targets)
	if err != nil {
		return err
	}
	defer stopAll(servers)
	w := load{
		mode:    "ping",
		payload: 64,
		window:  1,
		pairs:   1,
		seconds: l.plan.seconds,
		warmUp:  l.plan.warmUp,
	}
	all, err := l.alternate(r, "pingpong", "64 B", servers, func(s *server) (result, error) {
		return l.generate(s, w)
	})
	if err != nil {
		return err
	}

	t := newTable("64 B, there and back", namesOf(l.targets)...)
	rows := []struct {
		field, label string
		bar          float64
	}{
		{"p50us", "p50, µs", 1},
		{"p99us", "p99, µs", 2},
		{"p999us", "p99.9, µs", 0},
		{cpuField, "CPU s per million messages", 0},
	}
	for _, row := range rows {
		f, err := figures(all, row.field)
		if err != nil {
			return err
		}
		var out []string
		for _, x := range f {
			out = append(out, costAndRatio(x))
		}
		t.add(row.label, out...)
		ours, ok := find(f, sluiceName)
		if ok && ours.ratio > 0 && row.bar > 0 {
			r.check(fmt.Sprintf("ping-pong %s, × floor", row.label), ours.ratio, row.bar)
		}
	}
	r.section("Ping-pong of one pair", t.String())
	return nil
}
