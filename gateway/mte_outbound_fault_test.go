package gateway_test

import (
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	wire "sluice/codec/frame"
)

// refuseBy is a script that refuses requests of the data path as a relay does, n
// times.
func refuseBy(n int, r wire.Reason, headers ...string) outScript {
	var left atomic.Int64
	left.Store(int64(n))
	return func(w http.ResponseWriter, q *http.Request) bool {
		if q.URL.Path != "/" || left.Add(-1) < 0 {
			return false
		}
		io.Copy(io.Discard, q.Body)
		for i := 0; i < len(headers); i += 2 {
			w.Header().Set(headers[i], headers[i+1])
		}
		w.Header().Set("X-MTE-Relay-Error", strconv.Itoa(r.Code())+" "+r.String())
		w.WriteHeader(r.Code())
		w.Write(wire.AppendErrorFrame(nil, r, "said the test", wire.Cause{}))
		return true
	}
}

// cut closes the connection of a request.
func cut(w http.ResponseWriter) bool {
	conn, _, err := w.(http.Hijacker).Hijack()
	if err == nil {
		conn.(*net.TCPConn).SetLinger(0)
		conn.Close()
	}
	return true
}

// Every refusal of the other relay has its consequence, the caller a clear word,
// and the next caller an answer. Nothing is executed twice.
func TestOutboundRefusals(t *testing.T) {
	var executed atomic.Int64
	p := startRelayPair(t, pairOptions{wired: true, origin: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		executed.Add(1)
		mirror(w, r)
	})})
	p.do("GET", "/", nil)
	p.out.untilMetric(`mte_relay_outbound_pairs{state="free"}`, 25)
	f := func(r wire.Reason, times int, sent int64, retired, auths float64, status int, reason, cause string, headers ...string) {
		t.Helper()
		p.wire.play(refuseBy(times, r, headers...))
		frames, runs := p.wire.frames.Load(), executed.Load()
		gone := p.out.metric("mte_relay_pairs_retired_total")
		known := p.in.metric(`mte_relay_requests_total{kind="auth"}`)
		a := p.do("POST", "/x", strings.NewReader("body"))
		if status == 200 {
			if a.status != 200 || a.body != "body" || executed.Load()-runs != 1 {
				t.Errorf("%v: %d %q, executed %d times", r, a.status, a.body, executed.Load()-runs)
			}
		} else {
			a.wantRefusal(t, status, reason, cause)
			if status == 485 && a.header.Get("Retry-After") != headers[1] {
				t.Errorf("%v: Retry-After %q, the other relay said %q", r, a.header.Get("Retry-After"), headers)
			}
			if executed.Load() != runs {
				t.Errorf("%v: executed", r)
			}
		}
		if got := p.wire.frames.Load() - frames; got != sent {
			t.Errorf("%v: sent %d times, want %d", r, got, sent)
		}
		p.wire.play(nil)
		for range 3 {
			if a := p.do("POST", "/x", strings.NewReader("then")); a.body != "then" {
				t.Fatalf("%v: then %d %s", r, a.status, a.body)
			}
		}
		if got := p.out.metric("mte_relay_pairs_retired_total") - gone; got != retired {
			t.Errorf("%v: %v pairs retired, want %v", r, got, retired)
		}
		if got := p.in.metric(`mte_relay_requests_total{kind="auth"}`) - known; got != auths {
			t.Errorf("%v: %v authentications, want %v", r, got, auths)
		}
	}
	surface := func(r wire.Reason, retired, auths float64) {
		t.Helper()
		f(r, 1, 1, retired, auths, 502, "upstream_response_failed", strconv.Itoa(r.Code())+" "+r.String())
	}
	for _, r := range []wire.Reason{wire.PairNotFound, wire.DecoderRestoreFailed, wire.EncoderRestoreFailed, wire.DecodeFailed,
		wire.EncodeFailed, wire.EOFBeforeEnd, wire.StateStoreWriteFailed} {
		surface(r, 1, 0)
	}
	for _, r := range []wire.Reason{wire.InvalidFrame, wire.FrameVersionUnsupported, wire.ReplayRejected, wire.NoDomainForHost,
		wire.FrameTooLarge, wire.BodyTooLarge, wire.MetadataInvalid, wire.HeaderMismatch, wire.InvalidRequest, wire.Internal,
		wire.UpstreamConnectFailed, wire.UpstreamResponseFailed} {
		surface(r, 0, 0)
	}
	for _, r := range []wire.Reason{wire.PoolExhausted, wire.UpstreamCapacity, wire.RateLimited, wire.NotOwner} {
		f(r, 1, 1, 0, 0, 485, "upstream_capacity", strconv.Itoa(r.Code())+" "+r.String(), "Retry-After", "7")
	}
	surface(wire.InvalidClientID, 1, 1)
	p.out.untilMetric(`mte_relay_outbound_pairs{state="free"}`, 25)

	// The same bytes, while nothing was executed.
	f(wire.PairBusy, 1, 2, 0, 0, 200, "", "")
	f(wire.PairBusy, 2, 2, 1, 0, 502, "upstream_response_failed", "486 pair_busy")
	f(wire.StateStoreUnavailable, 2, 3, 0, 0, 200, "", "")
	f(wire.StateStoreUnavailable, 3, 3, 1, 0, 502, "upstream_response_failed", "503 state_store_unavailable")
	f(wire.StateStoreUnavailable, 1, 1, 1, 0, 502, "upstream_response_failed", "503 state_store_unavailable", "Retry-After", "60")
	// Not what is held no longer.
	p.wire.play(refuseBy(1, wire.PairBusy))
	frames := p.wire.frames.Load()
	p.do("POST", "/x", strings.NewReader(strings.Repeat("x", 100000))).wantRefusal(t, 502, "upstream_response_failed", "486 pair_busy")
	if got := p.wire.frames.Load() - frames; got != 1 {
		t.Errorf("a long request was sent %d times", got)
	}
}

