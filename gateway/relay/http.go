package relay

import (
	"bytes"

	"sluice/codec/http1"
	"sluice/codec/ws"
	"sluice/gateway/edge"
	"sluice/gateway/metric"
	"sluice/gateway/store"
	"sluice/loop"
)

const (
	typeText = "text/plain; charset=utf-8"
	typeJSON = "application/json"

	// retryAfter is what a refused upgrade is told, seconds: long enough to
	// matter, short enough that a daemon is not missed.
	retryAfter = "5"
)

var (
	bodyOK      = []byte(`{"status":"ok"}`)
	bodyReady   = []byte(`{"status":"ready"}`)
	bodyUnready = []byte(`{"status":"unready"}`)
	bodyMissing = []byte("not found\n")
)

// OnRequest answers the relay's endpoints. Contract, relay §1.
func (r *Relay) OnRequest(c *edge.HTTPConn, req *http1.Request) {
	if string(req.Path) == "/ws" {
		r.onUpgrade(c, req)
		return
	}
	if req.MethodID == http1.MethodGet || req.MethodID == http1.MethodHead {
		switch string(req.Path) {
		case "/health":
			c.Reply(200, typeJSON, bodyOK)
			return
		case "/ready":
			if r.cfg.Ready() {
				c.Reply(200, typeJSON, bodyReady)
			} else {
				c.Reply(503, typeJSON, bodyUnready)
			}
			return
		case "/metrics":
			var page bytes.Buffer
			r.metrics.Page.WriteTo(&page)
			c.Reply(200, metric.ContentType, page.Bytes())
			return
		}
	}
	c.Reply(404, typeText, bodyMissing)
}

// onUpgrade makes the checks 1 to 5 on the loop that accepted, and goes on on
// the loop that the serverId lives on.
func (r *Relay) onUpgrade(c *edge.HTTPConn, req *http1.Request) {
	if !completeUpgrade(req) {
		r.metrics.Reject(metric.RejectUpgrade)
		r.logRefusal(metric.RejectUpgrade, c.Remote().String(), refuseUpgrade)
		c.Reply(426, typeText, []byte(refuseUpgrade), edge.Header{Name: "Sec-WebSocket-Version", Value: "13"})
		return
	}
	q, refused := parseQuery(req.Query)
	if refused != "" {
		r.metrics.Reject(metric.RejectRequest)
		r.logRefusal(metric.RejectRequest, c.Remote().String(), refused)
		c.Reply(400, typeText, []byte(refused))
		return
	}
	s := r.shardOf(q.ServerID)
	if s.l == c.Loop() {
		s.claim(c, req, q)
		return
	}
	c.MoveTo(s.l, func(c *edge.HTTPConn, req *http1.Request) { s.claim(c, req, q) })
}

// completeUpgrade reports whether the request asks for a WebSocket as RFC 6455
// §4.2.1 demands. A body, which no handshake has, would be taken for frames.
func completeUpgrade(req *http1.Request) bool {
	key, ok := req.Get(http1.FieldSecWebSocketKey)
	version, _ := req.Get(http1.FieldSecWebSocketVersion)
	return req.MethodID == http1.MethodGet && req.Minor == 1 && req.Framing == http1.NoBody &&
		req.HasToken(http1.FieldUpgrade, "websocket") && req.ConnectionUpgrade &&
		req.Count(http1.FieldSecWebSocketVersion) == 1 && bytes.Equal(version, []byte("13")) &&
		ok && req.Count(http1.FieldSecWebSocketKey) == 1 && ws.ValidKey(key)
}

// An upgrading is an upgrade between its claim and its answer.
type upgrading struct {
	s     *shard
	c     *edge.HTTPConn
	q     query
	key   [24]byte
	claim store.Claim
}

// claim asks who owns the serverId, and answers when that is known.
func (s *shard) claim(c *edge.HTTPConn, req *http1.Request, q query) {
	u := &upgrading{s: s, c: c, q: q}
	key, _ := req.Get(http1.FieldSecWebSocketKey)
	copy(u.key[:], key)
	u.ask(s.meetings[q.ServerID] == nil && s.full())
}

// full reports whether the node has no room for a socket that replaces none.
func (s *shard) full() bool { return s.relay.pressed.Load() || s.led.Full() }

// ask asks who owns the serverId; with look without taking it, since it would be
// refused: another node may have room, and must not find it taken.
func (u *upgrading) ask(look bool) {
	answer, ok := u.s.relay.owner.Claim(u.q.ServerID, look, func(answer store.Claim) {
		u.claim = answer
		u.s.l.Post(u)
	})
	if ok { // else the other may have written it already
		u.claim = answer
		u.Deliver(u.s.l)
	}
}

// Deliver goes on with an upgrade whose owner is known.
func (u *upgrading) Deliver(*loop.Loop) {
	s, c := u.s, u.c
	if m := s.meetings[u.q.ServerID]; m != nil && u.claim.Tenure != nil && m.tenure != u.claim.Tenure {
		s.lose(m) // the news of its end is still on its way
	}
	k := &sock{shard: s}
	if c.Gone() {
		u.unclaim()
		return
	}
	if u.claim.Verdict == store.Nobody && (s.meetings[u.q.ServerID] != nil || !s.full()) {
		u.ask(false) // there is room by now
		return
	}
	if no := s.check(&u.q, u.claim, k); no != nil {
		u.unclaim()
		s.relay.refuse(c, no)
		return
	}
	sock, unread := c.Hijack()
	s.admit(sock, &u.q, u.key[:], k, u.claim.Tenure, unread)
}

// unclaim gives a claim up that nobody attaches to.
func (u *upgrading) unclaim() {
	if u.claim.Tenure != nil {
		u.claim.Tenure.Drop()
	}
}

// refuse answers an upgrade that is not admitted.
func (r *Relay) refuse(c *edge.HTTPConn, no *refusal) {
	if no.target != "" {
		r.metrics.Reroutes.Inc()
		c.Reply(no.status, "", nil, edge.Header{Name: r.cfg.RerouteHeader, Value: no.target})
		return
	}
	r.metrics.Reject(no.reason)
	r.logRefusal(no.reason, c.Remote().String(), no.body)
	c.Reply(no.status, typeText, []byte(no.body), edge.Header{Name: "Retry-After", Value: retryAfter})
}
