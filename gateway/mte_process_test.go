package gateway_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"sluice/gateway"
	"sluice/gateway/config"
)

// An mteProcess is a process of its own with the encrypting role alone. Of its
// mteNode everything but the gateway is there.
type mteProcess struct {
	*mteNode
	cmd   *exec.Cmd
	port  string
	ended chan struct{}
}

// serveMTE starts a process with settings of the form NAME=value, which may name
// a PORT, and waits until it listens. It is killed when the test ends.
func serveMTE(t testing.TB, settings ...string) *mteProcess {
	t.Helper()
	for range 20 {
		p := &mteProcess{mteNode: &mteNode{t: t, log: new(logLines)}, port: nextPort(), ended: make(chan struct{})}
		for _, s := range settings {
			if v, ok := strings.CutPrefix(s, "PORT="); ok {
				p.port = v
			}
		}
		admin := nextPort()
		p.addr, p.admin = "127.0.0.1:"+p.port, "127.0.0.1:"+admin
		p.cmd = exec.Command(os.Args[0], "-test.run=none")
		p.cmd.Env = append(os.Environ(), "SLUICE_TEST_SERVE=1", "PASEO_RELAY_PORT=0", "LOOPS=2", "DRAIN_SECONDS=0", "LOG_FORMAT=json")
		p.cmd.Env = append(append(p.cmd.Env, settings...), "PORT="+p.port, "ADMIN_PORT="+admin)
		p.cmd.Stderr = p.log
		if err := p.cmd.Start(); err != nil {
			t.Fatal(err)
		}
		go func() {
			p.cmd.Wait()
			close(p.ended)
		}()
		t.Cleanup(p.kill)
		if p.listens() {
			return p
		}
		if len(p.log.with("address already in use")) == 0 {
			t.Fatalf("the process does not listen: %q", p.log.with(""))
		}
	}
	t.Fatal("no free port")
	return nil
}

// listens waits until the process serves, or has ended.
func (p *mteProcess) listens() (ok bool) {
	poll(func() bool {
		select {
		case <-p.ended:
			return true
		default:
		}
		c, err := net.Dial("tcp", p.admin)
		if ok = err == nil; ok {
			c.Close()
			ok = httpDo(p.t, p.admin, "GET", "/ready").status == 200
		}
		return ok
	})
	return ok
}

// kill ends the process at once; what it held is lost.
func (p *mteProcess) kill() {
	p.cmd.Process.Kill()
	<-p.ended
}

// A memoryPeak watches how much the resident memory of a process grows at most.
type memoryPeak struct {
	t      testing.TB
	pid    int
	before int64
}

// watchPeak begins to watch, or skips the test where the kernel cannot tell.
func (p *mteProcess) watchPeak() *memoryPeak {
	p.t.Helper()
	m := &memoryPeak{t: p.t, pid: p.cmd.Process.Pid}
	m.before = residentOf(p.t, m.pid)
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", m.pid), []byte("5"), 0); err != nil {
		p.t.Skip("the peak of a process's memory cannot be reset here: ", err)
	}
	return m
}

// grown returns the growth in bytes.
func (m *memoryPeak) grown() int64 {
	m.t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", m.pid))
	if err != nil {
		m.t.Fatal(err)
	}
	_, rest, _ := bytes.Cut(b, []byte("VmHWM:"))
	fields := bytes.Fields(rest)
	if len(fields) == 0 {
		m.t.Skip("no VmHWM here")
	}
	kib, err := strconv.ParseInt(string(fields[0]), 10, 64)
	if err != nil {
		m.t.Fatal(err)
	}
	return kib<<10 - m.before
}

// wantFlat expects a growth of at most bound bytes.
func (m *memoryPeak) wantFlat(who string, bound int64) {
	m.t.Helper()
	if raceEnabled {
		return // the race detector has memory of its own
	}
	if g := m.grown(); g > bound {
		m.t.Errorf("memory of the %s process grew by %s", who, mib(g))
	} else {
		m.t.Logf("memory of the %s process grew by %s", who, mib(g))
	}
}

// A relayProcesses is a relayPair of two processes, with an origin in this one.
type relayProcesses struct {
	*relayPair
	outward, inward *mteProcess
	settings        []string // of the inbound one
}

// startRelayProcesses starts both; o.wired is not looked at.
func startRelayProcesses(t testing.TB, o pairOptions) *relayProcesses {
	t.Helper()
	p := &relayProcesses{relayPair: &relayPair{t: t, origin: startTestOrigin(t, o.origin)}, settings: o.in}
	p.serveIn("the secret")
	entry := map[string]any{"outbound": "http://" + p.in.addr}
	maps.Copy(entry, o.domain)
	p.serveOut(entry, o.out...)
	p.connect()
	return p
}

// serveOut starts the outbound process, or another beside it.
func (p *relayProcesses) serveOut(entry map[string]any, settings ...string) {
	p.t.Helper()
	m, _ := json.Marshal(map[string]any{outHost: entry})
	p.outward = serveMTE(p.t, append([]string{"DOMAIN_MAP=" + string(m)}, settings...)...)
	p.out = p.outward.mteNode
}

// serveIn starts the inbound process, or another at its place.
func (p *relayProcesses) serveIn(secret string) {
	p.t.Helper()
	settings := append([]string{strings.ReplaceAll(domainMap("127.0.0.1", p.origin), "the secret", secret)}, p.settings...)
	if p.inward != nil {
		settings = append(settings, "PORT="+p.inward.port)
	}
	p.inward = serveMTE(p.t, settings...)
	p.in = p.inward.mteNode
}

// A muxOrigin is an origin that is several, by the first part of the path.
type muxOrigin map[string]http.Handler

func (m muxOrigin) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	first, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	h := m[first]
	if h == nil {
		h = m[""]
	}
	h.ServeHTTP(w, r)
}

// stands waits until a count has moved and does not any more.
func stands(count func() int64) int64 {
	last, began, since := int64(0), time.Now(), time.Now()
	for time.Since(since) < 300*time.Millisecond || last == 0 && time.Since(began) < patience {
		if now := count(); now != last {
			last, since = now, time.Now()
		}
		time.Sleep(5 * time.Millisecond) // between two looks
	}
	return last
}

// A start that ends at the certificates, which are gone since the settings were
// checked, leaves nothing of the role running.
func TestStartWithoutCertificates(t *testing.T) {
	n, open := goroutines(), descriptors(t)
	missing := []string{filepath.Join(t.TempDir(), "missing")}
	cfg, faults, _ := config.Load([]string{"PASEO_RELAY_PORT=0", "PORT=" + nextPort(), "ADMIN_PORT=" + nextPort(), "LOOPS=2"}, os.ReadFile)
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	cfg.MTE.TLS = config.TLS{CertFiles: missing, KeyFiles: missing}
	if _, err := gateway.Start(cfg, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "TLS_CERT_FILE") {
		t.Fatalf("%v", err)
	}
	if !poll(func() bool { return goroutines() <= n && descriptors(t) <= open }) {
		t.Errorf("%d goroutines of %d are left, %d descriptors of %d", goroutines(), n, descriptors(t), open)
	}
}
