package mte

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"strings"

	"sluice/codec/frame"
	"sluice/codec/http1"
	"sluice/gateway/config"
	"sluice/gateway/edge"
)

// A domain is one entry of DOMAIN_MAP, prepared for requests. It never
// changes; requests in flight keep the one they began with when the map does.
type domain struct {
	host string        // its key
	out  *outboundHost // of an outbound entry, which has nothing else
	key  *frame.TokenKey
	up   *upstream

	passThrough    routes
	mteRoutes      routes // empty: no limit
	plain          []string
	forwardCookies bool
	headers        []edge.Header // added to every upstream request
	headerLines    []byte        // the same as lines
	cors           cors
	discovery      frame.Discovery
}

// domains is one version of the map.
type domains map[string]*domain

// longestHost bounds a host name that is looked up, its port included: a DNS
// name has at most 253 bytes.
const longestHost = 253 + len(":65535")

// lookup finds the domain of a Host header, nil if there is none. Case does not
// matter; a key with the port goes before one without.
func (d domains) lookup(host []byte) *domain {
	var buf [longestHost]byte
	if len(host) > len(buf) {
		return nil
	}
	lower := buf[:copy(buf[:], host)]
	for i, c := range lower {
		if 'A' <= c && c <= 'Z' {
			lower[i] = c | 0x20
		}
	}
	if v := d[string(lower)]; v != nil {
		return v
	}
	if i := bytes.LastIndexByte(lower, ':'); i >= 0 && lower[len(lower)-1] != ']' {
		return d[string(lower[:i])]
	}
	return nil
}

// Apply takes new live settings, whole or not at all: DOMAIN_MAP, the cap of a
// request's body in bytes (0: none), and the configVersion that discovery tells.
// Requests in flight go on with the domain and the cap they began with; pairs of
// a host that stays live on. It may be called from anywhere. The error is of a
// domain whose upstream cannot be used.
func (r *Role) Apply(list config.Domains, maxBody int64, version uint64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	next := make(domains, len(list))
	secrets := make(map[string]string)
	for host, c := range list {
		if c.Outbound != nil {
			out, err := r.outboundOf(c)
			if err != nil {
				return err
			}
			next[host] = &domain{host: host, out: out}
			continue
		}
		d, err := r.newDomain(c)
		if err != nil {
			return err
		}
		d.discovery.ConfigVersion = int(version)
		d.discovery.MaxRequestBodyBytes = maxBody
		next[host] = d
		if c.Secret != "" { // a shared store is not started without
			secrets[host] = string(c.Secret)
		}
	}
	r.pairs.SetDomains(secrets)
	r.maxBody.Store(maxBody)
	before := r.domains.Swap(&next)
	if before == nil {
		return nil
	}
	for host, d := range *before {
		if d.out != nil && (next[host] == nil || next[host].out != d.out) {
			d.out.close()
		}
	}
	return nil
}

// outboundOf is the other relay of an entry: the one there is, with its pairs, if
// the entry has not changed.
func (r *Role) outboundOf(c *config.Domain) (*outboundHost, error) {
	if now := r.domains.Load(); now != nil {
		if d := (*now)[c.Host]; d != nil && d.out != nil && d.out.is(c) {
			return d.out, nil
		}
	}
	out, err := r.newOutboundHost(c)
	if err != nil {
		return nil, fmt.Errorf("DOMAIN_MAP: host %q: %w", c.Host, err)
	}
	return out, nil
}

func (r *Role) newDomain(c *config.Domain) (*domain, error) {
	d := &domain{
		host:           c.Host,
		passThrough:    newRoutes(c.PassThroughRoutes),
		mteRoutes:      newRoutes(c.MTERoutes),
		plain:          c.ForwardPlainHeaders,
		forwardCookies: c.ForwardCookies,
	}
	for _, h := range c.Headers {
		d.headers = append(d.headers, edge.Header{Name: h.Name, Value: h.Value})
		d.headerLines = http1.AppendField(d.headerLines, h.Name, h.Value)
	}
	d.cors = newCORS(c, d.headers)
	d.key = r.tokenKey(c)
	var err error
	if d.up, err = r.upstreamOf(c); err != nil {
		return nil, fmt.Errorf("DOMAIN_MAP: host %q: %w", c.Host, err)
	}
	d.discovery = r.discoveryOf(c)
	return d, nil
}

// upstreamOf is where a domain's requests go. The built-in domain's origin is
// started when it is first needed.
func (r *Role) upstreamOf(c *config.Domain) (*upstream, error) {
	if !c.Echo {
		return newUpstream(c.Upstream.String())
	}
	if r.echo == nil {
		var err error
		if r.echo, err = startEcho(); err != nil {
			return nil, err
		}
	}
	return newUpstream(r.echo.URL())
}

// tokenKey is the key of a domain's secret. One that has none gets a random one
// for the life of the process, whatever versions of the map come and go.
func (r *Role) tokenKey(c *config.Domain) *frame.TokenKey {
	if c.Secret != "" {
		return frame.NewTokenKey([]byte(c.Secret))
	}
	k := r.keys[c.Host]
	if k == nil {
		secret := make([]byte, 32)
		rand.Read(secret)
		k = frame.NewTokenKey(secret)
		clear(secret)
		r.keys[c.Host] = k
	}
	return k
}

// routes are paths, exact or prefixes (contract, mte-relay §6).
type routes struct {
	exact    map[string]bool
	prefixes []string
}

func newRoutes(list []string) (r routes) {
	r.exact = make(map[string]bool, len(list))
	for _, s := range list {
		if prefix, ok := strings.CutSuffix(s, "*"); ok {
			r.prefixes = append(r.prefixes, prefix)
		} else {
			r.exact[s] = true
		}
	}
	return r
}

func (r *routes) empty() bool { return len(r.exact) == 0 && len(r.prefixes) == 0 }

// match reports whether a path, without its query, is listed.
func (r *routes) match(path []byte) bool {
	if r.exact[string(path)] {
		return true
	}
	for _, p := range r.prefixes {
		if len(path) >= len(p) && string(path[:len(p)]) == p {
			return true
		}
	}
	return false
}
