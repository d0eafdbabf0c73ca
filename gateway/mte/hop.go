package mte

import (
	"bytes"

	"sluice/codec/frame"
	"sluice/codec/http1"
)

// plainForwarded names, among the encrypted headers of an answer, what of the
// plain request was merged into the one that the origin got.
const plainForwarded = "x-mte-plain-forwarded"

// A hop is what the plain HTTP request around the frames contributes to the one
// that goes to the origin (contract, mte-relay §6). It is read when the request
// begins, since the request does not outlive that call.
type hop struct {
	lines     []byte // those of X-Forwarded-*, then those of fields
	forwarded int    // where the latter begin
	fields    []hopField
	relay     bool // the client is a relay or a library: it has no cookie jar
}

// A hopField is a line that may be merged: lines[from:to], its name in lower case
// up to colon.
type hopField struct{ from, colon, to int }

func (h *hop) name(f hopField) []byte { return h.lines[f.from:f.colon] }
func (h *hop) line(f hopField) []byte { return h.lines[f.from:f.to] }

// read takes from the request what the domain lets through.
func (h *hop) read(st *stream, req *http1.Request) {
	r := st.s.role
	trusted := r.cfg.Trusted.Contains(st.c.Remote().Addr())
	h.lines = appendForwarded(h.lines[:0], st.c, req, trusted, r.scheme)
	h.forwarded = len(h.lines)
	h.fields = h.fields[:0]
	_, h.relay = req.Lookup("x-mte-relay-client")
	for i := range req.Fields {
		f := &req.Fields[i]
		if f.ID == http1.FieldCookie {
			if !st.d.forwardCookies || h.relay || req.HopByHop(f) {
				continue
			}
		} else if len(st.d.plain) == 0 || req.HopByHop(f) || neverMerged(f) {
			continue
		}
		h.add(f)
		last := h.fields[len(h.fields)-1]
		if f.ID != http1.FieldCookie && !matchesAny(st.d.plain, h.name(last)) {
			h.lines, h.fields = h.lines[:last.from], h.fields[:len(h.fields)-1]
		}
	}
}

func (h *hop) add(f *http1.Field) {
	from := len(h.lines)
	h.lines = http1.AppendField(h.lines, f.Name, f.Value)
	name := h.lines[from : from+len(f.Name)]
	for i, c := range name {
		name[i] = lower(c)
	}
	h.fields = append(h.fields, hopField{from, from + len(name), len(h.lines)})
}

// neverMerged reports whether a header of the hop stays on it whatever the domain
// says. Cookies have a rule of their own.
func neverMerged(f *http1.Field) bool {
	switch f.ID {
	case http1.FieldHost, http1.FieldAcceptEncoding, http1.FieldCookie, http1.FieldExpect, http1.FieldForwarded:
		return true
	}
	if isForwardedName(f.Name, false) || isFramingLookalike(f.Name) {
		return true
	}
	for _, prefix := range [...]string{"x-mte-", "content-"} {
		if len(f.Name) >= len(prefix) && sameName(f.Name[:len(prefix)], prefix) {
			return true
		}
	}
	return false
}

// clean keeps the memory for the next request.
func (h *hop) clean() hop {
	clear(h.lines)
	if cap(h.lines) > scratchKept {
		return hop{}
	}
	return hop{lines: h.lines[:0], fields: h.fields[:0]}
}

// matchesAny reports whether a name in lower case matches one of the patterns, in
// which * stands for any run of characters.
func matchesAny(patterns []string, name []byte) bool {
	for _, p := range patterns {
		if matches(p, name) {
			return true
		}
	}
	return false
}

func matches(pattern string, name []byte) bool {
	// Where the last * stood, and how much of the name it has taken so far.
	star, taken := -1, 0
	p, n := 0, 0
	for n < len(name) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, taken = p, n
			p++
		case p < len(pattern) && pattern[p] == name[n]:
			p++
			n++
		case star >= 0:
			taken++
			p, n = star+1, taken
		default:
			return false
		}
	}
	for p < len(pattern) && pattern[p] == '*' {
		p++
	}
	return p == len(pattern)
}

// outgoing is a stream's request to the origin.
type outgoing struct {
	state   outgoingState
	call    *originCall // nil before it begins and once it has ended
	head    originHead  // in buf
	buf     []byte
	merged  []byte // names of what the hop contributed, a comma list
	pending []byte // application bytes of this OnBody, while the call has not begun
	backed  bool   // the origin takes no more for now, and the client's body is paused
	owed    int    // while it has answered and is backed: what it had still to take
}

type outgoingState uint8

