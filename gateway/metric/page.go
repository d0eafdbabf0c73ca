// Package metric holds the metric names that are contract, the closed sets of their labels, and
// the pages on which they are served. Nothing here is global: two gateways in one process count
// apart.
package metric

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"sync"

	"github.com/VictoriaMetrics/metrics"
)

// ContentType belongs on an answer that carries a page.
const ContentType = "text/plain; version=0.0.4; charset=utf-8"

// A Page is metric families in the order in which they were added, in the Prometheus text format.
//
// Add families at start, from one goroutine; write the page from anywhere at any time. The
// callbacks of gauges run in the goroutine that writes, one page at a time.
//
// Each family has a metrics.Set of its own, because the library writes HELP lines without text,
// and only for the whole process at once (metrics.ExposeMetadata, which must stay off).
type Page struct {
	mu       sync.Mutex
	families []family
	before   func() // at the start of every write, under mu
}

type family struct {
	name, kind, help string
	set              *metrics.Set
}

func (p *Page) add(name, kind, help string) *metrics.Set {
	for i := range p.families {
		if p.families[i].name == name {
			panic("BUG: metric " + name + " is added twice")
		}
	}
	if err := metrics.ValidateMetric(name); err != nil || help == "" || strings.ContainsAny(help, "\\\n") {
		panic("BUG: metric " + name + " has no proper name or help")
	}
	s := metrics.NewSet()
	p.families = append(p.families, family{name, kind, help, s})
	return s
}

// Counter adds a counter without labels. It may be bumped from anywhere.
func (p *Page) Counter(name, help string) *metrics.Counter {
	return p.add(name, "counter", help).NewCounter(name)
}

// Counters adds one counter per label set ("" or `key="value",…`), all at zero.
func (p *Page) Counters(name, help string, labels []string) []*metrics.Counter {
	set := p.add(name, "counter", help)
	list := make([]*metrics.Counter, len(labels))
	for i, l := range labels {
		list[i] = set.NewCounter(name + "{" + l + "}")
	}
	return list
}

// CounterFunc adds a counter whose value is asked for. It must not fall.
func (p *Page) CounterFunc(name, help string, value func() uint64) {
	p.add(name, "counter", help).RegisterMetricsWriter(func(w io.Writer) {
		writeSample(w, name, float64(value()))
	})
}

// Gauge adds a gauge whose value is asked for.
func (p *Page) Gauge(name, help string, value func() float64) {
	p.GaugeIf(name, help, func() (float64, bool) { return value(), true })
}

// GaugeIf adds a gauge that is left out, with its family, when value reports that it cannot
// answer: a wrong zero would look like an empty node.
func (p *Page) GaugeIf(name, help string, value func() (v float64, ok bool)) {
	p.add(name, "gauge", help).RegisterMetricsWriter(func(w io.Writer) {
		if v, ok := value(); ok {
			writeSample(w, name, v)
		}
	})
}

// Gauges adds one gauge per label set; value is asked for each by its index.
func (p *Page) Gauges(name, help string, labels []string, value func(i int) float64) {
	p.add(name, "gauge", help).RegisterMetricsWriter(func(w io.Writer) {
		for i, l := range labels {
			writeSample(w, name+"{"+l+"}", value(i))
		}
	})
}

// Histogram adds a histogram for events that are rare enough for a lock, with the given upper
// bounds in rising order.
func (p *Page) Histogram(name, help string, bounds []float64) *metrics.PrometheusHistogram {
	return p.add(name, "histogram", help).NewPrometheusHistogramExt(name, bounds)
}

// shardedHistogram adds a histogram whose buckets (one more than bounds, not cumulative) and sum
// are asked for.
func (p *Page) shardedHistogram(name, help string, bounds []float64, value func(buckets []uint64) (sum float64)) {
	buckets := make([]uint64, len(bounds)+1)
	p.add(name, "histogram", help).RegisterMetricsWriter(func(w io.Writer) {
		clear(buckets)
		sum := value(buckets)
		var seen uint64
		for i, n := range buckets {
			seen += n
			le := "+Inf"
			if i < len(bounds) {
				le = strconv.FormatFloat(bounds[i], 'g', -1, 64)
				if b := bounds[i]; b == math.Trunc(b) {
					le = strconv.FormatInt(int64(b), 10)
				}
			}
			fmt.Fprintf(w, "%s_bucket{le=\"%s\"} %d\n", name, le, seen)
		}
		writeSample(w, name+"_sum", sum)
		fmt.Fprintf(w, "%s_count %d\n", name, seen)
	})
}

// writeSample writes whole numbers as such: 536870912 reads better than 5.36870912e+08.
func writeSample(w io.Writer, series string, v float64) {
	if v == math.Trunc(v) && math.Abs(v) < 1<<53 {
		fmt.Fprintf(w, "%s %d\n", series, int64(v))
		return
	}
	fmt.Fprintf(w, "%s %g\n", series, v)
}

// WriteTo writes the page. It may be called from anywhere.
func (p *Page) WriteTo(w io.Writer) (int64, error) {
	var out bytes.Buffer
	p.render(&out)
	return out.WriteTo(w)
}

// render is apart from the write, so that a slow reader does not hold the page.
func (p *Page) render(out *bytes.Buffer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.before != nil {
		p.before()
	}
	var series bytes.Buffer
	for _, f := range p.families {
		series.Reset()
		f.set.WritePrometheus(&series)
		if series.Len() == 0 {
			continue
		}
		fmt.Fprintf(out, "# HELP %s %s\n# TYPE %s %s\n", f.name, f.help, f.name, f.kind)
		out.Write(series.Bytes())
	}
}

// WriteAll writes the pages one after the other and then what Go and the kernel know about this
// process: what the admin listener serves.
func WriteAll(w io.Writer, pages ...*Page) error {
	var out bytes.Buffer
	for _, p := range pages {
		p.render(&out)
	}
	metrics.WriteProcessMetrics(&out)
	metrics.WriteFDMetrics(&out)
	_, err := out.WriteTo(w)
	return err
}

// label writes one label. The values are ours: no peer's text comes near.
func label(key, value string) string { return key + `="` + value + `"` }

func labels(key string, values []string) []string {
	list := make([]string, len(values))
	for i, v := range values {
		list[i] = label(key, v)
	}
	return list
}
