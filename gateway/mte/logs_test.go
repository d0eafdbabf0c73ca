package mte

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"sluice/codec/http1"
	"sluice/gateway/config"
)

// Closing the role tells of the lines that were left out since the last one.
func TestCloseTellsOfLinesLeftOut(t *testing.T) {
	t.Parallel()
	cfg, faults, _ := config.Load([]string{"PORT=1", "PASEO_RELAY_PORT=0", "KYBER_STRENGTH=512", "DEFAULT_POOL_SIZE=1"}, nil)
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	var out bytes.Buffer
	r, err := New(Config{MTE: cfg.MTE, Limits: http1.DefaultLimits}, nil, slog.New(slog.NewTextHandler(&out, nil)))
	if err != nil {
		t.Fatal(err)
	}
	for range 50 {
		r.limit.Line(logConnect, 1)
	}
	r.Close()
	if s := out.String(); !strings.Contains(s, "reason=upstream_connect_failed left_out=40") {
		t.Errorf("logged: %q", s)
	}
}
