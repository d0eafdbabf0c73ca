package gateway_test

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"

	"sluice/gateway/store/redistest"
)

// servedCatalogue is what a running process shows to Prometheus with everything on:
// both roles with TLS, Redis and a control plane. Without them there are fewer series.
func servedCatalogue(t testing.TB) catalogue {
	t.Helper()
	settings := []string{"PORT=" + nextPort(), "DRAIN_SECONDS=0", "REDIS_URL=" + redistest.Start(t).URL(), "OWNERSHIP_TARGET=here",
		"CONTROL_PLANE_URL=" + startPlane(t, settingsText(map[string]any{"DOMAIN_MAP": domainsAt("http://127.0.0.1:1", "localhost")})).url}
	s := serve(t, append(append(settings, testTLS("")...), testTLS("PASEO_RELAY_")...)...)
	s.adminUp()
	c, err := readCatalogue(httpDo(t, s.admin, "GET", "/metrics").body)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

var (
	readmeMetric = regexp.MustCompile(`(?m)^\| ((?:paseo_relay|mte_relay|sluice)_\w+) \| (\w+) \|`)
	testedSeries = regexp.MustCompile(`series: '(\w+)\{(.*)\}'`)
)

// Every metric of the README is served by a process that has everything on.
func TestServedCatalogue(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile(topDir + "/README.md")
	if err != nil {
		t.Fatal(err)
	}
	c := servedCatalogue(t)
	rows := readmeMetric.FindAllStringSubmatch(string(readme), -1)
	for _, m := range rows {
		if c.kinds[m[1]] != m[2] {
			t.Errorf("%s: served as %q, told as %q", m[1], c.kinds[m[1]], m[2])
		}
	}
	if len(rows) < 50 {
		t.Errorf("the README has %d metrics", len(rows))
	}
}

// sameLabels expects that series in tests of alerts have the labels of those that are
// served: with others, two sides of an expression meet in a test that never do outside.
func (c catalogue) sameLabels(t *testing.T, tests string) {
	t.Helper()
	for _, m := range testedSeries.FindAllStringSubmatch(tests, -1) {
		family := m[1]
		if base, _ := c.histogram(family); base != "" {
			family = base
		}
		want := append(slices.Sorted(maps.Keys(c.labels[family])), "instance", "job")
		var have []string
		for _, l := range regexp.MustCompile(`(\w+)=`).FindAllStringSubmatch(m[2], -1) {
			have = append(have, l[1])
		}
		slices.Sort(want)
		slices.Sort(have)
		if c.kinds[m[1]] == "" && c.kinds[family] == "" || !slices.Equal(want, have) {
			t.Errorf("a test's %s{%s}: what is served has %q", m[1], m[2], want)
		}
	}
}

const alertsFile = deployDir + "/prometheus/alerts.yaml"

// alertRules is the file of alert rules; other keys are faults.
type alertRules struct {
	Groups []struct {
		Name  string `yaml:"name"`
		Rules []struct {
			Alert  string `yaml:"alert"`
			Expr   string `yaml:"expr"`
			For    string `yaml:"for"`
			Labels struct {
				Severity string `yaml:"severity"`
			} `yaml:"labels"`
			Annotations struct {
				Summary string `yaml:"summary"`
				Action  string `yaml:"action"`
			} `yaml:"annotations"`
		} `yaml:"rules"`
	} `yaml:"groups"`
}

func TestAlertRules(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(alertsFile)
	if err != nil {
		t.Fatal(err)
	}
	var rules alertRules
	if err := yaml.UnmarshalWithOptions(text, &rules, yaml.Strict()); err != nil {
		t.Fatal(yaml.FormatError(err, false, true))
	}
	tests, err := os.ReadFile(deployDir + "/prometheus/alerts.test.yaml")
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile(topDir + "/README.md")
	if err != nil {
		t.Fatal(err)
	}
	c := servedCatalogue(t)
	c.sameLabels(t, string(tests))
	seen := map[string]bool{}
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			if _, err := c.check(r.Expr); err != nil {
				t.Errorf("%s: %v", r.Alert, err)
			}
			if seen[r.Alert] || !strings.HasPrefix(r.Alert, "Sluice") {
				t.Errorf("the name %q", r.Alert)
			}
			seen[r.Alert] = true
			if _, err := time.ParseDuration(r.For); err != nil && r.For != "" {
				t.Errorf("%s: for: %v", r.Alert, err)
			}
			if s := r.Labels.Severity; s != "page" && s != "warn" || r.Annotations.Summary == "" || r.Annotations.Action == "" {
				t.Errorf("%s: severity %q, summary %q, action %q", r.Alert, s, r.Annotations.Summary, r.Annotations.Action)
			}
			if !strings.Contains(string(tests), `alertname="`+r.Alert+`"`) {
				t.Errorf("%s: no test in which it fires", r.Alert)
			}
			if !strings.Contains(string(readme), "\n| "+r.Alert+" |") {
				t.Errorf("%s: README.md, \"Alerts\", does not say what to do", r.Alert)
			}
		}
	}
	for _, m := range regexp.MustCompile(`Sluice[A-Z]\w+`).FindAllString(string(readme)+string(tests), -1) {
		if !seen[m] {
			t.Errorf("there is no alert %s", m)
		}
	}
}

