package main

import (
	"slices"
	"strings"
	"testing"
)

func TestParsePlanSuccess(t *testing.T) {
	p, err := parsePlan([]string{"-short", "-targets", "floor, gws", "-run", "idle"})
	if err != nil {
		t.Fatal(err)
	}
	if p.rounds != 1 || p.seconds != 1 {
		t.Errorf("-short gives %d rounds of %v s", p.rounds, p.seconds)
	}
	if !slices.Equal(p.targets, []string{floorName, "gws"}) {
		t.Errorf("targets are %q", p.targets)
	}
	if !p.wants("idle") || p.wants("proxy") {
		t.Error("-run idle selects the wrong scenarios")
	}
}

func TestParsePlanShort(t *testing.T) {
	p, err := parsePlan([]string{"-seconds", "0.5", "-short"})
	if err != nil {
		t.Fatal(err)
	}
	if p.seconds != 0.5 || p.rounds != 1 {
		t.Errorf("%v s and %d rounds, want the given 0.5 and the short 1", p.seconds, p.rounds)
	}
}

func TestParsePlanFailure(t *testing.T) {
	f := func(want string, args ...string) {
		t.Helper()
		_, err := parsePlan(args)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q gives %v, want an error with %q", args, err, want)
		}
	}
	f(`no target "netty"`, "-targets", "netty")
	f(`no scenario "speed"`, "-run", "speed")
	f("positive", "-rounds", "0")
	f("unexpected argument", "now")
}
