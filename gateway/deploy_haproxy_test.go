package gateway_test

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"sluice/gateway/store/redistest"
)

// haproxyAddress is where HAProxy comes from in tests. No other address is in
// TRUSTED_PROXIES, so that the test itself may ask a replica without a header.
const haproxyAddress = "127.0.0.9"

// A composed is what compose.yaml runs, on loopback: two replicas as processes,
// with a Redis and HAProxy in front, all of them with the shipped settings.
type composed struct {
	redis      *redistest.Server
	replicas   [2]*served
	relay      string // the frontends
	encrypting *mteNode
	health     string
}

// startComposed starts all of it. more are settings that a test needs otherwise.
func startComposed(t *testing.T, origin string, more ...string) *composed {
	t.Helper()
	haproxy := debianProgram(t, "haproxy")
	c := readCompose(t)
	file := savedFile(t, t.TempDir(), "sluice.yaml", rewritten(t, "compose/conf/sluice.example.yaml",
		`client_id_secret: ""`, "client_id_secret: "+strings.Repeat("x", 44), "http://origin.example:9900", origin))
	a := &composed{redis: redistest.Start(t, c.Services["redis"].Command[1:]...)}
	var relays, checks [2]string
	for i, name := range []string{"sluice-a", "sluice-b"} {
		env := maps.Clone(c.Services[name].Environment)
		maps.Copy(env, map[string]any{"CONFIG_FILE": file, "REDIS_URL": a.redis.URL(), "TRUSTED_PROXIES": haproxyAddress, "LAME_DUCK_SECONDS": "0", "DRAIN_SECONDS": "3"})
		port := nextPort()
		s := serve(t, append(append(settingsOf(t, name, env), "PORT="+port), more...)...)
		a.replicas[i], relays[i] = s, s.addr
		_, relayPort, _ := strings.Cut(s.addr, ":")
		checks[i] = "127.0.0.1:" + port + " check port " + relayPort
	}
	for _, s := range a.replicas {
		s.untilReady()
		s.adminUp()
	}
	relay, encrypting, health := nextPort(), nextPort(), nextPort()
	a.relay, a.health = "127.0.0.1:"+relay, "127.0.0.1:"+health
	a.encrypting = &mteNode{t: t, addr: "127.0.0.1:" + encrypting}
	conf := savedFile(t, t.TempDir(), "haproxy.cfg", rewritten(t, "compose/haproxy.cfg",
		"bind :4000", "bind "+a.relay, "bind :8080", "bind "+a.encrypting.addr, "bind 127.0.0.1:8404", "bind "+a.health,
		"sluice-a:4000", relays[0], "sluice-b:4000", relays[1], "sluice-a:8080 check port 4000", checks[0], "sluice-b:8080 check port 4000", checks[1],
		"inter 2s", "source "+haproxyAddress+" inter 100ms", "maxconn 60000", "maxconn 1000")+"\n")
	untilListening(t, a.relay, startProgram(t, nil, haproxy, "-db", "-f", conf))
	return a
}

// processMetric returns a series of a process's own page.
func (s *served) processMetric(series string) float64 {
	s.t.Helper()
	return (&mteNode{t: s.t, admin: s.admin}).metric(series)
}

// ended reports whether a replica's log tells the end of a socket under the address
// that it has on this side of HAProxy.
func (s *served) ended(w *wsClient) bool {
	return slices.ContainsFunc(s.log.with(`"msg":"connection ended"`), func(line string) bool {
		return strings.Contains(line, fmt.Sprintf(`"peer":%q`, w.nc.LocalAddr()))
	})
}

