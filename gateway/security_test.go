package gateway

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"sluice/gateway/logging"
	"sluice/gateway/metric"
	"sluice/gateway/tlsconn"
)

// What was left out of a burst is told when it is over, each kind of line at its
// own level.
func TestLinesLeftOutAreTold(t *testing.T) {
	t.Parallel()
	f := func(level slog.Level, reasons ...string) {
		t.Helper()
		var out bytes.Buffer
		log := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: level}))
		g := &Gateway{
			log: log, lines: logging.NewLimiter(log, metric.Listeners),
			proxyLines: logging.NewLimiter(log, metric.Listeners), tlsLines: logging.NewLimiter(log, tlsconn.Failures),
		}
		const burst = int64(time.Second)
		for range 100 {
			g.lines.Line(metric.ListenerMTE, burst)
			g.proxyLines.Line(metric.ListenerRelay, burst)
			g.tlsLines.Line(tlsconn.FailCrowded, burst)
		}
		g.flushLines(burst + int64(time.Second))
		if n := strings.Count(out.String(), "left_out=90"); n != len(reasons) {
			t.Errorf("%v: %d counts are told: %s", level, n, out.String())
		}
		for _, r := range reasons {
			if !strings.Contains(out.String(), "reason="+r+" ") {
				t.Errorf("%v: nothing of %s: %s", level, r, out.String())
			}
		}
	}
	f(slog.LevelInfo, metric.ListenerMTE.String(), metric.ListenerRelay.String())
	f(slog.LevelDebug, metric.ListenerMTE.String(), metric.ListenerRelay.String(), tlsconn.FailCrowded.String())
}
