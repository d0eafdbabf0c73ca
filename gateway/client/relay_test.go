package client

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
	"time"

	"sluice/codec/frame"
	"sluice/codec/open"
	"sluice/kyber"
)

// testRelay is a relay made of the codecs, with a handler instead of an origin. It is strict: what it
// does not expect of a client is a fault that fails the test.
type testRelay struct {
	t       testing.TB
	url     string
	key     *frame.TokenKey
	relay   frame.Discovery
	profile open.Profile

	// May be set before the first request; called with mu not held.
	handle    func(r *relayRequest)
	onPair    func(call int, pairs int) *Refusal
	onAuth    func(call int) *Refusal
	keepalive func(call int) *Refusal
	early     bool // answers before the request's body has ended
	forgets   bool // gives a new client id for every token
	loose     bool // gaps in the client's numbers are no fault, nor is a pair still in use

	mu         sync.Mutex
	clients    map[frame.ClientID]map[frame.PairID]*relayPair
	auths      []authCall
	pairings   []int // pairs in each call
	keepalives [][]frame.PairID
	inFlight   int
	most       int
	conns      int
}

type authCall struct {
	given frame.ClientID // of the token sent, zero if none
	route string
}

type relayPair struct {
	mu     sync.Mutex
	enc    open.Encoder
	dec    open.Decoder
	strict bool // a gap in the client's numbers is a fault
	next   uint64
}

// relayRequest is one request at the relay: its metadata, its body, and the ways to answer it.
type relayRequest struct {
	relay *testRelay
	w     http.ResponseWriter
	http  *http.Request
	body  io.Reader // of frames
	pair  *relayPair
	id    frame.PairID
	typ   open.Type
	meta  frame.Metadata
	hash  [32]byte // of the REQUEST frame
	state []byte   // of the decoder before the REQUEST
	ended bool
	head  bool
	freed bool
}

// release frees the pair: before the client can see that its request is over.
func (q *relayRequest) release() {
	if !q.freed {
		q.freed = true
		q.pair.mu.Unlock()
	}
}

func (q *relayRequest) refuse(r *Refusal) {
	q.release()
	refuse(q.w, r)
}

func startRelay(t testing.TB) *testRelay {
	t.Helper()
	s := relayOffline(t)
	server := httptest.NewUnstartedServer(s)
	server.Config.ConnState = s.connState
	server.Start()
	t.Cleanup(server.Close)
	s.url = server.URL
	return s
}

// relayOffline is a relay that does not listen.
func relayOffline(t testing.TB) *testRelay {
	t.Helper()
	profile, err := open.New(512, frame.SequenceWindow)
	if err != nil {
		t.Fatal(err)
	}
	return &testRelay{
		t: t, key: frame.NewTokenKey([]byte("a secret")), profile: profile,
		clients: map[frame.ClientID]map[frame.PairID]*relayPair{},
		relay: frame.Discovery{
			BuildVersion: "test", Features: []string{"http"}, Profile: profile.String(), ConfigVersion: 1,
			KyberStrength: 512, MaxFrameBytes: 65536, MaxMetadataMKE: 61439, MaxMetadataMTE: 7168,
			MaxPairsPerBatch: 100, MaxPairsPerClient: 2048, SessionTimeoutSeconds: 7200, TokenMaxAgeSeconds: 86400,
			StateMode: "memory",
		},
		handle: echo,
	}
}

func (s *testRelay) connState(_ net.Conn, state http.ConnState) {
	if state == http.StateNew {
		s.mu.Lock()
		s.conns++
		s.mu.Unlock()
	}
}

func (s *testRelay) fault(format string, args ...any) { s.t.Errorf("the client: "+format, args...) }

func (s *testRelay) locked(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

func refusal(r frame.Reason) *Refusal {
	return &Refusal{ErrorPayload: frame.ErrorPayload{Code: r.Code(), Reason: r.String()}}
}

func refuse(w http.ResponseWriter, r *Refusal) {
	b := frame.AppendEnvelope(nil, frame.KindError, 0, 0)
	b = r.AppendPayload(b)
	frame.PutEnvelope(b, frame.KindError, 0, len(b)-frame.EnvelopeBytes)
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set(frame.ErrorHeader, fmt.Sprintf("%d %s", r.Code, r.Reason))
	if r.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(r.RetryAfter/time.Second)))
	}
	w.WriteHeader(r.Code)
	w.Write(b)
}

