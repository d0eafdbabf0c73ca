package config

import (
	"flag"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the tables of settings into README.md")

const (
	readme      = "../../README.md"
	readmeBegin = "<!-- begin of settings: written by go test ./gateway/config -run Readme -update -->\n\n"
	readmeEnd   = "\n<!-- end of settings -->\n"
)

// The README's tables are those of Reference. -update writes them.
func TestReadme(t *testing.T) {
	file, err := os.ReadFile(readme)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, begun := strings.Cut(string(file), readmeBegin)
	block, after, ended := strings.Cut(rest, readmeEnd)
	if !begun || !ended {
		t.Fatalf("%s lacks the lines %q and %q", readme, readmeBegin, readmeEnd)
	}
	want := Reference()
	if block == want {
		return
	}
	if !*update {
		t.Fatalf("the tables of settings in %s are not those of Reference; run go test ./gateway/config -run Readme -update", readme)
	}
	text := before + readmeBegin + want + readmeEnd + after
	if err := os.WriteFile(readme, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
