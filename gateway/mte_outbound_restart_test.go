package gateway_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	wire "sluice/codec/frame"
)

// The other process is killed and comes back without its state, and every second
// time with another secret, under load: each request is answered by its own answer
// or refused in clear words, none is executed twice, and the pool heals.
func TestOutboundRestartsUnderLoad(t *testing.T) {
	const workers = 16
	restarts := scaled(20, 3)
	var executed sync.Map // id → *atomic.Int32
	p := startRelayProcesses(t, pairOptions{origin: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		n, _ := executed.LoadOrStore(r.URL.Query().Get("id"), new(atomic.Int32))
		n.(*atomic.Int32).Add(1)
		w.Write(b)
	})})
	times := func(id string) int32 {
		n, ok := executed.Load(id)
		if !ok {
			return 0
		}
		return n.(*atomic.Int32).Load()
	}
	var ids, answered, refused, cut atomic.Int64
	stop := make(chan struct{})
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				id := strconv.FormatInt(ids.Add(1), 10)
				body := bytes.Repeat([]byte(id+" "), 10)
				if len(id)%2 == 0 {
					body = bytes.Repeat(body, 100000/len(body)) // more than is kept
				}
				a, err := p.try(p.request(context.Background(), "POST", "/?id="+id, bytes.NewReader(body)))
				n := times(id)
				switch {
				case n > 1:
					t.Errorf("request %s was executed %d times", id, n)
				case err != nil:
					cut.Add(1) // an answer that had begun
				case a.status == 200:
					answered.Add(1)
					if a.body != string(body) || n != 1 {
						t.Errorf("request %s: answered by %d bytes, executed %d times", id, len(a.body), n)
					}
				default:
					refused.Add(1)
					var e outError
					if err := json.Unmarshal([]byte(a.body), &e); err != nil || e.Code != a.status || e.Reason == "" || e.Message == "" {
						t.Errorf("request %s: %d %q", id, a.status, a.body)
					}
					if a.status != 502 && a.status != 485 {
						t.Errorf("request %s: %d %s", id, a.status, a.body)
					}
				}
			}
		})
	}
	more := func() {
		t.Helper()
		want := answered.Load() + 10*workers
		if !poll(func() bool { return answered.Load() >= want }) {
			t.Errorf("%d answered, %d refused, %d cut, and no more answers", answered.Load(), refused.Load(), cut.Load())
		}
	}
	more()
	for i := range restarts {
		p.inward.kill()
		p.serveIn([]string{"the secret", "another secret"}[i%2])
		more()
	}
	close(stop)
	all.Wait()
	t.Logf("%d answered, %d refused, %d cut", answered.Load(), refused.Load(), cut.Load())
	p.out.untilMetric(`mte_relay_outbound_pairs{state="in_use"}`, 0)
	p.in.untilMetric("mte_relay_pairs_in_use", 0)
}

// The other process ends in the middle: an answer that has begun is cut, so that
// nobody takes it for complete, an upload is refused.
func TestOutboundOtherEnds(t *testing.T) {
	arrived := make(chan struct{}, 2)
	p := startRelayProcesses(t, pairOptions{origin: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == "GET" {
			io.WriteString(w, "begin")
			w.(http.Flusher).Flush()
			<-r.Context().Done()
			return
		}
		io.ReadFull(r.Body, make([]byte, 5))
		arrived <- struct{}{}
		io.Copy(io.Discard, r.Body)
	})})
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	res, err := p.client.Do(p.request(ctx, "GET", "/", nil))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if _, err := io.ReadFull(res.Body, make([]byte, 5)); err != nil {
		t.Fatal(err)
	}
	body, w := io.Pipe()
	t.Cleanup(func() { w.Close() })
	up := make(chan answer, 1)
	go func() {
		defer close(up)
		a, err := p.try(p.request(ctx, "POST", "/", body))
		if err != nil {
			t.Error(err)
		}
		up <- a
	}()
	if _, err := w.Write([]byte("begin")); err != nil {
		t.Fatal(err)
	}
	select {
	case <-arrived:
	case a := <-up:
		t.Fatalf("the upload was answered: %d %s", a.status, a.body)
	}
	p.inward.kill()
	if rest, err := io.ReadAll(res.Body); err == nil {
		t.Errorf("the answer looks complete after %q", rest)
	}
	a := <-up
	a.wantRefusal(t, 502, "upstream_response_failed", "")
	p.out.untilMetric("mte_relay_pairs_retired_total", 2)
}

