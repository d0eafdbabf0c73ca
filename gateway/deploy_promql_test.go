package gateway_test

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// A catalogue is what a page of metrics has: families with their kinds, and the
// values of every label.
type catalogue struct {
	kinds  map[string]string
	labels map[string]map[string]map[string]bool // family → label → values
}

var pageSample = regexp.MustCompile(`^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? \S+$`)

// readCatalogue reads a page. Families of the process and of Go have no TYPE line;
// their names say what they are.
func readCatalogue(page string) (catalogue, error) {
	c := catalogue{map[string]string{}, map[string]map[string]map[string]bool{}}
	for line := range strings.Lines(page) {
		line = strings.TrimSpace(line)
		if rest, ok := strings.CutPrefix(line, "# TYPE "); ok {
			name, kind, _ := strings.Cut(rest, " ")
			c.kinds[name] = kind
			continue
		}
		if line == "" || line[0] == '#' {
			continue
		}
		m := pageSample.FindStringSubmatch(line)
		if m == nil {
			return c, fmt.Errorf("no sample: %q", line)
		}
		family := m[1]
		if base, _ := c.histogram(family); base != "" {
			family = base
		}
		if c.kinds[family] == "" {
			c.kinds[family] = "gauge"
			if strings.HasSuffix(family, "_total") {
				c.kinds[family] = "counter"
			}
		}
		if c.labels[family] == nil {
			c.labels[family] = map[string]map[string]bool{}
		}
		for _, l := range regexp.MustCompile(`(\w+)="([^"]*)"`).FindAllStringSubmatch(m[2], -1) {
			if c.labels[family][l[1]] == nil {
				c.labels[family][l[1]] = map[string]bool{}
			}
			c.labels[family][l[1]][l[2]] = true
		}
	}
	// What Prometheus has of its own.
	c.kinds["up"] = "gauge"
	return c, nil
}

// histogram splits the name of a histogram's series.
func (c catalogue) histogram(name string) (family, part string) {
	for _, part := range []string{"_bucket", "_sum", "_count"} {
		if base, ok := strings.CutSuffix(name, part); ok && c.kinds[base] == "histogram" {
			return base, part
		}
	}
	return "", ""
}

// Functions by what they want: a range of a counter, a range of a gauge, or
// values.
var promFunctions = map[string]string{
	"rate": "counter", "increase": "counter", "irate": "counter", "resets": "counter",
	"max_over_time": "gauge", "min_over_time": "gauge", "avg_over_time": "gauge", "delta": "gauge", "changes": "gauge",
	"sum": "", "max": "", "min": "", "avg": "", "count": "", "histogram_quantile": "", "time": "", "": "",
}

var promToken = regexp.MustCompile(`^(?:\s+|[a-zA-Z_:][\w:]*|\d[\w.]*|"[^"]*"|\[[^\]]*\]|[=!<>]=|=~|!~|[-+*/%^<>=(),{}])`)

// promTokens splits an expression; ranges and texts are one token each.
func promTokens(expr string) (tokens []string, err error) {
	for expr != "" {
		t := promToken.FindString(expr)
		if t == "" {
			return nil, fmt.Errorf("what is %q?", expr)
		}
		if expr = expr[len(t):]; strings.TrimSpace(t) != "" {
			tokens = append(tokens, t)
		}
	}
	return tokens, nil
}

// promCall is an open parenthesis: the function in front of it, and the labels
// that an aggregation keeps.
type promCall struct {
	name    string
	by      []string
	buckets bool // histogram_quantile: it has been given some
}

