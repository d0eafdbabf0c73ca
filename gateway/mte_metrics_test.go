package gateway_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	wire "sluice/codec/frame"
)

// A node with the encrypting role alone is ready by itself, and every series of
// that role is there at zero.
func TestMTEMetricsAreThereFromTheStart(t *testing.T) {
	n := startMTEBehind(t, http.NotFoundHandler())
	for _, path := range []string{"/ready", "/health"} {
		if a := httpDo(t, n.admin, "GET", path); a.status != 200 {
			t.Errorf("%s: %d", path, a.status)
		}
	}
	series := []string{"pairs", "pairs_in_use", "rate_limited_total", "pairs_retired_total",
		`bytes_total{direction="request"}`, `bytes_total{direction="response"}`,
		"origin_seconds_count", "origin_seconds_sum", `origin_seconds_bucket{le="+Inf"}`,
		"pairing_seconds_count", "pairing_seconds_sum", `pairing_seconds_bucket{le="+Inf"}`}
	for _, kind := range []string{"frames", "pair", "keepalive", "auth", "pass_through", "preflight", "outbound", "other"} {
		series = append(series, fmt.Sprintf(`requests_total{kind=%q}`, kind))
	}
	for _, name := range series {
		if v := n.metric("mte_relay_" + name); v != 0 {
			t.Errorf("%s begins at %v", name, v)
		}
	}
	for _, pool := range []string{"mte_encoder", "mte_decoder", "mke_encoder", "mke_decoder"} {
		if v := n.metric(fmt.Sprintf("mte_relay_pool_idle{pool=%q}", pool)); v != 250 {
			t.Errorf("pool %s begins with %v", pool, v)
		}
	}
	// What is refused over HTTP by this role has its counter; 404 stands for those
	// without an ERROR frame.
	for _, r := range []wire.Reason{wire.PairNotFound, wire.DecoderRestoreFailed, wire.EncoderRestoreFailed, wire.DecodeFailed, wire.EncodeFailed,
		wire.InvalidClientID, wire.InvalidToken, wire.PoolExhausted, wire.InvalidFrame, wire.EOFBeforeEnd, wire.FrameVersionUnsupported,
		wire.ReplayRejected, wire.NoDomainForHost, wire.FrameTooLarge, wire.BodyTooLarge, wire.MetadataInvalid, wire.HeaderMismatch,
		wire.UpstreamCapacity, wire.PairBusy, wire.NotOwner, wire.RateLimited, wire.InvalidRequest, wire.PairExists, wire.PairLimit,
		wire.ProfileMismatch, wire.UpstreamConnectFailed, wire.UpstreamResponseFailed, wire.StateStoreUnavailable, wire.StateStoreWriteFailed,
		wire.BadRequest, wire.NotFound, wire.MethodNotAllowed} {
		if v := n.metric(fmt.Sprintf("mte_relay_refusals_total{code=%q,reason=%q}", fmt.Sprint(r.Code()), r)); v != 0 {
			t.Errorf("%s begins at %v", r, v)
		}
	}
}