// A relay that is slow to pair is asked once at a time. Who cannot wait so long is
// told so, and who comes later finds pairs.
func TestOutboundSlowPairing(t *testing.T) {
	p := startRelayPair(t, pairOptions{wired: true, origin: http.HandlerFunc(mirror), out: []string{"CLIENT_PAIR_ACQUIRE_WAIT_MS=100"}})
	var now, most, calls atomic.Int64
	goOn := make(chan struct{})
	release := sync.OnceFunc(func() { close(goOn) })
	t.Cleanup(release)
	p.wire.play(func(_ http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path == "/" {
			return false
		}
		calls.Add(1)
		most.Store(max(most.Load(), now.Add(1)))
		<-goOn
		now.Add(-1)
		return false
	})
	for range 3 {
		p.do("GET", "/", nil).wantRefusal(t, 485, "upstream_capacity", "")
	}
	if n := calls.Load(); n != 1 {
		t.Errorf("%d calls to a relay that does not answer", n)
	}
	release()
	var a answer
	if !poll(func() bool { a = p.do("GET", "/", nil); return a.status == 200 }) {
		t.Errorf("never: %d %s", a.status, a.body)
	}
	p.out.untilMetric(`mte_relay_outbound_pairs{state="free"}`, 25)
	if most.Load() > 1 {
		t.Errorf("%d calls at once", most.Load())
	}
}

// altering is a script that lets requests of a path pass and changes their answer.
func (p *outWire) altering(t testing.TB, path string, change func([]byte) []byte) outScript {
	return func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path != path {
			return false
		}
		q := r.Clone(r.Context())
		q.RequestURI, q.URL.Scheme, q.URL.Host, q.Host = "", "http", p.target.Load().Host, "127.0.0.1"
		res, err := http.DefaultClient.Do(q)
		if err != nil {
			t.Error(err)
			return cut(w)
		}
		defer res.Body.Close()
		b, err := io.ReadAll(res.Body)
		if err != nil || res.StatusCode != 200 {
			t.Errorf("%s: %d %q, %v", path, res.StatusCode, b, err)
		}
		w.Write(change(b))
		return true
	}
}

// Control answers that cannot be used: the caller learns it, and when they can the
// next is served.
func TestOutboundControlGarbage(t *testing.T) {
	replace := func(old, with string) func([]byte) []byte {
		return func(b []byte) []byte {
			if !bytes.Contains(b, []byte(old)) {
				t.Errorf("no %s in %q", old, b)
			}
			return bytes.ReplaceAll(b, []byte(old), []byte(with))
		}
	}
	// answers changes the list of a pairing call.
	answers := func(change func([]map[string]any) []map[string]any) func([]byte) []byte {
		return func(b []byte) []byte {
			var list []map[string]any
			if err := json.Unmarshal(b, &list); err != nil {
				t.Error(err)
			}
			b, _ = json.Marshal(change(list))
			return b
		}
	}
	page := func(status int, headers ...string) outScript {
		return func(w http.ResponseWriter, _ *http.Request) bool {
			for i := 0; i < len(headers); i += 2 {
				w.Header().Set(headers[i], headers[i+1])
			}
			w.WriteHeader(status)
			io.WriteString(w, "<html>not yours</html>")
			return true
		}
	}
	for _, path := range []string{wire.AuthPath, wire.PairPath} {
		cases := []struct {
			name, says string
			change     func([]byte) []byte
			script     outScript
		}{
			{name: "half an answer", change: func(b []byte) []byte { return b[:len(b)/2] }},
			{name: "two answers", change: func(b []byte) []byte { return append(b, b...) }},
			{name: "403", says: "proxy in front", script: page(403)},
			{name: "404", says: "proxy in front", script: page(404)},
			{name: "429", says: "proxy in front", script: page(429, "Retry-After", "1")},
		}
		if path == wire.AuthPath {
			cases = append(cases, []struct {
				name, says string
				change     func([]byte) []byte
				script     outScript
			}{
				{name: "another profile", says: "profile", change: replace(`"mteProfile":"`, `"mteProfile":"another`)},
				{name: "another frame version", says: "frame version 2", change: replace(`"frameVersions":[2]`, `"frameVersions":[3]`)},
				{name: "a token that is none", change: replace(`"clientId":"`, `"clientId":"x`)},
			}...)
		} else {
			cases = append(cases, []struct {
				name, says string
				change     func([]byte) []byte
				script     outScript
			}{
				{name: "one pair less", change: answers(func(l []map[string]any) []map[string]any { return l[1:] })},
				{name: "in another order", change: answers(func(l []map[string]any) []map[string]any { slices.Reverse(l); return l })},
				{name: "a short secret", change: answers(func(l []map[string]any) []map[string]any {
					l[0]["encoderSecret"] = "AAAA"
					return l
				})},
			}...)
		}
		for _, c := range cases {
			t.Run(c.name+" at "+path, func(t *testing.T) {
				var executed atomic.Int64
				p := startRelayPair(t, pairOptions{wired: true, origin: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					executed.Add(1)
				})})
				script := p.wire.altering(t, path, c.change)
				if at := path; c.script != nil {
					script = func(w http.ResponseWriter, r *http.Request) bool { return r.URL.Path == at && c.script(w, r) }
				}
				p.wire.play(script)
				e := p.do("POST", "/x", strings.NewReader("body")).wantRefusal(t, 502, "upstream_response_failed", "")
				if !strings.Contains(e.Message, c.says) {
					t.Errorf("says %q", e.Message)
				}
				if n := executed.Load() + p.wire.frames.Load(); n != 0 {
					t.Errorf("%d requests were sent", n)
				}
				p.wire.play(nil)
				var a answer
				if !poll(func() bool { a = p.do("GET", "/x", nil); return a.status == 200 }) {
					t.Errorf("never: %d %s", a.status, a.body)
				}
			})
		}
	}
}