// check finds what is wrong with an expression that is legal PromQL: metrics,
// labels and values that nobody serves, and functions that do not fit the kind.
// It returns the labels that the metrics have, for legends. The labels job and
// instance are Prometheus's.
func (c catalogue) check(expr string) (have map[string]bool, err error) {
	tokens, err := promTokens(expr)
	if err != nil {
		return nil, err
	}
	have = map[string]bool{"job": true, "instance": true}
	var calls []promCall
	var kept []string
	used := 0
	isName := func(i int) bool { return i < len(tokens) && regexp.MustCompile(`^[a-zA-Z_:]`).MatchString(tokens[i]) }
	at := func(i int) string {
		if i < len(tokens) {
			return tokens[i]
		}
		return ""
	}
	list := func(i int) (names []string, next int) {
		for i++; at(i) != ")" && at(i) != ""; i++ {
			if at(i) != "," {
				names = append(names, at(i))
			}
		}
		return names, i + 1
	}
	for i := 0; i < len(tokens); {
		switch t := tokens[i]; {
		case t == "(":
			calls = append(calls, promCall{})
			i++
		case t == ")":
			if len(calls) == 0 {
				return nil, errors.New("a parenthesis that nobody opened")
			}
			last := calls[len(calls)-1]
			if last.name == "histogram_quantile" && !last.buckets {
				return nil, errors.New("histogram_quantile without buckets")
			}
			calls = calls[:len(calls)-1]
			i++
		case slices.Contains([]string{"and", "or", "unless", "bool"}, t):
			i++
		case slices.Contains([]string{"on", "ignoring"}, t):
			var names []string
			names, i = list(i + 1)
			kept = append(kept, names...)
		case isName(i) && (at(i+1) == "(" || at(i+1) == "by"):
			if _, ok := promFunctions[t]; !ok {
				return nil, fmt.Errorf("what is %s()?", t)
			}
			call := promCall{name: t}
			if i++; at(i) == "by" {
				call.by, i = list(i + 1)
				kept = append(kept, call.by...)
			}
			if at(i) != "(" {
				return nil, fmt.Errorf("%s of what?", t)
			}
			calls = append(calls, call)
			i++
		case isName(i):
			used++
			if i, err = c.selector(tokens, i, calls, have); err != nil {
				return nil, fmt.Errorf("%s: %w", t, err)
			}
		default:
			i++
		}
	}
	if used == 0 || len(calls) != 0 {
		return nil, errors.New("no metric, or an open parenthesis")
	}
	for _, name := range kept {
		if !have[name] {
			return nil, fmt.Errorf("no metric of it has the label %s", name)
		}
	}
	return have, nil
}

// selector checks the metric at tokens[i] with its matchers and its range, and
// returns where it ends.
func (c catalogue) selector(tokens []string, i int, calls []promCall, have map[string]bool) (next int, err error) {
	name := tokens[i]
	family, part := c.histogram(name)
	kind := c.kinds[name]
	if family != "" {
		kind = "counter"
	} else {
		family = name
	}
	switch kind {
	case "":
		return i, errors.New("nobody serves it")
	case "histogram":
		return i, errors.New("a histogram is _bucket, _sum and _count")
	}
	for label := range c.labels[family] {
		have[label] = true
	}
	i++
	if i < len(tokens) && tokens[i] == "{" {
		for i++; i < len(tokens) && tokens[i] != "}"; i++ {
			if tokens[i] == "," {
				continue
			}
			if i+2 >= len(tokens) {
				return i, errors.New("half a matcher")
			}
			if err := c.matcher(family, tokens[i], tokens[i+1], tokens[i+2]); err != nil {
				return i, err
			}
			i += 2
		}
		i++
	}
	ranged := i < len(tokens) && tokens[i][0] == '['
	if ranged {
		i++
	}
	inner := ""
	if len(calls) > 0 {
		inner = calls[len(calls)-1].name
	}
	wants := promFunctions[inner]
	switch {
	case ranged && wants == "":
		return i, errors.New("a range that no function takes")
	case !ranged && wants != "":
		return i, fmt.Errorf("%s() wants a range", inner)
	case ranged && wants != kind:
		return i, fmt.Errorf("%s() of a %s", inner, kind)
	case !ranged && kind == "counter":
		return i, errors.New("a counter without rate()")
	}
	if part != "_bucket" {
		return i, nil
	}
	for j := len(calls) - 1; j >= 0; j-- {
		switch call := &calls[j]; {
		case call.name == "histogram_quantile":
			call.buckets = true
			return i, nil
		case promFunctions[call.name] == "" && call.name != "" && !slices.Contains(call.by, "le"):
			return i, fmt.Errorf("%s() loses the label le", call.name)
		}
	}
	return i, errors.New("buckets outside of histogram_quantile")
}