func (s *testRelay) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case frame.AuthPath:
		s.auth(w, r)
	case frame.PairPath:
		s.pair(w, r)
	case frame.KeepalivePath:
		s.keep(w, r)
	case "/":
		s.data(w, r)
	default:
		s.fault("%s %s", r.Method, r.URL)
	}
}

func (s *testRelay) auth(w http.ResponseWriter, r *http.Request) {
	q := frame.ParseAuthQuery(r.URL.RawQuery)
	call := authCall{route: r.Header.Get(frame.RouteHeader)}
	id := frame.NewClientID()
	if q.Token != "" {
		token, ok := frame.ParseToken([]byte(q.Token))
		if !ok || !s.key.Verify(&token) {
			s.fault("token %q", q.Token)
		}
		call.given = token.Client()
	}
	s.mu.Lock()
	if q.Token != "" && !s.forgets {
		id = call.given
	}
	s.auths = append(s.auths, call)
	n, relay := len(s.auths), s.relay
	s.mu.Unlock()
	if s.onAuth != nil {
		if no := s.onAuth(n); no != nil {
			refuse(w, no)
			return
		}
	}
	token := s.key.Issue(id, time.Now().Unix())
	w.Write(frame.AppendAuth(nil, &token, &relay))
}

func (s *testRelay) pair(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	var p frame.PairRequest
	if err := p.Parse(body, 1000, s.relay.KyberStrength); err != nil {
		s.fault("pairing: %v", err)
	}
	token, ok := frame.ParseToken(p.Token)
	if !ok || !s.key.Verify(&token) || r.Header.Get(frame.RouteHeader) != string(token.Client().AppendRoute(nil)) {
		s.fault("pairing with token %q and route %q", p.Token, r.Header.Get(frame.RouteHeader))
	}
	s.mu.Lock()
	s.pairings = append(s.pairings, len(p.Pairs))
	n := len(s.pairings)
	if len(p.Pairs) > s.relay.MaxPairsPerBatch {
		s.fault("a batch of %d", len(p.Pairs))
	}
	s.mu.Unlock()
	if s.onPair != nil {
		if no := s.onPair(n, len(p.Pairs)); no != nil {
			refuse(w, no)
			return
		}
	}
	strength := kyber.Strength(s.relay.KyberStrength)
	var e kyber.Engine
	answers := make([]frame.PairAnswer, len(p.Pairs))
	s.mu.Lock()
	defer s.mu.Unlock()
	pairs := s.clients[token.Client()]
	if pairs == nil {
		pairs = map[frame.PairID]*relayPair{}
		s.clients[token.Client()] = pairs
	}
	for i, o := range p.Pairs {
		a := &answers[i]
		*a = frame.PairAnswer{ID: o.ID, EncoderNonce: uint64(i) + 1<<62, DecoderNonce: uint64(i),
			EncoderSecret: make([]byte, strength.CiphertextBytes()), DecoderSecret: make([]byte, strength.CiphertextBytes())}
		var down, up [32]byte
		if e.Encapsulate(strength, kyber.Encapsulation{EK: o.EncoderKey, C: a.DecoderSecret, Key: up[:]},
			kyber.Encapsulation{EK: o.DecoderKey, C: a.EncoderSecret, Key: down[:]}) != nil {
			s.fault("a key that is none")
		}
		pair := &relayPair{enc: s.profile.NewEncoder(open.MKE), dec: s.profile.NewDecoder(open.MKE), strict: true}
		pair.dec.Restore(s.profile.AppendInitialState(nil, &up, a.DecoderNonce, o.EncoderPerson))
		pair.enc.Restore(s.profile.AppendInitialState(nil, &down, a.EncoderNonce, o.DecoderPerson))
		if _, ok := pairs[o.ID]; ok {
			s.fault("pair %v twice", o.ID)
		}
		pairs[o.ID] = pair
	}
	w.Write(frame.AppendPairAnswers(nil, answers))
}

