package mte

import (
	"bytes"

	"sluice/codec/frame"
	"sluice/codec/http1"
	"sluice/gateway/edge"
	"sluice/gateway/metric"
)

const controlPrefix = "/api/mte-"

// OnRequest decides who gets a request: the control endpoints, then frames, then
// preflights, then pass-through, else nobody (contract, mte-relay §6).
func (r *Role) OnRequest(c *edge.HTTPConn, req *http1.Request) {
	s := r.shard(c.Loop())
	d := (*r.domains.Load()).lookup(req.Host)
	to := addresseeOf(d, req)
	switch {
	case d != nil && d.out != nil:
		r.metrics.Request(metric.RequestOutbound)
		s.outbound(c, req, d.out)
	case d == nil:
		r.metrics.Request(metric.RequestOther)
		s.refuse(c, &to, refusal{reason: frame.NoDomainForHost})
	case bytes.HasPrefix(req.Path, []byte(controlPrefix)):
		s.control(c, req, d, &to)
	case isFrames(req):
		r.metrics.Request(metric.RequestFrames)
		s.frames(c, req, d, &to)
	case isPreflight(req) && (d.cors.set || !d.passThrough.match(req.Path)):
		r.metrics.Request(metric.RequestPreflight)
		s.preflight(c, d, &to)
	case d.passThrough.match(req.Path):
		r.metrics.Request(metric.RequestPassThrough)
		s.passThrough(c, req, d)
	default:
		r.metrics.Request(metric.RequestOther)
		s.refuse(c, &to, refusal{reason: frame.NotFound})
	}
}

// isFrames reports whether a request's body is frames.
func isFrames(req *http1.Request) bool {
	if req.MethodID != http1.MethodPost || string(req.Path) != "/" {
		return false
	}
	v, _ := req.Get(http1.FieldContentType)
	v, _, _ = bytes.Cut(v, []byte{';'})
	return bytes.EqualFold(bytes.TrimRight(v, " \t"), []byte(typeFrames))
}

// control serves the endpoints of the relay itself.
func (s *shard) control(c *edge.HTTPConn, req *http1.Request, d *domain, to *addressee) {
	kind, allow := metric.RequestOther, ""
	switch string(req.Path) {
	case frame.AuthPath:
		kind, allow = metric.RequestAuth, "GET, HEAD"
	case frame.PairPath:
		kind, allow = metric.RequestPair, "POST"
	case frame.KeepalivePath:
		kind, allow = metric.RequestKeepalive, "POST"
	}
	if isPreflight(req) {
		s.role.metrics.Request(metric.RequestPreflight)
		s.preflight(c, d, to)
		return
	}
	s.role.metrics.Request(kind)
	isPost := req.MethodID == http1.MethodPost
	isGet := req.MethodID == http1.MethodGet || req.MethodID == http1.MethodHead
	switch {
	case kind == metric.RequestAuth && isGet:
		s.auth(c, req, d, to)
	case kind == metric.RequestPair && isPost:
		s.pair(c, req, d, to)
	case kind == metric.RequestKeepalive && isPost:
		s.keepalive(c, d, to)
	case kind == metric.RequestOther:
		s.refuse(c, to, refusal{reason: frame.NotFound})
	default:
		s.methodNotAllowed(c, to, allow)
	}
}
