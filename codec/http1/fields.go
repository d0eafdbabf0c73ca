package http1

// A FieldID names a field we look at or must not pass on, so that nobody has to
// compare the name a second time. It is set during the parse.
type FieldID uint8

// The fields that are recognised. FieldOther is every other name.
const (
	FieldOther FieldID = iota
	FieldAcceptEncoding
	FieldConnection
	FieldContentLength
	FieldContentType
	FieldCookie
	FieldDate
	FieldExpect
	FieldForwarded
	FieldHost
	FieldKeepAlive
	FieldOrigin
	FieldProxyAuthenticate
	FieldProxyAuthorization
	FieldProxyConnection
	FieldRetryAfter
	FieldSecWebSocketExtensions
	FieldSecWebSocketKey
	FieldSecWebSocketProtocol
	FieldSecWebSocketVersion
	FieldServer
	FieldSetCookie
	FieldTE
	FieldTrailer
	FieldTransferEncoding
	FieldUpgrade
	FieldVary
	FieldXForwardedFor
	FieldXForwardedHost
	FieldXForwardedProto

	numFields
)

// fieldNames holds the names in lower case.
var fieldNames = [numFields]string{
	FieldAcceptEncoding:         "accept-encoding",
	FieldConnection:             "connection",
	FieldContentLength:          "content-length",
	FieldContentType:            "content-type",
	FieldCookie:                 "cookie",
	FieldDate:                   "date",
	FieldExpect:                 "expect",
	FieldForwarded:              "forwarded",
	FieldHost:                   "host",
	FieldKeepAlive:              "keep-alive",
	FieldOrigin:                 "origin",
	FieldProxyAuthenticate:      "proxy-authenticate",
	FieldProxyAuthorization:     "proxy-authorization",
	FieldProxyConnection:        "proxy-connection",
	FieldRetryAfter:             "retry-after",
	FieldSecWebSocketExtensions: "sec-websocket-extensions",
	FieldSecWebSocketKey:        "sec-websocket-key",
	FieldSecWebSocketProtocol:   "sec-websocket-protocol",
	FieldSecWebSocketVersion:    "sec-websocket-version",
	FieldServer:                 "server",
	FieldSetCookie:              "set-cookie",
	FieldTE:                     "te",
	FieldTrailer:                "trailer",
	FieldTransferEncoding:       "transfer-encoding",
	FieldUpgrade:                "upgrade",
	FieldVary:                   "vary",
	FieldXForwardedFor:          "x-forwarded-for",
	FieldXForwardedHost:         "x-forwarded-host",
	FieldXForwardedProto:        "x-forwarded-proto",
}

// fieldsByLength holds the recognised fields by the length of their names: at
// most four share one, and most lengths have none.
var fieldsByLength = func() (t [32][]FieldID) {
	for id := FieldOther + 1; id < numFields; id++ {
		n := len(fieldNames[id])
		t[n] = append(t[n], id)
	}
	return t
}()

// String returns the name in lower case, "" for FieldOther.
func (id FieldID) String() string { return fieldNames[id] }

// Recognise returns the id of a field name, in any case.
func Recognise(name []byte) FieldID {
	if len(name) < len(fieldsByLength) {
		for _, id := range fieldsByLength[len(name)] {
			if equalFold(name, fieldNames[id]) {
				return id
			}
		}
	}
	return FieldOther
}

// A Field is one field line. Name and Value are parts of the parsed bytes and
// live as long as those; the value has no white space at its ends.
type Field struct {
	ID    FieldID
	Name  []byte // as sent; a token
	Value []byte
}

// Is reports whether the field has the given name, which must be in lower case.
func (f *Field) Is(lower string) bool { return equalFold(f.Name, lower) }

// splitField takes a field line apart (RFC 9112 §5). The line has no CRLF.
func splitField(line []byte) (f Field, err *Error) {
	if line[0] == ' ' || line[0] == '\t' {
		return f, ErrFold
	}
	i := 0
	for i < len(line) && classOf[line[i]]&classToken != 0 {
		i++
	}
	if i == 0 || i == len(line) || line[i] != ':' {
		return f, ErrFieldName
	}
	value := trim(line[i+1:])
	if !ValidValue(value) {
		return f, ErrFieldValue
	}
	return Field{ID: Recognise(line[:i]), Name: line[:i], Value: value}, nil
}

// Get returns the value of the first line of a field. A present but empty field
// has a value that is not nil.
func (h *Head) Get(id FieldID) (value []byte, ok bool) {
	for i := range h.Fields {
		if h.Fields[i].ID == id {
			return h.Fields[i].Value, true
		}
	}
	return nil, false
}

// Lookup is Get for a name, which must be in lower case. It finds recognised
// fields too.
func (h *Head) Lookup(lower string) (value []byte, ok bool) {
	for i := range h.Fields {
		if h.Fields[i].Is(lower) {
			return h.Fields[i].Value, true
		}
	}
	return nil, false
}

// Count returns on how many lines a field stands.
func (h *Head) Count(id FieldID) (n int) {
	for i := range h.Fields {
		if h.Fields[i].ID == id {
			n++
		}
	}
	return n
}

// HasToken reports whether a comma list that may extend over several lines of
// the field contains the token, in any case. token must be in lower case.
func (h *Head) HasToken(id FieldID, token string) bool {
	for i := range h.Fields {
		if h.Fields[i].ID != id {
			continue
		}
		for rest, more := h.Fields[i].Value, true; more; {
			var e []byte
			if e, rest, more = cutList(rest); equalFold(e, token) {
				return true
			}
		}
	}
	return false
}

// HopByHop reports whether a field of this head concerns this connection only
// and must not be passed on: the fixed names of the contract (mte-relay §2) and
// those the head's own Connection field lists. The framing fields
// Content-Length and Host are never hop by hop, whatever Connection says: a
// sender must not be able to take the frame off its own body.
func (h *Head) HopByHop(f *Field) bool {
	switch f.ID {
	case FieldConnection, FieldKeepAlive, FieldProxyConnection, FieldProxyAuthenticate,
		FieldProxyAuthorization, FieldTE, FieldTrailer, FieldTransferEncoding, FieldUpgrade:
		return true
	case FieldContentLength, FieldHost:
		return false
	}
	if !h.nominates {
		return false
	}
	for i := range h.Fields {
		if h.Fields[i].ID != FieldConnection {
			continue
		}
		for rest, more := h.Fields[i].Value, true; more; {
			var e []byte
			if e, rest, more = cutList(rest); len(e) == len(f.Name) && equalFoldBytes(e, f.Name) {
				return true
			}
		}
	}
	return false
}