// Secrets that were changed on the way make pairs that do not agree. Each is found
// out by a request, which is not executed, and replaced.
func TestOutboundForgedSecrets(t *testing.T) {
	var executed atomic.Int64
	p := startRelayPair(t, pairOptions{wired: true, origin: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		executed.Add(1)
	}), out: []string{"CLIENT_MIN_PAIRS=2", "CLIENT_REFILL_THRESHOLD=1"}})
	p.wire.play(p.wire.altering(t, wire.PairPath, func(b []byte) []byte {
		var list []map[string]any
		if err := json.Unmarshal(b, &list); err != nil {
			t.Error(err)
		}
		for _, a := range list {
			s := []byte(a["decoderSecret"].(string))
			if s[0] != 'A' { // another letter of base64
				s[0] = 'A'
			} else {
				s[0] = 'B'
			}
			a["decoderSecret"] = string(s)
		}
		b, _ = json.Marshal(list)
		return b
	}))
	p.do("GET", "/x", nil).wantRefusal(t, 502, "upstream_response_failed", "473 decode_failed")
	if n := executed.Load(); n != 0 {
		t.Errorf("executed %d times", n)
	}
	p.wire.play(nil)
	failed := 0
	if !poll(func() bool {
		a := p.do("GET", "/x", nil)
		if a.status != 200 {
			a.wantRefusal(t, 502, "upstream_response_failed", "473 decode_failed")
			failed++
		}
		return a.status == 200
	}) {
		t.Error("never a good pair")
	}
	if n := p.out.metric("mte_relay_pairs_retired_total"); n != float64(failed+1) {
		t.Errorf("%v pairs retired by %d failures", n, failed+1)
	}
}

// A full repair authenticates as somebody who was never there: without the old id
// and without a route. All that follows carries the new one.
func TestOutboundRepairs(t *testing.T) {
	p := startRelayPair(t, pairOptions{wired: true, origin: http.HandlerFunc(mirror)})
	var mu sync.Mutex
	var seen []string
	watch := func(inner outScript) outScript {
		return func(w http.ResponseWriter, r *http.Request) bool {
			mu.Lock()
			seen = append(seen, fmt.Sprint(r.URL.Path, " id=", r.URL.Query().Has("clientId"), " route=", r.Header.Get(wire.RouteHeader)))
			mu.Unlock()
			return inner != nil && inner(w, r)
		}
	}
	take := func() []string {
		mu.Lock()
		defer mu.Unlock()
		s := seen
		seen = nil
		return s
	}
	p.wire.play(watch(nil))
	p.do("GET", "/", nil)
	p.out.untilMetric(`mte_relay_outbound_pairs{state="free"}`, 25)
	first := take()
	if first[0] != wire.AuthPath+" id=false route=" {
		t.Errorf("begins with %q", first[0])
	}
	old := first[1][strings.Index(first[1], "route="):]
	if len(old) != len("route=")+wire.RouteBytes {
		t.Errorf("then %q", first[1])
	}
	p.wire.play(watch(refuseBy(1, wire.InvalidToken)))
	p.do("GET", "/", nil).wantRefusal(t, 502, "upstream_response_failed", "475 invalid_token")
	if !poll(func() bool { return p.do("GET", "/", nil).status == 200 }) {
		t.Fatal("never again")
	}
	p.out.untilMetric(`mte_relay_outbound_pairs{state="free"}`, 25)
	repaired := false
	for _, s := range take() {
		if s == wire.AuthPath+" id=false route=" {
			repaired = true
			continue
		}
		if repaired == strings.HasSuffix(s, old) {
			t.Errorf("repaired %v: %s", repaired, s)
		}
	}
	if !repaired {
		t.Error("no new identity")
	}
}

