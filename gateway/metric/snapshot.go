package metric

import (
	"bytes"
	"math"
	"slices"
	"strconv"
	"strings"
)

// A Family is what a page says of one metric at one moment.
type Family struct {
	Name, Kind, Help string
	Samples          []Sample // in the order of the page; those of a histogram are its buckets, sum and count
}

// A Sample is one series with its value.
type Sample struct {
	Name   string // of the family, with _bucket, _sum or _count for a histogram
	Labels []Label
	Value  float64
}

// A Label is a name and what it says.
type Label struct{ Key, Value string }

// A Snapshot is all families of some pages at one moment, by their names: what the live page shows,
// so that it shows what anybody adds.
type Snapshot struct {
	list   []Family
	byName map[string]int
}

// Take reads pages. It may be called from anywhere, at the cost of a scrape.
func Take(pages ...*Page) *Snapshot {
	s := &Snapshot{byName: make(map[string]int)}
	var series bytes.Buffer
	for _, p := range pages {
		p.mu.Lock()
		if p.before != nil {
			p.before()
		}
		for _, f := range p.families {
			series.Reset()
			f.set.WritePrometheus(&series)
			if series.Len() > 0 {
				s.byName[f.name] = len(s.list)
				s.list = append(s.list, Family{f.name, f.kind, f.help, parseSamples(series.String())})
			}
		}
		p.mu.Unlock()
	}
	return s
}

// parseSamples reads what a set has written. It is our own text: label values hold neither quotes
// nor backslashes, and what cannot be read is a bug that a test finds.
func parseSamples(text string) []Sample {
	samples := make([]Sample, 0, strings.Count(text, "\n"))
	for line := range strings.Lines(text) {
		at := strings.LastIndexByte(strings.TrimSpace(line), ' ')
		if at < 0 {
			continue
		}
		v, err := strconv.ParseFloat(strings.TrimSpace(line[at:]), 64)
		if err != nil {
			continue
		}
		sample := Sample{Value: v}
		name, rest, labelled := strings.Cut(line[:at], "{")
		sample.Name = name
		if labelled {
			for pair := range strings.SplitSeq(strings.TrimSuffix(rest, "}"), `",`) {
				key, value, _ := strings.Cut(pair, `="`)
				sample.Labels = append(sample.Labels, Label{key, strings.TrimSuffix(value, `"`)})
			}
		}
		samples = append(samples, sample)
	}
	return samples
}

// Families returns all families in the order of their pages.
func (s *Snapshot) Families() []Family { return s.list }

// Family returns one by its name, and nil if it is not there.
func (s *Snapshot) Family(name string) *Family {
	if i, ok := s.byName[name]; ok {
		return &s.list[i]
	}
	return nil
}

// Sum adds up the series of a family that is no histogram; false if it is not there.
func (s *Snapshot) Sum(name string) (sum float64, ok bool) {
	f := s.Family(name)
	if f == nil {
		return 0, false
	}
	for i := range f.Samples {
		sum += f.Samples[i].Value
	}
	return sum, true
}

// A Distribution is a histogram at one moment.
type Distribution struct {
	Bounds []float64 // upper ones, rising, the last +Inf
	Counts []float64 // up to each bound, cumulative
	Sum    float64
}

// Distribution returns a family's histogram; false if there is none.
func (s *Snapshot) Distribution(name string) (d Distribution, ok bool) {
	f := s.Family(name)
	if f == nil || f.Kind != "histogram" {
		return d, false
	}
	for i := range f.Samples {
		x := &f.Samples[i]
		switch {
		case x.Name == name+"_sum":
			d.Sum = x.Value
		case x.Name == name+"_bucket" && len(x.Labels) > 0:
			bound, err := strconv.ParseFloat(x.Labels[len(x.Labels)-1].Value, 64)
			if err == nil {
				d.Bounds, d.Counts = append(d.Bounds, bound), append(d.Counts, x.Value)
			}
		}
	}
	return d, len(d.Counts) > 0
}

// Since returns what came to d after an earlier moment; an empty one counts as the start.
func (d Distribution) Since(before Distribution) Distribution {
	if len(before.Counts) != len(d.Counts) {
		return d
	}
	diff := Distribution{Bounds: d.Bounds, Counts: slices.Clone(d.Counts), Sum: d.Sum - before.Sum}
	for i := range diff.Counts {
		diff.Counts[i] -= before.Counts[i]
	}
	return diff
}

// Count is how many values there were.
func (d Distribution) Count() float64 {
	if len(d.Counts) == 0 {
		return 0
	}
	return d.Counts[len(d.Counts)-1]
}

// Mean is their mean, NaN if there were none.
func (d Distribution) Mean() float64 { return d.Sum / d.Count() }

// Quantile is the value that a share q of them does not exceed, taken as evenly spread within its
// bucket; NaN if there were none. One beyond the last bound is that bound.
func (d Distribution) Quantile(q float64) float64 {
	n := d.Count()
	if n == 0 {
		return math.NaN()
	}
	rank, low, below := q*n, 0.0, 0.0
	for i, c := range d.Counts {
		if c >= rank && c > below {
			if math.IsInf(d.Bounds[i], 1) {
				return low
			}
			return low + (d.Bounds[i]-low)*(rank-below)/(c-below)
		}
		low, below = d.Bounds[i], c
	}
	return low
}
