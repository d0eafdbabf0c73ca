package mte

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"sluice/codec/frame"
	"sluice/codec/http1"
	"sluice/codec/open"
	"sluice/gateway/config"
	"sluice/gateway/edge"
	"sluice/gateway/store"
	"sluice/kyber"
	"sluice/loop"
)

const (
	testHost   = "relay.test"
	testSecret = "a secret of the tests, longer than 32 bytes"
)

// testRelay is a role on two loops with its own listener and an origin.
type testRelay struct {
	t      testing.TB
	role   *Role
	front  *edge.Server
	loops  []*loop.Loop
	addr   string
	origin *httptest.Server
	log    syncBuffer
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// laterPairs answers everything later, like a store on the network.
type laterPairs struct{ store.Pairs }

func (p laterPairs) Add(c store.Client, pairs []store.NewPair, now int64, later func(frame.Reason)) (frame.Reason, bool) {
	go func() {
		r, _ := p.Pairs.Add(c, pairs, now, nil)
		later(r)
	}()
	return 0, false
}

func (p laterPairs) Take(c store.Client, id frame.PairID, t open.Type, now int64, w store.Waiter) (store.Lease, frame.Reason, bool) {
	go func() {
		l, r, _ := p.Pairs.Take(c, id, t, now, nil)
		if l != nil {
			l = laterLease{l}
		}
		w.OnTaken(l, r)
	}()
	return nil, 0, false
}

func (p laterPairs) Keepalive(c store.Client, drop []frame.PairID, now int64, later func(int, frame.Reason)) (int, frame.Reason, bool) {
	go func() {
		n, r, _ := p.Pairs.Keepalive(c, drop, now, nil)
		later(n, r)
	}()
	return 0, 0, false
}

type laterLease struct{ store.Lease }

func (l laterLease) Release(now int64, used bool, w store.Waiter) (frame.Reason, bool) {
	go func() {
		r, _ := l.Lease.Release(now, used, nil)
		w.OnReleased(r)
	}()
	return 0, false
}

// relayOptions are what startRelay can be told besides settings.
type relayOptions struct {
	domain string                        // members of the test host's entry in DOMAIN_MAP, as JSON
	later  bool                          // the store answers later
	store  func(store.Pairs) store.Pairs // put in front of the memory store
	origin http.Handler
	dead   bool // nobody listens where the origin should be
}

// startRelay starts a relay with settings of the form NAME=value.
func startRelay(t testing.TB, o relayOptions, settings ...string) *testRelay {
	t.Helper()
	r := &testRelay{t: t}
	if o.origin == nil {
		o.origin = http.HandlerFunc(digestOrigin)
	}
	r.origin = httptest.NewUnstartedServer(o.origin)
	r.origin.Config.ErrorLog = slog.NewLogLogger(slog.NewTextHandler(io.Discard, nil), slog.LevelError)
	r.origin.Start()
	t.Cleanup(r.origin.Close)
	upstream := r.origin.URL
	if o.dead {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		upstream = "http://" + ln.Addr().String()
		ln.Close()
	}
	if o.domain != "" {
		o.domain = "," + o.domain
	}
	env := append(settings,
		"PORT=1", "PASEO_RELAY_PORT=0", "KYBER_STRENGTH=512", "DEFAULT_POOL_SIZE=2", "RATE_LIMITS=false",
		fmt.Sprintf(`DOMAIN_MAP={%q:{"upstream":%q,"client_id_secret":%q%s}}`, testHost, upstream, testSecret, o.domain))
	cfg, faults, _ := config.Load(env, nil)
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	limits := http1.DefaultLimits
	limits.Fields = 1024
	c := Config{MTE: cfg.MTE, Version: "test", ConfigVersion: 1, Limits: limits, WriteStall: cfg.Socket.WriteStall}
	if o.later {
		c.Pairs = func(p *open.Pools) store.Pairs {
			return laterPairs{store.NewMemoryPairs(store.MemoryLimits{Pairs: c.MaxPairs, PerClient: c.MaxPairsPerClient, Timeout: c.SessionTimeout}, p)}
		}
	}
	if o.store != nil {
		c.Pairs = func(p *open.Pools) store.Pairs {
			return o.store(store.NewMemoryPairs(store.MemoryLimits{Pairs: c.MaxPairs, PerClient: c.MaxPairsPerClient, Timeout: c.SessionTimeout}, p))
		}
	}
	var err error
	log := slog.New(slog.NewTextHandler(&r.log, nil))
	for i := range 2 {
		l, err := loop.New(i, loop.Config{Spin: -1, Log: log})
		if err != nil {
			t.Fatal(err)
		}
		r.loops = append(r.loops, l)
	}
	if r.role, err = New(c, r.loops, log); err != nil {
		t.Fatal(err)
	}
	r.front = edge.NewServer(edge.Config{Limits: http1.DefaultLimits, IdleTimeout: 10 * time.Second, BodyTimeout: cfg.MTE.MaxRequestTime,
		WriteStall: cfg.Socket.WriteStall, MaxConnections: 1000}, r.role, r.loops)
	ln, err := loop.Listen("127.0.0.1:0", loop.SocketOptions{})
	if err != nil {
		t.Fatal(err)
	}
	r.addr = ln.Addr().String()
	for _, l := range r.loops {
		if err := l.Accept(ln, r.front); err != nil {
			t.Fatal(err)
		}
		go l.Run()
	}
	t.Cleanup(func() {
		// Whatever a test did, nothing may be held when its clients have left.
		r.await("no request under way", func() bool { return r.role.Active() == 0 })
		r.await("no pair in use", func() bool { return r.role.pairs.InUse() == 0 })
		for _, l := range r.loops {
			l.Stop()
			<-l.Done()
		}
		ln.Close()
		r.role.Close()
	})
	return r
}

// await waits for a condition.
func (r *testRelay) await(what string, f func() bool) {
	r.t.Helper()
	for end := time.Now().Add(10 * time.Second); !f(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			r.t.Fatalf("not in time: %s", what)
		}
	}
}

