package gateway

import (
	"math"
	"slices"
	"testing"
)

func TestRing(t *testing.T) {
	var r ring
	if !math.IsNaN(r.last()) || r.largest(samplesKept) != 0 {
		t.Error("an empty ring has values")
	}
	values := func() (places []int, list []float64) {
		r.each(func(place int, v float64) { places, list = append(places, place), append(list, v) })
		return places, list
	}
	r.put(3)
	r.put(math.NaN())
	r.put(1)
	places, list := values()
	if !slices.Equal(places, []int{samplesKept - 3, samplesKept - 2, samplesKept - 1}) || list[0] != 3 || list[2] != 1 {
		t.Errorf("%v at %v", list, places)
	}
	if r.last() != 1 || r.largest(1) != 1 || r.largest(3) != 3 {
		t.Errorf("last %v, largest of one %v, of three %v", r.last(), r.largest(1), r.largest(3))
	}
	// Full, the oldest goes.
	for i := range 3 * samplesKept {
		r.put(float64(i))
	}
	places, list = values()
	if len(list) != samplesKept || places[0] != 0 || places[samplesKept-1] != samplesKept-1 ||
		list[0] != float64(2*samplesKept) || list[samplesKept-1] != float64(3*samplesKept-1) {
		t.Errorf("%d values from %v to %v", len(list), list[0], list[len(list)-1])
	}
	if n := testing.AllocsPerRun(100, func() { r.put(1) }); n != 0 {
		t.Errorf("%v allocations for a value", n)
	}
}

func TestShow(t *testing.T) {
	f := func(v float64, unit, want string) {
		t.Helper()
		if got := show(v, unit); got != want {
			t.Errorf("show(%v, %q) = %q, want %q", v, unit, got, want)
		}
	}
	f(math.NaN(), "", nothing)
	f(math.Inf(1), unitBytes, nothing)
	f(0, "", "0")
	f(0.25, "", "0.2")
	f(999, "", "999")
	f(1000, "", "1,000")
	f(1234567, "", "1,234,567")
	f(-1234, "", "-1,234")
	f(-123, "", "-123")
	f(0, unitBytes, "0 B")
	f(1023, unitBytes, "1023 B")
	f(512<<20, unitBytes, "512 MiB")
	f(1.5*(1<<30), unitBytes, "1.5 GiB")
	f(0, unitSeconds, "0 s")
	f(0.0000123, unitSeconds, "12 µs")
	f(0.0123, unitSeconds, "12.3 ms")
	f(1.5, unitSeconds, "1.5 s")
	f(75, unitSeconds, "1m15s")
	f(100000, unitSeconds, "1 d 3h46m0s")
	f(0.123, unitShare, "12.3 %")
	f(1767225600, unitDate, "2026-01-01 00:00 UTC")
}