// Sessions across both replicas behind the shipped HAProxy, both roles at once:
// the headers name the clients, a serverId has one replica, a pair is served by
// both, and when one is stopped its sockets get close frames and come again at the
// other.
func TestDeployHAProxy(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	forwarded := map[string]bool{}
	origin := startTestOrigin(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		forwarded[r.Header.Get("X-Forwarded-For")] = true
		mu.Unlock()
		io.WriteString(w, r.URL.Path)
	}))
	c := startComposed(t, origin)
	a, b := c.replicas[0], c.replicas[1]
	mustPass(t, debianProgram(t, "haproxy"), "-c", "-q", "-f", deployDir+"/compose/haproxy.cfg")

	open := func(sid string) (pair [2]*wsClient, err error) {
		for i, role := range []string{"server", "client"} {
			if pair[i], err = dialWS(t, c.relay, wsQuery(sid, role, 1, "-"), sid+" "+role); err != nil {
				return pair, err
			}
			t.Cleanup(pair[i].rst)
		}
		pair[1].text("up")
		pair[0].wantText("up")
		return pair, nil
	}
	const sessions = 24
	var all [sessions][2]*wsClient
	for i := range all {
		var err error
		if all[i], err = open(fmt.Sprint("session-", i)); err != nil {
			t.Fatal(err)
		}
	}
	onA := map[int]bool{}
	for i := range all {
		owner := c.redis.Do("GET", c.redis.Do("KEYS", fmt.Sprintf("sluice:owner:*:session-%d", i)))
		if strings.Contains(owner, "sluice-a") {
			onA[i] = true
		} else if !strings.Contains(owner, "sluice-b") {
			t.Fatalf("session-%d is owned by %q", i, owner)
		}
	}
	x, y := a.processMetric("paseo_relay_active_sessions"), b.processMetric("paseo_relay_active_sessions")
	if int(x) != len(onA) || int(y) != sessions-len(onA) || x == 0 || y == 0 {
		t.Errorf("%v sessions on one replica, %v on the other; in Redis the first has %d", x, y, len(onA))
	}

	// Requests through one pair are answered by both.
	pair, err := newMTEClient(t, c.encrypting, "localhost").pair()
	if err != nil {
		t.Fatal(err)
	}
	ask := func(times int) {
		t.Helper()
		for i := range times {
			if body, err := pair.get(fmt.Sprint(i)); err != nil || body != fmt.Sprint("/", i) {
				t.Fatalf("request %d: %q, %v", i, body, err)
			}
		}
	}
	ask(10)
	frames := `mte_relay_requests_total{kind="frames"}`
	if x, y = a.processMetric(frames), b.processMetric(frames); x == 0 || y == 0 || x+y < 10 {
		t.Errorf("%v requests at one replica, %v at the other", x, y)
	}
	mu.Lock()
	if len(forwarded) != 1 || !forwarded["127.0.0.1"] {
		t.Errorf("the origin was told of %v", forwarded)
	}
	mu.Unlock()
	if res := httpDo(t, c.health, "GET", "/health"); res.status != 200 {
		t.Errorf("HAProxy's own health: %d", res.status)
	}

	// A replica that drains gets nothing new, and loses nobody.
	httpDo(t, a.admin, "POST", "/drain", "X-Sluice-Admin:1")
	next := 0
	if !poll(func() bool {
		next++
		for i := range 8 { // all of them land on the other one
			w, err := dialWS(t, c.relay, wsQuery(fmt.Sprint("later-", next, "-", i), "server", 1, "-"), "later")
			if err != nil {
				return false
			}
			defer w.rst()
		}
		return true
	}) {
		t.Error("HAProxy goes on using a replica that is not ready")
	}
	for _, pair := range all {
		pair[0].text("down")
		pair[1].wantText("down")
	}

	// One that is stopped tells its sockets, whose sessions are given up in Redis
	// before: they come again at once, at the other.
	a.cmd.Process.Signal(syscall.SIGTERM)
	for i, pair := range all {
		if !onA[i] {
			continue
		}
		for _, w := range pair {
			w.wantCloseFrame(1012, "Service restart")
			w.raw(closeFrame(1012, ""))
			w.bye()
		}
		if _, err := open(fmt.Sprint("session-", i)); err != nil {
			t.Errorf("%s comes again: %v", pair[0].name, err)
		}
	}
	a.wantExit(0)
	named := 0
	for i, pair := range all {
		if !onA[i] {
			pair[0].text("still")
			pair[1].wantText("still")
		}
		for _, w := range pair {
			switch told := a.ended(w); {
			case told && onA[i]:
				named++
			case told:
				t.Errorf("%s ended where it was not", w.name)
			}
		}
	}
	// Lines of one kind are limited; those there are name the clients.
	if lines := len(a.log.with(`"msg":"connection ended"`)); named == 0 || named != lines {
		t.Errorf("%d of %d lines name a client", named, lines)
	}
	ask(4)
}
