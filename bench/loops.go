package main

import "fmt"

// loopsBar is how much a message may cost with two loops, in terms of one.
const loopsBar = 1.18

// runLoops compares ours with two loops on two cores to ours with one loop on
// one. Sessions do not share anything across loops, so what a message costs
// should hardly change. On a machine of two cores the generator shares the
// second one: the figure is CPU time, which that does not change.
func runLoops(l *lab, r *report) error {
	ours, ok := l.target(sluiceName)
	if !ok {
		r.note("loops: not run, sluice is not among the targets")
		return nil
	}
	one, err := l.start(ours, l.cores.server, 1)
	if err != nil {
		return err
	}
	defer one.stop()
	two, err := l.start(ours, l.cores.servers, 2)
	if err != nil {
		return err
	}
	defer two.stop()

	t := newTable("sluice", "one loop", "two loops", "ratio")
	for _, c := range cells {
		w := load{
			mode:    "thr",
			payload: c.payload,
			window:  c.window,
			pairs:   c.pairs,
			seconds: l.plan.seconds,
			warmUp:  l.plan.warmUp,
		}
		var single, double []float64
		for round := range l.plan.rounds {
			a, b := one, two
			if round%2 == 1 {
				a, b = two, one
			}
			for _, s := range []*server{a, b} {
				got, err := l.generate(s, w)
				if err != nil {
					return err
				}
				cost, err := got.get(cpuField)
				if err != nil {
					return err
				}
				loops := 1
				if s == two {
					loops = 2
					double = append(double, cost)
				} else {
					single = append(single, cost)
				}
				r.raw("loops", "%s, round %d, %d loops: %s", c.name, round+1, loops, got.line)
			}
		}
		ratio := median(ratios(double, single))
		t.add(c.name, number(median(single)), number(median(double)), number(ratio))
		r.check(fmt.Sprintf("%s, CPU per message, two loops × one", c.name), ratio, loopsBar)
	}
	r.section("Two loops against one: CPU seconds per million messages", t.String())
	return nil
}

// target returns a target of this run.
func (l *lab) target(name string) (target, bool) {
	for _, t := range l.targets {
		if t.name == name {
			return t, true
		}
	}
	return target{}, false
}
