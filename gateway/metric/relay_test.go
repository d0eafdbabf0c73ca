package metric

import (
	"fmt"
	"sync"
	"testing"
	"time"
)

func relayGauges() RelayGauges {
	return RelayGauges{
		Ready:              func() bool { return true },
		Draining:           func() bool { return false },
		Ledger:             func() (RelayLedger, bool) { return RelayLedger{1, 2, 3, 4}, true },
		IngressBudgetBytes: 536870912,
		MemoryBytes:        func() int64 { return 5 },
		ClusterNodes:       func() int { return 1 },
	}
}

func mteGauges() MTEGauges {
	return MTEGauges{
		Pairs:         func() int64 { return 3 },
		PairsInUse:    func() int64 { return 1 },
		PoolIdle:      func(p CodecPool) int64 { return 10 + int64(p) },
		OutboundPairs: func(s OutboundState) int64 { return 20 + int64(s) },
	}
}

func processGauges() ProcessGauges {
	return ProcessGauges{
		Version:         "1.0\n\"",
		Loops:           2,
		HTTPConnections: func(l Listener) int64 { return int64(l) },
		MaxConnections:  10000,
		HTTPCounts: HTTPCounts{
			Refusals:     func(l Listener, f func(int, int64)) { f(400, int64(l)); f(431, 5) },
			RefusedFull:  func(l Listener) int64 { return 6 + int64(l) },
			IdleTimeouts: func(l Listener) int64 { return 8 + int64(l) },
			WriteStalls:  func(l Listener) int64 { return 10 + int64(l) },
		},
		LoopGauges: LoopGauges{
			Connections:   func(i int) int64 { return int64(10 + i) },
			Turns:         func(i int) int64 { return int64(20 + i) },
			Busy:          func(i int) time.Duration { return time.Duration(i) * time.Millisecond },
			Longest:       func(i int) time.Duration { return time.Duration(i) * time.Second },
			OldestBlocked: func() time.Duration { return 2500 * time.Millisecond },
		},
		ConfigGauges: ConfigGauges{
			ConfigVersion:   func() uint64 { return 1 },
			ControlPlaneAge: func() time.Duration { return 1500 * time.Millisecond },
			ConfigPending:   func() bool { return true },
		},
		AcceptErrors:   func(l Listener) int64 { return 10 + int64(l) },
		TLSHandshaking: func() int64 { return 0 },
		TLSFailures:    []string{"plain", "closed"},
		RedisUp:        func() bool { return true },
		RedisCalls:     func() (int64, int64) { return 3, 2048 },
	}
}

// The names are contract (relay §8), and all of them exist before anything happened.
func TestRelayNames(t *testing.T) {
	e := scrape(t, &NewRelay(relayGauges()).Page)
	e.want(t, "paseo_relay_ready", 1)
	e.want(t, "paseo_relay_draining", 0)
	e.want(t, "paseo_relay_active_websockets", 1)
	e.want(t, "paseo_relay_active_sessions", 2)
	e.want(t, "paseo_relay_ingress_reserved_bytes", 3)
	e.want(t, "paseo_relay_ingress_budget_bytes", 536870912)
	e.want(t, "paseo_relay_blocked_deliveries", 4)
	e.want(t, "paseo_relay_memory_bytes", 5)
	e.want(t, "paseo_relay_cluster_nodes", 1)
	for _, name := range []string{
		"reroute_responses_total", "frames_forwarded_total", "bytes_forwarded_total", "ingress_rejections_total",
		"slow_consumer_closes_total", "replacement_fights_total", "handshake_key_rejections_total",
		"delivery_seconds_count", "delivery_seconds_sum", "frame_bytes_count", "frame_bytes_sum",
	} {
		e.want(t, "paseo_relay_"+name, 0)
	}
	for _, reason := range []string{
		"upgrade_required", "bad_request", "draining", "cluster_floor", "ownership_store", "capacity", "memory_pressure", "http_ceiling", "proxy_protocol",
	} {
		e.want(t, fmt.Sprintf("paseo_relay_connection_rejections_total{reason=%q}", reason), 0)
	}
	for _, code := range []string{
		"none", "reset", "other", "1000", "1001", "1002", "1003", "1005", "1007", "1008", "1009", "1010", "1011", "1012", "1013", "1014", "3000", "3003", "3008",
	} {
		for _, by := range []string{"us", "peer"} {
			e.want(t, fmt.Sprintf("paseo_relay_closes_total{code=%q,by=%q}", code, by), 0)
		}
	}
	for _, le := range []string{"64", "256", "1024", "4096", "16384", "65536", "262144", "1048576", "4194304", "33554432", "+Inf"} {
		e.want(t, fmt.Sprintf("paseo_relay_frame_bytes_bucket{le=%q}", le), 0)
	}
	for _, le := range []string{"0.0005", "0.001", "0.0025", "0.005", "0.01", "0.025", "0.05", "0.1", "0.25", "0.5", "1", "2.5", "5", "10", "30", "60", "+Inf"} {
		e.want(t, fmt.Sprintf("paseo_relay_delivery_seconds_bucket{le=%q}", le), 0)
	}
	if want := 9 + 7 + 9 + 19*2 + (11 + 2) + (17 + 2); len(e.series) != want {
		t.Errorf("%d series, want %d", len(e.series), want)
	}
}

