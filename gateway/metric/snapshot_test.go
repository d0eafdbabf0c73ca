package metric

import (
	"math"
	"testing"
)

// A snapshot says what the page says.
func TestSnapshotFitsPage(t *testing.T) {
	m := NewMTE(mteGauges(), []Refusal{{477, "invalid_frame"}})
	m.Request(RequestFrames)
	m.Request(RequestPair)
	m.Request(RequestPair)
	m.OriginSeconds.Update(0.02)
	p := NewProcess(processGauges())
	e, s := scrape(t, &m.Page), Take(&m.Page, &p.Page)
	series := 0
	for _, f := range s.Families() {
		if kind, ok := e.kinds[f.Name]; ok && kind != f.Kind {
			t.Errorf("%s is a %s, the page says %s", f.Name, f.Kind, kind)
		}
		for _, x := range f.Samples {
			name := x.Name
			if len(x.Labels) > 0 {
				name += "{"
				for i, l := range x.Labels {
					if i > 0 {
						name += ","
					}
					name += label(l.Key, l.Value)
				}
				name += "}"
			}
			v, ok := e.series[name]
			if ok && v != x.Value {
				t.Errorf("%s is %v, the page says %v", name, x.Value, v)
			}
			if ok {
				series++
			}
		}
	}
	if series != len(e.series) {
		t.Errorf("%d series, the page has %d", series, len(e.series))
	}
	if v, ok := s.Sum("mte_relay_requests_total"); v != 3 || !ok {
		t.Errorf("sum %v, %v", v, ok)
	}
	if _, ok := s.Sum("none"); ok || s.Family("none") != nil {
		t.Error("a family that is not there")
	}
	d, ok := s.Distribution("mte_relay_origin_seconds")
	if !ok || d.Count() != 1 || d.Mean() != 0.02 || len(d.Bounds) != len(secondsBounds)+1 {
		t.Errorf("distribution %+v, %v", d, ok)
	}
	if _, ok := s.Distribution("mte_relay_pairs"); ok {
		t.Error("a gauge is a distribution")
	}
}

func TestDistributionQuantile(t *testing.T) {
	bounds := []float64{1, 2, 4, math.Inf(1)}
	f := func(q float64, counts []float64, want float64) {
		t.Helper()
		got := Distribution{Bounds: bounds, Counts: counts}.Quantile(q)
		if got != want && !(math.IsNaN(got) && math.IsNaN(want)) {
			t.Errorf("quantile %v of %v is %v, want %v", q, counts, got, want)
		}
	}
	f(0.5, []float64{0, 0, 0, 0}, math.NaN())
	// evenly spread within a bucket
	f(0.5, []float64{10, 10, 10, 10}, 0.5)
	f(0.5, []float64{0, 10, 10, 10}, 1.5)
	f(1, []float64{0, 0, 8, 8}, 4)
	// at a bound
	f(0.5, []float64{5, 10, 10, 10}, 1)
	// beyond the last bound
	f(0.99, []float64{0, 0, 0, 10}, 4)
	f(0.99, []float64{90, 90, 98, 100}, 4)

	now := Distribution{Bounds: bounds, Counts: []float64{5, 7, 9, 9}, Sum: 20}
	since := now.Since(Distribution{Bounds: bounds, Counts: []float64{5, 5, 5, 5}, Sum: 12})
	if since.Count() != 4 || since.Mean() != 2 || since.Quantile(0.5) != 2 || now.Count() != 9 {
		t.Errorf("%+v", since)
	}
	if d := now.Since(Distribution{}); d.Count() != 9 {
		t.Errorf("since nothing: %+v", d)
	}
}
