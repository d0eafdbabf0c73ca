package metric

import (
	"io"
	"strconv"
	"time"
)

// LoopGauges are asked for each event loop by its number; nil leaves the families out.
type LoopGauges struct {
	Connections func(i int) int64
	Turns       func(i int) int64
	Busy        func(i int) time.Duration // in turns, without waiting
	Longest     func(i int) time.Duration // turn of the last minute
	// OldestBlocked is the age of the oldest blocked delivery as last sampled.
	OldestBlocked func() time.Duration
}

// addLoops adds the families of n event loops.
func addLoops(p *Page, n int, g *LoopGauges) {
	if g.Connections == nil {
		return
	}
	numbers := make([]string, n)
	for i := range numbers {
		numbers[i] = strconv.Itoa(i)
	}
	list := labels("loop", numbers)
	p.Gauges("sluice_loop_connections", "Sockets that an event loop owns, those to origins included.", list, func(i int) float64 { return float64(g.Connections(i)) })
	p.counterFuncs("sluice_loop_turns_total", "Turns of an event loop.", list, func(i int) float64 { return float64(g.Turns(i)) })
	p.counterFuncs("sluice_loop_busy_seconds_total", "Time an event loop spent in turns, without waiting.", list, func(i int) float64 { return g.Busy(i).Seconds() })
	p.Gauges("sluice_loop_longest_turn_seconds", "The longest turn of an event loop in the last minute: so long everybody else on it waited.", list, func(i int) float64 { return g.Longest(i).Seconds() })
	p.Gauge("sluice_blocked_delivery_age_seconds", "Age of the oldest delivery whose destination takes no more, as last sampled.", func() float64 { return g.OldestBlocked().Seconds() })
}

// counterFuncs adds one counter per label set; value is asked for each by its index and must not
// fall.
func (p *Page) counterFuncs(name, help string, labels []string, value func(i int) float64) {
	p.add(name, "counter", help).RegisterMetricsWriter(func(w io.Writer) {
		for i, l := range labels {
			writeSample(w, name+"{"+l+"}", value(i))
		}
	})
}
