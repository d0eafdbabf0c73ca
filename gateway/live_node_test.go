package gateway_test

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	wire "sluice/codec/frame"
	"sluice/gateway"
)

// A plane is a control plane that serves one text, with an ETag unless it is
// told not to, or does what a script says.
type plane struct {
	url string

	mu     sync.Mutex
	text   string
	noETag bool
	script http.HandlerFunc
	asked  int
	fresh  int // answers with the text
}

func startPlane(t testing.TB, text string) *plane {
	p := &plane{text: text}
	p.url = startTestOrigin(t, p)
	return p
}

func (p *plane) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked++
	if p.script != nil {
		p.script(w, r)
		return
	}
	if !p.noETag {
		tag := fmt.Sprintf(`"%x"`, sha256.Sum256([]byte(p.text)))
		w.Header().Set("ETag", tag)
		if r.Header.Get("If-None-Match") == tag {
			w.WriteHeader(304)
			return
		}
	}
	p.fresh++
	w.Write([]byte(p.text))
}

// serve changes the text and takes a script back.
func (p *plane) serve(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.text, p.script = text, nil
}

func (p *plane) play(script http.HandlerFunc) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.script = script
}

func (p *plane) counts() (asked, fresh int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asked, p.fresh
}

// A liveNode is a gateway that watches its settings' sources. Its interval is so
// long that they are looked at when the test says so.
type liveNode struct {
	*mteNode
	relay string // address of the WebSocket relay, if it is on
	hup   chan os.Signal
}

// startLive starts a gateway as the program does.
func startLive(t testing.TB, settings ...string) *liveNode {
	t.Helper()
	n := &liveNode{mteNode: &mteNode{t: t, log: new(logLines)}, hup: make(chan os.Signal, 1)}
	n.descriptors, n.goroutines = descriptors(t), goroutines()
	for try := 0; ; try++ {
		port, admin, relay := nextPort(), nextPort(), nextPort()
		env := append([]string{"PORT=" + port, "ADMIN_PORT=" + admin}, settings...)
		env = append(env, "PASEO_RELAY_PORT="+relay, "LOOPS=2", "DRAIN_SECONDS=0", "RATE_LIMITS=false", "CONFIG_POLL_SECONDS=3600")
		g, faults, err := gateway.StartLive(env, slog.New(slog.NewJSONHandler(n.log, &slog.HandlerOptions{Level: slog.LevelDebug})), n.hup)
		if len(faults) > 0 {
			t.Fatal(faults)
		}
		if err != nil && try < 20 {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		n.g, n.addr, n.admin, n.relay = g, "127.0.0.1:"+port, "127.0.0.1:"+admin, "127.0.0.1:"+relay
		noteTLS(n.addr, settingsWith("TLS_CERT_FILE=", settings))
		noteTLS(n.relay, settingsWith("PASEO_RELAY_TLS_CERT_FILE=", settings))
		break
	}
	t.Cleanup(n.finish)
	return n
}

// settingsWith are those of a list that begin with a prefix.
func settingsWith(prefix string, settings []string) (list []string) {
	for _, s := range settings {
		if strings.HasPrefix(s, prefix) {
			list = append(list, s)
		}
	}
	return list
}

// look has the sources looked at.
func (n *liveNode) look() { n.hup <- syscall.SIGHUP }

// settings is a JSON text of the settings' format.
func settingsText(members map[string]any) string {
	b, _ := json.Marshal(members)
	return string(b)
}

// domains is a DOMAIN_MAP as an object: hosts with one upstream.
func domainsAt(upstream string, hosts ...string) map[string]any {
	m := make(map[string]any)
	for _, h := range hosts {
		m[h] = map[string]any{"upstream": upstream, "client_id_secret": mteSecret(h), "pass_through_routes": []string{"/plain/*"}}
	}
	return m
}

func with(m map[string]any, more map[string]any) map[string]any {
	m = maps.Clone(m)
	maps.Copy(m, more)
	return m
}

// discovery is what a domain tells about itself, and false for an unknown one.
func (n *liveNode) discovery(host string) (wire.Discovery, bool) {
	n.t.Helper()
	a := httpDo(n.t, n.addr, "GET", wire.AuthPath+"?frameVersions=2", "Host:"+host)
	if a.status == wire.NoDomainForHost.Code() {
		return wire.Discovery{}, false
	}
	_, about, err := wire.ParseAuth([]byte(a.body))
	if err != nil {
		n.t.Fatalf("auth at %s: %d %q", host, a.status, a.body)
	}
	return about, true
}

// want expects a version with a cap in MiB.
func (n *liveNode) want(what string, version int, mib int64) {
	n.t.Helper()
	var about wire.Discovery
	if !poll(func() bool {
		about, _ = n.discovery("localhost")
		return about.ConfigVersion == version && about.MaxRequestBodyBytes == mib<<20
	}) {
		n.t.Fatalf("%s: version %d with %d MiB, want %d with %d", what, about.ConfigVersion, about.MaxRequestBodyBytes>>20, version, mib)
	}
}

// tempFile writes a file of the test's.
func tempFile(t testing.TB, name, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	replaceFile(t, file, text)
	return file
}

// replaceFile puts another text in a file's place, as deployments do.
func replaceFile(t testing.TB, file, text string) {
	t.Helper()
	if err := os.WriteFile(file+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		t.Fatal(err)
	}
}

// untold expects that no line of the log holds one of these.
func (n *liveNode) untold(secrets ...string) {
	n.t.Helper()
	for _, s := range secrets {
		for _, line := range n.log.with(s) {
			n.t.Errorf("a secret is told: %s", strings.TrimSpace(line))
		}
	}
}
