package main

import (
	"strings"
	"testing"
)

func TestParseResultSuccess(t *testing.T) {
	f := func(line, key string, want float64) {
		t.Helper()
		got, err := parseResult(line).get(key)
		if err != nil || got != want {
			t.Errorf("%s of %q is %v, %v; want %v", key, line, got, err, want)
		}
	}
	// The load generator.
	f("thr S=64 n=50 W=32 msgs_s=2694924 srvcpu_s_per_M=0.345 lgutil=100\n", "srvcpu_s_per_M", 0.345)
	f("ping S=64 rtts=21064 p50us=42.79 p99us=104.18", "p99us", 104.18)
	// The idle holder: a unit, a key with brackets, a negative value.
	f("n=200 per_conn=13.56KB after1KmsgEach=13.60KB", "per_conn", 13.56)
	f("slab_delta_per_conn(2socks)=4.58KB memavail_delta_per_conn=-119.02KB", "memavail_delta_per_conn", -119.02)
}

func TestParseResultFailure(t *testing.T) {
	f := func(line, key string) {
		t.Helper()
		if got, err := parseResult(line).get(key); err == nil {
			t.Errorf("%s of %q is %v, want an error", key, line, got)
		}
	}
	// Nothing, another tool's line, and what division by no messages prints.
	f("", "msgs_s")
	f("STALL", "msgs_s")
	f("thr msgs_s=fast", "msgs_s")
}

func TestParseWrkSuccess(t *testing.T) {
	const out = `Running 2s test @ http://127.0.0.1:8080/
  1 threads and 64 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency     1.61ms  310.17us   5.41ms   75.86%
  79430 requests in 2.00s, 87.63MB read
Requests/sec:  39688.36
`
	got, err := parseWrk("nginx", out)
	if err != nil || got != 79430 {
		t.Errorf("got %v, %v; want 79430", got, err)
	}
}

func TestParseWrkFailure(t *testing.T) {
	f := func(out, want string) {
		t.Helper()
		got, err := parseWrk("nginx", out)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q gives %v, %v; want an error with %q", out, got, err, want)
		}
	}
	// Answers that are no success must not count as requests.
	f("  10 requests in 2.00s, 1MB read\n  Non-2xx or 3xx responses: 10\n", "faults")
	f("  10 requests in 2.00s, 1MB read\n  Socket errors: connect 0, read 3, write 0, timeout 0\n", "faults")
	// No answer at all.
	f("  0 requests in 2.00s, 0.00B read\n", "nothing")
	f("", "nothing")
}