// An answer that takes too long is given up once, and not asked for again.
func TestOutboundSlowAnswer(t *testing.T) {
	goOn := make(chan struct{})
	release := sync.OnceFunc(func() { close(goOn) })
	var executed atomic.Int64
	p := startRelayPair(t, pairOptions{origin: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		executed.Add(1)
		if r.URL.Path == "/slow" {
			<-goOn
		}
	}), in: []string{"MAX_RESPONSE_SECONDS=60"}, out: []string{"MAX_RESPONSE_SECONDS=1"}})
	t.Cleanup(release)
	start := time.Now()
	e := p.do("GET", "/slow", nil).wantRefusal(t, 502, "upstream_response_failed", "")
	if !strings.Contains(e.Message, "MAX_RESPONSE_SECONDS") {
		t.Errorf("says %q", e.Message)
	}
	if took := time.Since(start); took > patience {
		t.Errorf("told after %v", took)
	}
	if n := executed.Load(); n != 1 {
		t.Errorf("executed %d times", n)
	}
	release()
	for range 30 {
		if a := p.do("GET", "/", nil); a.status != 200 {
			t.Fatalf("then %d %s", a.status, a.body)
		}
	}
}

// Two identities in a row are not accepted. Who waits is told, and a third is
// tried, rather than the second one until its token is due.
func TestOutboundRepairsTwice(t *testing.T) {
	p := startRelayPair(t, pairOptions{wired: true, origin: http.HandlerFunc(mirror)})
	var mu sync.Mutex
	refused := map[string]bool{} // routes
	p.wire.play(func(w http.ResponseWriter, r *http.Request) bool {
		route := r.Header.Get(wire.RouteHeader)
		mu.Lock()
		if r.URL.Path == wire.PairPath && len(refused) < 2 {
			refused[route] = true
		}
		bad := refused[route]
		mu.Unlock()
		if bad {
			io.Copy(io.Discard, r.Body)
			w.Header().Set("X-MTE-Relay-Error", strconv.Itoa(wire.InvalidToken.Code())+" "+wire.InvalidToken.String())
			w.WriteHeader(wire.InvalidToken.Code())
			w.Write(wire.AppendErrorFrame(nil, wire.InvalidToken, "said the test", wire.Cause{}))
		}
		return bad
	})
	p.do("GET", "/", nil).wantRefusal(t, 502, "upstream_response_failed", "475 invalid_token")
	var a answer
	if !poll(func() bool { a = p.do("GET", "/", nil); return a.status == 200 }) {
		t.Errorf("never again: %d %s", a.status, a.body)
	}
}

// A token that cannot be refreshed does not cost the pairs: they are kept alive
// all the same.
func TestOutboundRefreshFails(t *testing.T) {
	p := startRelayPair(t, pairOptions{wired: true, origin: http.HandlerFunc(mirror)})
	hasten := p.wire.altering(t, wire.AuthPath, func(b []byte) []byte {
		var m struct {
			ClientID string         `json:"clientId"`
			Relay    map[string]any `json:"relay"`
		}
		if err := json.Unmarshal(b, &m); err != nil {
			t.Error(err)
			return b
		}
		m.Relay["tokenMaxAgeSeconds"], m.Relay["sessionTimeoutSeconds"] = 1, 3 // both calls are due after a second
		b, _ = json.Marshal(m)
		return b
	})
	var auths, kept atomic.Int64
	p.wire.play(func(w http.ResponseWriter, r *http.Request) bool {
		switch r.URL.Path {
		case wire.AuthPath:
			if auths.Add(1) == 1 {
				return hasten(w, r)
			}
			w.WriteHeader(http.StatusBadGateway)
			return true
		case wire.KeepalivePath:
			if auths.Load() > 1 {
				kept.Add(1)
			}
		}
		return false
	})
	if a := p.do("GET", "/", nil); a.status != 200 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	if !poll(func() bool { return kept.Load() > 0 }) {
		t.Errorf("no keepalive behind %d authentications", auths.Load())
	}
}