func TestMTENames(t *testing.T) {
	m := NewMTE(mteGauges(), []Refusal{{477, "invalid_frame"}, {477, "eof_before_end"}})
	m.Refused(1)
	m.Request(RequestFrames)
	m.Bytes(DirectionResponse, 512)
	m.RateLimited.Inc()
	m.OriginSeconds.Update(0.02)
	e := scrape(t, &m.Page)
	e.want(t, "mte_relay_pairs", 3)
	e.want(t, "mte_relay_pairs_in_use", 1)
	e.want(t, `mte_relay_pool_idle{pool="mte_encoder"}`, 10)
	e.want(t, `mte_relay_pool_idle{pool="mke_decoder"}`, 13)
	e.want(t, `mte_relay_outbound_pairs{state="free"}`, 20)
	e.want(t, `mte_relay_refusals_total{code="477",reason="invalid_frame"}`, 0)
	e.want(t, `mte_relay_refusals_total{code="477",reason="eof_before_end"}`, 1)
	e.want(t, `mte_relay_requests_total{kind="frames"}`, 1)
	e.want(t, `mte_relay_requests_total{kind="pass_through"}`, 0)
	e.want(t, `mte_relay_bytes_total{direction="response"}`, 512)
	e.want(t, `mte_relay_bytes_total{direction="request"}`, 0)
	e.want(t, "mte_relay_rate_limited_total", 1)
	e.want(t, "mte_relay_pairs_retired_total", 0)
	e.want(t, "mte_relay_origin_seconds_count", 1)
	e.want(t, "mte_relay_pairing_seconds_count", 0)
}