// Requests, refusals, bytes, pairs and times are counted.
func TestMTEMetricsCount(t *testing.T) {
	n := startMTEBehind(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body) // net/http ends the body with the first byte of the answer
		w.Write(b)
	}))
	c := newMTEClient(t, n, "localhost")
	p, err := c.pair()
	if err != nil {
		t.Fatal(err)
	}
	const size = 10_000
	b := p.request("POST", "x", true)
	b = p.appendData(b, make([]byte, size), wire.FlagEnd)
	if body, err := p.send(b); err != nil || len(body) != size {
		t.Fatalf("%d bytes, %v", len(body), err)
	}
	if _, err := p.send(b); !refusedFor(err, wire.ReplayRejected) {
		t.Fatalf("a replay: %v", err)
	}
	httpDo(t, n.addr, "GET", "/nowhere", "Host:localhost")
	httpDo(t, n.addr, "GET", "/", "Host:nobody.example")
	httpDo(t, n.addr, "GET", "/plain/x", "Host:localhost")
	for series, want := range map[string]float64{
		"pairs": 1, "pairs_in_use": 0, "pairs_retired_total": 0,
		`requests_total{kind="auth"}`: 1, `requests_total{kind="pair"}`: 1, `requests_total{kind="frames"}`: 2,
		`requests_total{kind="pass_through"}`: 1, `requests_total{kind="other"}`: 2,
		`refusals_total{code="479",reason="replay_rejected"}`:    1,
		`refusals_total{code="404",reason="not_found"}`:          1,
		`refusals_total{code="480",reason="no_domain_for_host"}`: 1,
		"pairing_seconds_count":                                  1,
		"origin_seconds_count":                                   2,
	} {
		n.untilMetric("mte_relay_"+series, want)
	}
	for _, direction := range []string{"request", "response"} {
		if v := n.metric(fmt.Sprintf("mte_relay_bytes_total{direction=%q}", direction)); v < size {
			t.Errorf("%v bytes of %s", v, direction)
		}
	}
	for line := range strings.Lines(httpDo(t, n.admin, "GET", "/metrics").body) {
		for _, secret := range []string{"localhost", "nobody.example", "127.0.0.1", p.id.String(), fmt.Sprintf("%x", c.token.Client())} {
			if strings.Contains(line, secret) {
				t.Errorf("%q tells %q", line, secret)
			}
		}
	}
}

// A drain refuses new pairs, and nothing else, until DRAIN_SECONDS are over; what
// is left then ends in an ERROR frame.
func TestMTEDrain(t *testing.T) {
	held := make(chan bool, 1)
	n := startMTEBehind(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/stream" {
			io.WriteString(w, "begin")
			w.(http.Flusher).Flush()
			held <- true
			<-r.Context().Done()
			return
		}
		io.WriteString(w, "whole")
	}), "DRAIN_SECONDS=1")
	c := newMTEClient(t, n, "localhost")
	var pairs [2]*mtePair
	for i := range pairs {
		var err error
		if pairs[i], err = c.pair(); err != nil {
			t.Fatal(err)
		}
	}
	streaming := make(chan error, 1)
	go func() {
		body, err := pairs[0].send(pairs[0].request("GET", "stream", false))
		if body != "begin" {
			err = errors.Join(err, fmt.Errorf("the stream began with %q", body))
		}
		streaming <- err
	}()
	<-held
	n.g.SetDraining(true)
	if a := httpDo(t, n.admin, "GET", "/ready"); a.status != 503 || a.header.Get("X-Sluice-Unready") == "" {
		t.Errorf("/ready: %d %v", a.status, a.header)
	}
	if a := httpDo(t, n.admin, "GET", "/health"); a.status != 200 {
		t.Errorf("/health: %d", a.status)
	}
	o, _, _ := c.offer()
	status, header, _, err := c.postControl(wire.PairPath, wire.AppendPairRequest(nil, &c.token, c.about.KyberStrength, []wire.PairOffer{o}))
	if err != nil || status != 503 || header.Get(wire.ErrorHeader) != "503 state_store_unavailable" || header.Get("Retry-After") == "" {
		t.Errorf("pairing: %d %v %v", status, header, err)
	}
	conn, err := n.dial()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(patience))
	b := pairs[1].request("GET", "x", false)
	conn.Write(append(c.frameHead(len(b)), b...))
	a, err := conn.answer(pairs[1])
	if err != nil || !a.http.Close {
		t.Fatalf("a request of an old pair: %v", err)
	}
	if body, err := io.ReadAll(a); err != nil || string(body) != "whole" {
		t.Errorf("its answer: %q, %v", body, err)
	}
	n.g.Drain()
	var r *mteRefusal
	if err := <-streaming; !errors.As(err, &r) || !r.behind || r.Code != wire.UpstreamResponseFailed.Code() {
		t.Errorf("the stream ended with %v", err)
	}
}