// digestOrigin answers with what it got: method, target, length and body back.
func digestOrigin(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	w.Header().Set("X-Got", fmt.Sprintf("%s %s %d", req.Method, req.RequestURI, len(body)))
	w.Write(body)
}

// testClient is a client of the relay, or of several hosts of it.
type testClient struct {
	r      *testRelay
	host   string
	token  frame.Token
	about  frame.Discovery
	engine kyber.Engine
}

func (r *testRelay) client() *testClient {
	r.t.Helper()
	c := &testClient{r: r, host: testHost}
	c.auth()
	return c
}

func (c *testClient) auth() {
	c.r.t.Helper()
	a := c.call("GET", frame.AuthPath+"?frameVersions=2", "")
	var err error
	if c.token, c.about, err = frame.ParseAuth(a.body); err != nil {
		c.r.t.Fatalf("auth: %d %s", a.status, a.body)
	}
}

// reply is an HTTP answer with its whole body. cut: it ended before its end.
type reply struct {
	status int
	header http.Header
	body   []byte
	close  bool
	cut    bool
}

func readReply(conn net.Conn, method string) (reply, error) {
	conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	res, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: method})
	if err != nil {
		return reply{}, err
	}
	body, err := io.ReadAll(res.Body)
	return reply{res.StatusCode, res.Header, body, res.Close, err != nil}, nil
}

// send makes one HTTP request on its own connection and reads the answer.
func (c *testClient) send(raw string) reply {
	c.r.t.Helper()
	conn := c.dial()
	defer conn.Close()
	go io.WriteString(conn, raw)
	method, _, _ := strings.Cut(raw, " ")
	a, err := readReply(conn, method)
	if err != nil {
		c.r.t.Fatalf("no answer: %v", err)
	}
	return a
}

