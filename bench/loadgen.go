package main

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A load is one run of a generator against a server.
type load struct {
	mode    string // of loadgen: thr, ping, verify
	payload int
	window  int
	pairs   int
	seconds float64
	warmUp  float64
	extra   []string
}

func (w load) args(s *server, congestion string) []string {
	args := []string{
		"-p", strconv.Itoa(s.port),
		"-P", strconv.Itoa(s.pid()),
		"-m", w.mode,
		"-s", strconv.Itoa(w.payload),
		"-w", strconv.Itoa(w.window),
		"-n", strconv.Itoa(w.pairs),
		"-d", decimal(w.seconds),
		"-warm", decimal(w.warmUp),
		"-cc", congestion,
	}
	return append(args, w.extra...)
}

func decimal(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }

// result are the key=value fields of a tool's line, and the line itself.
type result struct {
	line   string
	fields map[string]float64
}

// parseResult reads a line such as
//
//	thr S=64 n=50 W=32 msgs_s=2694924 srvcpu_s_per_M=0.345
//
// A unit of KB after a number is dropped; words without a number are skipped.
func parseResult(line string) result {
	r := result{line: strings.TrimSpace(line), fields: make(map[string]float64)}
	for _, word := range strings.Fields(line) {
		key, value, ok := strings.Cut(word, "=")
		if !ok {
			continue
		}
		if v, err := strconv.ParseFloat(strings.TrimSuffix(value, "KB"), 64); err == nil {
			r.fields[key] = v
		}
	}
	return r
}

// get returns a field that the tool must have printed.
func (r result) get(key string) (float64, error) {
	v, ok := r.fields[key]
	if !ok {
		return 0, fmt.Errorf("no %s in %q", key, r.line)
	}
	return v, nil
}

// generate runs loadgen on the generator's core.
func (l *lab) generate(s *server, w load) (result, error) {
	limit := time.Duration((w.seconds+w.warmUp)*float64(time.Second)) + 30*time.Second
	r, err := l.runTool(limit, "loadgen", w.args(s, l.congestion)...)
	if gone := s.check(); gone != nil {
		return r, gone
	}
	if err != nil {
		return r, fmt.Errorf("%s: %w", s.name, err)
	}
	return r, nil
}

// runTool runs a C tool on the generator's core and parses its last line.
func (l *lab) runTool(limit time.Duration, name string, args ...string) (result, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	argv := slices.Concat([]string{"-c", l.cores.generator, l.tool(name)}, args)
	cmd := exec.CommandContext(ctx, "taskset", argv...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return result{}, fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	lines := strings.Split(strings.TrimSpace(stdout.String()), "\n")
	return parseResult(lines[len(lines)-1]), nil
}

// verify sends every byte value through the server in both directions and
// compares, so that nobody is fast by being wrong.
func (l *lab) verify(s *server, payload, window int) error {
	_, err := l.generate(s, load{mode: "verify", payload: payload, window: window, pairs: 2, seconds: 0.2})
	if err != nil {
		return fmt.Errorf("payload of %d bytes does not come through unchanged: %w", payload, err)
	}
	return nil
}
