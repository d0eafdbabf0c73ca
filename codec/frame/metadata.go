package frame

import (
	"bytes"
	"slices"
	"strconv"
	"unicode/utf8"
)

// Metadata is what a REQUEST or RESPONSE says, decoded: a JSON object (contract, mte-relay §2).
//
// A value is filled by Parse and used again; all its slices point into the text that was parsed or
// into its own scratch, and are good until either changes. The zero value is ready.
type Metadata struct {
	Method []byte // a token; nil if there is none
	Path   []byte // as it was sent, see path.go; nil if there is none
	Target []byte // nil if there is none
	Status int    // 100-599; 0 if there is none
	Port   int    // 1-65535; 0 if there is none
	ID     uint64
	HasID  bool

	headers
	vendor []vendorMember
	r      reader
}

type vendorMember struct{ key, raw []byte }

// Headers are the fields in the order they came, without those that are not carried (hop-by-hop,
// content-length, host, and what a Connection header among them listed).
func (m *Metadata) Headers() []Field { return m.fields }

// Parse reads a whole text, canonical or not. The error is a Fault whose Reason is MetadataInvalid,
// and then m is empty.
func (m *Metadata) Parse(text []byte) error {
	m.clear()
	r := &m.r
	r.reset(text)
	if m.parse(r) && r.end() {
		m.dropListed()
		return nil
	}
	fault := r.fault
	m.clear()
	return fault
}

func (m *Metadata) clear() {
	m.Method, m.Path, m.Target = nil, nil, nil
	m.Status, m.Port, m.ID, m.HasID = 0, 0, 0, false
	m.headers.reset()
	m.vendor = m.vendor[:0]
}

func (m *Metadata) parse(r *reader) bool {
	base, ok := r.object()
	version := false
	for ok {
		var key []byte
		var more bool
		if key, more, ok = r.next(base); !ok || !more {
			break
		}
		var n uint64
		switch string(key) {
		case "v":
			ok = m.parseVersion(r)
			version = true
		case "method":
			if m.Method, ok = r.member(); ok && !ValidToken(m.Method) {
				ok = r.fail(BadMember)
			}
		case "path":
			if m.Path, ok = r.member(); ok && !readablePath(m.Path) {
				ok = r.fail(BadPath)
			}
		case "target":
			m.Target, ok = r.member()
		case "status":
			n, ok = r.uint(599)
			if m.Status = int(n); ok && !validStatus(m.Status) {
				ok = r.fail(BadMember)
			}
		case "port":
			n, ok = r.uint(65535)
			if m.Port = int(n); ok && n == 0 {
				ok = r.fail(BadMember)
			}
		case "id":
			m.ID, ok = r.uint(1<<64 - 1)
			m.HasID = ok
		case "headers":
			ok = m.parseHeaders(r)
		default:
			var raw []byte
			if raw, ok = r.skip(); ok && isVendor(key) {
				m.vendor = append(m.vendor, vendorMember{key, raw})
			}
		}
	}
	if ok && !version {
		return r.fail(BadMetadataVersion)
	}
	return ok
}

// parseVersion demands the integer literal: 2.0 and 2e0 are other texts.
func (m *Metadata) parseVersion(r *reader) bool {
	raw, ok := r.skip()
	if ok && string(raw) != "2" {
		return r.fail(BadMetadataVersion)
	}
	return ok
}

// parseHeaders reads the headers member; null counts as none.
func (m *Metadata) parseHeaders(r *reader) bool {
	switch r.peek() {
	case 'n':
		return r.literal("null")
	case '{':
	default:
		return r.fail(BadHeader)
	}
	base, ok := r.object()
	for ok {
		var name []byte
		var more bool
		if name, more, ok = r.next(base); !ok || !more {
			break
		}
		switch {
		case !validName(name):
			return r.fail(BadHeader)
		case r.peek() == '"':
			ok = m.parseValue(r, name, false)
		case r.peek() == '[':
			ok = r.array()
			for first, more := true, true; ok && more; first = false {
				if more, ok = r.element(first); ok && more {
					ok = m.parseValue(r, name, true)
				} else if ok && first {
					return r.fail(BadHeader) // an empty array
				}
			}
		default:
			return r.fail(BadHeader)
		}
	}
	return ok
}

func (m *Metadata) parseValue(r *reader, name []byte, list bool) bool {
	if r.peek() != '"' {
		return r.fail(BadHeader)
	}
	value, ok := r.str()
	if !ok {
		return false
	}
	if !validValue(value) {
		return r.fail(BadHeader)
	}
	m.add(Field{name, value, list})
	return true
}

// isVendor tells whether a member's name is x-<vendor>-….
func isVendor(key []byte) bool {
	vendor, found := bytes.CutPrefix(key, []byte("x-"))
	end := bytes.IndexByte(vendor, '-')
	if !found || end < 1 {
		return false
	}
	for _, c := range vendor[:end] {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') {
			return false
		}
	}
	return true
}

// CheckRequest makes the demands of a REQUEST on what was parsed: method and path are there
// (MissingMember), and the method is the one of the frame's method byte (MethodMismatch).
func (m *Metadata) CheckRequest(methodByte byte) error {
	if m.Method == nil || m.Path == nil {
		return MissingMember
	}
	if methodByte != OtherMethod && string(m.Method) != MethodName(methodByte) {
		return MethodMismatch
	}
	return nil
}