// What is no relay's answer is reported, and nothing is sent twice.
func TestOutboundGarbage(t *testing.T) {
	p := startRelayPair(t, pairOptions{wired: true, origin: http.HandlerFunc(mirror), out: []string{"MAX_RESPONSE_SECONDS=1"}})
	page := func(status int, body string, headers ...string) outScript {
		return func(w http.ResponseWriter, q *http.Request) bool {
			io.Copy(io.Discard, q.Body)
			for i := 0; i < len(headers); i += 2 {
				w.Header().Set(headers[i], headers[i+1])
			}
			w.WriteHeader(status)
			io.WriteString(w, body)
			return true
		}
	}
	frameOf := func(k wire.Kind, f wire.Flags, payload string) string {
		return string(wire.AppendEnvelope(nil, k, f, len(payload))) + payload
	}
	scripts := map[string]struct {
		cause string
		play  outScript
	}{
		"a proxy's 502":           {"", page(502, "<html>bad gateway</html>")},
		"a proxy's 503":           {"", page(503, "<html>busy</html>", "Retry-After", "1")},
		"a proxy's 200":           {"", page(200, "<html>welcome</html>")},
		"a redirect":              {"", page(302, "", "Location", "/login")},
		"a replaced page":         {"477 eof_before_end", page(477, "<html>oops</html>", "X-MTE-Relay-Error", "477 eof_before_end")},
		"a huge page":             {"", page(500, strings.Repeat("x", 200000))},
		"an empty answer":         {"", page(200, "")},
		"DATA without RESPONSE":   {"", page(200, frameOf(wire.KindData, wire.FlagEnd, "not encoded"))},
		"a RESPONSE that is none": {"", page(200, frameOf(wire.KindResponse, 0, "\x00\xc8\x00\x00\x00\x04none"))},
		"a huge frame":            {"", page(200, "\x89MT\x02\x02\x00\x00\x00\x7f\xff\xff\xff")},
		"an ERROR with 200":       {"500 internal", page(200, frameOf(wire.KindError, 0, "\x01\xf4"+`{"reason":"internal"}`))},
		"a cut connection":        {"", func(w http.ResponseWriter, _ *http.Request) bool { return cut(w) }},
		"silence": {"", func(_ http.ResponseWriter, q *http.Request) bool {
			io.Copy(io.Discard, q.Body)
			<-q.Context().Done()
			return true
		}},
	}
	// At the data path.
	p.do("GET", "/", nil)
	for name, s := range scripts {
		t.Run(name, func(t *testing.T) {
			data := s.play
			p.wire.play(func(w http.ResponseWriter, q *http.Request) bool { return q.URL.Path == "/" && data(w, q) })
			frames := p.wire.frames.Load()
			p.do("POST", "/x", strings.NewReader("body")).wantRefusal(t, 502, "upstream_response_failed", s.cause)
			if got := p.wire.frames.Load() - frames; got != 1 {
				t.Errorf("sent %d times", got)
			}
			p.wire.play(nil)
			if a := p.do("POST", "/x", strings.NewReader("then")); a.body != "then" {
				t.Errorf("then %d %s", a.status, a.body)
			}
		})
	}
	// At the control endpoints, of a relay that knows us no longer.
	for _, path := range []string{wire.AuthPath, wire.PairPath} {
		for _, name := range []string{"a proxy's 502", "a proxy's 200", "an empty answer", "a cut connection", "silence"} {
			t.Run(name+" at "+path, func(t *testing.T) {
				forget, control := refuseBy(1, wire.InvalidToken), scripts[name].play
				p.wire.play(func(w http.ResponseWriter, q *http.Request) bool {
					return forget(w, q) || q.URL.Path == path && control(w, q)
				})
				p.do("GET", "/", nil).wantRefusal(t, 502, "upstream_response_failed", "475 invalid_token")
				a := p.do("GET", "/", nil)
				if a.status != 485 { // the repair before it was a moment ago, or the silence outlasts the wait
					a.wantRefusal(t, 502, "upstream_response_failed", "")
				}
				p.wire.play(nil)
				if !poll(func() bool { a = p.do("GET", "/", nil); return a.status == 200 }) {
					t.Errorf("never again: %d %s", a.status, a.body)
				}
			})
		}
	}
}

