package mte

import (
	"log/slog"

	"sluice/codec/frame"
	"sluice/gateway/edge"
)

// logReason is why a line that strangers can cause is written; at most ten a
// second of each are (contract, mte-relay §8).
type logReason uint8

const (
	logRateLimited logReason = iota
	logReplay
	logMismatch
	logConnect  // an origin was not reached
	logResponse // its answer failed
	logMetadata // its headers do not fit a frame
	logProbe    // a client's codec has another fingerprint
	logSave     // the store did not take a state
	logOutbound // a request to another relay failed
	logPairing  // a call of its control endpoints did
	logRepair   // it does not know us any more

	logReasons
)

var logNames = [logReasons]string{
	"rate_limited", "replay_rejected", "header_mismatch", "upstream_connect_failed", "upstream_response_failed",
	"metadata_too_large", "profile_probe", "state_store_write_failed",
	"outbound", "outbound_pairing", "outbound_repair",
}

func (r logReason) String() string { return logNames[r] }

// line is the logger for one line about a request of c, nil if it is to be left
// out.
func (s *shard) line(r logReason, c *edge.HTTPConn, d *domain) *slog.Logger {
	log := s.role.limit.Line(r, s.l.Now())
	if log != nil {
		log = log.With("peer", c.Remote().String(), "host", d.host)
	}
	return log
}

// security tells what somebody may be up to.
func (st *stream) security(r frame.Reason) {
	why, text := logReplay, "replayed bytes refused"
	if r == frame.HeaderMismatch {
		why, text = logMismatch, "what stands outside the encryption contradicts what stands inside"
	}
	if log := st.s.line(why, st.c, st.d); log != nil {
		log.Warn(text, "code", r.Code(), "reason", r.String(), "pair", st.pair.String(), "client", st.client.String())
	}
}

// rateLimited tells of a client that calls too often.
func (s *shard) rateLimited(c *edge.HTTPConn, d *domain, endpoint string) {
	s.role.metrics.RateLimited.Inc()
	if log := s.line(logRateLimited, c, d); log != nil {
		log.Warn("rate limited", "code", frame.RateLimited.Code(), "endpoint", endpoint, "setting", "RATE_LIMITS")
	}
}
