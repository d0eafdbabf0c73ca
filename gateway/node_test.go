package gateway_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sluice/gateway"
	"sluice/gateway/config"
	"sluice/loop"
)

// ports hands out listening ports below the range that the kernel gives to
// clients. Processes of these tests that run at the same time each have a stretch
// of it, which is theirs while they hold the port that stands for it.
var ports struct {
	first int
	next  atomic.Int32
	held  net.Listener
}

const (
	portStretch   = 3000
	portStretches = 4
)

// claimPorts is called once, before the tests.
func claimPorts() {
	for i := range portStretches {
		ln, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(19990+i))
		if err == nil {
			ports.held, ports.first = ln, 20000+i*portStretch
			return
		}
	}
	// The workers of a fuzz run may be more.
	ports.first = 20000
	ports.next.Store(int32(os.Getpid() % portStretch))
}

func nextPort() string { return strconv.Itoa(ports.first + int(ports.next.Add(1))%portStretch) }

// A node is a gateway that runs in this process, and the clients of one test.
// When the test ends its sockets are closed and every account of the ledger
// must be zero.
type node struct {
	t     testing.TB
	g     *gateway.Gateway
	addr  string
	admin string
	log   *logLines
	ids   atomic.Int32

	mu      sync.Mutex
	clients []*wsClient
	stopped bool
}

// quick are settings with which everything that waits does so for moments.
var quick = []string{"DRAIN_SECONDS=0", "LOOPS=2", "PORT=0"}

// startNode starts a relay with settings of the form NAME=value; short names get
// the prefix PASEO_RELAY_.
func startNode(t testing.TB, settings ...string) *node {
	t.Helper()
	return startNodeBy(t, gateway.Start, settings...)
}

