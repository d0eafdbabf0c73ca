package mte

import (
	"slices"
	"time"

	"sluice/codec/frame"
	"sluice/codec/http1"
	"sluice/gateway/config"
	"sluice/gateway/edge"
)

// features is what works on this transport (contract, mte-relay §4).
var features = []string{"http", "keepalive", "plain-headers", "browser-cookies", "pass-through", "relay-error-header"}

// discoveryOf is what a domain tells about itself, but for what Apply is given
// beside the domains.
func (r *Role) discoveryOf(c *config.Domain) frame.Discovery {
	mode := "memory"
	if r.pairs.Shared() {
		mode = "shared"
	}
	seconds := func(d time.Duration) int { return int(d / time.Second) }
	return frame.Discovery{
		BuildVersion:          r.cfg.Version,
		Features:              features,
		Profile:               r.profile.String(),
		KyberStrength:         r.cfg.KyberStrength,
		MaxFrameBytes:         int(r.cfg.MaxFrameBytes),
		MaxMetadataMKE:        int(r.cfg.MaxMetadataBytesMKE),
		MaxMetadataMTE:        int(r.cfg.MaxMetadataBytesMTE),
		MaxPairsPerBatch:      r.cfg.MaxPairsPerBatch,
		MaxPairsPerClient:     r.cfg.MaxPairsPerClient,
		MaxPairBytes:          r.cfg.MaxPairBytes,
		MaxPairSeconds:        int64(seconds(r.cfg.MaxPairTime)),
		MaxRequestSeconds:     seconds(r.cfg.MaxRequestTime),
		MaxResponseSeconds:    seconds(r.cfg.MaxResponseTime),
		DrainSeconds:          seconds(r.cfg.Drain),
		SessionTimeoutSeconds: int64(seconds(r.cfg.SessionTimeout)),
		TokenMaxAgeSeconds:    int64(seconds(r.cfg.TokenMaxAge)),
		StateMode:             mode,
		PassThroughRoutes:     c.PassThroughRoutes,
		ForwardPlainHeaders:   c.ForwardPlainHeaders,
		ForwardBrowserCookies: c.ForwardCookies,
	}
}

// auth answers GET /api/mte-relay: who the client is from now on, and what this
// relay can do.
func (s *shard) auth(c *edge.HTTPConn, req *http1.Request, d *domain, to *addressee) {
	r := s.role
	q := frame.ParseAuthQuery(string(req.Query))
	token, known := frame.ParseToken([]byte(q.Token))
	if known {
		to.is(token.Client())
	}
	if r.rates != nil {
		if wait, ok := r.rates.auth.Allow(r.source(c, req), s.l.Now()); !ok {
			s.rateLimited(c, d, frame.AuthPath)
			s.refuse(c, to, refusal{reason: frame.RateLimited, wait: wait})
			return
		}
	}
	if offered := q.Offered(); !slices.Contains(offered, frame.Version) {
		s.refuse(c, to, refusal{reason: frame.FrameVersionUnsupported, message: frame.VersionMessage(offered)})
		return
	}
	now := time.Now().Unix()
	id := token.Client()
	if !known || !d.key.VerifyAge(&token, now, r.tokenAge()) {
		id = frame.NewClientID()
	}
	token = d.key.Issue(id, now)
	to.is(id)
	s.scratch = frame.AppendAuth(s.scratch[:0], &token, &d.discovery)
	c.Reply(200, typeJSON, s.scratch, to.headers()...)
}

func (r *Role) tokenAge() int64 { return int64(r.cfg.TokenMaxAge / time.Second) }
