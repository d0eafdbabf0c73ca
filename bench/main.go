// Bench measures the gateway against yardsticks on one machine, in one run:
//
//	go run ./bench [-short] [-run throughput,pingpong,...] [-targets floor,sluice,...]
//
// Servers are pinned to one core and generators to another; what is compared
// runs alternately, and ratios are taken pair by pair, because single figures
// of a shared machine drift by a factor of two. README.md beside this file has
// the method, the bars and the last figures.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
)

// A scenario is one question asked of the servers.
type scenario struct {
	name string
	help string
	run  func(*lab, *report) error
}

// scenarios in the order in which they run and are reported.
var scenarios = []scenario{
	{"throughput", "server CPU per forwarded message, by payload", runThroughput},
	{"pingpong", "round trip of one pair", runPingPong},
	{"loops", "what a second event loop costs per message", runLoops},
	{"fairness", "round trip beside a socket that floods", runFairness},
	{"idle", "memory of an idle upgraded socket", runIdle},
	{"proxy", "CPU per request of plain HTTP proxying, against nginx", runProxy},
	{"encrypted", "CPU and allocations per encrypted request, against a plain one", runEncrypted},
	{"outbound", "CPU, allocations and latency of two processes with encryption between, against two plain hops", runOutbound},

	{"tls", "the relay over TLS: CPU per message, idle sockets, beside handshakes", runTLS},
	{"bulk", "frames of 64 KiB against bare AES-GCM, pairing against bare ML-KEM", runBulk},
	{"claims", "time of a claim of a serverId, with a real Redis", runClaims},
}

func main() {
	p, err := parsePlan(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err == nil {
		err = run(p)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// errMissed ends a -strict run in which a bar was missed.
var errMissed = errors.New("a bar was missed")

// run does what the plan says and prints the report.
func run(p plan) error {
	l, err := newLab(p)
	if err != nil {
		return err
	}
	r := newReport(l)
	var failed []string
	for _, s := range scenarios {
		if !p.wants(s.name) {
			continue
		}
		l.progress("%s: %s", s.name, s.help)
		if err := s.run(l, r); err != nil {
			// The others' figures are worth having all the same.
			failed = append(failed, s.name)
			l.progress("%s failed: %v", s.name, err)
			r.note("%s failed, its figures are missing", s.name)
		}
	}
	summary := r.markdown()
	fmt.Print("\n", summary)
	if err := r.save(summary); err != nil {
		return err
	}
	if len(failed) > 0 {
		return fmt.Errorf("failed: %s", strings.Join(failed, ", "))
	}
	if p.strict && r.missed() > 0 {
		return errMissed
	}
	return nil
}
