package frame

import (
	"bytes"
	"slices"
)

// A Field is one header of metadata. A name that comes several times is several fields.
type Field struct {
	Name  []byte // lower case
	Value []byte
	list  bool // was, or is to be, part of a JSON array
}

// HopByHop tells whether a header (its name in lower case) belongs to one connection and is never
// carried on: the names below, and what a message's Connection header lists (contract, mte-relay §2;
// RFC 9110 §7.6.1).
func HopByHop(name []byte) bool {
	switch string(name) {
	case "connection", "keep-alive", "proxy-connection", "proxy-authenticate", "proxy-authorization",
		"te", "trailer", "transfer-encoding", "upgrade":
		return true
	}
	return false
}

// notCarried are the names that metadata drops: hop-by-hop, and those that frames replace.
func notCarried(name []byte) bool {
	switch string(name) {
	case "content-length", "host":
		return true
	}
	return HopByHop(name)
}

// headers collects fields and drops what is not carried. Its scratch is used again.
type headers struct {
	fields []Field
	listed [][]byte // by Connection headers, lower case
	lower  []byte   // names that had to be made lower case
}

func (h *headers) reset() {
	h.fields, h.listed, h.lower = h.fields[:0], h.listed[:0], h.lower[:0]
}

// add takes a field whose name is in lower case.
func (h *headers) add(f Field) {
	if string(f.Name) == "connection" {
		h.list(f.Value)
	}
	if !notCarried(f.Name) {
		h.fields = append(h.fields, f)
	}
}

// list remembers the names in a Connection header's value.
func (h *headers) list(value []byte) {
	for len(value) > 0 {
		var name []byte
		name, value, _ = bytes.Cut(value, []byte{','})
		if name = bytes.Trim(name, " \t"); len(name) > 0 {
			h.listed = append(h.listed, h.toLower(name))
		}
	}
}

// toLower is name in lower case, a copy only if it has to be.
func (h *headers) toLower(name []byte) []byte {
	i := slices.IndexFunc(name, func(c byte) bool { return 'A' <= c && c <= 'Z' })
	if i < 0 {
		return name
	}
	from := len(h.lower)
	h.lower = append(h.lower, name...)
	low := h.lower[from:len(h.lower):len(h.lower)]
	for ; i < len(low); i++ {
		if c := low[i]; 'A' <= c && c <= 'Z' {
			low[i] = c + ('a' - 'A')
		}
	}
	return low
}

// dropListed drops the fields that a Connection header named, once all are there.
func (h *headers) dropListed() {
	if len(h.listed) == 0 {
		return
	}
	slices.SortFunc(h.listed, bytes.Compare)
	h.fields = slices.DeleteFunc(h.fields, func(f Field) bool {
		_, found := slices.BinarySearchFunc(h.listed, f.Name, bytes.Compare)
		return found
	})
}

// appendMember appends the headers member and the comma after it; nothing if there is no field. Names
// that come again become an array in their order.
func (h *headers) appendMember(dst []byte) []byte {
	if len(h.fields) == 0 {
		return dst
	}
	slices.SortStableFunc(h.fields, func(a, b Field) int { return bytes.Compare(a.Name, b.Name) })
	dst = append(dst, `"headers":{`...)
	for i := 0; i < len(h.fields); {
		f := h.fields[i]
		last := i + 1
		for last < len(h.fields) && bytes.Equal(h.fields[last].Name, f.Name) {
			last++
		}
		dst = append(appendString(dst, f.Name), ':')
		if array := f.list || last > i+1; array {
			dst = append(dst, '[')
			for _, f := range h.fields[i:last] {
				dst = append(appendString(dst, f.Value), ',')
			}
			dst[len(dst)-1] = ']'
		} else {
			dst = appendString(dst, f.Value)
		}
		dst = append(dst, ',')
		i = last
	}
	dst[len(dst)-1] = '}'
	return append(dst, ',')
}

// validName tells whether name is a token in lower case (RFC 9110 §5.1).
func validName(name []byte) bool {
	for _, c := range name {
		if !tokenByte(c) || 'A' <= c && c <= 'Z' {
			return false
		}
	}
	return len(name) > 0
}

// ValidToken tells whether s is a token (RFC 9110 §5.6.2), as methods and header names are.
func ValidToken(s []byte) bool {
	for _, c := range s {
		if !tokenByte(c) {
			return false
		}
	}
	return len(s) > 0
}

func tokenByte(c byte) bool { return tokens[c>>5]>>(c&31)&1 != 0 }

// tokens is the set of token bytes, a bit each.
var tokens = func() (set [8]uint32) {
	for c := '!'; c <= '~'; c++ {
		if !bytes.ContainsRune([]byte("\"(),/:;<=>?@[\\]{}"), c) {
			set[c>>5] |= 1 << (c & 31)
		}
	}
	return set
}()

// validValue tells whether a header value has none of the bytes that would end its line.
func validValue(v []byte) bool {
	for _, c := range v {
		if c == 0 || c == '\r' || c == '\n' {
			return false
		}
	}
	return true
}
