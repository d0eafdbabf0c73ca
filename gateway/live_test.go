package gateway_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sluice/gateway/config"
)

// Of what several sources say, the environment goes before the control plane, and
// that before the file.
func TestLiveSources(t *testing.T) {
	origin := startTestOrigin(t, http.NotFoundHandler())
	text := func(mib int) string {
		if mib == 0 {
			return "{}"
		}
		return settingsText(map[string]any{"MAX_REQUEST_BODY_MIB": mib})
	}
	f := func(env, plane, file int, want int64) {
		t.Helper()
		p := startPlane(t, text(plane))
		members := map[string]any{"DOMAIN_MAP": domainsAt(origin, "localhost"), "CONTROL_PLANE_URL": p.url}
		if file > 0 {
			members["MAX_REQUEST_BODY_MIB"] = file
		}
		name := tempFile(t, "sluice.json", settingsText(members))
		settings := []string{"CONFIG_FILE=" + name, "PASEO_RELAY_PORT=0"}
		if env > 0 {
			settings = append(settings, fmt.Sprint("MAX_REQUEST_BODY_MIB=", env))
		}
		n := startLive(t, settings...)
		n.want("at the start", 1, want)
	}
	f(0, 0, 3, 3)
	f(0, 2, 3, 2)
	f(0, 2, 0, 2)
	f(1, 2, 3, 1)
	f(1, 2, 0, 1)
	f(0, 0, 0, 0)
}

