package config

import (
	_ "embed"
	"reflect"
	"strings"
	"testing"

	"sluice/codec/http1"
)

//go:embed testdata/settings.tsv
var settingsCopy string

// The copy is written by hand from the contract: a row that is added, lost or changed must be
// changed in both places.
func TestSettingsAgainstCopy(t *testing.T) {
	var got []string
	for s := range settings {
		reload := "R"
		if s.Live {
			reload = "L"
		}
		got = append(got, s.Name+"\t"+s.defaultText()+"\t"+reload)
	}
	want := strings.Split(strings.TrimSpace(settingsCopy), "\n")
	for i := range max(len(got), len(want)) {
		switch {
		case i >= len(got):
			t.Fatalf("missing: %s", want[i])
		case i >= len(want) || got[i] != want[i]:
			t.Fatalf("row %d: %s", i, got[i])
		}
	}
}

// Every row has its own field, whose type its Kind can fill, and a help text on one line.
func TestSettingsRows(t *testing.T) {
	var c Config
	owner := map[any]string{}
	for s := range settings {
		p := s.field(&c)
		if reflect.TypeOf(p).Kind() != reflect.Pointer {
			t.Errorf("%s: field returns %T", s.Name, p)
		}
		if other := owner[p]; other != "" {
			t.Errorf("%s and %s fill one field", s.Name, other)
		}
		owner[p] = s.Name
		if s.Help == "" || !isOneLine(s.Help) || strings.Contains(s.Help, "|") || strings.Contains(s.Legal(), "|") {
			t.Errorf("%s: help %q, legal %q", s.Name, s.Help, s.Legal())
		}
		if s.Default != "" && s.derived != nil {
			t.Errorf("%s has two defaults", s.Name)
		}
		if lookup(s.Name) != s {
			t.Errorf("%s is in the table twice", s.Name)
		}
	}
}

// What is legal is what is accepted: both ends of every number, and one beyond.
func TestSettingsRanges(t *testing.T) {
	for s := range settings {
		least, most, ok := s.Kind.limits()
		if !ok {
			continue
		}
		f := func(n int64, want bool) {
			t.Helper()
			if got, _ := s.set(new(Config), itoa(n)); got != want {
				t.Errorf("%s=%d accepted: %v", s.Name, n, got)
			}
		}
		least = max(least, s.Min)
		f(least, true)
		f(most, true)
		f(most+1, false)
		f(-1, false)
		if least > 1 {
			f(least-1, false)
		}
		f(0, s.Zero != "")
	}
}

// The defaults have a second home for those that read answers without settings.
func TestDefaultLimits(t *testing.T) {
	head, fields := lookup("HTTP_MAX_HEAD_BYTES").Default, lookup("HTTP_MAX_HEADERS").Default
	if lim := http1.DefaultLimits; head != itoa(int64(lim.HeadBytes)) || fields != itoa(int64(lim.Fields)) {
		t.Errorf("http1 has %d bytes and %d fields; the table has %s and %s", lim.HeadBytes, lim.Fields, head, fields)
	}
}

func TestReference(t *testing.T) {
	ref := Reference()
	for s := range settings {
		if strings.Count(ref, "\n| "+s.Name+" | ") != 1 {
			t.Errorf("%s is not one row of the reference", s.Name)
		}
	}
	for line := range strings.SplitSeq(ref, "\n") {
		if strings.HasPrefix(line, "|") && strings.Count(line, "|") != 6 {
			t.Errorf("not five cells: %s", line)
		}
	}
}
