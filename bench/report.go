package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// A report gathers what a run found: tables to read, bars to hold ours against,
// and the raw lines of the tools.
type report struct {
	lab      *lab
	began    time.Time
	sections []string
	checks   []check
	notes    []string
	lines    map[string][]string // raw, by scenario
}

// A check is one bar. Ours may be at most the limit, or must be at least.
type check struct {
	what       string
	got, limit float64
	least      bool
}

func (c check) passed() bool {
	if c.least {
		return c.got >= c.limit
	}
	return c.got <= c.limit
}

// bound is the limit as the table shows it.
func (c check) bound() string {
	if c.least {
		return "≥ " + number(c.limit)
	}
	return "≤ " + number(c.limit)
}

func (c check) verdict() string {
	if c.passed() {
		return "PASS"
	}
	if c.least {
		return "UNDER"
	}
	return "OVER"
}

func newReport(l *lab) *report {
	return &report{lab: l, began: time.Now(), lines: make(map[string][]string)}
}

// raw keeps a line of a tool and shows it as it comes.
func (r *report) raw(scenario, format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	r.lab.progress("  %s", line)
	r.lines[scenario] = append(r.lines[scenario], line)
}

func (r *report) section(title, body string) {
	r.sections = append(r.sections, "### "+title+"\n\n"+body)
}

func (r *report) check(what string, got, limit float64) {
	r.checks = append(r.checks, check{what: what, got: got, limit: limit})
}

// checkLeast is for a bar that is to be reached.
func (r *report) checkLeast(what string, got, limit float64) {
	r.checks = append(r.checks, check{what: what, got: got, limit: limit, least: true})
}

// note is for what was left out, and why.
func (r *report) note(format string, args ...any) {
	r.notes = append(r.notes, fmt.Sprintf(format, args...))
}

// missed counts the missed bars.
func (r *report) missed() int {
	n := 0
	for _, c := range r.checks {
		if !c.passed() {
			n++
		}
	}
	return n
}

// markdown is the summary.
func (r *report) markdown() string {
	var b strings.Builder
	p := r.lab.plan
	fmt.Fprintf(&b, "%s, commit %s. %s. %s s a measurement, %d rounds (%d with peers).\n",
		r.began.UTC().Format("2006-01-02"), r.lab.commit(), describeMachine(r.lab.congestion),
		decimal(p.seconds), p.rounds, min(p.peerRounds, p.rounds))
	for _, s := range r.sections {
		b.WriteString("\n" + s)
	}
	if len(r.checks) > 0 {
		t := newTable("bar", "measured", "limit", "")
		for _, c := range r.checks {
			t.add(c.what, number(c.got), c.bound(), c.verdict())
		}
		fmt.Fprintf(&b, "\n### Bars\n\n%s\n%d passed, %d missed.\n", t, len(r.checks)-r.missed(), r.missed())
	}
	for _, n := range r.notes {
		b.WriteString("\nNote: " + n + ".\n")
	}
	return b.String()
}

// commit names what was measured; a changed tree is marked.
func (l *lab) commit() string {
	name := firstLine("git", "-C", l.root, "rev-parse", "--short", "HEAD")
	if name == "" || strings.HasPrefix(name, "fatal") {
		return "unknown"
	}
	if firstLine("git", "-C", l.root, "status", "--porcelain", "--untracked-files=no") != "" {
		name += " (changed)"
	}
	return name
}

// save writes bench/results: a file of raw lines per scenario, and summary.md.
// With -update the summary also goes into bench/README.md.
func (r *report) save(summary string) error {
	dir := filepath.Join(r.lab.root, "bench", "results")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	head := fmt.Sprintf("# %s, commit %s\n# go run ./bench %s\n# %s\n", r.began.UTC().Format(time.RFC3339),
		r.lab.commit(), strings.Join(os.Args[1:], " "), describeMachine(r.lab.congestion))
	for scenario, lines := range r.lines {
		text := head + strings.Join(lines, "\n") + "\n"
		if err := os.WriteFile(filepath.Join(dir, scenario+".txt"), []byte(text), 0o644); err != nil {
			return err
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "summary.md"), []byte(summary), 0o644); err != nil {
		return err
	}
	if !r.lab.plan.update {
		return nil
	}
	path := filepath.Join(r.lab.root, "bench", "README.md")
	old, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	text, err := between(string(old), summary)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return os.WriteFile(path, []byte(text), 0o644)
}

// The summary's place in README.md.
const (
	beginMarker = "<!-- begin of figures: written by go run ./bench -update -->"
	endMarker   = "<!-- end of figures -->"
)

// between replaces what stands between the markers of a text.
func between(text, figures string) (string, error) {
	head, rest, ok := strings.Cut(text, beginMarker)
	if !ok {
		return "", fmt.Errorf("no line %q", beginMarker)
	}
	_, tail, ok := strings.Cut(rest, endMarker)
	if !ok {
		return "", fmt.Errorf("no line %q", endMarker)
	}
	return head + beginMarker + "\n\n" + figures + "\n" + endMarker + tail, nil
}
