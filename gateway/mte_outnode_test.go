package gateway_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
)

const outHost = "out.test"

// relayPair is two gateways, one that has an outbound host and the other relay
// behind it, with a proxy between them that tests can let misbehave.
type relayPair struct {
	t      testing.TB
	out    *mteNode
	in     *mteNode
	origin string // URL
	wire   *outWire
	client *http.Client
}

// outWire is a proxy in front of the other relay. It may be told to answer itself.
type outWire struct {
	url    string
	target atomic.Pointer[url.URL]
	script atomic.Pointer[outScript]
	frames atomic.Int64 // requests of the data path
}

// A outScript answers a request in the relay's place, or lets it pass with false.
type outScript func(w http.ResponseWriter, r *http.Request) bool

func (p *outWire) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/" {
		p.frames.Add(1)
	}
	if s := p.script.Load(); s != nil && *s != nil && (*s)(w, r) {
		return
	}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(p.target.Load())
			r.Out.Host = "127.0.0.1"
		},
		FlushInterval: -1,
		ErrorHandler:  func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
		Transport:     &http.Transport{DisableKeepAlives: true, DisableCompression: true},
	}
	proxy.ServeHTTP(w, r)
}

// play has the proxy answer by a script; nil lets everything pass.
func (p *outWire) play(s outScript) { p.script.Store(&s) }

// pairOptions are what startRelayPair can be told.
type pairOptions struct {
	origin  http.Handler
	wired   bool // with the proxy between
	in, out []string
	domain  map[string]any // members of the outbound entry
}

func startRelayPair(t testing.TB, o pairOptions) *relayPair {
	t.Helper()
	p := &relayPair{t: t, origin: startTestOrigin(t, o.origin)}
	p.startIn("the secret", o.in...)
	other := "http://" + p.in.addr
	if o.wired {
		p.wire = new(outWire)
		p.aim()
		p.wire.url = startTestOrigin(t, p.wire)
		other = p.wire.url
	}
	entry := map[string]any{"outbound": other}
	for k, v := range o.domain {
		entry[k] = v
	}
	m, _ := json.Marshal(map[string]any{outHost: entry})
	p.out = startMTE(t, slices.Concat(o.out, []string{"DOMAIN_MAP=" + string(m), "KYBER_STRENGTH=512"})...)
	// When it ends, what the other relay has with its origin is still there.
	p.out.descriptors, p.out.goroutines = math.MaxInt, math.MaxInt
	p.connect()
	t.Cleanup(func() {
		if err := p.out.g.CheckPairs(); err != nil {
			t.Error(err)
		}
		p.out.untilMetric(`mte_relay_outbound_pairs{state="in_use"}`, 0)
	})
	return p
}

// connect makes the client.
func (p *relayPair) connect() {
	tr := &http.Transport{
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, p.out.addr)
		},
		DisableCompression:  true,
		MaxIdleConnsPerHost: 2048,
	}
	p.client = &http.Client{Transport: tr, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	p.t.Cleanup(tr.CloseIdleConnections)
}

// startIn starts the other relay, or another in its place.
func (p *relayPair) startIn(secret string, settings ...string) {
	domains := strings.ReplaceAll(domainMap("127.0.0.1", p.origin), "the secret", secret)
	p.in = startMTE(p.t, slices.Concat(settings, []string{"KYBER_STRENGTH=512", domains})...)
	if p.out != nil {
		// The outbound node goes on with new connections when this one has ended.
		p.in.descriptors, p.in.goroutines = math.MaxInt, math.MaxInt
	}
}

// aim has the proxy pass to the other relay that runs now.
func (p *relayPair) aim() { p.wire.target.Store(&url.URL{Scheme: "http", Host: p.in.addr}) }

func (p *relayPair) request(ctx context.Context, method, target string, body io.Reader, headers ...string) *http.Request {
	p.t.Helper()
	r, err := http.NewRequestWithContext(ctx, method, "http://"+outHost+target, body)
	if err != nil {
		p.t.Fatal(err)
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ":")
		r.Header.Add(name, value)
	}
	return r
}

// do makes a request and reads its whole answer.
func (p *relayPair) do(method, target string, body io.Reader, headers ...string) answer {
	p.t.Helper()
	a, err := p.try(p.request(context.Background(), method, target, body, headers...))
	if err != nil {
		p.t.Fatalf("%s %s: %v", method, target, err)
	}
	return a
}

func (p *relayPair) try(r *http.Request) (answer, error) {
	res, err := p.client.Do(r)
	if err != nil {
		return answer{}, err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	return answer{res.StatusCode, string(b), res.Header}, err
}

// outError is the JSON that plain callers get.
type outError struct {
	Code            int
	Reason, Message string
	Cause           *struct {
		Code, Hop int
		Reason    string
	}
}

// wantRefusal expects a refusal to a plain caller, with the cause "code reason" or
// none.
func (a answer) wantRefusal(t testing.TB, code int, reason, cause string) outError {
	t.Helper()
	var e outError
	if err := json.Unmarshal([]byte(a.body), &e); err != nil {
		t.Fatalf("%d %.200q: %v", a.status, a.body, err)
	}
	got := ""
	if e.Cause != nil {
		if got = fmt.Sprint(e.Cause.Code, " ", e.Cause.Reason); e.Cause.Hop != 2 {
			t.Errorf("the cause is of hop %d", e.Cause.Hop)
		}
	}
	if a.status != code || e.Code != code || e.Reason != reason || e.Message == "" || got != cause {
		t.Fatalf("got %d %s, want %d %s because of %q", a.status, a.body, code, reason, cause)
	}
	framed := code != 400 && code != 401 && code != 404 && code != 405
	if h := a.header.Get("X-MTE-Relay-Error"); framed && h != fmt.Sprint(code, " ", reason) {
		t.Errorf("X-MTE-Relay-Error %q", h)
	}
	if h := a.header.Get("Retry-After"); (h != "") != (code == 485) {
		t.Errorf("%d with Retry-After %q", code, h)
	}
	return e
}
