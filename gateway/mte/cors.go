package mte

import (
	"strings"

	"sluice/codec/frame"
	"sluice/codec/http1"
	"sluice/gateway/config"
	"sluice/gateway/edge"
)

// What a domain allows browsers when its configuration says nothing (contract,
// mte-relay §4).
const (
	defaultMethods = "GET, POST, PUT, PATCH, DELETE, HEAD, OPTIONS"
	defaultHeaders = "Content-Type, " + frame.RouteHeader + ", " + clientHeader
	// exposedHeaders are the relay's own, exposed whatever else is.
	exposedHeaders = frame.RouteHeader + ", " + frame.ErrorHeader + ", Retry-After"

	// clientHeader marks a request of another relay or a Go client: one without
	// a browser's cookie jar.
	clientHeader = "X-MTE-Relay-Client"
)

// cors is what a domain lets pages of other origins do. It also holds what the
// domain adds to each answer, since the two always go together.
type cors struct {
	set     bool // cors_origins is not empty
	listed  map[string]*dress
	any     *dress // for every other origin, nil unless * is listed
	nobody  *dress
	methods string
	headers string
}

// A dress is the header lines that every answer to one origin carries, in the two
// forms in which answers are made.
type dress struct {
	headers []edge.Header
	lines   []byte
}

func (d *dress) add(name, value string) {
	d.headers = append(d.headers, edge.Header{Name: name, Value: value})
	d.lines = http1.AppendField(d.lines, name, value)
}

func newCORS(c *config.Domain, headers []edge.Header) cors {
	exposed := exposedHeaders
	if len(c.CORSExposedHeaders) > 0 {
		exposed += ", " + strings.Join(c.CORSExposedHeaders, ", ")
	}
	p := cors{set: len(c.CORSOrigins) > 0, listed: make(map[string]*dress), methods: defaultMethods, headers: defaultHeaders}
	if len(c.CORSMethods) > 0 {
		p.methods = strings.Join(c.CORSMethods, ", ")
	}
	if len(c.CORSAllowedHeaders) > 0 {
		p.headers = strings.Join(c.CORSAllowedHeaders, ", ")
	}
	dressFor := func(origin string) *dress {
		d := new(dress)
		for _, h := range headers {
			if !ownHeader(h.Name) {
				d.add(h.Name, h.Value)
			}
		}
		if p.set {
			d.add("Vary", "Origin")
		}
		if origin != "" {
			d.add("Access-Control-Allow-Origin", origin)
			d.add("Access-Control-Expose-Headers", exposed)
		}
		if origin != "" && origin != "*" {
			d.add("Access-Control-Allow-Credentials", "true")
		}
		return d
	}
	p.nobody = dressFor("")
	for _, origin := range c.CORSOrigins {
		if origin == "*" {
			p.any = dressFor("*")
		} else {
			p.listed[origin] = dressFor(origin)
		}
	}
	return p
}

// ownHeader reports whether an answer has a header of that name that is ours to
// set, so that a domain's would be a second one.
func ownHeader(name string) bool {
	switch strings.ToLower(name) {
	case "content-type", "date", "retry-after", "allow":
		return true
	}
	return strings.HasPrefix(strings.ToLower(name), "x-mte-relay-")
}

// of returns the dress of the answers to a request.
func (p *cors) of(req *http1.Request) *dress {
	origin, ok := req.Get(http1.FieldOrigin)
	if !ok {
		return p.nobody
	}
	if d := p.listed[string(origin)]; d != nil {
		return d
	}
	if p.any != nil {
		return p.any
	}
	return p.nobody
}

// isPreflight reports whether a browser asks for leave (Fetch, §4.8).
func isPreflight(req *http1.Request) bool {
	if req.MethodID != http1.MethodOptions {
		return false
	}
	_, origin := req.Get(http1.FieldOrigin)
	_, method := req.Lookup("access-control-request-method")
	return origin && method
}

// preflight answers it. Without leave the answer has no CORS header at all.
func (s *shard) preflight(c *edge.HTTPConn, d *domain, to *addressee) {
	var leave []edge.Header
	if to.dress != d.cors.nobody {
		leave = []edge.Header{
			{Name: "Access-Control-Allow-Methods", Value: d.cors.methods},
			{Name: "Access-Control-Allow-Headers", Value: d.cors.headers},
		}
	}
	c.Reply(204, "", nil, append(leave, to.dress.headers...)...)
}
