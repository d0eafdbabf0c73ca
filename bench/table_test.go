package main

import "testing"

func TestTable(t *testing.T) {
	x := newTable("cell", "floor", "ours")
	x.add("64 B", "0.35", "0.36 (1.01×)")
	x.add("1 MiB, 2 in flight", "588")
	const want = "" +
		"| cell               | floor |         ours |\n" +
		"|--------------------|------:|-------------:|\n" +
		"| 64 B               |  0.35 | 0.36 (1.01×) |\n" +
		"| 1 MiB, 2 in flight |   588 |            – |\n"
	if got := x.String(); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

func TestNumber(t *testing.T) {
	f := func(v float64, want string) {
		t.Helper()
		if got := number(v); got != want {
			t.Errorf("number(%v) is %q, want %q", v, got, want)
		}
	}
	// Three digits, wherever the point is.
	f(0, "0.00")
	f(0.3456, "0.35")
	f(12.345, "12.3")
	f(588.4, "588")
	f(2694924, "2694924")
	// Memory may have shrunk.
	f(-119.02, "-119")
}
