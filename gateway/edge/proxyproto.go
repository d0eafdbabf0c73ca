package edge

import (
	"errors"

	"sluice/codec/proxy"
	"sluice/loop"
)

// Proxy is the rule of PROXY_PROTOCOL=on: a trusted peer must begin with a PROXY
// header, and who is not trusted must not.
type Proxy struct {
	Trusted TrustedProxies

	// OnRefused is told of each connection closed for breaking the rule, on loops.
	OnRefused func(c *HTTPConn, err error)
}

var (
	errProxyTimeout = errors.New("no PROXY header within PASEO_RELAY_HTTP_IDLE_TIMEOUT_MS")
	errProxyForeign = errors.New("a PROXY header from a peer outside TRUSTED_PROXIES")
)

// awaitProxy begins with the connection's PROXY header.
func (c *HTTPConn) awaitProxy() { c.state = stateProxy }

// readProxy reads until it is known who the peer is.
func (c *HTTPConn) readProxy() {
	b := c.sh.loop.Buffer()[loop.Headroom:]
	kept := copy(b, c.in)
	n, r := c.sock.Read(b[kept : kept+headRead])
	switch r {
	case loop.ReadAgain:
		return
	case loop.ReadEOF, loop.ReadReset: // most often a health check by connecting
		c.leave()
		c.sock.Close()
		return
	}
	b = b[:kept+n]
	c.dropInput()
	if c.drain == 0 {
		used, done := c.feedProxy(b)
		if !done {
			return
		}
		b = b[used:]
	}
	k := min(c.drain, len(b))
	if c.drain -= k; c.drain > 0 {
		return
	}
	c.afterProxy(b[k:])
}

// feedProxy looks for the header in b. done is false while more is needed, and
// when the connection was closed.
func (c *HTTPConn) feedProxy(b []byte) (used int, done bool) {
	if !c.owesProxy() {
		switch proxy.Begins(b) {
		case proxy.No:
			return 0, true
		case proxy.Yes:
			c.refuseProxy(errProxyForeign)
			return 0, false
		}
		c.stash(b)
		return 0, false
	}
	h, used, err := proxy.Parse(b)
	switch {
	case err != nil:
		c.refuseProxy(err)
		return 0, false
	case used == 0:
		c.stash(b) // less than proxy.MaxHeader
		return 0, false
	}
	if h.Source.IsValid() {
		c.sock.(*loop.Conn).SetRemote(h.Source)
	}
	c.drain = h.Rest
	return used, true
}

// owesProxy reports whether the peer must begin with a header. It is asked before
// the header has replaced the address.
func (c *HTTPConn) owesProxy() bool {
	return c.sh.srv.cfg.Proxy.Trusted.Contains(c.sock.Remote().Addr())
}

// proxyTimedOut ends the wait for the first bytes. Only a peer that owes a header,
// or the rest of one, has broken the rule by its silence; another is one that has
// not asked for anything, or not completed it.
func (c *HTTPConn) proxyTimedOut() {
	switch {
	case c.drain > 0 || c.owesProxy():
		c.refuseProxy(errProxyTimeout)
	case len(c.in) > 0 && c.sh.srv.cfg.TLS == nil:
		c.refuse(errHeadTimeout)
	default:
		c.sh.srv.Stats.IdleTimeouts.Add(1)
		c.leave()
		c.sock.Close()
	}
}

// afterProxy goes on with what stands behind the header.
func (c *HTTPConn) afterProxy(unread []byte) {
	raw := c.sock.(*loop.Conn)
	c.goIdle()
	c.arm()
	if c.sh.srv.cfg.TLS != nil {
		c.startTLS(raw, unread)
		return
	}
	if len(unread) > 0 {
		c.stash(unread)
		raw.Kick()
	}
}

func (c *HTTPConn) refuseProxy(err error) {
	if p := c.sh.srv.cfg.Proxy; p.OnRefused != nil {
		p.OnRefused(c, err)
	}
	c.leave()
	c.sock.Close()
}
