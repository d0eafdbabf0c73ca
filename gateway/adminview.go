package gateway

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"sluice/gateway/adminpage"
	"sluice/gateway/metric"
	"sluice/loop"
)

// nothing stands where there is no value.
const nothing = "–"

// view is the live page at this moment. What is not named here is shown all the
// same, from the registry of metrics: what a role adds appears on the page.
func (a *admin) view() *adminpage.View {
	g := a.g
	v := &adminpage.View{Version: Version, State: g.currentState().String(), Up: showSeconds(time.Duration(loop.Now()).Truncate(time.Second).Seconds())}
	if ok, why := g.allReady(); !ok {
		switch {
		case why == v.State:
			v.Why = "not ready"
		default:
			v.State, v.Why = "not ready", why
		}
	}
	b := viewBuilder{g: g, now: metric.Take(g.pages()...), used: map[string]bool{"sluice_build_info": true, "sluice_loops": true}}
	sections := []adminpage.Section{b.loops()}
	if g.relay != nil {
		sections = append(sections, b.relay())
	}
	if g.encrypting != nil {
		sections = append(sections, b.encrypting())
	}
	v.Sections = append(sections, b.process()...)
	v.Charts, v.Sample = g.history.view()
	return v
}

// view draws the charts.
func (h *history) view() ([]adminpage.Chart, int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	list := make([]adminpage.Chart, len(h.charts))
	for i, c := range h.charts {
		most := c.ring.largest(samplesKept)
		line := adminpage.Line{Most: most}
		c.ring.each(line.Put)
		list[i] = adminpage.Chart{Name: c.name, Last: show(c.ring.last(), c.unit), Most: show(most, c.unit), Points: line.Points()}
	}
	return list, h.taken
}

// A viewBuilder makes the sections of one view.
type viewBuilder struct {
	g    *Gateway
	now  *metric.Snapshot
	used map[string]bool // families that stand somewhere
}

// loops tells of each event loop.
func (b *viewBuilder) loops() adminpage.Section {
	t := adminpage.Table{Head: []string{"loop", "sockets", "busy", "mean turn", "longest in a minute", "in 15 minutes"}}
	h := b.g.history
	h.mu.Lock()
	for i, l := range b.g.loops {
		r := &h.loops[i]
		longest := h.longestTurn(i).Seconds()
		t.Rows = append(t.Rows, adminpage.Row{Name: strconv.Itoa(i), Cells: []adminpage.Cell{
			cell(float64(l.Stats().Conns.Load()), ""),
			cell(r.busy.last(), unitShare),
			cell(r.turn.last(), unitSeconds),
			cell(longest, unitSeconds),
			cell(max(longest, r.longest.largest(samplesKept)), unitSeconds),
		}})
	}
	h.mu.Unlock()
	for _, f := range b.now.Families() {
		if strings.HasPrefix(f.Name, "sluice_loop_") && len(f.Samples) > 0 && len(f.Samples[0].Labels) > 0 {
			b.used[f.Name] = true
		}
	}
	return adminpage.Section{Title: "Event loops", Tables: append([]adminpage.Table{t}, b.rest("sluice_loop_")...)}
}

// relay tells of the WebSocket relay.
func (b *viewBuilder) relay() adminpage.Section {
	g := b.g
	memory := "Resident memory"
	if g.cfg.Relay.MemoryWatermarkBytes > 0 {
		memory += ", of the watermark"
	}
	t := adminpage.Table{Rows: []adminpage.Row{
		b.row("WebSockets", "paseo_relay_active_websockets", float64(g.cfg.Relay.MaxWebSockets())),
		b.row("Sessions", "paseo_relay_active_sessions", 0),
		b.row("Ingress budget", "paseo_relay_ingress_reserved_bytes", float64(g.cfg.Relay.IngressBudgetBytes)),
		b.row("Blocked deliveries", "paseo_relay_blocked_deliveries", 0),
		b.row("The oldest of them", "sluice_blocked_delivery_age_seconds", 0),
		b.row(memory, "paseo_relay_memory_bytes", float64(g.cfg.Relay.MemoryWatermarkBytes)),
	}}
	for _, name := range []string{"paseo_relay_ingress_budget_bytes", "paseo_relay_ready", "paseo_relay_draining"} {
		b.used[name] = true
	}
	tables := append([]adminpage.Table{t}, b.closes())
	return adminpage.Section{Title: "WebSocket relay", Tables: append(tables, b.rest("paseo_relay_")...)}
}

