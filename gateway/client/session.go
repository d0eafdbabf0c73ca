package client

import (
	"fmt"
	"slices"
	"time"

	"sluice/codec/frame"
	"sluice/codec/open"
	"sluice/kyber"
)

// A Call is an HTTP request to a control endpoint, as the core wants it sent. Host, framing and
// connection headers are the transport's.
type Call struct {
	Method string
	Target string
	Header []Header
	Body   []byte
}

// A Header is one header line.
type Header struct{ Name, Value string }

// The header by which a relay knows a client that keeps cookies to itself (contract, mte-relay §6).
const agentHeader = "X-MTE-Relay-Client"

// A Session is what a client is to one relay: its token, and what the relay said about itself. It
// does no I/O and reads no clock; it makes calls and takes their answers, and whoever drives it (the
// transport of this package, an event loop) sends them.
//
// A Session belongs to one goroutine at a time. Pairs and exchanges made from it keep what they need
// and may be used elsewhere.
type Session struct {
	agent string // value of agentHeader
	host  string // for personalization strings

	token     frame.Token
	route     string // empty before the first auth, and for that of a full repair
	authedAt  time.Time
	touchedAt time.Time

	relay *Relay
}

// A Relay is what a client knows of the relay from its discovery. It is constant.
type Relay struct {
	frame.Discovery
	Profile open.Profile
	// ProbeDiffers tells that the other end is another implementation of the same profile; worth a
	// line in a log.
	ProbeDiffers bool

	strength kyber.Strength
}

// Bounds of what a relay may advertise. Values outside are taken for the nearest one: a client needs
// a buffer of a frame and must not be told to need a gigabyte.
const (
	minFrameBytes = 4096
	maxFrameBytes = 16 << 20

	minKeepalive = time.Second
	maxKeepalive = 600 * time.Second
)

// NewSession is a client that has not authenticated yet. agent names the program to the relay; host
// stands in the personalization of pairs.
func NewSession(agent, host string) *Session { return &Session{agent: agent, host: host} }

// Relay is nil before the first answer.
func (s *Session) Relay() *Relay { return s.relay }

// ClientID is the id the relay gave, of use for logs.
func (s *Session) ClientID() frame.ClientID { return s.token.Client() }

// Forget makes the session one that has not authenticated: the start of a full repair. The next Auth
// carries neither the old id nor a route header. Pairs made before are of no more use.
func (s *Session) Forget() {
	s.token, s.route = frame.Token{}, ""
	s.authedAt = time.Time{}
}

// Known tells whether the session has a token.
func (s *Session) Known() bool { return !s.authedAt.IsZero() }

func (s *Session) headers(contentType string) (h []Header) {
	if s.agent != "" {
		h = append(h, Header{agentHeader, s.agent})
	}
	if s.route != "" {
		h = append(h, Header{frame.RouteHeader, s.route})
	}
	if contentType != "" {
		h = append(h, Header{"Content-Type", contentType})
	}
	return h
}

// Auth is the call that authenticates, or refreshes the token of a session that has one.
func (s *Session) Auth() Call {
	target := frame.AuthPath + "?frameVersions=2"
	if s.Known() {
		target += "&clientId=" + string(s.token.AppendText(nil))
	}
	return Call{Method: "GET", Target: target, Header: s.headers("")}
}

// Authed takes the 200 answer of Auth. Errors are frame.ErrAnswer, ErrFrameVersion and a
// *ProfileMismatch; after one the session is what it was.
func (s *Session) Authed(body []byte, now time.Time) error {
	token, d, err := frame.ParseAuth(body)
	if err != nil {
		return err
	}
	relay, err := newRelay(d)
	if err != nil {
		return err
	}
	if token.Client() != s.token.Client() || !s.Known() {
		s.touchedAt = now // no pairs to keep
	}
	s.token, s.relay, s.authedAt = token, relay, now
	s.route = string(token.Client().AppendRoute(nil))
	return nil
}

func newRelay(d frame.Discovery) (*Relay, error) {
	if !slices.Contains(d.FrameVersions, frame.Version) {
		return nil, ErrFrameVersion
	}
	r := &Relay{Discovery: d, strength: kyber.Strength(d.KyberStrength)}
	var err error
	if r.Profile, err = open.New(d.KyberStrength, d.SequenceWindow); err != nil {
		return nil, &ProfileMismatch{Theirs: d.Profile, Detail: err.Error()}
	}
	agree, same := r.Profile.Match(d.Profile)
	if !agree {
		return nil, &ProfileMismatch{Ours: r.Profile.String(), Theirs: d.Profile}
	}
	r.ProbeDiffers = !same
	r.MaxFrameBytes = min(max(r.MaxFrameBytes, minFrameBytes), maxFrameBytes)
	r.MaxPairsPerBatch = max(r.MaxPairsPerBatch, 1)
	// The contract's defaults, for a relay that keeps them to itself.
	if r.TokenMaxAgeSeconds <= 0 {
		r.TokenMaxAgeSeconds = 86400
	}
	if r.SessionTimeoutSeconds <= 0 {
		r.SessionTimeoutSeconds = 7200
	}
	return r, nil
}

// metadataBytes is the relay's bound of metadata in a type, before encoding.
func (r *Relay) metadataBytes(t open.Type) int {
	bound := r.MaxMetadataMKE
	if t == open.MTE {
		bound = r.MaxMetadataMTE
	}
	fits := r.Profile.PlaintextBytes(t, r.MaxFrameBytes-frame.RequestHeadBytes)
	if bound <= 0 {
		return fits
	}
	return min(bound, fits)
}

// DataTarget is where frames are sent, with POST and the headers DataHeader returns.
const DataTarget = "/"

// DataHeader are the headers of a request on the data path, framing excepted.
func (s *Session) DataHeader() []Header { return s.headers("application/octet-stream") }

// AuthDue is when the token should be refreshed: at 80 % of its age.
func (s *Session) AuthDue() time.Time {
	age := time.Duration(s.relay.TokenMaxAgeSeconds) * time.Second
	return s.authedAt.Add(max(age/5*4, minKeepalive))
}

// KeepaliveDue is when the relay should be told that the pairs are still wanted: after a third of
// its session timeout.
func (s *Session) KeepaliveDue() time.Time {
	third := time.Duration(s.relay.SessionTimeoutSeconds) * time.Second / 3
	return s.touchedAt.Add(min(max(third, minKeepalive), maxKeepalive))
}

// Keepalive is the call that prolongs all pairs but those in drop, which the relay gives up.
func (s *Session) Keepalive(drop []frame.PairID) Call {
	body := frame.AppendKeepalive(nil, &s.token, drop)
	return Call{Method: "POST", Target: frame.KeepalivePath, Header: s.headers("application/json"), Body: body}
}

// Touched takes the 200 answer of Keepalive and tells how many pairs the relay has left. The error is
// frame.ErrAnswer.
func (s *Session) Touched(body []byte, now time.Time) (pairs int, err error) {
	if pairs, err = frame.ParseTouched(body); err == nil {
		s.touchedAt = now
	}
	return pairs, err
}

// A ProfileMismatch says that the relay encodes by a codec this client does not have.
type ProfileMismatch struct {
	Ours, Theirs string
	Detail       string
}

func (e *ProfileMismatch) Error() string {
	if e.Detail != "" {
		return fmt.Sprintf("the relay's codec profile %q: %s", e.Theirs, e.Detail)
	}
	return fmt.Sprintf("the relay's codec profile is %q, ours %q", e.Theirs, e.Ours)
}