func TestProcessNames(t *testing.T) {
	m := NewProcess(processGauges())
	m.Evicted(ListenerMTE)
	m.TLSFailed(1)
	e := scrape(t, &m.Page)
	e.want(t, `sluice_build_info{version="1.0__"}`, 1)
	e.want(t, "sluice_loops", 2)
	e.want(t, `sluice_loop_connections{loop="1"}`, 11)
	e.want(t, `sluice_loop_turns_total{loop="0"}`, 20)
	e.want(t, `sluice_loop_busy_seconds_total{loop="1"}`, 0.001)
	e.want(t, `sluice_loop_longest_turn_seconds{loop="1"}`, 1)
	e.want(t, "sluice_blocked_delivery_age_seconds", 2.5)
	e.want(t, `sluice_http_connections{listener="admin"}`, 2)
	e.want(t, `sluice_accept_errors_total{listener="mte"}`, 11)
	e.want(t, `sluice_http_evictions_total{listener="mte"}`, 1)
	e.want(t, `sluice_http_refusals_total{listener="relay",status="400"}`, 0)
	e.want(t, `sluice_http_refusals_total{listener="mte",status="400"}`, 1)
	e.want(t, `sluice_http_refusals_total{listener="mte",status="431"}`, 5)
	e.want(t, `sluice_http_connections_refused_total{listener="relay"}`, 6)
	e.want(t, `sluice_http_idle_timeouts_total{listener="mte"}`, 9)
	e.want(t, `sluice_http_write_stalls_total{listener="mte"}`, 11)
	e.want(t, `sluice_tls_handshake_failures_total{reason="plain"}`, 0)
	e.want(t, `sluice_tls_handshake_failures_total{reason="closed"}`, 1)
	e.want(t, "sluice_redis_up", 1)
	e.want(t, "sluice_redis_calls", 3)
	e.want(t, "sluice_redis_calls_max", 2048)
	e.want(t, "sluice_config_version", 1)
	m.Config.Refused(ConfigRestart)
	m.Config.Failed(PollRedirect)
	e = scrape(t, &m.Page)
	e.want(t, `sluice_config_refused_total{cause="restart"}`, 1)
	e.want(t, `sluice_config_refused_total{cause="form"}`, 0)
	e.want(t, `sluice_config_poll_failures_total{cause="redirect"}`, 1)
	e.want(t, "sluice_config_control_plane_age_seconds", 1.5)
	e.want(t, "sluice_config_pending", 1)
	if _, ok := e.kinds["sluice_tls_certificate_expiry_seconds"]; ok {
		t.Error("an expiry without certificates")
	}
}

// A ledger that does not answer takes its four gauges off the page, and nothing else; it is asked
// once per page.
func TestRelayLedgerSilent(t *testing.T) {
	g := relayGauges()
	asked, answers := 0, false
	g.Ledger = func() (RelayLedger, bool) { asked++; return RelayLedger{}, answers }
	r := NewRelay(g)
	silent := scrape(t, &r.Page)
	answers = true
	full := scrape(t, &r.Page)
	if asked != 2 {
		t.Errorf("asked %d times for two pages", asked)
	}
	for name := range full.kinds {
		_, there := silent.kinds[name]
		switch name {
		case "paseo_relay_active_websockets", "paseo_relay_active_sessions", "paseo_relay_ingress_reserved_bytes", "paseo_relay_blocked_deliveries":
			if there {
				t.Errorf("%s is there without an answer", name)
			}
		default:
			if !there {
				t.Errorf("%s is missing", name)
			}
		}
	}
}

func TestRelayCounts(t *testing.T) {
	r := NewRelay(relayGauges())
	a, b := r.NewShard(), r.NewShard()
	a.FramesForwarded += 2
	a.BytesForwarded += 100
	a.Frame(36)
	a.Frame(64)
	a.Frame(1 << 20)
	a.DeliveredAtOnce(2)
	b.FramesForwarded++
	b.SlowConsumerCloses++
	b.ReplacementFights++
	b.HandshakeKeyRejections++
	b.IngressRejections++
	b.Delivered(250 * time.Millisecond)
	b.Delivered(time.Hour)
	scrape(t, &r.Page).want(t, "paseo_relay_frames_forwarded_total", 0) // not yet published
	a.Publish()
	b.Publish()
	b.Publish()
	r.Reject(RejectCapacity)
	r.Closed(CloseCodeOf(1012), ByUs)
	r.Closed(CloseCodeOf(4999), ByPeer)
	r.Closed(CloseNone, ByPeer)

	e := scrape(t, &r.Page)
	e.want(t, "paseo_relay_frames_forwarded_total", 3)
	e.want(t, "paseo_relay_bytes_forwarded_total", 100)
	e.want(t, "paseo_relay_slow_consumer_closes_total", 1)
	e.want(t, "paseo_relay_replacement_fights_total", 1)
	e.want(t, "paseo_relay_handshake_key_rejections_total", 1)
	e.want(t, "paseo_relay_ingress_rejections_total", 1)
	e.want(t, `paseo_relay_frame_bytes_bucket{le="64"}`, 2)
	e.want(t, `paseo_relay_frame_bytes_bucket{le="262144"}`, 2)
	e.want(t, `paseo_relay_frame_bytes_bucket{le="1048576"}`, 3)
	e.want(t, "paseo_relay_frame_bytes_count", 3)
	e.want(t, "paseo_relay_frame_bytes_sum", 100+1<<20)
	e.want(t, `paseo_relay_delivery_seconds_bucket{le="0.0005"}`, 2)
	e.want(t, `paseo_relay_delivery_seconds_bucket{le="0.1"}`, 2)
	e.want(t, `paseo_relay_delivery_seconds_bucket{le="0.25"}`, 3)
	e.want(t, `paseo_relay_delivery_seconds_bucket{le="60"}`, 3)
	e.want(t, `paseo_relay_delivery_seconds_bucket{le="+Inf"}`, 4)
	e.want(t, "paseo_relay_delivery_seconds_sum", 3600.25)
	e.want(t, `paseo_relay_connection_rejections_total{reason="capacity"}`, 1)
	e.want(t, `paseo_relay_closes_total{code="1012",by="us"}`, 1)
	e.want(t, `paseo_relay_closes_total{code="other",by="peer"}`, 1)
	e.want(t, `paseo_relay_closes_total{code="none",by="peer"}`, 1)
}