// CheckResponse makes the demand of a RESPONSE: its status is the frame's.
func (m *Metadata) CheckResponse(status int) error {
	if m.Status != status {
		return MissingMember
	}
	return nil
}

// AppendCanonical appends the metadata as the one text that equal metadata has: keys sorted by their
// UTF-8 bytes, no white space, the fewest escapes, nothing that Parse drops. m is changed in its
// order only. It is not for the data path, whose texts MetadataWriter makes.
func (m *Metadata) AppendCanonical(dst []byte) []byte {
	dst = append(dst, '{')
	dst = m.headers.appendMember(dst)
	if m.HasID {
		dst = appendUint(dst, `"id":`, m.ID)
	}
	if m.Method != nil {
		dst = append(appendString(append(dst, `"method":`...), m.Method), ',')
	}
	if m.Path != nil {
		dst = append(appendString(append(dst, `"path":`...), withoutSlash(m.Path)), ',')
	}
	if m.Port != 0 {
		dst = appendUint(dst, `"port":`, uint64(m.Port))
	}
	if m.Status != 0 {
		dst = appendUint(dst, `"status":`, uint64(m.Status))
	}
	if m.Target != nil {
		dst = append(appendString(append(dst, `"target":`...), m.Target), ',')
	}
	dst = append(dst, `"v":2`...)
	slices.SortFunc(m.vendor, func(a, b vendorMember) int { return bytes.Compare(a.key, b.key) })
	for _, v := range m.vendor {
		dst = append(appendString(append(dst, ','), v.key), ':')
		dst = appendCanonical(dst, v.raw)
	}
	return append(dst, '}')
}

func appendUint(dst []byte, key string, v uint64) []byte {
	return append(strconv.AppendUint(append(dst, key...), v, 10), ',')
}

// AppendCanonicalJSON appends any JSON text in canonical form: as AppendCanonical, numbers keep their
// text. The error is BadJSON or DuplicateKey.
func AppendCanonicalJSON(dst, text []byte) ([]byte, error) {
	var r reader
	r.reset(text)
	if _, ok := r.skip(); !ok || !r.end() {
		return dst, r.fault
	}
	return appendCanonical(dst, text), nil
}

// appendCanonical does it for a text that was found to be valid.
func appendCanonical(dst, text []byte) []byte {
	var r reader
	r.reset(text)
	switch r.peek() {
	case '{':
		var members []vendorMember
		base, _ := r.object()
		for {
			key, more, _ := r.next(base)
			if !more {
				break
			}
			raw, _ := r.skip()
			members = append(members, vendorMember{key, raw})
		}
		slices.SortFunc(members, func(a, b vendorMember) int { return bytes.Compare(a.key, b.key) })
		dst = append(dst, '{')
		for i, m := range members {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(appendString(dst, m.key), ':')
			dst = appendCanonical(dst, m.raw)
		}
		return append(dst, '}')
	case '[':
		dst = append(dst, '[')
		r.array()
		for first := true; ; first = false {
			more, _ := r.element(first)
			if !more {
				return append(dst, ']')
			}
			if !first {
				dst = append(dst, ',')
			}
			raw, _ := r.skip()
			dst = appendCanonical(dst, raw)
		}
	case '"':
		s, _ := r.str()
		return appendString(dst, s)
	default:
		raw, _ := r.skip()
		return append(dst, raw...)
	}
}

// A MetadataWriter makes the metadata of a message from its headers. A value is used again after
// Reset; the zero value is ready.
type MetadataWriter struct{ headers }

// Reset forgets all fields.
func (w *MetadataWriter) Reset() { w.headers.reset() }

// Add takes a header as it was read: any case; hop-by-hop names and the others that metadata does not
// carry are dropped. Both slices must stay as they are until the text was appended. The error is
// BadHeader, for what no HTTP parser lets through.
func (w *MetadataWriter) Add(name, value []byte) error {
	name = w.toLower(name)
	if !validName(name) || !validValue(value) {
		return BadHeader
	}
	w.add(Field{Name: name, Value: value})
	return nil
}

// AppendRequest appends the metadata of a REQUEST. path has no leading slash, or one that is taken
// off (CheckPath). The error is BadMember or BadPath, and then nothing was appended.
func (w *MetadataWriter) AppendRequest(dst, method, path []byte) ([]byte, error) {
	if !ValidToken(method) {
		return dst, BadMember
	}
	if err := CheckPath(path); err != nil {
		return dst, err
	}
	if !utf8.Valid(path) { // JSON could only carry another path
		return dst, BadPath
	}
	w.dropListed()
	dst = w.appendMember(append(dst, '{'))
	dst = append(appendString(append(dst, `"method":`...), method), ',')
	dst = append(appendString(append(dst, `"path":`...), withoutSlash(path)), ',')
	return append(dst, `"v":2}`...), nil
}

// AppendResponse appends the metadata of a RESPONSE with a status of 100-599.
func (w *MetadataWriter) AppendResponse(dst []byte, status int) []byte {
	w.dropListed()
	dst = w.appendMember(append(dst, '{'))
	dst = appendUint(dst, `"status":`, uint64(status))
	return append(dst, `"v":2}`...)
}