// Whatever a control plane does, a version is applied whole or not at all, once,
// and what is refused has its counter.
func TestLiveControlPlaneFaults(t *testing.T) {
	origin := startTestOrigin(t, http.NotFoundHandler())
	domains := map[string]any{"DOMAIN_MAP": domainsAt(origin, "localhost")}
	good := func(mib int) string { return settingsText(with(domains, map[string]any{"MAX_REQUEST_BODY_MIB": mib})) }
	p := startPlane(t, good(1))
	n := startLive(t, "CONTROL_PLANE_URL="+p.url+"/settings?key=in-the-query", "PASEO_RELAY_PORT=0")
	n.want("at the start", 1, 1)

	// A refusal of each kind leaves what is in force.
	refused := func(name, series, text string) {
		t.Helper()
		before := n.metric(series)
		p.serve(text)
		n.look()
		n.untilMetric(series, before+1)
		n.want(name, 1, 1)
	}
	version := func(name, cause, text string) {
		t.Helper()
		refused(name, `sluice_config_refused_total{cause="`+cause+`"}`, text)
	}
	version("garbage", "form", "\x00\xff\x13")
	version("HTML", "form", "<!doctype html><html><body>Log in</body></html>")
	version("nothing", "form", "")
	version("a list", "form", "[1]")
	version("cut JSON", "form", good(2)[:40])
	version("twice", "form", `{"MAX_REQUEST_BODY_MIB":2,"MAX_REQUEST_BODY_MIB":3}`)
	version("a string for a number", "settings", settingsText(with(domains, map[string]any{"MAX_REQUEST_BODY_MIB": "two"})))
	version("a list for a number", "settings", settingsText(with(domains, map[string]any{"MAX_REQUEST_BODY_MIB": []int{2}})))
	version("a string for an object", "settings", settingsText(map[string]any{"DOMAIN_MAP": "{}", "MAX_REQUEST_BODY_MIB": 2}))
	version("an unknown key", "settings", settingsText(with(domains, map[string]any{"MAX_REQUEST_BODY_MIB": 2, "MAX_REQUEST_BODY": 2})))
	version("a file of its own", "settings", settingsText(with(domains, map[string]any{"MAX_REQUEST_BODY_MIB": 2, "CONFIG_FILE": "/etc/passwd"})))
	version("a short secret", "settings", `{"DOMAIN_MAP":{"localhost":{"upstream":"http://127.0.0.1:1","client_id_secret":"of-a-domain"}}}`)
	many := make(map[string]any)
	for i := range 1000 {
		many[fmt.Sprint("UNKNOWN_", i)] = i
	}
	version("very many faults", "settings", settingsText(many))
	if lines := n.log.with(`UNKNOWN_`); len(lines) != 20 {
		t.Errorf("%d lines of a version with a thousand faults", len(lines))
	}
	version("another weight", "restart", settingsText(with(domains, map[string]any{"MAX_REQUEST_BODY_MIB": 2, "PASEO_RELAY_INGRESS_WEIGHT": 2})))
	version("another token", "restart", settingsText(with(domains, map[string]any{"MAX_REQUEST_BODY_MIB": 2, "CONTROL_PLANE_TOKEN_FILE": "/tmp/token"})))

	failed := func(name, cause string, script http.HandlerFunc) {
		t.Helper()
		series := `sluice_config_poll_failures_total{cause="` + cause + `"}`
		before := n.metric(series)
		p.play(script)
		n.look()
		n.untilMetric(series, before+1)
		n.want(name, 1, 1)
	}
	status := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Location", p.url+"/elsewhere")
			w.WriteHeader(code)
			w.Write([]byte(good(2)))
		}
	}
	failed("500", "status", status(500))
	failed("401", "unauthorized", status(401))
	failed("a redirect", "redirect", status(307))
	failed("too large", "too_large", func(w http.ResponseWriter, r *http.Request) {
		w.Write(append([]byte(good(2)), make([]byte, config.MaxDocument)...))
	})
	failed("truncated", "truncated", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "1000")
		w.Write([]byte(good(2)))
	})
	failed("a connection that breaks", "unreachable", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })

	// Better at last; the settings that need no restart may be repeated as they are.
	p.serve(settingsText(with(domains, map[string]any{"MAX_REQUEST_BODY_MIB": 2, "LOOPS": 2, "PASEO_RELAY_PORT": "0"})))
	n.look()
	n.want("a good one", 2, 2)
	// The same again is no new version: by its ETag, and without one by its text or
	// by what it says.
	again := func(name string, change func()) {
		t.Helper()
		p.mu.Lock()
		change()
		p.mu.Unlock()
		asked, fresh := p.counts()
		n.look()
		if !poll(func() bool { now, _ := p.counts(); return now > asked }) {
			t.Fatalf("%s: not asked", name)
		}
		_, now := p.counts()
		t.Logf("%s: %d bodies", name, now-fresh)
		n.want(name, 2, 2)
	}
	again("unchanged", func() {})
	again("without an ETag", func() { p.noETag = true })
	again("in other words", func() {
		p.text = "MAX_REQUEST_BODY_MIB: 2\nDOMAIN_MAP: " + settingsText(domainsAt(origin, "localhost"))
	})
	p.serve(good(4))
	n.look()
	n.want("the next", 3, 4)
	if v := n.metric("sluice_config_version"); v != 3 {
		t.Errorf("sluice_config_version %v", v)
	}
	if v := n.metric("sluice_config_applied_total"); v != 2 {
		t.Errorf("sluice_config_applied_total %v", v)
	}
	if lines := n.log.with(`"settings applied"`); len(lines) != 2 || !strings.Contains(lines[1], `"changed":"MAX_REQUEST_BODY_MIB"`) {
		t.Errorf("lines of applied versions: %s", lines)
	}
	n.untold("of-a-domain", "in-the-query", mteSecret("localhost"))
}

// The log says what changed: settings and hosts, and no more.
func TestLiveDiffIsLogged(t *testing.T) {
	origin := startTestOrigin(t, http.NotFoundHandler())
	p := startPlane(t, settingsText(map[string]any{"DOMAIN_MAP": domainsAt(origin, "localhost", "b.test", "c.test")}))
	n := startLive(t, "CONTROL_PLANE_URL="+p.url, "PASEO_RELAY_PORT=0")
	changed := domainsAt(origin, "localhost", "a.test", "c.test")
	changed["c.test"].(map[string]any)["client_id_secret"] = "another secret that is long enough"
	p.serve(settingsText(map[string]any{"DOMAIN_MAP": changed, "MAX_REQUEST_BODY_MIB": 1}))
	n.look()
	n.want("applied", 2, 1)
	n.untilMetric("sluice_config_applied_total", 1)
	var line map[string]any
	json.Unmarshal([]byte(n.log.with(`"settings applied"`)[0]), &line)
	for key, want := range map[string]any{
		"version": 2.0, "changed": "DOMAIN_MAP, MAX_REQUEST_BODY_MIB",
		"domains_added": "a.test", "domains_removed": "b.test", "domains_changed": "c.test",
	} {
		if line[key] != want {
			t.Errorf("%s is %v, want %v", key, line[key], want)
		}
	}
	n.untold("another secret", mteSecret("b.test"), mteSecret("a.test"))
}

