package metric

import (
	"fmt"
	"io"
	"strconv"
)

// HTTPCounts are asked for each listener of a role; nil leaves the families out.
// They must not fall. The admin listener has none: it is of another make.
type HTTPCounts struct {
	// Refusals calls f for each status the HTTP layer refuses with, in a fixed order.
	Refusals     func(l Listener, f func(status int, n int64))
	RefusedFull  func(Listener) int64 // connections, at HTTP_MAX_CONNECTIONS
	IdleTimeouts func(Listener) int64
	WriteStalls  func(Listener) int64
}

// addHTTP adds the families of the HTTP layer in front of both roles.
func addHTTP(p *Page, g *HTTPCounts) {
	if g.Refusals == nil {
		return
	}
	served := [...]Listener{ListenerRelay, ListenerMTE}
	var names []string
	for _, l := range served {
		names = append(names, label("listener", l.String()))
	}
	count := func(name, help string, value func(Listener) int64) {
		p.counterFuncs(name, help, names, func(i int) float64 { return float64(value(served[i])) })
	}
	const refusals = "sluice_http_refusals_total"
	p.add(refusals, "counter", "Requests refused before a role saw them, or for their body, by status: malformed, too large, too late.").RegisterMetricsWriter(func(w io.Writer) {
		for i, l := range served {
			g.Refusals(l, func(status int, n int64) {
				writeSample(w, fmt.Sprintf("%s{%s,%s}", refusals, names[i], label("status", strconv.Itoa(status))), float64(n))
			})
		}
	})
	count("sluice_http_connections_refused_total", "New connections closed at the ceiling, since none could make room.", g.RefusedFull)
	count("sluice_http_idle_timeouts_total", "Connections closed for asking nothing in time.", g.IdleTimeouts)
	count("sluice_http_write_stalls_total", "Connections reset for taking nothing of an answer in time.", g.WriteStalls)
}
