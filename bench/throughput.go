package main

import "fmt"

// A cell is one column of the throughput question.
type cell struct {
	name    string
	payload int     // bytes
	window  int     // messages in flight per pair
	pairs   int     //
	bar     float64 // most that ours may cost, as a multiple of the floor
	// belowPeers: ours must also cost less than each peer.
	belowPeers bool
}

// cells are the payloads of the bars. The floor forwards a message while it
// arrives, which a relay that owes whole messages cannot: hence the wider bar
// at 1 MiB.
var cells = []cell{
	{name: "64 B, 32 in flight", payload: 64, window: 32, pairs: 50, bar: 1.2},
	{name: "64 B, 1 in flight", payload: 64, window: 1, pairs: 50, bar: 1.25},
	{name: "1 KiB, 32 in flight", payload: 1 << 10, window: 32, pairs: 50, bar: 1.2},
	{name: "16 KiB, 8 in flight", payload: 16 << 10, window: 8, pairs: 50, bar: 1.2},
	{name: "1 MiB, 2 in flight", payload: 1 << 20, window: 2, pairs: 8, bar: 2.5, belowPeers: true},
}

// cpuField is the server's CPU seconds per million messages.
const cpuField = "srvcpu_s_per_M"

// runThroughput measures every cell with freshly started servers, one loop each.
func runThroughput(l *lab, r *report) error {
	t := newTable("one loop on one core", namesOf(l.targets)...)
	for _, c := range cells {
		f, err := l.measureCell(r, c)
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		row := []string{}
		for _, x := range f {
			row = append(row, costAndRatio(x))
		}
		t.add(c.name, row...)
		checkCell(r, c, f)
	}
	r.section("Server CPU seconds per million forwarded messages", t.String()+
		"\nMedians; in parentheses the median of the pairwise ratios to the floor.\n")
	return nil
}

func (l *lab) measureCell(r *report, c cell) ([]figure, error) {
	servers, err := l.startAll(l.targets)
	if err != nil {
		return nil, err
	}
	defer stopAll(servers)
	for _, s := range servers {
		if err := l.verify(s, c.payload, c.window); err != nil {
			return nil, err
		}
	}
	w := load{
		mode:    "thr",
		payload: c.payload,
		window:  c.window,
		pairs:   c.pairs,
		seconds: l.plan.seconds,
		warmUp:  l.plan.warmUp,
	}
	all, err := l.alternate(r, "throughput", c.name, servers, func(s *server) (result, error) {
		return l.generate(s, w)
	})
	if err != nil {
		return nil, err
	}
	return figures(all, cpuField)
}

// checkCell holds ours against the bar, when both were measured.
func checkCell(r *report, c cell, list []figure) {
	ours, ok := find(list, sluiceName)
	if !ok {
		return
	}
	if ours.ratio > 0 {
		r.check(c.name+", CPU per message, × floor", ours.ratio, c.bar)
	}
	if !c.belowPeers {
		return
	}
	for _, f := range list {
		if f.peer {
			r.check(c.name+", CPU per message, × "+f.name, ours.median/f.median, 1)
		}
	}
}

// costAndRatio is a table entry such as "0.35 (1.01×)".
func costAndRatio(f figure) string {
	if f.ratio == 0 || f.name == floorName {
		return number(f.median)
	}
	return fmt.Sprintf("%s (%s×)", number(f.median), number(f.ratio))
}

func namesOf(list []target) []string {
	var names []string
	for _, t := range list {
		names = append(names, t.name)
	}
	return names
}