// The bucket of a size agrees with a search through the bounds, at every power of two and its
// neighbours.
func TestFrameBucket(t *testing.T) {
	f := func(size int) {
		t.Helper()
		want := 0
		for want < len(frameBounds) && float64(size) > frameBounds[want] {
			want++
		}
		var s RelayShard
		s.Frame(size)
		if s.frames.buckets[want] != 1 || s.frames.sum != uint64(size) {
			t.Errorf("size %d is not in bucket %d: %v", size, want, s.frames.buckets)
		}
	}
	f(0)
	for log := range 40 {
		for d := -1; d <= 1; d++ {
			f(max(0, 1<<log+d))
		}
	}
	for size := range 70000 {
		f(size)
	}
}

func TestCloseCodeOf(t *testing.T) {
	names := map[string]bool{}
	for wire := range 1 << 16 {
		c := CloseCodeOf(uint16(wire))
		if int(c) >= closeCodes {
			t.Fatalf("%d is outside the set", wire)
		}
		if c != CloseOther && c.String() != fmt.Sprint(wire) {
			t.Fatalf("%d is called %s", wire, c)
		}
		names[c.String()] = true
	}
	if len(names) != closeCodes-2 {
		t.Fatalf("%d names for %d codes", len(names), closeCodes)
	}
}

// Every member of an enum has a label of its own.
func TestLabelsComplete(t *testing.T) {
	f := func(names []string) {
		t.Helper()
		seen := map[string]bool{}
		for i, n := range names {
			if n == "" || seen[n] {
				t.Errorf("%d of %v has no name of its own", i, names)
			}
			seen[n] = true
		}
	}
	f(rejectionNames[:])
	f(byNames[:])
	f(requestNames[:])
	f(directionNames[:])
	f(poolNames[:])
	f(outboundNames[:])
	f(listenerNames[:])
}

// Loops publish while pages are written; what a page shows never falls and adds up in the end.
func TestRelayConcurrent(t *testing.T) {
	r := NewRelay(relayGauges())
	const turns, perTurn = 500, 7
	var wg sync.WaitGroup
	for range 3 {
		s := r.NewShard()
		wg.Go(func() {
			for range turns {
				for i := range perTurn {
					s.FramesForwarded++
					s.Frame(i << 8)
					s.Delivered(time.Duration(i) * time.Millisecond)
				}
				r.Closed(CloseReset, ByPeer)
				s.Publish()
			}
		})
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	last := 0.0
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
		}
		n := scrape(t, &r.Page).series["paseo_relay_frames_forwarded_total"]
		if n < last {
			t.Fatalf("fell from %v to %v", last, n)
		}
		last = n
	}
	e := scrape(t, &r.Page)
	e.want(t, "paseo_relay_frames_forwarded_total", 3*turns*perTurn)
	e.want(t, "paseo_relay_frame_bytes_count", 3*turns*perTurn)
	e.want(t, "paseo_relay_delivery_seconds_count", 3*turns*perTurn)
	e.want(t, `paseo_relay_closes_total{code="reset",by="peer"}`, 3*turns)
}