// closes are the ended WebSockets, by code and by who ended them.
func (b *viewBuilder) closes() adminpage.Table {
	const name = "paseo_relay_closes_total"
	b.used[name] = true
	t := adminpage.Table{Title: "Ended WebSockets", Head: []string{"close code"}}
	f := b.now.Family(name)
	if f == nil {
		return t
	}
	for _, s := range f.Samples {
		code, by := labelOf(s, "code"), labelOf(s, "by")
		if !slices.Contains(t.Head, "by "+by) {
			t.Head = append(t.Head, "by "+by)
		}
		if n := len(t.Rows); n == 0 || t.Rows[n-1].Name != code {
			t.Rows = append(t.Rows, adminpage.Row{Name: code, Title: name, IfNone: true})
		}
		last := &t.Rows[len(t.Rows)-1]
		last.Cells = append(last.Cells, cell(s.Value, ""))
	}
	return t
}

// encrypting tells of the encrypting relay.
func (b *viewBuilder) encrypting() adminpage.Section {
	most := float64(b.g.cfg.MTE.MaxPairs)
	if b.g.redis != nil {
		most = 0 // it bounds the memory store; those in Redis are not counted
	}
	t := adminpage.Table{Rows: []adminpage.Row{
		b.row("Pairs", "mte_relay_pairs", most),
		b.row("Pairs that carry a request", "mte_relay_pairs_in_use", 0),
	}}
	return adminpage.Section{Title: "Encrypting relay", Tables: append([]adminpage.Table{t}, b.rest("mte_relay_")...)}
}

// sectionTitles are the headings of what belongs to no role, by the second word of
// its metrics. A word that is not here is its own heading.
var sectionTitles = map[string]string{"http": "HTTP listeners", "tls": "TLS", "redis": "Redis", "config": "Settings", "proxy": "PROXY protocol"}

// process tells of everything else, a section for each kind of thing.
func (b *viewBuilder) process() (list []adminpage.Section) {
	for _, f := range b.now.Families() {
		if b.used[f.Name] {
			continue
		}
		words := strings.SplitN(f.Name, "_", 3)
		prefix, title := f.Name, f.Name
		if len(words) == 3 {
			prefix = words[0] + "_" + words[1] + "_"
			if title = sectionTitles[words[1]]; title == "" {
				title = strings.ToUpper(words[1][:1]) + words[1][1:]
			}
		}
		list = append(list, adminpage.Section{Title: title, Tables: b.rest(prefix)})
	}
	return list
}

// row shows the sum of a family, in a bar if there is a most it may be.
func (b *viewBuilder) row(name, family string, most float64) adminpage.Row {
	b.used[family] = true
	r := adminpage.Row{Name: name, Title: family, Cells: []adminpage.Cell{{Text: nothing}}}
	unit := unitOf(family)
	v, ok := b.now.Sum(family)
	c := &r.Cells[0]
	if ok {
		*c = cell(v, unit)
	}
	if most > 0 {
		c.Text += " of " + show(most, unit)
		c.Value, c.Most = v, most
	}
	return r
}

// rest shows the families with a prefix that stand nowhere else: those with labels
// and histograms in tables of their own, the others in one.
func (b *viewBuilder) rest(prefix string) []adminpage.Table {
	var plain adminpage.Table
	var labelled []adminpage.Table
	for _, f := range b.now.Families() {
		if b.used[f.Name] || !strings.HasPrefix(f.Name, prefix) || len(f.Samples) == 0 {
			continue
		}
		b.used[f.Name] = true
		name := strings.TrimSuffix(f.Help, ".")
		switch {
		case f.Kind == "histogram":
			labelled = append(labelled, b.distribution(name, f.Name))
		case len(f.Samples[0].Labels) == 0:
			plain.Rows = append(plain.Rows, adminpage.Row{Name: name, Title: f.Name, Cells: []adminpage.Cell{cell(f.Samples[0].Value, unitOf(f.Name))}})
		default:
			t := adminpage.Table{Title: name}
			for _, s := range f.Samples {
				words := make([]string, len(s.Labels))
				for i, l := range s.Labels {
					words[i] = strings.ReplaceAll(l.Value, "_", " ")
				}
				t.Rows = append(t.Rows, adminpage.Row{
					Name: strings.Join(words, " "), Title: f.Name, IfNone: f.Kind == "counter",
					Cells: []adminpage.Cell{cell(s.Value, unitOf(f.Name))},
				})
			}
			labelled = append(labelled, t)
		}
	}
	if len(plain.Rows) > 0 {
		labelled = append([]adminpage.Table{plain}, labelled...)
	}
	return labelled
}

