package gateway

import (
	"log/slog"
	"os"
	"time"

	"sluice/gateway/config"
	"sluice/gateway/relay"
	"sluice/gateway/store"
	"sluice/ledger"
	"sluice/loop"
)

// Doors for the black-box tests: what they assert on besides the wire.

// Ledger returns the account of the relay's sockets.
func (g *Gateway) Ledger() *ledger.Ledger { return g.led }

// Relay returns the WebSocket relay.
func (g *Gateway) Relay() *relay.Relay { return g.relay }

// Loops returns the event loops.
func (g *Gateway) Loops() []*loop.Loop { return g.loops }

// HTTPConnections returns how many connections of the relay's listener are no WebSockets.
func (g *Gateway) HTTPConnections() int64 { return g.front.Stats.Open.Load() }

// Failed delivers the exit code of a gateway that gave up.
func (g *Gateway) Failed() <-chan int { return g.failed }

// ReadCertificates looks at the certificate files, as the poll does.
func (g *Gateway) ReadCertificates() { g.certs.look() }

// CheckPairs looks for pairs of outbound hosts that were lost or counted twice.
func (g *Gateway) CheckPairs() error { return g.encrypting.role.CheckPairs() }

// Relayed returns how many requests are under way through the encrypting relay.
func (g *Gateway) Relayed() int64 { return g.encrypting.role.Active() }

// NoLastAnswers takes the time from clients that have not closed when a drain is over.
func (g *Gateway) NoLastAnswers() { g.encrypting.lastAnswers = 0 }

// Leaving returns how many clients of the encrypting relay have not got all of a
// complete answer.
func (g *Gateway) Leaving() int {
	return g.encrypting.leaving(loop.Now() + int64(time.Minute))
}

// StartFleetNode is Start with leases of another length, everything about them in
// proportion, and an observer of every forward.
func StartFleetNode(cfg *config.Config, log *slog.Logger, lease time.Duration, forwarded func(*store.Tenure)) (*Gateway, error) {
	return start(cfg, log, tuning{owner: ownerTimes(lease), forwarded: forwarded}, false)
}

// ServeFleetNode is Serve with leases of another length.
func ServeFleetNode(environ []string, lease time.Duration) int {
	return serve(environ, tuning{owner: ownerTimes(lease)})
}

// ownerTimes are the contract's in the proportion of a lease of this length.
func ownerTimes(lease time.Duration) store.OwnerTimes {
	t := store.DefaultOwnerTimes
	factor := float64(lease) / float64(t.Lease)
	for _, d := range []*time.Duration{&t.Lease, &t.Renew, &t.Margin, &t.Reservation, &t.Linger, &t.Beat, &t.Dead, &t.Retry} {
		*d = time.Duration(float64(*d) * factor)
	}
	return t
}

// StartLive starts a gateway as Serve does, with the settings of every source. A
// signal on hup has the sources looked at.
func StartLive(environ []string, log *slog.Logger, hup <-chan os.Signal) (*Gateway, config.Faults, error) {
	w, faults, _ := openConfig(environ)
	if len(faults) > 0 {
		return nil, faults, nil
	}
	w.log = log
	g, err := w.start(contractTuning, w.boot(), hup)
	return g, nil, err
}

// Sample takes a sample for the live page's charts, out of turn.
func (g *Gateway) Sample() { g.history.sample(loop.Now()) }

// BeatOf is how often a supervisor hears of the process with this id.
func BeatOf(environ []string, pid int) time.Duration { return beatOf(environ, pid) }

// Notify tells the supervisor of environ about a gateway of this process, as Serve does.
func Notify(g *Gateway, environ ...string) (stop func()) {
	n := dialNotifier(environ, os.Getpid(), g.log)
	n.ready(g)
	n.watch(g)
	return n.stop
}

// StopSampling ends what a gateway does every five seconds for its page, which
// would be counted among the allocations of requests.
func (g *Gateway) StopSampling() { g.history.stop() }