func (s *testRelay) keep(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	var k frame.Keepalive
	if err := k.Parse(body, s.relay.MaxPairsPerClient); err != nil {
		s.fault("keepalive: %v", err)
	}
	token, _ := frame.ParseToken(k.Token)
	if !s.key.Verify(&token) {
		s.fault("keepalive with token %q", k.Token)
	}
	s.mu.Lock()
	s.keepalives = append(s.keepalives, append([]frame.PairID(nil), k.Drop...))
	n := len(s.keepalives)
	pairs := s.clients[token.Client()]
	for _, id := range k.Drop {
		delete(pairs, id)
	}
	left := len(pairs)
	s.mu.Unlock()
	if s.keepalive != nil {
		if no := s.keepalive(n); no != nil {
			refuse(w, no)
			return
		}
	}
	w.Write(frame.AppendTouched(nil, left))
}

func readFrame(r io.Reader) (e frame.Envelope, payload []byte, err error) {
	head := make([]byte, frame.EnvelopeBytes)
	if _, err := io.ReadFull(r, head); err != nil {
		return e, nil, err
	}
	if e, _, err = frame.ParseEnvelope(head); err != nil {
		return e, nil, err
	}
	if !frame.LegalFlags(frame.HTTP, e.Kind, e.Flags, e.Length) {
		return e, nil, frame.BadFlags
	}
	payload = make([]byte, e.Length)
	_, err = io.ReadFull(r, payload)
	return e, payload, err
}

func (s *testRelay) data(w http.ResponseWriter, r *http.Request) {
	if s.early {
		http.NewResponseController(w).EnableFullDuplex()
	}
	e, payload, err := readFrame(r.Body)
	if err != nil {
		return // the client has gone
	}
	req, err := frame.ParseRequest(payload)
	if err != nil || e.Kind != frame.KindRequest || int(e.Length) > s.relay.MaxFrameBytes || r.Header.Get("Content-Type") != "application/octet-stream" {
		s.fault("%v frame of %d bytes: %v", e.Kind, e.Length, err)
		return
	}
	token := frame.Token(req.Token)
	if !s.key.Verify(&token) || r.Header.Get(frame.RouteHeader) != string(token.Client().AppendRoute(nil)) {
		s.fault("token %x, route %q", token, r.Header.Get(frame.RouteHeader))
	}
	s.mu.Lock()
	pairs := s.clients[token.Client()]
	pair, held := pairs[req.Pair], len(pairs)
	s.inFlight++
	s.most = max(s.most, s.inFlight)
	s.mu.Unlock()
	defer s.locked(func() { s.inFlight-- })
	switch {
	case held == 0:
		refuse(w, refusal(frame.InvalidClientID))
		return
	case pair == nil:
		refuse(w, refusal(frame.PairNotFound))
		return
	case !pair.mu.TryLock():
		if !s.loose {
			s.fault("two requests at once on pair %v", req.Pair)
		}
		refuse(w, refusal(frame.PairBusy))
		return
	}
	q := &relayRequest{relay: s, w: w, http: r, body: r.Body, pair: pair, id: req.Pair, typ: open.Type(req.Type), hash: sha256.Sum256(payload)}
	defer q.release()
	pair.use(s.profile, q.typ)
	q.state = pair.dec.AppendState(nil)
	plain, err := q.decode(req.Metadata)
	if err == nil {
		if err = q.meta.Parse(bytes.Clone(plain)); err == nil {
			err = q.meta.CheckRequest(req.Method)
		}
	}
	if err != nil {
		s.fault("REQUEST: %v", err)
		q.refuse(refusal(frame.DecodeFailed))
		return
	}
	if again := q.meta.AppendCanonical(nil); !bytes.Equal(again, plain) && len(q.meta.Headers()) > 0 {
		s.fault("metadata %s", plain)
	}
	q.ended = e.Flags&frame.FlagEnd != 0
	s.handle(q)
}

func (p *relayPair) use(profile open.Profile, t open.Type) {
	if p.enc.Type() == t {
		return
	}
	enc, dec := profile.NewEncoder(t), profile.NewDecoder(t)
	enc.Restore(p.enc.AppendState(nil))
	dec.Restore(p.dec.AppendState(nil))
	p.enc, p.dec = enc, dec
}

// decode decodes an operation; the client's numbers have no gap unless one is expected.
func (q *relayRequest) decode(b []byte) ([]byte, error) {
	plain, err := q.pair.dec.Decode(b)
	next := nextOf(q.pair.dec)
	if q.pair.strict && !q.relay.loose && err == nil && next != q.pair.next+1 {
		q.relay.fault("number %d, want %d", next-1, q.pair.next)
	}
	q.pair.next = next
	return plain, err
}

