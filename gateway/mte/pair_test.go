package mte

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"sluice/codec/frame"
	"sluice/codec/open"
)

// TestPairRefusals: the refusals of a pairing call, all or nothing, and the order
// in which they are made.
func TestPairRefusals(t *testing.T) {
	bothStores(t, func(t *testing.T, later bool) {
		r := startRelay(t, relayOptions{later: later}, "MAX_PAIRS_PER_BATCH=3", "MAX_PAIRS_PER_CLIENT=4", "MAX_CONTROL_BODY_MIB=1", "MAX_PAIRS=20")
		f := func(name string, change func(c *testClient, offers []frame.PairOffer) []frame.PairOffer, reason frame.Reason, text string) {
			t.Helper()
			c := r.client()
			offers, _ := c.offer(3)
			offers = change(c, offers)
			body := string(frame.AppendPairRequest(nil, &c.token, c.about.KyberStrength, offers))
			e := c.call("POST", frame.PairPath, body).wantRefusal(t, reason, frame.NoReason)
			if !strings.Contains(e.Message, text) {
				t.Errorf("%s: message %q", name, e.Message)
			}
			if n := r.role.pairs.Count(); n != 0 {
				t.Errorf("%s: %d pairs are held", name, n)
			}
		}
		last := func(change func(o *frame.PairOffer)) func(*testClient, []frame.PairOffer) []frame.PairOffer {
			return func(_ *testClient, offers []frame.PairOffer) []frame.PairOffer {
				change(&offers[len(offers)-1])
				return offers
			}
		}
		f("too many", func(c *testClient, o []frame.PairOffer) []frame.PairOffer { return append(o, o[0]) }, frame.InvalidRequest, "maxPairsPerBatch")
		f("none", func(*testClient, []frame.PairOffer) []frame.PairOffer { return nil }, frame.InvalidRequest, "pairs")
		f("zero id", last(func(o *frame.PairOffer) { o.ID = frame.PairID{} }), frame.InvalidRequest, "pairId")
		f("short key", last(func(o *frame.PairOffer) { o.EncoderKey = o.EncoderKey[1:] }), frame.InvalidRequest, "encoderPublicKey")
		f("key not reduced", last(func(o *frame.PairOffer) { o.DecoderKey[0], o.DecoderKey[1] = 0xff, 0xff }), frame.InvalidRequest, "decoderPublicKey")
		f("personalization", last(func(o *frame.PairOffer) { o.EncoderPerson = []byte("x") }), frame.InvalidRequest, "encoderPersonalizationStr")
		f("token", func(c *testClient, o []frame.PairOffer) []frame.PairOffer { c.token[30] ^= 1; return o }, frame.InvalidToken, "")
		f("profile", last(func(o *frame.PairOffer) { o.Profile = []byte("mte/other") }), frame.ProfileMismatch, "")
		f("twice", func(_ *testClient, o []frame.PairOffer) []frame.PairOffer { o[2].ID = o[0].ID; return o }, frame.PairExists, "")
	})
}

// TestPairLimits: what the store refuses.
func TestPairLimits(t *testing.T) {
	bothStores(t, func(t *testing.T, later bool) {
		r := startRelay(t, relayOptions{later: later}, "MAX_PAIRS_PER_CLIENT=4", "MAX_PAIRS=6")
		c := r.client()
		offers, _ := c.offer(3)
		pair := func(c *testClient, offers []frame.PairOffer) reply {
			return c.call("POST", frame.PairPath, string(frame.AppendPairRequest(nil, &c.token, c.about.KyberStrength, offers)))
		}
		if a := pair(c, offers); a.status != 200 {
			t.Fatalf("%d %s", a.status, a.body)
		}
		pair(c, offers[:1]).wantRefusal(t, frame.PairExists, frame.NoReason)
		more, _ := c.offer(2)
		pair(c, more).wantRefusal(t, frame.PairLimit, frame.NoReason)
		other := r.client()
		if a := pair(other, offers); a.status != 200 { // ids are a client's own
			t.Fatalf("%d %s", a.status, a.body)
		}
		pair(other, more[:1]).wantRefusal(t, frame.PoolExhausted, frame.NoReason)
		a := c.call("POST", frame.KeepalivePath, string(frame.AppendKeepalive(nil, &c.token, []frame.PairID{offers[0].ID, frame.NewPairID()})))
		if n, err := frame.ParseTouched(a.body); err != nil || n != 2 {
			t.Fatalf("keepalive: %d %s", a.status, a.body)
		}
		if n := r.role.pairs.Count(); n != 5 {
			t.Fatalf("%d pairs", n)
		}
		r.role.Drain(true)
		pair(other, more[:1]).wantRefusal(t, frame.StateStoreUnavailable, frame.NoReason)
	})
}

