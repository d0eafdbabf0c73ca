package gateway_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"sluice/gateway"
	"sluice/gateway/config"
)

// An mteNode is a gateway with the encrypting role alone that runs in this
// process. When the test ends no pair may be in use and nothing may be left of
// what it started.
type mteNode struct {
	t     testing.TB
	g     *gateway.Gateway
	addr  string
	admin string
	log   *logLines

	descriptors, goroutines int // before it was started
}

// mteSecret is the client_id_secret of a domain of tests.
func mteSecret(host string) string { return "the secret of " + host + ", which is long enough" }

// domainMap is a DOMAIN_MAP with these hosts and upstreams, in turns. Paths under
// /plain/ are passed through.
func domainMap(hostsAndUpstreams ...string) string {
	m := map[string]any{}
	for i := 0; i < len(hostsAndUpstreams); i += 2 {
		host := hostsAndUpstreams[i]
		m[host] = map[string]any{
			"upstream":            hostsAndUpstreams[i+1],
			"client_id_secret":    mteSecret(host),
			"pass_through_routes": []string{"/plain/*"},
		}
	}
	b, _ := json.Marshal(m)
	return "DOMAIN_MAP=" + string(b)
}

// startMTEBehind starts an origin and the relay in front of it, whose domain is
// localhost. The origin outlives the relay.
func startMTEBehind(t testing.TB, origin http.Handler, settings ...string) *mteNode {
	t.Helper()
	return startMTE(t, append(settings, domainMap("localhost", startTestOrigin(t, origin)))...)
}

// startMTE starts the encrypting role with settings of the form NAME=value. Its
// log is kept whole, down to debug.
func startMTE(t testing.TB, settings ...string) *mteNode {
	t.Helper()
	n := &mteNode{t: t, log: new(logLines)}
	n.descriptors, n.goroutines = descriptors(t), goroutines()
	for try := 0; ; try++ {
		port, admin := nextPort(), nextPort()
		env := append([]string{"PASEO_RELAY_PORT=0", "PORT=" + port, "ADMIN_PORT=" + admin}, settings...)
		env = append(env, "LOOPS=2", "DRAIN_SECONDS=0", "RATE_LIMITS=false") // of two the first counts
		cfg, faults, _ := config.Load(env, os.ReadFile)
		if len(faults) > 0 {
			t.Fatal(faults)
		}
		g, err := gateway.Start(cfg, slog.New(slog.NewJSONHandler(n.log, &slog.HandlerOptions{Level: slog.LevelDebug})))
		if err != nil && try < 20 {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		n.g, n.addr, n.admin = g, "127.0.0.1:"+port, "127.0.0.1:"+admin
		noteTLS(n.addr, env)
		break
	}
	t.Cleanup(n.finish)
	return n
}

// goroutines counts all but those of fasthttp that sleep: it has one for the life
// of the process, and one that outlives its server for some seconds.
func goroutines() (n int) {
	b := make([]byte, 1<<20)
	for stack := range strings.SplitSeq(string(b[:runtime.Stack(b, true)]), "\n\n") {
		if !strings.Contains(stack, "[sleep") || !strings.Contains(stack, "valyala/fasthttp") {
			n++
		}
	}
	return n
}

// finish stops the gateway and looks for what it left behind. Tests close their
// own sockets and origins by cleanups of their own, which run earlier.
func (n *mteNode) finish() {
	n.untilMetric("mte_relay_pairs_in_use", 0)
	n.g.Stop()
	http.DefaultClient.CloseIdleConnections()
	if !poll(func() bool { return descriptors(n.t) <= n.descriptors && goroutines() <= n.goroutines }) {
		n.t.Errorf("leaked: %d descriptors where there were %d, %d goroutines where there were %d",
			descriptors(n.t), n.descriptors, goroutines(), n.goroutines)
		if n.t.Failed() && testing.Verbose() {
			b := make([]byte, 1<<20)
			n.t.Logf("%s", b[:runtime.Stack(b, true)])
		}
	}
}

// metric returns one series of the admin page.
func (n *mteNode) metric(series string) float64 {
	n.t.Helper()
	for line := range strings.Lines(httpDo(n.t, n.admin, "GET", "/metrics").body) {
		if name, value, _ := strings.Cut(strings.TrimSpace(line), " "); name == series {
			v, err := strconv.ParseFloat(value, 64)
			if err != nil {
				n.t.Fatalf("%s: %v", line, err)
			}
			return v
		}
	}
	n.t.Fatalf("no series %s", series)
	return 0
}

func (n *mteNode) untilMetric(series string, want float64) {
	n.t.Helper()
	var got float64
	if !poll(func() bool { got = n.metric(series); return got == want }) {
		n.t.Errorf("%s is %v, expected %v", series, got, want)
	}
}

// startTestOrigin serves a handler on a port of 127.0.0.1 until the test ends.
func startTestOrigin(t testing.TB, h http.Handler) (url string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return serveTestOrigin(t, ln, h)
}

func serveTestOrigin(t testing.TB, ln net.Listener, h http.Handler) (url string) {
	quiet := slog.NewLogLogger(slog.NewTextHandler(new(bytes.Buffer), nil), slog.LevelDebug)
	s := &http.Server{Handler: h, ErrorLog: quiet, ReadHeaderTimeout: time.Minute}
	done := make(chan struct{})
	go func() { defer close(done); s.Serve(ln) }()
	t.Cleanup(func() { s.Close(); <-done })
	return fmt.Sprintf("http://%v", ln.Addr())
}