func (c *testClient) dial() net.Conn {
	c.r.t.Helper()
	conn, err := net.Dial("tcp", c.r.addr)
	if err != nil {
		c.r.t.Fatal(err)
	}
	c.r.t.Cleanup(func() { conn.Close() })
	return conn
}

// head is a request head; lines are more of its fields.
func (c *testClient) head(method, target string, lines ...string) string {
	h := method + " " + target + " HTTP/1.1\r\nHost: " + c.host + "\r\n"
	for _, l := range lines {
		h += l + "\r\n"
	}
	return h + "\r\n"
}

func (c *testClient) call(method, target, body string, lines ...string) reply {
	c.r.t.Helper()
	if body != "" {
		lines = append(lines, "Content-Length: "+strconv.Itoa(len(body)))
	}
	return c.send(c.head(method, target, lines...) + body)
}

// post sends frames with a length.
func (c *testClient) post(b []byte, lines ...string) reply {
	c.r.t.Helper()
	lines = append(lines, "Content-Type: "+typeFrames, "Content-Length: "+strconv.Itoa(len(b)))
	return c.send(c.head("POST", "/", lines...) + string(b))
}

// wantRefusal checks a refusal in all its forms.
func (a reply) wantRefusal(t testing.TB, reason frame.Reason, cause frame.Reason) frame.ErrorPayload {
	t.Helper()
	if a.status != reason.Code() {
		t.Fatalf("status %d (%s), want %d %s", a.status, a.header.Get(frame.ErrorHeader), reason.Code(), reason)
	}
	e, n, err := frame.ParseEnvelope(a.body)
	if err != nil || n == 0 || e.Kind != frame.KindError || e.Flags != 0 || len(a.body) != n+int(e.Length) {
		t.Fatalf("the body of a refusal is not one ERROR frame: %q", a.body)
	}
	p, err := frame.ParseError(a.body[n:])
	if err != nil {
		t.Fatal(err)
	}
	want := frame.Cause{}
	if cause != frame.NoReason {
		want = frame.CauseOf(cause)
	}
	if p.Code != reason.Code() || p.Reason != reason.String() || p.Cause != want {
		t.Fatalf("ERROR %+v, want %d %s because of %q", p, reason.Code(), reason, cause)
	}
	if h := a.header.Get(frame.ErrorHeader); h != fmt.Sprintf("%d %s", reason.Code(), reason) {
		t.Fatalf("%s: %q", frame.ErrorHeader, h)
	}
	if got := a.header.Get("Retry-After") != ""; got != reason.RetryAfter() {
		t.Fatalf("Retry-After: %q with %s", a.header.Get("Retry-After"), reason)
	}
	if ct := a.header.Get("Content-Type"); ct != typeFrames {
		t.Fatalf("content type %q", ct)
	}
	return p
}

// testPair is a client's half of a pair.
type testPair struct {
	c   *testClient
	id  frame.PairID
	enc open.Encoder
	dec open.Decoder
}

// offer makes n offers and the keys to take the answer with.
func (c *testClient) offer(n int) (offers []frame.PairOffer, keys []*kyber.DecapsulationKey) {
	strength := kyber.Strength(c.about.KyberStrength)
	for range n {
		o := frame.PairOffer{ID: frame.NewPairID(), FrameVersion: 2, Profile: []byte(c.about.Profile)}
		person := base64.RawURLEncoding.EncodeToString(make([]byte, 18)) + "/" + c.host
		o.EncoderPerson, o.DecoderPerson = []byte("mte-relay/2/http/"+person), []byte("mte-relay/2/http/"+person)
		o.EncoderKey, o.DecoderKey = make([]byte, strength.EncapsulationKeyBytes()), make([]byte, strength.EncapsulationKeyBytes())
		keys = append(keys, c.engine.GenerateKey(strength, o.EncoderKey), c.engine.GenerateKey(strength, o.DecoderKey))
		offers = append(offers, o)
	}
	return offers, keys
}