// TestControlAnswers: methods, versions, bodies and the route header.
func TestControlAnswers(t *testing.T) {
	r := startRelay(t, relayOptions{}, "MAX_CONTROL_BODY_MIB=1")
	c := r.client()
	if a := c.call("DELETE", frame.AuthPath, ""); a.status != 405 || a.header.Get("Allow") != "GET, HEAD" || !json.Valid(a.body) {
		t.Errorf("DELETE: %d %v %s", a.status, a.header, a.body)
	}
	if a := c.call("GET", frame.PairPath, ""); a.status != 405 || a.header.Get("Allow") != "POST" {
		t.Errorf("GET: %d %v", a.status, a.header)
	}
	e := c.call("GET", frame.AuthPath+"?frameVersions=1,3", "").wantRefusal(t, frame.FrameVersionUnsupported, frame.NoReason)
	if !strings.Contains(e.Message, "[2]") || !strings.Contains(e.Message, "[1, 3]") {
		t.Errorf("message %q", e.Message)
	}
	for _, path := range []string{frame.PairPath, frame.KeepalivePath} {
		c.call("POST", path, "{").wantRefusal(t, frame.InvalidRequest, frame.NoReason)
		c.call("POST", path, strings.Repeat(" ", 1<<20+1)).wantRefusal(t, frame.BodyTooLarge, frame.NoReason)
		c.send(c.head("POST", path, "Transfer-Encoding: chunked")+"200000\r\n"+strings.Repeat(" ", 2<<20)+"\r\n0\r\n\r\n").wantRefusal(t, frame.BodyTooLarge, frame.NoReason)
	}
	route := string(c.token.Client().AppendRoute(nil))
	token := string(c.token.AppendText(nil))
	if a := c.call("GET", frame.AuthPath+"?frameVersions=2&clientId="+token, ""); a.header.Get(frame.RouteHeader) != route {
		t.Errorf("route %q, want %q", a.header.Get(frame.RouteHeader), route)
	}
	c.host = "nobody.test"
	c.call("GET", frame.AuthPath+"?frameVersions=2", "").wantRefusal(t, frame.NoDomainForHost, frame.NoReason)
}

// TestRateLimits: 60 pairing calls of a client a minute, and a warning.
func TestRateLimits(t *testing.T) {
	r := startRelay(t, relayOptions{}, "RATE_LIMITS=true")
	c := r.client()
	offers, _ := c.offer(1)
	offers[0].Profile = []byte("mte/other")
	body := string(frame.AppendPairRequest(nil, &c.token, c.about.KyberStrength, offers))
	for i := range 60 {
		if a := c.call("POST", frame.PairPath, body); a.status != 490 {
			t.Fatalf("call %d: %d", i, a.status)
		}
	}
	if e := c.call("POST", frame.PairPath, body).wantRefusal(t, frame.RateLimited, frame.NoReason); e.Message != messageRate {
		t.Errorf("message %q", e.Message)
	}
	if !strings.Contains(r.log.String(), "rate limited") {
		t.Error("no warning")
	}
}

