package main

import (
	"slices"
	"testing"
)

func TestMedian(t *testing.T) {
	f := func(want float64, values ...float64) {
		t.Helper()
		before := slices.Clone(values)
		if got := median(values); got != want {
			t.Errorf("median(%v) is %v, want %v", before, got, want)
		}
		if !slices.Equal(values, before) {
			t.Errorf("median reordered %v to %v", before, values)
		}
	}
	// Nothing, one, an odd and an even count, out of order.
	f(0)
	f(3, 3)
	f(2, 9, 1, 2)
	f(2.5, 4, 1, 2, 3)
}

func TestRatios(t *testing.T) {
	f := func(values, base, want []float64) {
		t.Helper()
		if got := ratios(values, base); !slices.Equal(got, want) {
			t.Errorf("ratios(%v, %v) is %v, want %v", values, base, got, want)
		}
	}
	// Round by round.
	f([]float64{2, 6}, []float64{1, 2}, []float64{2, 3})
	// A peer that ran in fewer rounds, and no floor at all.
	f([]float64{2}, []float64{1, 2}, []float64{2})
	f([]float64{2}, nil, nil)
	// A base that measured nothing.
	f([]float64{2, 6}, []float64{0, 2}, []float64{3})
}
