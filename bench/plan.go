package main

import (
	"flag"
	"fmt"
	"slices"
	"strings"
)

// A plan is what the command line asks for.
type plan struct {
	seconds    float64 // of one measurement, after the warm-up
	warmUp     float64 // seconds
	rounds     int     // of the alternation
	peerRounds int     // of these, in how many the peers run too
	sockets    int     // held by the idle scenario
	targets    []string
	scenarios  []string // empty: all
	sluice     string   // a built binary; empty: build one
	update     bool     // write the summary into README.md
	strict     bool     // a missed bar is a failure
}

func parsePlan(args []string) (plan, error) {
	var p plan
	fs := flag.NewFlagSet("bench", flag.ContinueOnError)
	fs.Float64Var(&p.seconds, "seconds", 2, "seconds of one measurement")
	fs.Float64Var(&p.warmUp, "warm", 0.4, "seconds before each measurement")
	fs.IntVar(&p.rounds, "rounds", 7, "rounds of the alternation")
	fs.IntVar(&p.peerRounds, "peer-rounds", 3, "rounds in which the peers run too")
	fs.IntVar(&p.sockets, "sockets", 10000, "sockets of the idle scenario")
	targets := fs.String("targets", strings.Join(targetNames(), ","), "what to measure")
	names := fs.String("run", "", "scenarios, comma separated (empty: all): "+scenarioHelp())
	fs.StringVar(&p.sluice, "sluice", "", "a built sluice binary (empty: build ./gateway/sluice)")
	fs.BoolVar(&p.update, "update", false, "put the summary between the markers of bench/README.md")
	fs.BoolVar(&p.strict, "strict", false, "exit 1 when a bar is missed")
	short := fs.Bool("short", false, "a smoke run: one round of one second, few sockets")
	if err := fs.Parse(args); err != nil {
		return p, err
	}
	if fs.NArg() > 0 {
		return p, fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	if *short {
		p.shorten(fs)
	}
	if p.seconds <= 0 || p.rounds < 1 || p.sockets < 2 {
		return p, fmt.Errorf("-seconds, -rounds and -sockets must be positive")
	}

	p.targets = split(*targets)
	for _, name := range p.targets {
		if !slices.Contains(targetNames(), name) {
			return p, fmt.Errorf("no target %q, want some of %s", name, strings.Join(targetNames(), ","))
		}
	}
	p.scenarios = split(*names)
	for _, name := range p.scenarios {
		known := slices.ContainsFunc(scenarios, func(s scenario) bool { return s.name == name })
		if !known {
			return p, fmt.Errorf("no scenario %q, want some of %s", name, scenarioHelp())
		}
	}
	return p, nil
}

// shorten takes the values of a smoke run for what was not given itself.
func (p *plan) shorten(fs *flag.FlagSet) {
	given := make(map[string]bool)
	fs.Visit(func(f *flag.Flag) { given[f.Name] = true })
	if !given["seconds"] {
		p.seconds = 1
	}
	if !given["warm"] {
		p.warmUp = 0.2
	}
	if !given["rounds"] {
		p.rounds = 1
	}
	if !given["peer-rounds"] {
		p.peerRounds = 1
	}
	if !given["sockets"] {
		p.sockets = 200
	}
}

func (p plan) wants(scenario string) bool {
	return len(p.scenarios) == 0 || slices.Contains(p.scenarios, scenario)
}

func split(list string) []string {
	var out []string
	for _, s := range strings.Split(list, ",") {
		if s = strings.TrimSpace(s); s != "" {
			out = append(out, s)
		}
	}
	return out
}

func scenarioHelp() string {
	var names []string
	for _, s := range scenarios {
		names = append(names, s.name)
	}
	return strings.Join(names, ",")
}