// A fault in one source does not keep what is good in the other from being
// applied, and is not complained of twice.
func TestLiveTwoSources(t *testing.T) {
	origin := startTestOrigin(t, http.NotFoundHandler())
	domains := map[string]any{"DOMAIN_MAP": domainsAt(origin, "localhost")}
	file := tempFile(t, "sluice.json", settingsText(domains))
	p := startPlane(t, "MAX_REQUEST_BODY_MIB: 1")
	n := startLive(t, "CONFIG_FILE="+file, "CONTROL_PLANE_URL="+p.url, "PASEO_RELAY_PORT=0")
	n.want("at the start", 1, 1)

	p.serve("MAX_REQUEST_BODY_MIB: many")
	n.look()
	n.untilMetric(`sluice_config_refused_total{cause="settings"}`, 1)
	replaceFile(t, file, settingsText(map[string]any{"DOMAIN_MAP": domainsAt(origin, "localhost", "new.test")}))
	n.look()
	n.want("the file, with what the control plane said before", 2, 1)
	if _, ok := n.discovery("new.test"); !ok {
		t.Error("no new domain")
	}
	if v := n.metric(`sluice_config_refused_total{cause="settings"}`); v != 1 {
		t.Errorf("refused %v times", v)
	}

	os.Remove(file)
	n.look()
	n.untilMetric(`sluice_config_refused_total{cause="unreadable"}`, 1)
	if err := unix.Mkfifo(file, 0o600); err != nil {
		t.Fatal(err)
	}
	n.look()
	n.untilMetric(`sluice_config_refused_total{cause="unreadable"}`, 2)
	p.serve("MAX_REQUEST_BODY_MIB: 3")
	n.look()
	n.want("the control plane, with what the file said before", 3, 3)
	replaceFile(t, file, settingsText(map[string]any{"DOMAIN_MAP": domainsAt(origin, "localhost", "newer.test")}))
	n.look()
	n.want("both", 4, 3)
	// A setting that leaves the control plane is the file's again.
	replaceFile(t, file, settingsText(with(domains, map[string]any{"MAX_REQUEST_BODY_MIB": 7})))
	n.look()
	n.want("the control plane goes first", 5, 3)
	p.serve("{}")
	n.look()
	n.want("the control plane has nothing to say", 6, 7)
}

