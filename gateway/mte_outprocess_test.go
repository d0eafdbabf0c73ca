package gateway_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
)

// slowPairing leaves the first request the time that pairs take on a machine that is
// busy with other tests.
const slowPairing = "CLIENT_PAIR_ACQUIRE_WAIT_MS=20000"

// All that an outbound host carries, through two processes at their default
// settings, to a real origin and back.
func TestOutboundProcesses(t *testing.T) {
	talk := &talkative{make(chan string)}
	p := startRelayProcesses(t, pairOptions{origin: muxOrigin{"": http.HandlerFunc(mirror), "talk": talk}, out: []string{slowPairing}})
	t.Run("exchanges", func(t *testing.T) { outboundExchanges(t, p.at(t)) })
	t.Run("bodies", func(t *testing.T) { outboundBodies(t, p.at(t)) })
	t.Run("streams", func(t *testing.T) { outboundStreams(t, p.at(t), "/talk", talk.pieces) })
	t.Run("errors", func(t *testing.T) { p.errors(t) })
	if n := p.in.metric("mte_relay_rate_limited_total"); n != 0 {
		t.Errorf("%v control calls over the rate limits", n)
	}
	p.out.untilMetric(`mte_relay_outbound_pairs{state="in_use"}`, 0)
	p.in.untilMetric("mte_relay_pairs_in_use", 0)
}

// at is the pair as a subtest has it.
func (p *relayProcesses) at(t *testing.T) *relayPair {
	c := *p.relayPair
	c.t = t
	return &c
}

// errors ends the other process, and then the origin is none.
func (p *relayProcesses) errors(t *testing.T) {
	at := p.at(t)
	p.inward.kill()
	at.do("GET", "/x", nil).wantRefusal(t, 502, "upstream_connect_failed", "")
	at.do("POST", "/x", strings.NewReader("body")).wantRefusal(t, 502, "upstream_connect_failed", "")
	origin := p.origin
	p.origin = "http://127.0.0.1:1"
	p.serveIn("the secret")
	at.do("GET", "/x", nil).wantRefusal(t, 502, "upstream_response_failed", "475 invalid_client_id")
	var a answer
	if !poll(func() bool {
		a = at.do("GET", "/x", nil)
		return a.status == 502 && strings.Contains(a.body, "upstream_connect_failed")
	}) {
		t.Fatalf("%d %s", a.status, a.body)
	}
	a.wantRefusal(t, 502, "upstream_response_failed", "502 upstream_connect_failed")
	at.do("POST", "/x", strings.NewReader("body")).wantRefusal(t, 502, "upstream_response_failed", "502 upstream_connect_failed")
	p.inward.kill()
	p.origin = origin
	p.serveIn("another secret")
	at.do("GET", "/x", nil).wantRefusal(t, 502, "upstream_response_failed", "475 invalid_token")
	if !poll(func() bool { a = at.do("GET", "/x", nil); return a.status == 200 }) {
		t.Fatalf("%d %s", a.status, a.body)
	}
}

// processBound is how much each of the processes may grow while bodies of any
// length go through it.
const processBound = 16 << 20

// Bodies of a GiB, both ways, with and without a declared length, through two
// processes whose memory stays flat.
func TestAcceptOutboundLongBodies(t *testing.T) {
	size := scaled[int64](1<<30, 32<<20)
	p := startRelayProcesses(t, pairOptions{origin: mover{t}, out: []string{slowPairing}})
	move := func(n int64) {
		t.Helper()
		target := fmt.Sprintf("/long?n=%d", n)
		res, err := p.client.Do(p.request(t.Context(), "GET", target, nil))
		if err != nil {
			t.Fatal(err)
		}
		err = isLong(res.Body, n)
		res.Body.Close()
		if err != nil || res.StatusCode != 200 {
			t.Fatalf("download: %d, %v", res.StatusCode, err)
		}
		for _, length := range []int64{-1, n} {
			r := p.request(t.Context(), "POST", target, io.NopCloser(&longBody{n: n}))
			r.ContentLength = length
			if a, err := p.try(r); err != nil || a.status != 200 || a.body != "" {
				t.Fatalf("upload, length %d: %d %s, %v", length, a.status, a.body, err)
			}
		}
	}
	move(8 << 20) // what is made once is no growth
	out, in := p.outward.watchPeak(), p.inward.watchPeak()
	move(size)
	out.wantFlat("outbound", processBound)
	in.wantFlat("inbound", processBound)
}

// A caller that does not read stops the origin, through both processes, and an
// origin that does not read stops the caller. Neither process keeps what waits.
func TestOutboundProcessesStall(t *testing.T) {
	const size = 96 << 20 // more than all kernel buffers on the way
	var sent, taken atomic.Int64
	goOn := make(chan struct{})
	p := startRelayProcesses(t, pairOptions{origin: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.Method {
		case "POST":
			<-goOn
			if err := isLong(r.Body, size); err != nil {
				t.Error(err)
			}
		case "GET":
			body := &longBody{n: size}
			for err := error(nil); err == nil; {
				var n int64
				n, err = io.CopyN(w, body, 64<<10)
				sent.Add(n)
			}
		}
	})})
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	p.do("HEAD", "/", nil)
	out, in := p.outward.watchPeak(), p.inward.watchPeak()
	res, err := p.client.Do(p.request(ctx, "GET", "/", nil))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if stood := stands(sent.Load); stood >= size/2 {
		t.Errorf("the origin sent %d bytes to a caller that reads none", stood)
	}
	if err := isLong(res.Body, size); err != nil {
		t.Error(err)
	}

	done := make(chan error, 1)
	go func() {
		body := &countedReader{r: &longBody{n: size}, n: &taken}
		a, err := p.try(p.request(ctx, "POST", "/", body))
		if err == nil && a.status != 200 {
			err = fmt.Errorf("%d %s", a.status, a.body)
		}
		done <- err
	}()
	if stood := stands(taken.Load); stood == 0 || stood >= size/2 {
		t.Errorf("%d bytes of an upload were taken for an origin that reads none", stood)
	}
	close(goOn)
	if err := <-done; err != nil {
		t.Error(err)
	}
	out.wantFlat("outbound", processBound)
	in.wantFlat("inbound", processBound)
}
