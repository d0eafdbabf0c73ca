package gateway_test

import (
	"encoding/json"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Every series of the contract exists at zero from the start.
func TestMetricsAreThereFromTheStart(t *testing.T) {
	t.Parallel()
	n := startNode(t, "INGRESS_BUDGET_BYTES=200000000")
	want := map[string]float64{
		"ready": 1, "draining": 0, "active_websockets": 0, "active_sessions": 0, "ingress_reserved_bytes": 0,
		"ingress_budget_bytes": 200000000, "blocked_deliveries": 0, "cluster_nodes": 1,
		"reroute_responses_total": 0, "frames_forwarded_total": 0, "bytes_forwarded_total": 0, "ingress_rejections_total": 0,
		"slow_consumer_closes_total": 0, "replacement_fights_total": 0, "handshake_key_rejections_total": 0,
		`delivery_seconds_bucket{le="+Inf"}`: 0, "delivery_seconds_sum": 0, "delivery_seconds_count": 0,
		`frame_bytes_bucket{le="+Inf"}`: 0, "frame_bytes_sum": 0, "frame_bytes_count": 0,
	}
	for _, by := range []string{"us", "peer"} {
		for _, code := range []string{"1000", "1001", "1002", "1007", "1008", "1009", "1011", "1012", "1013", "none", "reset", "other"} {
			want[`closes_total{code="`+code+`",by="`+by+`"}`] = 0
		}
	}
	for _, reason := range []string{"upgrade_required", "bad_request", "draining", "cluster_floor", "ownership_store", "capacity", "memory_pressure"} {
		want[`connection_rejections_total{reason="`+reason+`"}`] = 0
	}
	for series, value := range want {
		if got, ok := n.metric(series); !ok || got != value {
			t.Errorf("%s: %v, there: %t", series, got, ok)
		}
	}
	if got, ok := n.metric("memory_bytes"); !ok || got < 1<<20 {
		t.Errorf("memory_bytes %v", got)
	}
	admin := httpDo(t, n.admin, "GET", "/metrics").body
	for _, name := range []string{"paseo_relay_ready 1\n", "process_", "go_"} {
		if !strings.Contains(admin, name) {
			t.Errorf("the admin page lacks %s", name)
		}
	}
}

func TestMetricsCount(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	s, c := n.v1pair()
	for _, size := range []int{0, 64, 65, 100000} {
		c.bin(make([]byte, size))
		s.want(opBin, make([]byte, size))
	}
	n.untilMetric("frames_forwarded_total", 4)
	n.untilMetric("bytes_forwarded_total", 100129)
	n.untilMetric("frame_bytes_count", 4)
	n.untilMetric("frame_bytes_sum", 100129)
	n.untilMetric(`frame_bytes_bucket{le="64"}`, 2)
	n.untilMetric("delivery_seconds_count", 4)
	// Per destination.
	sid := n.sid()
	a, b, d := n.client(sid, "c"), n.client(sid, "c"), n.data(sid, "c")
	d.text("both")
	a.wantText("both")
	b.wantText("both")
	n.untilMetric("frames_forwarded_total", 6)
	n.untilMetric("frame_bytes_count", 5)
	n.untilMetric("active_websockets", 5)
	n.untilMetric("active_sessions", 2)
}

func TestClosesByCode(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	f := func(code, by string, end func(*wsClient)) {
		t.Helper()
		series := `closes_total{code="` + code + `",by="` + by + `"}`
		before, _ := n.metric(series)
		_, c := n.v1pair()
		end(c)
		n.untilMetric(series, before+1)
	}
	f("1000", "peer", func(c *wsClient) { c.leave(1000) })
	f("1001", "peer", func(c *wsClient) { c.leave(1001) })
	f("3000", "peer", func(c *wsClient) { c.leave(3000) })
	f("other", "peer", func(c *wsClient) { c.leave(4321) })
	f("1005", "peer", func(c *wsClient) { c.raw(frame(opClose, true, nil)) })
	f("none", "peer", func(c *wsClient) { c.fin() })
	f("reset", "peer", func(c *wsClient) { c.rst() })
	f("1002", "us", func(c *wsClient) { c.raw(frame(3, true, nil)) })
	f("1007", "us", func(c *wsClient) { c.raw(frame(opText, true, []byte{0xff})) })
	f("1008", "us", func(c *wsClient) { c.text(`{"type":"hello"}`) })
	f("1009", "us", func(c *wsClient) { c.raw(frameHead(opBin, true, 1<<40, true)) })
}

// More than five replacements of one identity within 10 s.
func TestReplacementFight(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	sid := n.sid()
	for range 6 { // five replacements
		n.v1("server", sid).barrier()
		n.v1("client", n.sid()).barrier() // nobody's
	}
	if v, _ := n.metric("replacement_fights_total"); v != 0 {
		t.Errorf("%v fights after five replacements", v)
	}
	n.v1("server", sid).barrier()
	n.untilMetric("replacement_fights_total", 1)
	lines := n.log.with("replace each other")
	if len(lines) != 1 || strings.Count(lines[0], "127.0.0.1:") < 2 {
		t.Errorf("log: %q", lines)
	}
}

// One line per connection end: role, code, reason, who decided, age, bytes each way.
func TestOneLinePerConnectionEnd(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	s, c := n.v1pair()
	c.bin(make([]byte, 71000))
	s.want(opBin, make([]byte, 71000))
	s.bin(make([]byte, 53000))
	c.want(opBin, make([]byte, 53000))
	c.raw(closeFrame(4242, "first \"line\"\nsecond\x1b[31m"))
	c.wantCloseFrame(4242, "")
	c.wantEOF()
	n.until("the line", func() bool { return len(n.log.with("4242")) > 0 })
	lines := n.log.with("4242")
	if len(lines) != 1 {
		t.Fatalf("%q", lines)
	}
	var line map[string]any
	if err := json.Unmarshal([]byte(lines[0]), &line); err != nil {
		t.Fatal(err)
	}
	_, nanoseconds := line["age"].(float64)
	if line["role"] != "v1 client" || line["code"] != 4242.0 || line["by"] != "peer" || !nanoseconds ||
		!strings.Contains(line["reason"].(string), "second") {
		t.Errorf("%v", line)
	}
	if in, out := line["bytes_in"].(float64), line["bytes_out"].(float64); in != 71000 || out < 53000 || out > 53200 {
		t.Errorf("bytes in %v, out %v", in, out)
	}
	s.text("x")
	s.raw(frame(3, true, nil))
	s.wantClose(1002, "unknown opcode")
	n.until("the server's line", func() bool { return len(n.log.with("unknown opcode")) == 1 })
}

// The relay's own pings: any byte is an answer, two without one end the socket.
func TestRelayPings(t *testing.T) {
	t.Parallel()
	n := startNode(t, "PING_INTERVAL_MS=200")
	_, answers := n.v1pair()
	// A byte of an unfinished frame counts.
	drip := frame(opText, true, []byte("0123456789"))
	for _, b := range drip {
		answers.raw([]byte{b})
		if m, err := answers.next(patience); err != nil || m.op != opPing {
			t.Fatal(m, err)
		}
	}
	waits := n.client(n.sid(), "c")
	waits.text("its data socket does not come") // paused: it cannot answer
	start := time.Now()
	mute := n.v1("server", n.sid())
	pings := 0
	for {
		m, err := mute.next(patience)
		if err != nil {
			if err != errReset {
				t.Errorf("ended by %v", err)
			}
			break
		}
		if m.op != opPing {
			t.Errorf("%v", m)
		}
		pings++
	}
	if took := time.Since(start); pings != 2 || took < 500*time.Millisecond || took > patience {
		t.Errorf("%d pings, ended after %v", pings, took)
	}
	if _, err := waits.next(time.Millisecond); err == nil {
		t.Error("a paused source was pinged")
	}
	if v, _ := n.metric(`closes_total{code="reset",by="us"}`); v < 1 {
		t.Error("not counted")
	}
}

// Memory above its watermark: no admission, holders are shed, and back.
func TestMemoryWatermark(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector has memory of its own")
	}
	debug.FreeOSMemory() // what other tests left would be used again
	n := startNode(t, "INGRESS_WEIGHT=1", smallSend, "MEMORY_WATERMARK_BYTES="+strconv.FormatInt(resident(t)+200<<20, 10))
	s, c := n.v1pair()
	var fat []*wsClient
	p := make([]byte, 16<<20)
	message := append(frameHead(opBin, true, uint64(len(p)), true), p...)
	shedding := func() bool { return len(n.log.with("sockets shed for memory")) > 0 }
	for range 24 {
		fat = append(fat, n.client(n.sid(), "c"))
	}
	for _, w := range fat {
		if shedding() {
			break
		}
		if err := w.write(message); err != nil && !shedding() {
			t.Fatal("closed early:", err)
		}
	}
	n.until("sockets are shed", shedding)
	shed := 0
	for end := time.Now().Add(patience); shed == 0 && time.Now().Before(end); {
		for _, w := range fat {
			if m, err := w.message(50 * time.Millisecond); err == nil && m.op == opClose {
				if m.code != 1013 || m.reason != "Memory pressure" {
					t.Errorf("%v", m)
				}
				shed++
			}
		}
	}
	if shed == 0 {
		t.Error("nobody was told")
	}
	c.text("small holders stay")
	s.wantText("small holders stay")
	for _, w := range fat {
		w.rst()
	}
}

func TestMemoryPressureRefuses(t *testing.T) {
	t.Parallel()
	n := startNode(t, "MEMORY_WATERMARK_BYTES=1048576")
	n.until("not ready", func() bool { return !n.g.Ready() })
	if n.refused(wsQuery("a", "server", 1, "-"), 503, "memory pressure").Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	if a := httpDo(t, n.addr, "GET", "/ready"); a.status != 503 {
		t.Errorf("/ready: %d", a.status)
	}
}