// pairs makes n pairs.
func (c *testClient) pairs(n int) []*testPair {
	c.r.t.Helper()
	offers, keys := c.offer(n)
	a := c.call("POST", frame.PairPath, string(frame.AppendPairRequest(nil, &c.token, c.about.KyberStrength, offers)))
	answers, err := frame.ParsePairAnswers(a.body)
	if a.status != 200 || err != nil || len(answers) != n {
		c.r.t.Fatalf("pairing: %d %s %v", a.status, a.header.Get(frame.ErrorHeader), err)
	}
	return c.assemble(offers, keys, answers)
}

// assemble makes pairs of offers and what the relay answered.
func (c *testClient) assemble(offers []frame.PairOffer, keys []*kyber.DecapsulationKey, answers []frame.PairAnswer) (list []*testPair) {
	c.r.t.Helper()
	for i, got := range answers {
		p := &testPair{c: c, id: got.ID}
		state := func(key *kyber.DecapsulationKey, secret []byte, nonce uint64, person []byte) []byte {
			var shared [kyber.SharedKeyBytes]byte
			if err := key.Decapsulate(shared[:], secret); err != nil {
				c.r.t.Fatal(err)
			}
			return c.r.role.profile.AppendInitialState(nil, &shared, nonce, person)
		}
		p.enc, p.dec = c.r.role.profile.NewEncoder(open.MKE), c.r.role.profile.NewDecoder(open.MKE)
		p.enc.Restore(state(keys[2*i], got.DecoderSecret, got.DecoderNonce, offers[i].EncoderPerson))
		p.dec.Restore(state(keys[2*i+1], got.EncoderSecret, got.EncoderNonce, offers[i].DecoderPerson))
		list = append(list, p)
	}
	return list
}

func (c *testClient) pair() *testPair { c.r.t.Helper(); return c.pairs(1)[0] }

func (p *testPair) use(t open.Type) {
	if p.enc.Type() == t {
		return
	}
	enc, dec := p.c.r.role.profile.NewEncoder(t), p.c.r.role.profile.NewDecoder(t)
	enc.Restore(p.enc.AppendState(nil))
	dec.Restore(p.dec.AppendState(nil))
	p.enc, p.dec = enc, dec
}

// snapshot returns a function that takes the encoder back: for bytes the relay
// never decoded.
func (p *testPair) snapshot() func() {
	state := p.enc.AppendState(nil)
	return func() { p.enc.Restore(state) }
}

func (p *testPair) encode(plain []byte) []byte {
	b, err := p.enc.AppendEncode(nil, plain)
	if err != nil {
		p.c.r.t.Fatal(err)
	}
	return b
}

// metadata is the canonical text of a request; headers are name, value, …
func metadata(method, path string, headers ...string) []byte {
	var w frame.MetadataWriter
	for i := 0; i < len(headers); i += 2 {
		w.Add([]byte(headers[i]), []byte(headers[i+1]))
	}
	b, err := w.AppendRequest(nil, []byte(method), []byte(path))
	if err != nil {
		panic(err)
	}
	return b
}

// request is a REQUEST frame.
func (p *testPair) request(f frame.Flags, method byte, meta []byte) []byte {
	return p.requestFrom(p.c.token[:], f, method, p.encode(meta))
}

func (p *testPair) requestFrom(token []byte, f frame.Flags, method byte, encoded []byte) []byte {
	payload := frame.AppendRequestHead(nil, byte(p.enc.Type()), method, p.id, token, len(encoded))
	return rawFrame(frame.KindRequest, f, append(payload, encoded...))
}

func rawFrame(k frame.Kind, f frame.Flags, payload []byte) []byte {
	return append(frame.AppendEnvelope(nil, k, f, len(payload)), payload...)
}

// post is the REQUEST of a POST with a body behind it.
func (p *testPair) post(path string, headers ...string) []byte {
	return p.request(0, 1, metadata("POST", path, headers...))
}

// get is a whole request.
func (p *testPair) get(path string, headers ...string) []byte {
	return p.request(frame.FlagEnd, 0, metadata("GET", path, headers...))
}