const (
	outgoingNone  outgoingState = iota // no REQUEST, or one that was refused
	outgoingReady                      // the head is composed
	outgoingBegun                      // the call was made, its body goes on
	outgoingDone                       // the request is complete, or was given up
)

// compose makes the head of the origin's request from decoded metadata. The error
// is a frame.Fault: a path that cannot be a target.
func (st *stream) compose(m *frame.Metadata) error {
	o := &st.origin
	b := append(o.buf[:0], m.Method...)
	method := len(b)
	b = append(b, st.d.up.base...)
	b, err := frame.AppendTarget(b, m.Path)
	if err != nil {
		o.buf = b
		return err
	}
	target := len(b)
	for _, f := range m.Headers() {
		if isForwardedName(f.Name, false) || isFramingLookalike(f.Name) || string(f.Name) == "expect" || isNamed(f.Name, st.d.headers) {
			continue
		}
		b = http1.AppendField(b, f.Name, f.Value)
	}
	b = st.merge(b, m)
	b = append(b, st.d.headerLines...)
	b = append(b, st.hop.lines[:st.hop.forwarded]...)
	o.buf = b
	o.head = originHead{Method: b[:method], Target: b[method:target], Fields: b[target:]}
	return nil
}

// routed reports whether mte_routes lets frames reach the composed target.
func (st *stream) routed() bool {
	path, _, _ := bytes.Cut(st.origin.head.Target[len(st.d.up.base):], []byte{'?'})
	return st.d.mteRoutes.empty() || st.d.mteRoutes.match(path)
}

// merge appends the hop's lines. What the frame has goes before.
func (st *stream) merge(b []byte, m *frame.Metadata) []byte {
	o := &st.origin
	o.merged = o.merged[:0]
	for i, f := range st.hop.fields {
		name := st.hop.name(f)
		if hasField(m.Headers(), name) || isNamed(name, st.d.headers) {
			continue
		}
		b = append(b, st.hop.line(f)...)
		if st.hop.has(name, i) {
			continue
		}
		if len(o.merged) > 0 {
			o.merged = append(o.merged, ", "...)
		}
		o.merged = append(o.merged, name...)
	}
	return b
}

// has reports whether one of the first n fields has the name.
func (h *hop) has(name []byte, n int) bool {
	for _, f := range h.fields[:n] {
		if bytes.Equal(h.name(f), name) {
			return true
		}
	}
	return false
}

func hasField(fields []frame.Field, name []byte) bool {
	for i := range fields {
		if bytes.Equal(fields[i].Name, name) {
			return true
		}
	}
	return false
}

// forward gives the origin what of the body was decoded, and begins its request
// with that if need be. whole says that the HTTP body has ended: then a request
// that is complete leaves with its length, in one piece.
func (st *stream) forward(whole bool) {
	o := &st.origin
	whole = whole && st.state == streamEnded
	if o.state != outgoingReady || st.state == streamEnded && !whole && len(o.pending) == 0 {
		return
	}
	o.head.Length = -1
	if whole {
		o.head.Length = int64(len(o.pending))
	}
	o.state = outgoingBegun
	o.call = st.s.origins.call(st.d.up, &o.head, (*fromOrigin)(st))
	pending := o.pending
	o.pending = nil
	switch {
	case whole:
		o.call.Write(pending)
		o.call.End()
		o.state = outgoingDone
	case len(pending) > 0:
		st.toOrigin(pending)
	}
}

// toOrigin writes body bytes, and stops the client's when the origin does not
// keep up.
func (st *stream) toOrigin(app []byte) {
	o := st.origin.call
	switch backed := o.Write(app); {
	case o.Deaf() && st.answer.early():
		st.giveUpOrigin()
	case backed:
		st.origin.backed = true
		st.c.PauseBody()
		st.expectDrain()
	}
}

// completeOrigin ends the origin's request: the HTTP body has ended with END.
func (st *stream) completeOrigin() {
	o := &st.origin
	st.forward(true)
	if o.state != outgoingBegun {
		return
	}
	o.state = outgoingDone
	if o.call == nil {
		return
	}
	o.call.End()
	if st.answer.whole {
		o.call = nil
	}
}

// dropOrigin ends the origin's request; it never looks complete if it was not.
func (st *stream) dropOrigin() {
	o := &st.origin
	if o.call != nil {
		o.call.Cancel()
		o.call = nil
	}
	o.pending = nil
	o.state = outgoingDone
}

// clean keeps the memory for the next request.
func (o *outgoing) clean() outgoing {
	clear(o.buf)
	if cap(o.buf) > scratchKept {
		return outgoing{}
	}
	return outgoing{buf: o.buf[:0], merged: o.merged[:0]}
}
