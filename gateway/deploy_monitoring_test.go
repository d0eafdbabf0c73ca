package gateway_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
)

// servedCatalogue is what a running process shows to Prometheus, both roles on.
func servedCatalogue(t testing.TB) catalogue {
	t.Helper()
	s := serve(t, "PORT="+nextPort(), "DRAIN_SECONDS=0")
	untilListening(t, s.admin, s.log)
	c, err := readCatalogue(httpDo(t, s.admin, "GET", "/metrics").body)
	if err != nil {
		t.Fatal(err)
	}
	return c
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
