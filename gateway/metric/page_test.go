package metric

import (
	"bytes"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// exposition is a page as a scraper sees it.
type exposition struct {
	series map[string]float64
	kinds  map[string]string // by family
}

var sampleLine = regexp.MustCompile(`^([a-zA-Z_:][a-zA-Z0-9_:]*)(\{[a-z]+="[^"\\\n]*"(?:,[a-z]+="[^"\\\n]*")*\})? (\S+)$`)

// parseExposition refuses a page that a strict scraper would: a family has one HELP and one TYPE
// line, in front of all its samples and of nothing else's, and no series stands there twice.
func parseExposition(text string) (exposition, error) {
	e := exposition{map[string]float64{}, map[string]string{}}
	family, help := "", ""
	for line := range strings.Lines(text) {
		line, whole := strings.CutSuffix(line, "\n")
		if !whole {
			return e, fmt.Errorf("the last line has no end: %q", line)
		}
		if name, ok := strings.CutPrefix(line, "# HELP "); ok {
			help, _, ok = strings.Cut(name, " ")
			if !ok {
				return e, fmt.Errorf("no text: %q", line)
			}
			continue
		}
		if rest, ok := strings.CutPrefix(line, "# TYPE "); ok {
			name, kind, _ := strings.Cut(rest, " ")
			if name != help || e.kinds[name] != "" {
				return e, fmt.Errorf("TYPE without HELP, or twice: %q", line)
			}
			family, e.kinds[name] = name, kind
			continue
		}
		m := sampleLine.FindStringSubmatch(line)
		if m == nil {
			return e, fmt.Errorf("no sample: %q", line)
		}
		name := m[1]
		if e.kinds[family] == "histogram" {
			name = strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(name, "_bucket"), "_sum"), "_count")
		}
		if name != family {
			return e, fmt.Errorf("%q is a stranger in family %q", line, family)
		}
		v, err := strconv.ParseFloat(m[3], 64)
		if err != nil {
			return e, err
		}
		if _, twice := e.series[m[1]+m[2]]; twice {
			return e, fmt.Errorf("twice: %q", line)
		}
		e.series[m[1]+m[2]] = v
	}
	return e, nil
}

func scrape(t *testing.T, p *Page) exposition {
	t.Helper()
	var b bytes.Buffer
	if _, err := p.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	e, err := parseExposition(b.String())
	if err != nil {
		t.Fatalf("%v in\n%s", err, b.String())
	}
	return e
}

func (e exposition) want(t *testing.T, series string, value float64) {
	t.Helper()
	got, ok := e.series[series]
	if !ok || got != value {
		t.Errorf("%s is %v (there: %v), want %v", series, got, ok, value)
	}
}

func TestPageKinds(t *testing.T) {
	var p Page
	n := 1.5
	p.Counter("a_total", "A.").Add(3)
	vec := p.Counters("b_total", "B.", labels("k", []string{"x", "y"}))
	vec[1].Inc()
	p.Gauge("c", "C.", func() float64 { return n })
	there := true
	p.GaugeIf("d", "D.", func() (float64, bool) { return 536870912, there })
	p.Gauges("e", "E.", labels("k", []string{"x", "y"}), func(i int) float64 { return float64(i) })
	p.CounterFunc("f_total", "F.", func() uint64 { return 7 })
	h := p.Histogram("g_seconds", "G.", []float64{0.5, 1})
	h.Update(0.5)
	h.Update(0.7)
	h.Update(9)

	e := scrape(t, &p)
	e.want(t, "a_total", 3)
	e.want(t, `b_total{k="x"}`, 0)
	e.want(t, `b_total{k="y"}`, 1)
	e.want(t, "c", 1.5)
	e.want(t, "d", 536870912)
	e.want(t, `e{k="y"}`, 1)
	e.want(t, "f_total", 7)
	e.want(t, `g_seconds_bucket{le="0.5"}`, 1)
	e.want(t, `g_seconds_bucket{le="1"}`, 2)
	e.want(t, `g_seconds_bucket{le="+Inf"}`, 3)
	e.want(t, "g_seconds_count", 3)
	if e.kinds["g_seconds"] != "histogram" || e.kinds["a_total"] != "counter" || e.kinds["c"] != "gauge" {
		t.Errorf("kinds %v", e.kinds)
	}

	n, there = -2, false
	e = scrape(t, &p)
	e.want(t, "c", -2)
	if _, ok := e.kinds["d"]; ok {
		t.Error("a gauge that cannot answer keeps its family")
	}
}

func TestPageBugs(t *testing.T) {
	f := func(what string, do func(p *Page)) {
		t.Helper()
		defer func() {
			if s, ok := recover().(string); !ok || !strings.HasPrefix(s, "BUG: ") {
				t.Errorf("%s does not panic", what)
			}
		}()
		do(new(Page))
	}
	f("a name twice", func(p *Page) { p.Counter("a", "A."); p.Gauge("a", "A.", nil) })
	f("no help", func(p *Page) { p.Counter("a", "") })
	f("a line break", func(p *Page) { p.Counter("a", "A\nB") })
	f("a bad name", func(p *Page) { p.Counter("a b", "A.") })
}

// The admin listener serves every page and the process, without a family standing there twice.
func TestWriteAll(t *testing.T) {
	r, m, p := NewRelay(relayGauges()), NewMTE(mteGauges(), nil), NewProcess(processGauges())
	var b bytes.Buffer
	if err := WriteAll(&b, &r.Page, &m.Page, &p.Page); err != nil {
		t.Fatal(err)
	}
	text := b.String()
	for _, name := range []string{"paseo_relay_ready 1", "mte_relay_pairs 3", "sluice_loops 2", "go_goroutines ", "process_open_fds "} {
		if strings.Count("\n"+text, "\n"+name) != 1 {
			t.Errorf("%q is not there once", name)
		}
	}
	// Two gateways count apart.
	NewRelay(relayGauges()).Reroutes.Inc()
	scrape(t, &r.Page).want(t, "paseo_relay_reroute_responses_total", 0)
}
