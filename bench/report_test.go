package main

import (
	"slices"
	"testing"
)

func TestBetweenSuccess(t *testing.T) {
	f := func(old string) {
		t.Helper()
		text := "# Title\n\n" + beginMarker + old + endMarker + "\n\ntail\n"
		got, err := between(text, "new figures\n")
		if err != nil {
			t.Fatal(err)
		}
		want := "# Title\n\n" + beginMarker + "\n\nnew figures\n\n" + endMarker + "\n\ntail\n"
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		again, err := between(got, "new figures\n")
		if err != nil || again != got {
			t.Errorf("a second time gives %q, %v", again, err)
		}
	}
	// An empty place, and one with older figures.
	f("\n")
	f("\n\nold figures\n\n")
}

func TestBetweenFailure(t *testing.T) {
	f := func(text string) {
		t.Helper()
		if got, err := between(text, "x"); err == nil {
			t.Errorf("%q gives %q, want an error", text, got)
		}
	}
	// No markers, one of them, the wrong way about.
	f("")
	f(beginMarker)
	f(endMarker + beginMarker)
}

func TestVerdict(t *testing.T) {
	f := func(least bool, got, limit float64, want string) {
		t.Helper()
		c := check{"x", got, limit, least}
		if v := c.verdict(); v != want {
			t.Errorf("%v where %s is wanted is %s, want %s", got, c.bound(), v, want)
		}
	}
	f(false, 1.19, 1.2, "PASS")
	f(false, 1.2, 1.2, "PASS")
	f(false, 1.21, 1.2, "OVER")
	f(true, 0.84, 0.85, "UNDER")
	f(true, 0.85, 0.85, "PASS")
	f(true, 0.86, 0.85, "PASS")
}

func TestOrder(t *testing.T) {
	all := []series{
		{target: targetByName("gws")},
		{target: targetByName(floorName)},
		{target: targetByName(sluiceName)},
		{target: targetByName("nbio")},
	}
	f := func(round, peerRounds int, want ...int) {
		t.Helper()
		if got := order(all, round, peerRounds); !slices.Equal(got, want) {
			t.Errorf("round %d with peers in %d: %v, want %v", round, peerRounds, got, want)
		}
	}
	// Floor and ours are neighbours and swap; peers follow while their rounds last.
	f(0, 2, 1, 2, 0, 3)
	f(1, 2, 2, 1, 0, 3)
	f(2, 2, 1, 2)
	f(3, 2, 2, 1)
}