// data is a DATA frame.
func (p *testPair) data(f frame.Flags, app []byte) []byte {
	return rawFrame(frame.KindData, f, p.encode(frame.AppendData(nil, f, app)))
}

// body is DATA for a whole body, in frames of a size.
func (p *testPair) body(b []byte, size int) (frames []byte) {
	for {
		n := min(size, len(b))
		f := frame.Flags(0)
		if n == len(b) {
			f = frame.FlagEnd
		}
		frames = append(frames, p.data(f, b[:n])...)
		if b = b[n:]; len(b) == 0 {
			return frames
		}
	}
}

// encoded is a decoded answer.
type encoded struct {
	status int
	header map[string]any
	body   []byte
	err    *frame.ErrorPayload // of an ERROR at its end
	onHead bool                // END stood on RESPONSE
	frames int
}

// read decodes an answer; every operation must be the next one.
func (p *testPair) read(a reply) (e encoded) {
	p.c.r.t.Helper()
	e, err := p.tryRead(a)
	if err != nil {
		p.c.r.t.Fatal(err)
	}
	return e
}

func (p *testPair) tryRead(a reply) (e encoded, err error) {
	if a.status != 200 {
		return e, fmt.Errorf("refused: %d %s", a.status, a.header.Get(frame.ErrorHeader))
	}
	if a.cut {
		return e, fmt.Errorf("the HTTP answer is cut short")
	}
	b, ended := a.body, false
	for len(b) > 0 {
		env, n, err := frame.ParseEnvelope(b)
		if err != nil || n == 0 || len(b) < n+int(env.Length) {
			return e, fmt.Errorf("broken frame: %v", err)
		}
		payload := b[n : n+int(env.Length)]
		b = b[n+int(env.Length):]
		if ended {
			return e, fmt.Errorf("a frame behind the end")
		}
		e.frames++
		ended = env.Flags&frame.FlagEnd != 0
		switch env.Kind {
		case frame.KindResponse:
			r, err := frame.ParseResponse(payload)
			if err != nil {
				return e, err
			}
			text, err := p.dec.Decode(r.Metadata)
			if err != nil {
				return e, err
			}
			var m struct {
				Status  int
				Headers map[string]any
			}
			if err := json.Unmarshal(text, &m); err != nil || m.Status != r.Status {
				return e, fmt.Errorf("metadata %s: %v", text, err)
			}
			e.status, e.header, e.onHead = r.Status, m.Headers, ended
		case frame.KindData:
			text, err := p.dec.Decode(payload)
			if err != nil {
				return e, err
			}
			app, err := frame.SplitData(text, env.Flags)
			if err != nil {
				return e, err
			}
			e.body = append(e.body, app...)
		case frame.KindError:
			f, err := frame.ParseError(payload)
			if err != nil {
				return e, err
			}
			e.err, ended = &f, true
		}
	}
	if !ended {
		return e, fmt.Errorf("an answer without its end")
	}
	return e, nil
}

// fate is what became of a pair.
type fate string

const (
	inStep fate = "in step"
	gone   fate = "gone"
)

// want proves the fate of the pair by two more requests.
func (p *testPair) want(want fate) {
	p.c.r.t.Helper()
	for range 2 {
		b := append(p.post("fate"), p.body([]byte("what became of it"), 100)...)
		a := p.c.post(b)
		for end := time.Now().Add(5 * time.Second); a.status == 486 && time.Now().Before(end); a = p.c.post(b) {
			time.Sleep(5 * time.Millisecond) // it is about to be given back
		}
		got := inStep
		switch e, err := p.tryRead(a); {
		case a.status == 470, a.status == 475 && strings.Contains(a.header.Get(frame.ErrorHeader), "client"):
			got = gone
		case err != nil:
			got = fate(err.Error())
		case string(e.body) != "what became of it":
			got = fate(fmt.Sprintf("answers %.60q", e.body))
		}
		if got != want {
			p.c.r.t.Fatalf("the pair is %s, want %s", got, want)
		}
	}
}
