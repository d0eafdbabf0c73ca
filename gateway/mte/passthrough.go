package mte

import (
	"sluice/codec/frame"
	"sluice/codec/http1"
	"sluice/gateway/edge"
)

// passedMethods is what a 405 on a pass-through route offers. Others that are no
// tunnel are passed on as well.
const passedMethods = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"

// passThrough proxies a plain request whose path the domain lists (contract,
// mte-relay §6).
func (s *shard) passThrough(c *edge.HTTPConn, req *http1.Request, d *domain) {
	to := addresseeOf(d, req)
	switch {
	case req.MethodID == http1.MethodConnect || req.MethodID == http1.MethodTrace:
		s.methodNotAllowed(c, &to, passedMethods)
		return
	case frame.HasDotSegment(req.Path):
		s.refuse(c, &to, refusal{reason: frame.BadRequest})
		return
	}
	s.origins.proxy(c, req, &proxyRoute{
		up:      d.up,
		domain:  d,
		request: dress{headers: d.headers, lines: d.headerLines},
		trusted: s.role.cfg.Trusted.Contains(c.Remote().Addr()),
		scheme:  s.role.scheme,
		to:      to,
		refuser: s,
	})
}

// refuseFailed implements proxyRefuser.
func (s *shard) refuseFailed(c *edge.HTTPConn, r *proxyRoute, f originFailure) {
	no := refusal{reason: s.logFailed(c, r, f)}
	if f.kind == failShutdown {
		no.message = messageShutdown
	}
	s.refuse(c, &r.to, no)
}

// cutFailed implements proxyRefuser.
func (s *shard) cutFailed(c *edge.HTTPConn, r *proxyRoute, f originFailure) { s.logFailed(c, r, f) }

// logFailed writes the line about a failed origin and returns the reason.
func (s *shard) logFailed(c *edge.HTTPConn, r *proxyRoute, f originFailure) frame.Reason {
	reason, why := frame.UpstreamConnectFailed, logConnect
	if f.kind != failConnect {
		reason, why = frame.UpstreamResponseFailed, logResponse
	}
	if log := s.line(why, c, r.domain); log != nil {
		log.Warn("a plain request failed at its origin", "code", reason.Code(), "reason", reason.String(), "detail", f.detail)
	}
	return reason
}
