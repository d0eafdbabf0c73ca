package metric

import (
	command "flag" // flag is a function of the package
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

var update = command.Bool("update", false, "write the tables of metrics into README.md")

const (
	readme      = "../../README.md"
	readmeBegin = "<!-- begin of metrics: written by go test ./gateway/metric -run Readme -update -->\n\n"
	readmeEnd   = "\n<!-- end of metrics -->\n"
)

// readmeTables are the families of every page in Markdown.
func readmeTables() string {
	no := func() int64 { return 0 }
	process := NewProcess(ProcessGauges{
		HTTPConnections: func(Listener) int64 { return 0 },
		HTTPCounts:      HTTPCounts{Refusals: func(Listener, func(int, int64)) {}},
		LoopGauges:      LoopGauges{Connections: func(int) int64 { return 0 }},
		ConfigGauges: ConfigGauges{
			ControlPlaneAge: func() time.Duration { return 0 },
		},
		RedisUp:           func() bool { return false },
		RedisCalls:        func() (int64, int64) { return 0, 0 },
		CertificateExpiry: func() float64 { return 0 },
	})
	relay := NewRelay(RelayGauges{})
	mte := NewMTE(MTEGauges{Pairs: no, PairsInUse: no}, nil)
	var b strings.Builder
	for i, page := range []struct {
		title string
		page  *Page
	}{{"WebSocket relay", &relay.Page}, {"Encrypting relay", &mte.Page}, {"Process", &process.Page}} {
		if i > 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "**%s**\n\n| metric | type | what it is |\n|---|---|---|\n", page.title)
		for _, f := range page.page.families {
			fmt.Fprintf(&b, "| %s | %s | %s |\n", f.name, f.kind, f.help)
		}
	}
	return b.String()
}

// The README's tables list every family with its help. -update writes them.
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
	want := readmeTables()
	if block == want {
		return
	}
	if !*update {
		t.Fatalf("the tables of metrics in %s are not those of the pages; run go test ./gateway/metric -run Readme -update", readme)
	}
	text := before + readmeBegin + want + readmeEnd + after
	if err := os.WriteFile(readme, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
