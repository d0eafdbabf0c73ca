package gateway_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	wire "sluice/codec/frame"
	"sluice/gateway/client"
	"sluice/gateway/store/redistest"
)

// A taleOrigin answers /tale with a line for each word it is given, and else with
// the path.
type taleOrigin struct{ words chan string }

func (o taleOrigin) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !strings.HasSuffix(r.URL.Path, "/tale") {
		io.WriteString(w, r.URL.Path)
		return
	}
	w.Write([]byte("begun\n"))
	for {
		http.NewResponseController(w).Flush()
		select {
		case word, more := <-o.words:
			if !more {
				return
			}
			fmt.Fprintln(w, word)
		case <-r.Context().Done():
			return
		}
	}
}

// httpClient makes plain requests at a node, whatever host they name.
func (n *liveNode) httpClient() *http.Client {
	tr := &http.Transport{DialContext: dialsTo(n.addr)}
	n.t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

// A tale is an answer that is under way.
type tale struct {
	t     *testing.T
	body  io.ReadCloser
	lines *bufio.Reader
}

func newTale(t *testing.T, body io.ReadCloser) *tale {
	r := &tale{t, body, bufio.NewReader(body)}
	t.Cleanup(func() { body.Close() })
	r.want("begun")
	return r
}

func (r *tale) want(word string) {
	r.t.Helper()
	if line, err := r.lines.ReadString('\n'); err != nil || line != word+"\n" {
		r.t.Fatalf("%q, %v; want %q", line, err, word)
	}
}

func (r *tale) wantEnd() {
	r.t.Helper()
	if rest, err := io.ReadAll(r.lines); len(rest) > 0 || err != nil {
		r.t.Errorf("%q, %v; want the end", rest, err)
	}
	r.body.Close()
}

// A domain that goes ends for new requests; those in flight run to their end, and
// what other domains have is not touched.
func TestLiveInboundDomainGoes(t *testing.T) {
	encrypted, plain := make(chan string), make(chan string)
	origin := startTestOrigin(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		words := encrypted
		if strings.HasPrefix(r.URL.Path, "/plain/") {
			words = plain
		}
		taleOrigin{words}.ServeHTTP(w, r)
	}))
	p := startPlane(t, settingsText(map[string]any{"DOMAIN_MAP": domainsAt(origin, "localhost", "going.test")}))
	n := startLive(t, "CONTROL_PLANE_URL="+p.url, "PASEO_RELAY_PORT=0")

	stays := newMTEClient(t, n.mteNode, "localhost")
	pair, err := stays.pair()
	if err != nil {
		t.Fatal(err)
	}
	if body, err := pair.get("before"); err != nil || body != "/before" {
		t.Fatalf("%q, %v", body, err)
	}
	c, err := client.New(client.Options{URL: "http://" + n.addr, Host: "going.test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	res, err := c.Do(t.Context(), &client.Request{Head: client.Head{Method: "GET", Path: "tale"}})
	if err != nil {
		t.Fatal(err)
	}
	first := newTale(t, res.Body)
	through, err := n.httpClient().Get("http://going.test/plain/tale")
	if err != nil {
		t.Fatal(err)
	}
	second := newTale(t, through.Body)

	p.serve(settingsText(map[string]any{"DOMAIN_MAP": domainsAt(origin, "localhost", "coming.test")}))
	n.look()
	n.untilMetric("sluice_config_version", 2)
	if _, ok := n.discovery("going.test"); ok {
		t.Error("the domain is still served")
	}
	if a := httpDo(t, n.addr, "GET", "/plain/x", "Host:going.test"); a.status != wire.NoDomainForHost.Code() {
		t.Errorf("a plain request: %d", a.status)
	}
	if a := httpDo(t, n.addr, "GET", "/plain/x", "Host:coming.test"); a.status != 200 || a.body != "/plain/x" {
		t.Errorf("the new domain: %d %q", a.status, a.body)
	}
	for i := range 3 {
		word := fmt.Sprint("word ", i)
		encrypted <- word
		first.want(word)
		plain <- word
		second.want(word)
	}
	close(encrypted)
	first.wantEnd()
	close(plain)
	second.wantEnd()
	if body, err := pair.get("after"); err != nil || body != "/after" {
		t.Errorf("a pair of the domain that stays: %q, %v", body, err)
	}
}

// Outbound domains come and go: a new one serves, one that goes is unknown to new
// requests while its streams run to their end, and then both relays let go of its
// pairs.
func TestLiveOutboundDomainGoes(t *testing.T) {
	words := make(chan string)
	origin := startTestOrigin(t, taleOrigin{words})
	in := startMTE(t, "KYBER_STRENGTH=512", domainMap("127.0.0.1", origin))
	in.descriptors, in.goroutines = 1<<30, 1<<30 // the other node's are among them
	text := func(hosts ...string) string {
		domains := domainsAt(origin, "localhost")
		for _, h := range hosts {
			domains[h] = map[string]any{"outbound": "http://" + in.addr}
		}
		return settingsText(map[string]any{"DOMAIN_MAP": domains})
	}
	p := startPlane(t, text())
	n := startLive(t, "CONTROL_PLANE_URL="+p.url, "PASEO_RELAY_PORT=0", "KYBER_STRENGTH=512", "CLIENT_MIN_PAIRS=4")
	n.descriptors, n.goroutines = 1<<30, 1<<30 // connections between the two end at their leisure
	c := n.httpClient()
	get := func(host string) (int, string) {
		t.Helper()
		res, err := c.Get("http://" + host + "/x")
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		b, _ := io.ReadAll(res.Body)
		return res.StatusCode, string(b)
	}
	version := 1.0
	serve := func(hosts ...string) {
		t.Helper()
		p.serve(text(hosts...))
		n.look()
		version++
		n.untilMetric("sluice_config_version", version)
	}
	unknown := wire.NoDomainForHost.Code()
	if status, _ := get("out.test"); status != unknown {
		t.Fatalf("before it came: %d", status)
	}
	serve("out.test", "stays.test")
	for _, host := range []string{"out.test", "stays.test"} {
		if status, body := get(host); status != 200 || body != "/x" {
			t.Fatalf("%s: %d %q", host, status, body)
		}
	}
	res, err := c.Get("http://out.test/tale")
	if err != nil {
		t.Fatal(err)
	}
	stream := newTale(t, res.Body)

	serve("stays.test")
	if status, _ := get("out.test"); status != unknown {
		t.Errorf("after it went: %d", status)
	}
	if status, body := get("stays.test"); status != 200 || body != "/x" {
		t.Errorf("the one that stays: %d %q", status, body)
	}
	words <- "still there"
	stream.want("still there")
	// It comes again while the stream runs: with pairs of its own.
	serve("out.test", "stays.test")
	if status, body := get("out.test"); status != 200 || body != "/x" {
		t.Errorf("when it came again: %d %q", status, body)
	}
	serve("stays.test")
	words <- "and there"
	stream.want("and there")
	close(words)
	stream.wantEnd()

	// What the other relay holds is of the one that stays.
	var held, ours float64
	if !poll(func() bool {
		held, ours = in.metric("mte_relay_pairs"), n.metric(`mte_relay_outbound_pairs{state="free"}`)
		return held == ours && held > 0
	}) {
		t.Errorf("the other relay holds %v pairs, of %v that are in use here", held, ours)
	}
	in.untilMetric("mte_relay_pairs_in_use", 0)
	serve()
	in.untilMetric("mte_relay_pairs", 0)
	for _, state := range []string{"free", "in_use", "pairing", "retiring"} {
		n.untilMetric(`mte_relay_outbound_pairs{state="`+state+`"}`, 0)
	}
	if lines := n.log.with(`"level":"ERROR"`); len(lines) > 0 {
		t.Errorf("%s", lines)
	}
}

// A node of a fleet whose domains stand at the control plane alone starts without it,
// serves nothing until it has answered, and says so.
func TestLiveDomainsOfAFleet(t *testing.T) {
	r := redistest.Start(t)
	p := startPlane(t, "")
	p.play(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) })
	n := startLive(t, "CONTROL_PLANE_URL="+p.url, "REDIS_URL="+r.URL(), "PASEO_RELAY_OWNERSHIP_TARGET=here")
	const pending = "no settings from CONTROL_PLANE_URL yet"
	if !poll(func() bool {
		return httpDo(t, n.admin, "GET", "/ready").header.Get("X-Sluice-Unready") == pending
	}) {
		t.Error("it does not say what it waits for")
	}
	if _, ok := n.discovery("localhost"); ok {
		t.Error("the built-in domain is served")
	}
	// A version without a secret that all nodes share is refused.
	p.serve(settingsText(map[string]any{"DOMAIN_MAP": map[string]any{"a.test": map[string]any{"upstream": "http://127.0.0.1:1"}}}))
	n.look()
	n.untilMetric(`sluice_config_refused_total{cause="settings"}`, 1)
	p.serve(settingsText(map[string]any{"DOMAIN_MAP": domainsAt("http://127.0.0.1:1", "a.test")}))
	n.look()
	n.untilMetric("sluice_config_pending", 0)
	if _, ok := n.discovery("a.test"); !ok {
		t.Error("the control plane's domain is not served")
	}
	if a := httpDo(t, n.admin, "GET", "/ready"); a.status != 200 {
		t.Errorf("not ready: %v", a.header)
	}
}