func TestOutboundUnreachable(t *testing.T) {
	p := startRelayPair(t, pairOptions{origin: http.HandlerFunc(mirror), domain: map[string]any{"outbound": "http://127.0.0.1:1"}})
	p.do("GET", "/", nil).wantRefusal(t, 502, "upstream_connect_failed", "")
	p.do("POST", "/", strings.NewReader("body")).wantRefusal(t, 502, "upstream_connect_failed", "")
}

// A relay that comes back without its state, or with another secret, costs the
// requests that find it out, and no more.
func TestOutboundOtherRestarts(t *testing.T) {
	p := startRelayPair(t, pairOptions{wired: true, origin: http.HandlerFunc(mirror)})
	p.do("GET", "/", nil)
	p.startIn("the secret")
	p.aim()
	p.do("GET", "/", nil).wantRefusal(t, 502, "upstream_response_failed", "475 invalid_client_id")
	for range 30 {
		if a := p.do("GET", "/x", nil); a.status != 200 {
			t.Fatalf("%d %s", a.status, a.body)
		}
	}
	p.startIn("another secret")
	p.aim()
	p.do("GET", "/", nil).wantRefusal(t, 502, "upstream_response_failed", "475 invalid_token")
	var a answer
	if !poll(func() bool { a = p.do("GET", "/", nil); return a.status == 200 }) {
		t.Fatalf("%d %s", a.status, a.body)
	}
	if lines := p.out.log.with("authenticating anew"); len(lines) != 2 {
		t.Errorf("logged: %q", lines)
	}
}
