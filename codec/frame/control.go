package frame

import (
	"bytes"
	"errors"
	"fmt"
	"net/url"
	"strconv"
)

// Bodies of the control endpoints (contract, mte-relay §4). Unknown members are ignored; a key that comes
// twice is refused, since the two ends might not agree on which counts.

// Paths of the control endpoints.
const (
	AuthPath      = "/api/mte-relay"
	PairPath      = "/api/mte-pair"
	KeepalivePath = "/api/mte-keepalive"
)

// A ControlFault is why a control body is refused: always 490 invalid_request, with this message.
type ControlFault string

func (f ControlFault) Error() string { return string(f) }

// Reason is what the client is told, with its code.
func (f ControlFault) Reason() Reason { return InvalidRequest }

// ErrAnswer is an answer of a relay that is not what the contract says.
var ErrAnswer = errors.New("the relay's answer is malformed")

// An AuthQuery is the query of AuthPath.
type AuthQuery struct {
	Versions string // as it was sent
	Token    string
}

// ParseAuthQuery reads the query of a request target, without its question mark. What cannot be
// decoded counts as missing.
func ParseAuthQuery(query string) (q AuthQuery) {
	values, _ := url.ParseQuery(query)
	return AuthQuery{Versions: values.Get("frameVersions"), Token: values.Get("clientId")}
}

// Offered are the frame versions in the query, integers only.
func (q *AuthQuery) Offered() (versions []int) {
	for _, s := range bytes.Split([]byte(q.Versions), []byte{','}) {
		if v, err := strconv.Atoi(string(bytes.TrimSpace(s))); err == nil {
			versions = append(versions, v)
		}
	}
	return versions
}

// VersionMessage is the message of 478: what the server accepts and what was offered.
func VersionMessage(offered []int) string {
	text := []byte("server accepts [2], client offered [")
	for i, v := range offered {
		if i > 0 {
			text = append(text, ", "...)
		}
		text = strconv.AppendInt(text, int64(v), 10)
	}
	return string(append(text, ']'))
}

// AppendAuth appends the answer of AuthPath.
func AppendAuth(dst []byte, t *Token, d *Discovery) []byte {
	dst = append(t.AppendText(append(dst, `{"clientId":"`...)), `","relay":`...)
	return append(d.AppendJSON(dst), '}')
}

// ParseAuth reads the answer of AuthPath. The error is ErrAnswer.
func ParseAuth(body []byte) (t Token, d Discovery, err error) {
	var r reader
	r.reset(body)
	var token, relay bool
	base, ok := r.object()
	for ok {
		var key, s []byte
		var more bool
		if key, more, ok = r.next(base); !ok || !more {
			break
		}
		switch string(key) {
		case "clientId":
			if s, ok = r.member(); ok {
				t, token = ParseToken(s)
			}
		case "relay":
			relay = d.parse(&r)
			ok = relay
		default:
			_, ok = r.skip()
		}
	}
	if !ok || !r.end() || !token || !relay {
		return Token{}, Discovery{}, ErrAnswer
	}
	return t, d, nil
}

// A Keepalive is the body of KeepalivePath. It is filled by Parse and used again.
type Keepalive struct {
	Token []byte // the text as it was sent; points into the body or scratch
	Drop  []PairID

	r reader
}

// Parse reads a body. More than maxDrop ids, or one that is none, is a fault. The error is a
// ControlFault; Token is as with PairRequest.
func (k *Keepalive) Parse(body []byte, maxDrop int) error {
	k.Token, k.Drop = nil, k.Drop[:0]
	r := &k.r
	r.reset(body)
	base, ok := r.object()
	for ok {
		var key []byte
		var more bool
		if key, more, ok = r.next(base); !ok || !more {
			break
		}
		switch string(key) {
		case "clientId":
			if k.Token, ok = r.member(); !ok && r.fault == BadMember {
				return ControlFault("clientId must be a string")
			}
		case "drop":
			ids := r.each(func() bool {
				s, ok := r.member()
				if !ok || len(k.Drop) == maxDrop {
					return false
				}
				id, ok := ParsePairID(s)
				k.Drop = append(k.Drop, id)
				return ok
			})
			if !ids {
				return ControlFault(fmt.Sprintf("drop must be an array of at most %d pair ids (maxPairsPerClient, MAX_PAIRS_PER_CLIENT)", maxDrop))
			}
		default:
			_, ok = r.skip()
		}
	}
	switch {
	case !ok || !r.end():
		return jsonFault(r)
	case k.Token == nil:
		return ControlFault("clientId is missing")
	}
	return nil
}

// AppendKeepalive appends the body of KeepalivePath.
func AppendKeepalive(dst []byte, t *Token, drop []PairID) []byte {
	dst = append(t.AppendText(append(dst, `{"clientId":"`...)), '"')
	for i, id := range drop {
		if i == 0 {
			dst = append(dst, `,"drop":["`...)
		} else {
			dst = append(dst, `,"`...)
		}
		dst = append(id.AppendText(dst), '"')
	}
	if len(drop) > 0 {
		dst = append(dst, ']')
	}
	return append(dst, '}')
}

// AppendTouched appends the answer of KeepalivePath: how many pairs are left.
func AppendTouched(dst []byte, n int) []byte {
	return append(strconv.AppendInt(append(dst, `{"touched":`...), int64(n), 10), '}')
}

// ParseTouched reads the answer of KeepalivePath. The error is ErrAnswer.
func ParseTouched(body []byte) (n int, err error) {
	var r reader
	r.reset(body)
	found := false
	base, ok := r.object()
	for ok {
		var key []byte
		var more bool
		if key, more, ok = r.next(base); !ok || !more {
			break
		}
		if string(key) == "touched" {
			n, found = r.integer(&ok)
		} else {
			_, ok = r.skip()
		}
	}
	if !ok || !r.end() || !found {
		return 0, ErrAnswer
	}
	return n, nil
}

func jsonFault(r *reader) error {
	if r.fault == DuplicateKey {
		return ControlFault("the body has a key twice")
	}
	return ControlFault("the body is not the JSON object this endpoint takes")
}

// integer reads any value; valid tells whether it was an integer literal that an int holds. ok is
// cleared if it was no JSON.
func (r *reader) integer(ok *bool) (n int, valid bool) {
	var raw []byte
	if raw, *ok = r.skip(); !*ok {
		return 0, false
	}
	v, valid := parseUint(raw)
	if !valid || v > 1<<31-1 {
		return 0, false
	}
	return int(v), true
}
