package main

import "fmt"

// fairnessBarMicros is the p99 of a ping-pong beside a flood on the same loop.
const fairnessBarMicros = 2000

// floods are one socket each that sends as fast as the server takes it.
var floods = []struct {
	name    string
	payload int
	window  int
}{
	{"64 B", 64, 1 << 16},
	{"16 KiB", 16 << 10, 1 << 10},
	{"1 MiB", 1 << 20, 64},
}

// runFairness lets one pair flood a server of one loop and measures the round
// trips of another pair meanwhile. Both generators live on one core, so the
// ping-pong blocks instead of spinning and has real-time priority: what is
// measured is the server's share, not the scheduler's.
func runFairness(l *lab, r *report) error {
	t := newTable("round trip beside a flood, µs", "flood messages/s", "p50", "p99", "p99.9")
	for _, name := range []string{floorName, sluiceName} {
		x, ok := l.target(name)
		if !ok {
			continue
		}
		for _, f := range floods {
			w := load{mode: "thr", payload: f.payload, window: f.window, pairs: 1,
				seconds: l.plan.seconds + 1, warmUp: l.plan.warmUp}
			var rates, p50, p99, p999 []float64
			for round := range l.plan.rounds {
				flood, ping, err := l.pingBesideFlood(x, w)
				if err != nil {
					return fmt.Errorf("%s, flood of %s: %w", name, f.name, err)
				}
				r.raw("fairness", "flood of %s, round %d, %s: %s", f.name, round+1, name, flood.line)
				r.raw("fairness", "flood of %s, round %d, %s: %s", f.name, round+1, name, ping.line)
				rates = append(rates, flood.fields["msgs_s"])
				p50 = append(p50, ping.fields["p50us"])
				p99 = append(p99, ping.fields["p99us"])
				p999 = append(p999, ping.fields["p999us"])
			}
			t.add(fmt.Sprintf("%s, %s", name, f.name), number(median(rates)),
				number(median(p50)), number(median(p99)), number(median(p999)))
			if name == sluiceName {
				r.check(fmt.Sprintf("p99 beside a flood of %s, µs", f.name), median(p99), fairnessBarMicros)
			}
		}
	}
	r.section("Fairness", t.String())
	return nil
}

// pingBesideFlood starts the flood, and the ping-pong into it. The flood runs
// longer than the ping-pong at both ends.
func (l *lab) pingBesideFlood(t target, flood load) (result, result, error) {
	s, err := l.start(t, l.cores.server, 1)
	if err != nil {
		return result{}, result{}, err
	}
	defer s.stop()

	type outcome struct {
		result result
		err    error
	}
	flooded := make(chan outcome, 1)
	go func() {
		got, err := l.generate(s, flood)
		flooded <- outcome{got, err}
	}()
	ping, err := l.generate(s, load{
		mode:    "ping",
		payload: 64,
		window:  1,
		pairs:   1,
		// The warm-up covers the start of the flood.
		seconds: l.plan.seconds,
		warmUp:  l.plan.warmUp + 0.5,
		extra:   []string{"-block", "-rt"},
	})
	f := <-flooded
	if err == nil {
		err = f.err
	}
	return f.result, ping, err
}