// TestAcceptPromtool has Prometheus's own tool read the rules and run their tests.
func TestAcceptPromtool(t *testing.T) {
	onlyFull(t)
	promtool := debianProgram(t, "promtool")
	mustPass(t, promtool, "check", "rules", alertsFile)
	cmd := exec.Command(promtool, "test", "rules", "alerts.test.yaml")
	cmd.Dir = deployDir + "/prometheus"
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// dashboard is what this test reads of Grafana's model.
type dashboard struct {
	UID        string `json:"uid"`
	Templating struct {
		List []struct{ Name, Type, Definition string } `json:"list"`
	} `json:"templating"`
	Panels []struct {
		ID         int    `json:"id"`
		Type       string `json:"type"`
		Title      string `json:"title"`
		Datasource struct{ UID string }
		GridPos    struct{ X, Y, W, H int } `json:"gridPos"`
		Targets    []struct {
			RefID        string `json:"refId"`
			Expr         string `json:"expr"`
			LegendFormat string `json:"legendFormat"`
		} `json:"targets"`
	} `json:"panels"`
}

func TestDashboard(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(deployDir + "/grafana/sluice.json")
	if err != nil {
		t.Fatal(err)
	}
	var d dashboard
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	c := servedCatalogue(t)
	variables := map[string]bool{"__rate_interval": true}
	for _, v := range d.Templating.List {
		variables[v.Name] = true
		if m := regexp.MustCompile(`^label_values\((\w+), instance\)$`).FindStringSubmatch(v.Definition); v.Type == "query" && (m == nil || c.kinds[m[1]] == "") {
			t.Errorf("the variable %s asks for %q", v.Name, v.Definition)
		}
	}
	ids, cells := map[int]bool{}, map[[2]int]string{}
	for _, p := range d.Panels {
		if ids[p.ID] {
			t.Errorf("%s: the id %d is given twice", p.Title, p.ID)
		}
		ids[p.ID] = true
		if g := p.GridPos; g.W <= 0 || g.H <= 0 || g.X < 0 || g.X+g.W > 24 {
			t.Errorf("%s: at %+v", p.Title, g)
		}
		for x := range p.GridPos.W {
			for y := range p.GridPos.H {
				at := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
				if other := cells[at]; other != "" {
					t.Fatalf("%s lies on %s", p.Title, other)
				}
				cells[at] = p.Title
			}
		}
		if p.Type == "row" {
			continue
		}
		if len(p.Targets) == 0 || p.Datasource.UID != "${datasource}" {
			t.Errorf("%s: %d targets of %q", p.Title, len(p.Targets), p.Datasource.UID)
		}
		for _, target := range p.Targets {
			for _, v := range regexp.MustCompile(`\$(\w+)`).FindAllStringSubmatch(target.Expr, -1) {
				if !variables[v[1]] {
					t.Errorf("%s: no variable %s", p.Title, v[1])
				}
			}
			have, err := c.check(target.Expr)
			if err != nil {
				t.Errorf("%s: %s: %v", p.Title, target.Expr, err)
				continue
			}
			for _, l := range regexp.MustCompile(`\{\{(\w+)\}\}`).FindAllStringSubmatch(target.LegendFormat, -1) {
				if !have[l[1]] {
					t.Errorf("%s: its legend has no label %s", p.Title, l[1])
				}
			}
		}
	}
}