// distribution shows a histogram since the start.
func (b *viewBuilder) distribution(title, name string) adminpage.Table {
	d, _ := b.now.Distribution(name)
	t := adminpage.Table{Title: title}
	add := func(what string, v float64, unit string) {
		c := cell(v, unit)
		c.Zero = d.Count() == 0
		t.Rows = append(t.Rows, adminpage.Row{Name: what, Title: name, IfNone: true, Cells: []adminpage.Cell{c}})
	}
	unit := unitOf(name)
	add("how many", d.Count(), "")
	add("mean", d.Mean(), unit)
	add("half within", d.Quantile(0.5), unit)
	add("99 % within", d.Quantile(0.99), unit)
	return t
}

func labelOf(s metric.Sample, key string) string {
	for _, l := range s.Labels {
		if l.Key == key {
			return l.Value
		}
	}
	return ""
}

func cell(v float64, unit string) adminpage.Cell {
	return adminpage.Cell{Text: show(v, unit), Zero: v == 0}
}

// Units of shown values; the empty one is a number of things.
const (
	unitBytes   = "bytes"
	unitSeconds = "seconds"
	unitShare   = "share"
	unitDate    = "date"
)

// unitOf tells a metric's unit by its name, as Prometheus has them.
func unitOf(name string) string {
	switch {
	case strings.HasSuffix(name, "_expiry_seconds"):
		return unitDate
	case strings.HasSuffix(name, "_seconds"), strings.HasSuffix(name, "_seconds_total"):
		return unitSeconds
	case strings.Contains(name+"_", "_bytes_"):
		return unitBytes
	}
	return ""
}

// show writes a value for people.
func show(v float64, unit string) string {
	switch {
	case math.IsNaN(v) || math.IsInf(v, 0):
		return nothing
	case unit == unitBytes:
		return showBytes(v)
	case unit == unitSeconds:
		return showSeconds(v)
	case unit == unitShare:
		return strconv.FormatFloat(100*v, 'f', 1, 64) + " %"
	case unit == unitDate:
		return time.Unix(int64(v), 0).UTC().Format("2006-01-02 15:04 MST")
	case v != math.Trunc(v) && math.Abs(v) < 1000:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return grouped(int64(math.Round(v)))
}

// grouped writes 1234567 as 1,234,567.
func grouped(n int64) string {
	s := strconv.FormatInt(n, 10)
	for at := len(s) - 3; at > 0 && s[at-1] != '-'; at -= 3 {
		s = s[:at] + "," + s[at:]
	}
	return s
}

func showBytes(v float64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	i := 0
	for ; math.Abs(v) >= 1024 && i < len(units)-1; i++ {
		v /= 1024
	}
	if v == math.Trunc(v) {
		return strconv.FormatFloat(v, 'f', 0, 64) + " " + units[i]
	}
	return strconv.FormatFloat(v, 'f', 1, 64) + " " + units[i]
}

// showSeconds writes a duration with about three digits.
func showSeconds(v float64) string {
	switch d := time.Duration(v * 1e9); {
	case d == 0:
		return "0 s"
	case d < time.Millisecond:
		return strconv.FormatFloat(v*1e6, 'f', 0, 64) + " µs"
	case d < time.Second:
		return strconv.FormatFloat(v*1e3, 'g', 3, 64) + " ms"
	case d < time.Minute:
		return strconv.FormatFloat(v, 'g', 3, 64) + " s"
	case d < 24*time.Hour:
		return d.Truncate(time.Second).String()
	default:
		return fmt.Sprintf("%d d %s", int(d.Hours())/24, (d % (24 * time.Hour)).Truncate(time.Minute))
	}
}