// startNodeBy is startNode with another way to start.
func startNodeBy(t testing.TB, start func(*config.Config, *slog.Logger) (*gateway.Gateway, error), settings ...string) *node {
	t.Helper()
	n := &node{t: t, log: new(logLines)}
	for try := 0; ; try++ {
		env := []string{}
		for _, s := range settings {
			env = append(env, fullName(s))
		}
		port, admin := nextPort(), nextPort()
		env = append(append(env, quick...), "PASEO_RELAY_PORT="+port, "ADMIN_PORT="+admin)
		if overTLS {
			env = append(env, testTLS("PASEO_RELAY_")...)
		}
		cfg, faults, _ := config.Load(env, os.ReadFile)
		if len(faults) > 0 {
			t.Fatal(faults)
		}
		g, err := start(cfg, slog.New(slog.NewJSONHandler(n.log, nil)))
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
	n.turned()
	return n
}

// turned waits until every loop has turned: what was set or posted before is
// seen there.
func (n *node) turned() {
	done := make(chan struct{}, len(n.g.Loops()))
	for _, l := range n.g.Loops() {
		l.Post(loop.Func(func(*loop.Loop) { done <- struct{}{} }))
	}
	for range n.g.Loops() {
		<-done
	}
}

func fullName(s string) string {
	for _, p := range []string{"PASEO_", "HTTP_", "LOOPS", "DRAIN_", "LAME_", "TCP_", "LOG_", "WRITE_", "ADMIN_", "REDIS_", "SLUICE_", "PROXY_", "TRUSTED_", "TLS_", "CONFIG_", "CONTROL_PLANE_", "NOTIFY_", "WATCHDOG_", "PORT=", "DOMAIN_"} {
		if strings.HasPrefix(s, p) {
			return s
		}
	}
	return "PASEO_RELAY_" + s
}

// finish closes what the test left open, waits for an empty ledger and stops.
func (n *node) finish() {
	if n.stopped {
		return
	}
	n.stopped = true
	n.mu.Lock()
	for _, c := range n.clients {
		c.rst()
	}
	n.mu.Unlock()
	if err := n.emptied(); err != nil {
		n.t.Error(err)
	}
	n.g.Stop()
}

// emptied waits for an empty ledger and no session.
func (n *node) emptied() error {
	var err error
	ok := poll(func() bool {
		if err = n.g.Ledger().Empty(); err == nil && n.g.Relay().Sessions() != 0 {
			err = fmt.Errorf("%d sessions without a socket", n.g.Relay().Sessions())
		}
		return err == nil
	})
	if ok {
		return nil
	}
	return fmt.Errorf("after all sockets were closed: %w", err)
}

// poll looks for a condition until patience ends.
func poll(cond func() bool) bool {
	for until := time.Now().Add(patience); ; {
		if cond() {
			return true
		}
		if time.Now().After(until) {
			return false
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// until waits for a condition that the test names.
func (n *node) until(what string, cond func() bool) {
	n.t.Helper()
	if !poll(cond) {
		n.t.Fatalf("never: %s (%+v)", what, n.g.Ledger().Snapshot())
	}
}

// untilIngress waits until the ledger holds this many payload bytes at the default weight.
func (n *node) untilIngress(payload int64) {
	n.t.Helper()
	n.until(fmt.Sprintf("%d payload bytes in the ledger", payload), func() bool { return n.g.Ledger().Snapshot().Ingress == 4*payload })
}

func (n *node) untilBlocked(k int64) {
	n.t.Helper()
	n.until(fmt.Sprintf("%d blocked deliveries", k), func() bool { return n.g.Ledger().Snapshot().Blocked == k })
}

func (n *node) untilSockets(k int64) {
	n.t.Helper()
	n.until(fmt.Sprintf("%d sockets", k), func() bool { return n.g.Ledger().Snapshot().Sockets == k })
}

// sid returns a serverId that nobody else uses.
func (n *node) sid() string { return fmt.Sprintf("s%d", n.ids.Add(1)) }

// dial is an upgrade that may be refused.
func (n *node) dial(query, name string, opts ...wsOption) (*wsClient, error) {
	c, err := dialWS(n.t, n.addr, query, name, opts...)
	if err == nil {
		n.mu.Lock()
		n.clients = append(n.clients, c)
		n.mu.Unlock()
	}
	return c, err
}

func (n *node) ws(query, name string, opts ...wsOption) *wsClient {
	n.t.Helper()
	c, err := n.dial(query, name, opts...)
	if err != nil {
		n.t.Fatalf("%s: %v", name, err)
	}
	return c
}

// v1 opens a v1 socket of a role.
func (n *node) v1(role, sid string, opts ...wsOption) *wsClient {
	n.t.Helper()
	return n.ws(wsQuery(sid, role, 1, "-"), "v1 "+role, opts...)
}

// v1pair is a v1 session: the server's and the client's socket.
func (n *node) v1pair(opts ...wsOption) (s, c *wsClient) {
	n.t.Helper()
	sid := n.sid()
	return n.v1("server", sid, opts...), n.v1("client", sid, opts...)
}

func (n *node) client(sid, cid string, opts ...wsOption) *wsClient {
	n.t.Helper()
	return n.ws(wsQuery(sid, "client", 2, cid), "client "+cid, opts...)
}

func (n *node) data(sid, cid string, opts ...wsOption) *wsClient {
	n.t.Helper()
	return n.ws(wsQuery(sid, "server", 2, cid), "data "+cid, opts...)
}

// control opens a control socket and expects its sync.
func (n *node) control(sid string, ids ...string) *wsClient {
	n.t.Helper()
	c := n.ws(wsQuery(sid, "server", 2, "-"), "control")
	c.wantJSON(syncJSON(ids...))
	return c
}

func syncJSON(ids ...string) string {
	for i := range ids {
		ids[i] = strconv.Quote(ids[i])
	}
	return `{"type":"sync","connectionIds":[` + strings.Join(ids, ",") + `]}`
}

func connectedJSON(cid string) string { return `{"type":"connected","connectionId":"` + cid + `"}` }

func disconnectedJSON(cid string) string {
	return `{"type":"disconnected","connectionId":"` + cid + `"}`
}

// pair is a v2 connection: its data socket and its client.
func (n *node) pair(opts ...wsOption) (d, c *wsClient) {
	n.t.Helper()
	sid := n.sid()
	c = n.client(sid, "c", opts...)
	return n.data(sid, "c", opts...), c
}

// kinds are the sockets whose input is examined.
var kinds = []string{"v1 server", "v1 client", "data", "client", "control"}

// kind opens a socket of a kind and its peer, which control has none of.
func (n *node) kind(kind string, opts ...wsOption) (w, peer *wsClient) {
	n.t.Helper()
	sid := n.sid()
	switch kind {
	case "v1 server":
		peer = n.v1("client", sid)
		w = n.v1("server", sid, opts...)
	case "v1 client":
		peer = n.v1("server", sid)
		w = n.v1("client", sid, opts...)
	case "data":
		peer = n.client(sid, "c")
		w = n.data(sid, "c", opts...)
	case "client":
		peer = n.data(sid, "c")
		w = n.client(sid, "c", opts...)
	case "control":
		w = n.ws(wsQuery(sid, "server", 2, "-"), "control", opts...)
		w.wantJSON(syncJSON())
	default:
		n.t.Fatalf("BUG: kind %q", kind)
	}
	return w, peer
}

// peerEnds is what the peer of a socket of that kind sees when it is closed.
func peerEnds(kind string, peer *wsClient) {
	peer.t.Helper()
	switch kind {
	case "v1 server", "v1 client":
		peer.barrier()
	case "data":
		peer.wantClose(1012, "Server disconnected")
	case "client":
		peer.wantClose(1001, "Client disconnected")
	}
}

// refused expects an upgrade to be answered with this status and body.
func (n *node) refused(query string, status int, body string) http.Header {
	n.t.Helper()
	c, err := dialWS(n.t, n.addr, query, query)
	if err == nil {
		c.rst()
	}
	var no *refusedError
	if !errors.As(err, &no) || no.status != status || no.body != body {
		n.t.Fatalf("upgrade %q: got %v, expected %d %q", query, err, status, body)
	}
	return no.header
}

// answer is one HTTP response.
type answer struct {
	status int
	body   string
	header http.Header
}

// dialsTo connects to addr the way its listener wants it, whatever is asked for.
func dialsTo(addr string) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, _ string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, network, addr)
		if err != nil || !secured(addr) {
			return c, err
		}
		return startTLS(c.(*net.TCPConn), clientTLS("localhost"))
	}
}

// httpDo makes one request at addr; body and connection are gone afterwards.
func httpDo(t testing.TB, addr, method, target string, headers ...string) answer {
	t.Helper()
	r, _ := http.NewRequest(method, "http://"+addr+target, nil)
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ":")
		if name == "Host" {
			r.Host = value
		}
		r.Header.Set(name, value)
	}
	tr := &http.Transport{DisableKeepAlives: true, DialContext: dialsTo(addr)}
	defer tr.CloseIdleConnections()
	res, err := (&http.Client{Transport: tr, Timeout: patience}).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{res.StatusCode, string(body), res.Header}
}