func nextOf(d open.Decoder) uint64 {
	s := d.AppendState(nil)
	var n uint64
	for _, b := range s[33:41] {
		n = n<<8 | uint64(b)
	}
	return n
}

// undo takes back that the request was decoded.
func (q *relayRequest) undo() {
	q.pair.dec.Restore(q.state)
	q.pair.next = nextOf(q.pair.dec)
}

// next is the next piece of the request's body; io.EOF after END.
func (q *relayRequest) next() ([]byte, error) {
	if q.ended {
		return nil, io.EOF
	}
	e, payload, err := readFrame(q.body)
	if err != nil {
		return nil, errors.Join(errors.New("body cut"), err)
	}
	if e.Kind != frame.KindData || int(e.Length) > q.relay.relay.MaxFrameBytes {
		q.relay.fault("%v of %d bytes in a body", e.Kind, e.Length)
	}
	plain, err := q.decode(payload)
	if err != nil {
		q.relay.fault("DATA: %v", err)
		return nil, err
	}
	app, err := frame.SplitData(plain, e.Flags)
	if err != nil {
		q.relay.fault("DATA: %v", err)
	}
	q.ended = e.Flags&frame.FlagEnd != 0
	return app, err
}

func (q *relayRequest) readAll() (body []byte, err error) {
	for {
		piece, err := q.next()
		if err == io.EOF {
			if _, err := q.body.Read(make([]byte, 1)); err != io.EOF {
				q.relay.fault("bytes behind END")
			}
			return body, nil
		}
		if err != nil {
			return body, err
		}
		body = append(body, piece...)
	}
}

func (q *relayRequest) write(k frame.Kind, f frame.Flags, payload []byte) {
	if !q.head {
		q.w.Header().Set("Content-Type", "application/octet-stream")
		q.head = true
	}
	if k == frame.KindError || f&frame.FlagEnd != 0 {
		q.release()
	}
	q.w.Write(append(frame.AppendEnvelope(nil, k, f, len(payload)), payload...))
	http.NewResponseController(q.w).Flush()
}

func (q *relayRequest) respond(status int, end bool, header ...string) {
	var w frame.MetadataWriter
	for i := 0; i < len(header); i += 2 {
		w.Add([]byte(header[i]), []byte(header[i+1]))
	}
	meta, _ := q.pair.enc.AppendEncode(nil, w.AppendResponse(nil, status))
	var flags frame.Flags
	if end {
		flags = frame.FlagEnd
	}
	q.write(frame.KindResponse, flags, append(frame.AppendResponseHead(nil, status, len(meta)), meta...))
}

func (q *relayRequest) data(app []byte, end bool) {
	var flags frame.Flags
	if end {
		flags = frame.FlagEnd
	}
	encoded, _ := q.pair.enc.AppendEncode(nil, frame.AppendData(nil, flags, app))
	q.write(frame.KindData, flags, encoded)
}

func (q *relayRequest) drop() {
	q.relay.mu.Lock()
	defer q.relay.mu.Unlock()
	for _, pairs := range q.relay.clients {
		delete(pairs, q.id)
	}
}

// abort cuts the connection.
func (q *relayRequest) abort() { panic(http.ErrAbortHandler) }

// echo answers with what was asked and sent.
func echo(q *relayRequest) {
	body, err := q.readAll()
	if err != nil {
		q.drop()
		return
	}
	q.respond(200, false, "X-Method", string(q.meta.Method), "X-Path", string(q.meta.Path))
	for len(body) > 5000 {
		q.data(body[:5000], false)
		body = body[5000:]
	}
	q.data(body, true)
}

func newClient(t testing.TB, s *testRelay, change ...func(*Options)) *Client {
	t.Helper()
	o := Options{URL: s.url, Agent: "test"}
	for _, f := range change {
		f(&o)
	}
	c, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// do sends a request and reads its whole answer.
func do(t testing.TB, c *Client, r *Request) (*Response, []byte, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	res, err := c.Do(ctx, r)
	if err != nil {
		return nil, nil, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	return res, body, err
}

// get is a request of which only the outcome counts.
func get(t testing.TB, c *Client, path string) error {
	t.Helper()
	_, _, err := do(t, c, &Request{Head: Head{Path: path}})
	return err
}

func (r *Response) get(name string) string {
	for _, h := range r.Header {
		if h.Name == name {
			return h.Value
		}
	}
	return ""
}
