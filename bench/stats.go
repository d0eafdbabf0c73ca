package main

import "slices"

// median of values, which it leaves in their order. Of none it is 0.
func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	v := slices.Sorted(slices.Values(values))
	mid := len(v) / 2
	if len(v)%2 == 1 {
		return v[mid]
	}
	return (v[mid-1] + v[mid]) / 2
}

// ratios divides the figures of two servers round by round. Rounds that only
// one of them ran are left out, as are those where the base measured nothing.
func ratios(values, base []float64) []float64 {
	var out []float64
	for i := range min(len(values), len(base)) {
		if base[i] > 0 {
			out = append(out, values[i]/base[i])
		}
	}
	return out
}
