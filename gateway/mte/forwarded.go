package mte

import (
	"sluice/codec/http1"
	"sluice/gateway/edge"
)

// appendForwarded appends the lines that tell an origin who asked (contract,
// mte-relay §6): X-Forwarded-For with the hop's own values and the peer behind
// them, on one line; X-Forwarded-Proto, the scheme of our listener, and
// X-Forwarded-Host, the hop's Host. The latter two are passed on as they came if
// the peer is in TRUSTED_PROXIES and sent them.
func appendForwarded(dst []byte, c *edge.HTTPConn, req *http1.Request, trusted bool, scheme string) []byte {
	dst = append(dst, "X-Forwarded-For: "...)
	proto, host := 0, 0
	for i := range req.Fields {
		f := &req.Fields[i]
		switch f.ID {
		case http1.FieldXForwardedFor:
			if len(f.Value) > 0 && !req.HopByHop(f) {
				dst = append(dst, f.Value...)
				dst = append(dst, ", "...)
			}
		case http1.FieldXForwardedProto:
			proto++
		case http1.FieldXForwardedHost:
			host++
		}
	}
	dst = c.Remote().Addr().Unmap().WithZone("").AppendTo(dst)
	dst = append(dst, http1.CRLF...)
	if trusted && proto > 0 {
		dst = appendLines(dst, req, http1.FieldXForwardedProto)
	} else {
		dst = http1.AppendField(dst, "X-Forwarded-Proto", scheme)
	}
	if trusted && host > 0 {
		dst = appendLines(dst, req, http1.FieldXForwardedHost)
	} else {
		dst = http1.AppendField(dst, "X-Forwarded-Host", req.Host)
	}
	return dst
}

// appendLines appends every line of one field.
func appendLines(dst []byte, req *http1.Request, id http1.FieldID) []byte {
	for i := range req.Fields {
		if f := &req.Fields[i]; f.ID == id {
			dst = http1.AppendField(dst, f.Name, f.Value)
		}
	}
	return dst
}

// appendPlainRequest appends the lines of a plain request that concern its
// origin: all but the framing, hop-by-hop fields, Expect, which is ours to
// answer, and what appendForwarded or the domain replaces. Of a peer that nobody
// trusts other X-Forwarded-* lines and Forwarded stay behind as well.
func appendPlainRequest(dst []byte, req *http1.Request, trusted bool, replaced []edge.Header) []byte {
	for i := range req.Fields {
		f := &req.Fields[i]
		switch f.ID {
		case http1.FieldHost, http1.FieldContentLength, http1.FieldExpect,
			http1.FieldXForwardedFor, http1.FieldXForwardedProto, http1.FieldXForwardedHost:
			continue
		case http1.FieldForwarded:
			if !trusted {
				continue
			}
		case http1.FieldOther:
			if isForwardedName(f.Name, trusted) || isFramingLookalike(f.Name) {
				continue
			}
		}
		if req.HopByHop(f) || len(replaced) > 0 && isNamed(f.Name, replaced) {
			continue
		}
		dst = http1.AppendField(dst, f.Name, f.Value)
	}
	return dst
}

// appendPlainAnswer appends the lines of an origin's answer that concern the
// client. Of what the domain adds itself the origin's own lines are left out, but
// for fields that are lists. hasDate says that Date is among the lines.
func appendPlainAnswer(dst []byte, r *http1.Response, replaced []edge.Header) (lines []byte, hasDate bool) {
	for i := range r.Fields {
		f := &r.Fields[i]
		if f.ID == http1.FieldContentLength || r.HopByHop(f) {
			continue
		}
		if len(replaced) > 0 && f.ID != http1.FieldVary && f.ID != http1.FieldSetCookie && isNamed(f.Name, replaced) {
			continue
		}
		hasDate = hasDate || f.ID == http1.FieldDate
		dst = http1.AppendField(dst, f.Name, f.Value)
	}
	return dst, hasDate
}

// isNamed reports whether one of the headers has the name.
func isNamed(name []byte, headers []edge.Header) bool {
	for i := range headers {
		if sameName(name, headers[i].Name) {
			return true
		}
	}
	return false
}

// sameName compares two field names, which are tokens, in any case.
func sameName(a []byte, b string) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if lower(a[i]) != lower(b[i]) {
			return false
		}
	}
	return true
}

func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		return c | 0x20
	}
	return c
}

// isForwardedName reports whether a name begins with X-Forwarded- and is to be
// left behind: some servers read "_" as "-", so such spellings, which no proxy
// sends, are never passed on.
func isForwardedName(name []byte, trusted bool) bool {
	const prefix = "x-forwarded-"
	if len(name) < len(prefix) || lower(name[0]) != 'x' {
		return false
	}
	spelled := true
	for i := range len(prefix) {
		c := lower(name[i])
		if c == '_' {
			c, spelled = '-', false
		}
		if c != prefix[i] {
			return false
		}
	}
	return !trusted || !spelled
}

// isFramingLookalike reports whether a name differs from one that frames the
// message only in characters that are no letters. A lenient origin might take it
// for the real one.
func isFramingLookalike(name []byte) bool {
	for _, framing := range [...]string{"contentlength", "transferencoding"} {
		if len(name) < len(framing) {
			continue
		}
		n := 0
		for _, c := range name {
			if c = lower(c); c < 'a' || c > 'z' {
				continue
			}
			if n == len(framing) || c != framing[n] {
				n = -1
				break
			}
			n++
		}
		if n == len(framing) {
			return true
		}
	}
	return false
}