// The last good version of the control plane starts a node whose control plane
// does not answer.
func TestLiveCache(t *testing.T) {
	origin := startTestOrigin(t, http.NotFoundHandler())
	text := func(mib int) string {
		return settingsText(map[string]any{"DOMAIN_MAP": domainsAt(origin, "localhost"), "MAX_REQUEST_BODY_MIB": mib})
	}
	p := startPlane(t, text(1))
	cache := filepath.Join(t.TempDir(), "kept")
	settings := []string{"CONTROL_PLANE_URL=" + p.url, "CONTROL_PLANE_CACHE_FILE=" + cache, "PASEO_RELAY_PORT=0"}
	kept := func(want string) {
		t.Helper()
		var got []byte
		if !poll(func() bool { got, _ = os.ReadFile(cache); return string(got) == want }) {
			t.Fatalf("kept %.80q, want %.80q", got, want)
		}
		if info, err := os.Stat(cache); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("mode %v, %v", info.Mode(), err)
		}
	}
	first := startLive(t, settings...)
	first.want("from the control plane", 1, 1)
	kept(text(1))
	p.serve(text(2))
	first.look()
	first.want("the next", 2, 2)
	kept(text(2))
	p.serve(`{"PASEO_RELAY_INGRESS_WEIGHT": 2}`)
	first.look()
	first.untilMetric(`sluice_config_refused_total{cause="restart"}`, 1)
	kept(text(2))

	ready := func(n *liveNode, status int, why string) {
		t.Helper()
		a := httpDo(t, n.admin, "GET", "/ready")
		if a.status != status || a.header.Get("X-Sluice-Unready") != why {
			t.Errorf("ready: %d because of %q, want %d %q", a.status, a.header.Get("X-Sluice-Unready"), status, why)
		}
	}
	down := func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) }
	p.play(down)
	second := startLive(t, settings...)
	second.want("from what was kept", 1, 2)
	ready(second, 200, "")
	if v := second.metric(`sluice_config_poll_failures_total{cause="status"}`); v != 1 {
		t.Errorf("%v failed polls", v)
	}
	p.serve(text(3))
	second.look()
	second.want("when it answers again", 2, 3)
	kept(text(3))

	// A bad answer, too, leaves a start with what was kept.
	p.serve("nonsense")
	third := startLive(t, settings...)
	third.want("from what was kept", 1, 3)
	if v := third.metric(`sluice_config_refused_total{cause="form"}`); v != 1 {
		t.Errorf("refused %v times", v)
	}

	// With neither the node is up, with what environment and file say, and waits.
	os.Remove(cache)
	p.play(down)
	const why = "no settings from CONTROL_PLANE_URL yet"
	fourth := startLive(t, append(settings, domainMap("localhost", origin))...)
	fourth.want("from the environment", 1, 0)
	ready(fourth, 503, why)
	if v := fourth.metric("sluice_config_pending"); v != 1 {
		t.Errorf("pending %v", v)
	}
	replaceFile(t, cache, "nonsense")
	fifth := startLive(t, append(settings, domainMap("localhost", origin))...)
	ready(fifth, 503, why)
	p.serve("MAX_REQUEST_BODY_MIB: 4")
	fourth.look()
	fourth.want("when it answers", 2, 4)
	ready(fourth, 200, "")
	fifth.look()
	fifth.want("when it answers", 2, 4)
	ready(fifth, 200, "")
	kept("MAX_REQUEST_BODY_MIB: 4")
	for _, n := range []*liveNode{first, second, third, fourth, fifth} {
		n.untold(mteSecret("localhost"))
	}
}

// A version that is refused for another file comes into force when that file is
// put right, and meanwhile its fault is told once.
func TestLiveRefusedForAnotherFile(t *testing.T) {
	const refused = `sluice_config_refused_total{cause="settings"}`
	domain := domainMap("localhost", startTestOrigin(t, http.NotFoundHandler()))
	a, dir := testAuthority(), t.TempDir()
	f := func(source string) {
		t.Helper()
		at := func(name string) string { return filepath.Join(dir, source+name) }
		text := func(name string, mib int) string {
			return settingsText(map[string]any{"PASEO_RELAY_TLS_CERT_FILE": at(name) + ".crt", "PASEO_RELAY_TLS_KEY_FILE": at(name) + ".key", "MAX_REQUEST_BODY_MIB": mib})
		}
		a.write(t, dir, source+"first", time.Now().Add(time.Hour), "localhost")
		p, file := startPlane(t, text("first", 1)), tempFile(t, "sluice.json", text("first", 1))
		setting, replace := "CONFIG_FILE="+file, func(text string) { replaceFile(t, file, text) }
		if source == "plane" {
			setting, replace = "CONTROL_PLANE_URL="+p.url, p.serve
		}
		n := startLive(t, setting, domain)
		n.want(source+": at the start", 1, 1)
		replace(text("second", 2))
		for range 5 { // of which three are over
			n.look()
		}
		if got := n.metric(refused); got != 1 {
			t.Errorf("%s: without certificate and key refused %v times", source, got)
		}
		cert, key := a.issue(time.Now().Add(time.Hour), "localhost")
		replaceFile(t, at("second.crt"), string(cert))
		n.look()
		n.untilMetric(refused, 2) // the key is missed now
		n.want(source+": half of it", 1, 1)
		replaceFile(t, at("second.key"), string(key))
		n.look()
		n.want(source+": the whole", 2, 2)
		if lines := n.log.with(`"new settings refused`); len(lines) != 2 || n.metric(refused) != 2 {
			t.Errorf("%s: %d lines, refused %v times", source, len(lines), n.metric(refused))
		}
	}
	f("file")
	f("plane")
}