// matcher checks that some series could match.
func (c catalogue) matcher(family, label, op, quoted string) error {
	value, err := strconv.Unquote(quoted)
	if err != nil {
		return err
	}
	if label == "job" || label == "instance" {
		return nil
	}
	values := c.labels[family][label]
	if values == nil {
		return fmt.Errorf("it has no label %s", label)
	}
	alternatives := []string{value}
	if strings.HasSuffix(op, "~") {
		alternatives = strings.Split(value, "|") // each of them should be for something
	}
	for _, a := range alternatives {
		re, err := regexp.Compile("^(?:" + a + ")$")
		if !strings.HasSuffix(op, "~") {
			re, err = regexp.MustCompile("^"+regexp.QuoteMeta(a)+"$"), nil
		}
		if err != nil {
			return err
		}
		found := false
		for v := range values {
			found = found || re.MatchString(v)
		}
		if !found {
			return fmt.Errorf("no series has %s=%q", label, a)
		}
	}
	return nil
}

const promPage = `# HELP a_total A.
# TYPE a_total counter
a_total{code="502",reason="x"} 1
a_total{code="479",reason="y"} 0
# TYPE b gauge
b 3
# TYPE h_seconds histogram
h_seconds_bucket{le="1"} 0
h_seconds_bucket{le="+Inf"} 0
h_seconds_sum 0
h_seconds_count 0
process_cpu_seconds_total 1
process_open_fds 4
`

func TestPromCheckSuccess(t *testing.T) {
	c, err := readCatalogue(promPage)
	if err != nil {
		t.Fatal(err)
	}
	f := func(expr string, labels ...string) {
		t.Helper()
		have, err := c.check(expr)
		if err != nil {
			t.Errorf("%s: %v", expr, err)
		}
		for _, l := range labels {
			if !have[l] {
				t.Errorf("%s: no label %s", expr, l)
			}
		}
	}
	f(`b == 0`)
	f(`b{job="x"} / process_open_fds > 0.8`)
	f(`rate(a_total[5m])`, "code", "reason", "instance")
	f(`sum by (code) (rate(a_total{code=~"502|479"}[$__rate_interval])) > 0.1 * b`, "code")
	f(`histogram_quantile(0.99, sum by (instance, le) (rate(h_seconds_bucket[5m]))) > 1`, "le")
	f(`histogram_quantile(0.99, rate(h_seconds_bucket[5m]))`)
	f(`rate(h_seconds_sum[5m]) / rate(h_seconds_count[5m])`)
	f(`b < max_over_time(b[1h]) and b > 0`)
	f(`up{job="x"} == 0`)
	f(`b - time() < 14 * 86400`)
	f(`increase(process_cpu_seconds_total[1h])`)
}

func TestPromCheckFailure(t *testing.T) {
	c, err := readCatalogue(promPage)
	if err != nil {
		t.Fatal(err)
	}
	f := func(expr, why string) {
		t.Helper()
		if _, err := c.check(expr); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %v, expected %q", expr, err, why)
		}
	}
	f(`nothing_total > 0`, "nobody serves it")
	f(`a_total > 0`, "without rate()")
	f(`rate(b[5m])`, "rate() of a gauge")
	f(`max_over_time(a_total[5m])`, "of a counter")
	f(`rate(a_total)`, "wants a range")
	f(`b[5m]`, "no function takes")
	f(`rate(a_total{colour="red"}[5m])`, "no label colour")
	f(`rate(a_total{code="503"}[5m])`, `no series has code="503"`)
	f(`rate(a_total{code=~"502|503"}[5m])`, `no series has code="503"`)
	f(`sum by (colour) (rate(a_total[5m]))`, "label colour")
	f(`h_seconds > 1`, "_bucket, _sum and _count")
	f(`rate(h_seconds_bucket[5m])`, "outside of histogram_quantile")
	f(`histogram_quantile(0.9, sum by (instance) (rate(h_seconds_bucket[5m])))`, "loses the label le")
	f(`histogram_quantile(0.9, rate(h_seconds_sum[5m]))`, "without buckets")
	f(`magic(b)`, "what is magic()?")
	f(`sum(b`, "open parenthesis")
	f(`b)`, "nobody opened")
	f(`1 > 2`, "no metric")
	f(`b ; b`, "what is")
}