// TestPlainSide: what of the hop is merged, cookies, routes and domain headers.
func TestPlainSide(t *testing.T) {
	var got http.Header
	r := startRelay(t, relayOptions{
		domain: `"forward_plain_headers":["x-app-*","x-trace"],"mte_routes":["/ok/*"],"headers":{"X-Domain":"d"},"cors_origins":["https://app.example"]`,
		origin: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			got = req.Header.Clone()
			w.Header().Add("Set-Cookie", "a=1")
			w.Header().Add("Set-Cookie", "b=2")
			if req.URL.Path == "/ok/listed" {
				w.Header().Set("Connection", "Set-Cookie")
			}
			digestOrigin(w, req)
		}),
	})
	c := r.client()
	p := c.pair()
	a := c.post(p.get("ok/x", "x-app-two", "inner", "x-domain", "mine", "x-forwarded-for", "6.6.6.6"),
		"X-App-One: 1", "X-App-Two: outer", "X-Trace: t", "X-Other: o", "Cookie: c=1", "Origin: https://app.example", "X-MTE-Relay-Route: 00000000000000000000000000000000")
	e := p.read(a)
	for name, want := range map[string]string{"X-App-One": "1", "X-App-Two": "inner", "X-Trace": "t", "X-Other": "", "Cookie": "c=1", "X-Domain": "d", "X-Forwarded-For": "127.0.0.1"} {
		if v := strings.Join(got.Values(name), "|"); v != want {
			t.Errorf("%s at the origin: %q, want %q", name, v, want)
		}
	}
	if v := e.header[plainForwarded]; v != "x-app-one, x-trace, cookie" {
		t.Errorf("%s: %v", plainForwarded, v)
	}
	if v := a.header.Values("Set-Cookie"); len(v) != 2 || e.header["set-cookie"] != nil {
		t.Errorf("Set-Cookie %v, inside %v", v, e.header["set-cookie"])
	}
	if a.header.Get("X-Domain") != "d" || a.header.Get("Access-Control-Allow-Origin") != "https://app.example" || a.header.Get(frame.RouteHeader) == strings.Repeat("0", 32) {
		t.Errorf("answer %v", a.header)
	}
	a = c.post(p.get("ok/x"), "Cookie: c=1", "X-MTE-Relay-Client: test")
	if e = p.read(a); got.Get("Cookie") != "" || a.header.Get("Set-Cookie") != "" || e.header["set-cookie"] == nil {
		t.Errorf("with %s: cookie %q", clientHeader, got.Get("Cookie"))
	}
	// What Connection lists stays on its hop, cookies too.
	a = c.post(p.get("ok/listed"), "Cookie: c=1", "Connection: Cookie")
	if e = p.read(a); got.Get("Cookie") != "" || e.header[plainForwarded] != nil || a.header.Get("Set-Cookie") != "" || e.header["set-cookie"] != nil {
		t.Errorf("listed by Connection: cookie %q, Set-Cookie %q, inside %v", got.Get("Cookie"), a.header.Get("Set-Cookie"), e.header)
	}
	p.use(open.MTE)
	if e = p.read(c.post(append(p.post("other"), p.body(make([]byte, 3000), 1000)...))); e.status != 404 || !e.onHead {
		t.Errorf("outside of mte_routes: %+v", e)
	}
}

// TestPlainSideLookalikes: what some servers would read as a forwarded address or as
// the framing reaches the origin neither in a frame nor from the hop.
func TestPlainSideLookalikes(t *testing.T) {
	var got http.Header
	r := startRelay(t, relayOptions{
		domain: `"forward_plain_headers":["*"]`,
		origin: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			got = req.Header.Clone()
			digestOrigin(w, req)
		}),
	})
	c := r.client()
	p := c.pair()
	f := func(carry func(name string) reply) {
		t.Helper()
		for _, name := range []string{"x_forwarded_for", "x-forwarded_proto", "x_forwarded-port", "content_length", "transfer_encoding"} {
			p.read(carry(name))
			for at, values := range got {
				if strings.EqualFold(at, name) {
					t.Errorf("%s at the origin: %q", at, values)
				}
			}
			if got.Get("X-Kept") != "k" || got.Get("X-Forwarded-For") != "127.0.0.1" {
				t.Errorf("with %s the origin got %v", name, got)
			}
		}
	}
	f(func(name string) reply { return c.post(p.get("x", name, "9", "x-kept", "k")) })
	f(func(name string) reply { return c.post(p.get("x"), name+": 9", "X-Kept: k") })
}
