package relay

import (
	"log/slog"
	"time"

	"sluice/codec/ws"
	"sluice/gateway/logging"
	"sluice/gateway/metric"
	"sluice/loop"
)

// lines are what the relay logs. Every one can be caused by a stranger, so each
// reason has its bound; how many were left out is told.
type lines struct {
	ends     *logging.Limiter[metric.CloseCode]
	refusals *logging.Limiter[metric.Rejection]
	trouble  *logging.Limiter[trouble]
}

// trouble is a reason for a line that is about a peer's conduct.
type trouble uint8

const (
	// troubleFight: two peers use one identity and throw each other out in turn.
	troubleFight trouble = iota
	// troubleSlow: a destination did not take its messages in time.
	troubleSlow

	troubles
)

func (t trouble) String() string {
	return [troubles]string{troubleFight: "replacement fight", troubleSlow: "slow destination"}[t]
}

func newLines(log *slog.Logger) lines {
	return lines{
		ends:     logging.NewLimiter(log, metric.CloseCodes),
		refusals: logging.NewLimiter(log, metric.Rejections),
		trouble:  logging.NewLimiter(log, troubles),
	}
}

// FlushLog tells of lines that were left out, as logging.Limiter's Flush does. Call
// it from one goroutine.
func (r *Relay) FlushLog(now int64) {
	r.lines.ends.Flush(now)
	r.lines.refusals.Flush(now)
	r.lines.trouble.Flush(now)
}

// fight reports two peers that throw each other out in turn, once per window.
func (s *shard) fight(id *identity, old, k *sock) {
	now := s.l.Now()
	if id.past.reported != 0 && now-id.past.reported < fightWindow {
		return
	}
	id.past.reported = now
	s.count.ReplacementFights++
	if log := s.relay.lines.trouble.Line(troubleFight, now); log != nil {
		log.Warn("two peers replace each other: one identity is used twice",
			"session", logging.ID(k.server), "role", k.kind.String(), "old", old.c.Remote().String(), "new", k.c.Remote().String())
	}
}

// logSlow names what a destination did and would have had to do.
func (s *shard) logSlow(k *sock, waited int64) {
	log := s.relay.lines.trouble.Line(troubleSlow, s.l.Now())
	if log == nil {
		return
	}
	queued, budget := k.out.d.Queued(), s.relay.cfg.Deadlines.Delivery
	log.Warn("slow destination shed",
		"session", logging.ID(k.server), "role", k.kind.String(), "peer", k.c.Remote().String(), "queued_bytes", queued,
		"waited", time.Duration(waited).Round(time.Millisecond),
		"needed_bytes_per_second", int64(float64(queued)/budget.Seconds()),
		"setting", "PASEO_RELAY_DELIVERY_TIMEOUT_MS")
}

// logRefusal names an upgrade that was not admitted.
func (r *Relay) logRefusal(why metric.Rejection, peer, text string) {
	if log := r.lines.refusals.Line(why, loop.Now()); log != nil {
		log.Info("upgrade refused", "reason", why.String(), "answer", text, "peer", peer)
	}
}

var byNames = [...]string{
	byUs: "us", byPeer: "peer", byPeerNone: "peer, without a close frame", byPeerReset: "peer, by reset", byUsReset: "us, by reset",
}

// ended counts and logs the end of a connection.
func (s *shard) ended(k *sock) {
	code, by := metric.CloseCodeOf(k.end.code), metric.ByUs
	switch k.end.by {
	case byPeer:
		by = metric.ByPeer
	case byPeerNone:
		code, by = metric.CloseNone, metric.ByPeer
	case byPeerReset:
		code, by = metric.CloseReset, metric.ByPeer
	case byUsReset:
		code = metric.CloseReset
	}
	s.relay.metrics.Closed(code, by)
	log := s.relay.lines.ends.Line(code, s.l.Now())
	if log == nil {
		return
	}
	wire := int(k.end.code)
	if wire == ws.CloseAbnormal {
		wire = 0 // there was no close frame
	}
	log.Info("connection ended",
		"session", logging.ID(k.server), "role", k.kind.String(), "code", wire, "reason", k.end.reason, "by", byNames[k.end.by],
		"age", time.Duration(loop.Now()-k.c.Accepted()).Round(time.Millisecond),
		"bytes_in", k.recv, "bytes_out", k.sentB, "peer", k.c.Remote().String())
}