// metric returns one series of the relay's page, with its labels; ok says
// whether it is there.
func (n *node) metric(series string) (v float64, ok bool) {
	n.t.Helper()
	for line := range strings.Lines(httpDo(n.t, n.addr, "GET", "/metrics").body) {
		if name, value, _ := strings.Cut(strings.TrimSpace(line), " "); name == "paseo_relay_"+series {
			v, err := strconv.ParseFloat(value, 64)
			if err != nil {
				n.t.Fatalf("%s: %v", line, err)
			}
			return v, true
		}
	}
	return 0, false
}

// untilMetric waits for a series to have a value: counters are published at the
// end of a loop's turn.
func (n *node) untilMetric(series string, want float64) {
	n.t.Helper()
	var got float64
	if !poll(func() bool { got, _ = n.metric(series); return got == want }) {
		n.t.Fatalf("%s is %v, expected %v", series, got, want)
	}
}

// logLines keeps what a gateway logs.
type logLines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logLines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

func (l *logLines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// with returns the lines that hold s.
func (l *logLines) with(s string) (lines []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.buf.String()) {
		if strings.Contains(line, s) {
			lines = append(lines, line)
		}
	}
	return lines
}

func jsonOf(typ, cid string) []byte {
	b, _ := json.Marshal(map[string]string{"type": typ, "connectionId": cid})
	return b
}
