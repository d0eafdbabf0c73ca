package mte

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"sluice/codec/frame"
	"sluice/gateway/edge"
	"sluice/loop"
)

// TestPairRefusalOrder: of several faults the contract's first is told (mte-relay
// §4). A call with all of them is mended one by one.
func TestPairRefusalOrder(t *testing.T) {
	r := startRelay(t, relayOptions{}, "RATE_LIMITS=true", "MAX_CONTROL_BODY_MIB=1", "MAX_PAIRS_PER_CLIENT=2")
	c := r.client()
	made := c.pair()
	offers, _ := c.offer(3) // more than the client may have
	offers[0].ID = made.id
	offers[1].EncoderPerson = []byte("nothing")
	offers[1].Profile = []byte("mte/other")
	offers[1].FrameVersion = 0
	id := offers[2].ID
	offers[2].ID = offers[1].ID
	token := c.token
	token[39] ^= 1
	pad := strings.Repeat(" ", 1<<20)
	call := func() reply {
		t.Helper()
		text := frame.AppendPairRequest(nil, &token, c.about.KyberStrength, offers)
		return c.call("POST", frame.PairPath, pad+strings.ReplaceAll(string(text), `"frameVersion":2`, fmt.Sprintf(`"frameVersion":%d`, offers[1].FrameVersion)))
	}
	want := func(reason frame.Reason, text string) {
		t.Helper()
		if e := call().wantRefusal(t, reason, frame.NoReason); !strings.Contains(e.Message, text) {
			t.Errorf("%s: message %q", reason, e.Message)
		}
	}
	want(frame.BodyTooLarge, "MAX_CONTROL_BODY_MIB")
	pad = ""
	want(frame.InvalidRequest, "encoderPersonalizationStr")
	offers[1].EncoderPerson = offers[0].EncoderPerson
	want(frame.InvalidToken, "")
	token = c.token
	want(frame.FrameVersionUnsupported, "frameVersion")
	offers[1].FrameVersion = frame.Version
	want(frame.ProfileMismatch, "mteProfile")
	offers[1].Profile = offers[0].Profile
	want(frame.PairExists, "") // twice in the batch
	offers[2].ID = id
	want(frame.PairExists, "") // and held already
	offers[0].ID = frame.NewPairID()
	want(frame.PairLimit, "MAX_PAIRS_PER_CLIENT")
	made.want(inStep)
	// The bucket of the client stands between token and frame version; refused calls
	// have spent it as well.
	offers[1].FrameVersion = 1
	limited := func(most int, spend func()) { // the buckets are refilled meanwhile
		t.Helper()
		for range most {
			if a := call(); a.status == 488 {
				if e := a.wantRefusal(t, frame.RateLimited, frame.NoReason); e.Message != messageRate {
					t.Errorf("message %q", e.Message)
				}
				return
			}
			spend()
		}
		t.Fatal("the bucket does not end")
	}
	limited(200, func() {})
	offers[1].EncoderPerson = nil
	want(frame.InvalidRequest, "encoderPersonalizationStr")
	// That of the source stands in front of everything.
	pad = strings.Repeat(" ", 1<<20)
	limited(5000, func() { c.call("POST", frame.PairPath, "{") }) // spends as much and comes quicker
	if n := r.role.pairs.Count(); n != 1 {
		t.Errorf("%d pairs are held", n)
	}
}

// TestPairRateBeforeBody: the bucket of the source is asked before the body is
// read, and a refusal does not wait for it. A body that has come already leaves
// the connection.
func TestPairRateBeforeBody(t *testing.T) {
	r := startRelay(t, relayOptions{}, "RATE_LIMITS=true")
	r.role.rates.pair = edge.NewRateLimit[netip.Addr](1)
	for _, l := range r.loops { // they are to see that
		seen := make(chan bool)
		l.Post(loop.Func(func(*loop.Loop) { close(seen) }))
		<-seen
	}
	c := r.client()
	c.call("POST", frame.PairPath, "{").wantRefusal(t, frame.InvalidRequest, frame.NoReason)
	f := func(came bool, head, body string) {
		t.Helper()
		conn := c.dial()
		if came {
			head, body = head+body, ""
		}
		io.WriteString(conn, head)
		conn.SetReadDeadline(time.Now().Add(10 * time.Second))
		res, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatalf("no answer: %v", err)
		}
		io.WriteString(conn, body)
		text, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		reply{status: res.StatusCode, header: res.Header, body: text}.wantRefusal(t, frame.RateLimited, frame.NoReason)
		if res.Close == came {
			t.Errorf("Connection: close is %v; the body had come: %v", res.Close, came)
		}
	}
	f(true, c.head("POST", frame.PairPath, "Content-Length: 1"), "{")
	f(false, c.head("POST", frame.PairPath, "Content-Length: 5000"), strings.Repeat(" ", 5000))
	f(false, c.head("POST", frame.PairPath, "Transfer-Encoding: chunked"), "1\r\n{\r\n0\r\n\r\n")
}

// TestRateLimitsOfEndpoints: each endpoint has its bucket, whose size is what goes
// through at once; while it is refilled a few more do.
func TestRateLimitsOfEndpoints(t *testing.T) {
	r := startRelay(t, relayOptions{domain: `"cors_origins":["https://app.example"]`}, "RATE_LIMITS=true")
	c := r.client() // spends one of auth's
	f := func(name string, size int, call func(i int) reply, ok int) {
		t.Helper()
		for i := range size + 5000 {
			switch a := call(i); {
			case a.status == 488 && i >= size:
				return
			case a.status != ok:
				t.Fatalf("%s, call %d: %d", name, i, a.status)
			}
		}
		t.Fatalf("%s: no end", name)
	}
	alive := string(frame.AppendKeepalive(nil, &c.token, nil))
	token, route := string(c.token.AppendText(nil)), string(c.token.Client().AppendRoute(nil))
	f("keepalive", keepalivePerMinute, func(int) reply { return c.call("POST", frame.KeepalivePath, alive) }, 200)
	c.call("POST", frame.KeepalivePath, "{").wantRefusal(t, frame.InvalidRequest, frame.NoReason) // stands in front
	preflight := func() reply {
		return c.send(c.head("OPTIONS", frame.AuthPath, "Origin: https://app.example", "Access-Control-Request-Method: GET"))
	}
	f("auth", authPerMinute-1, func(i int) reply {
		if p := preflight(); p.status/100 != 2 || p.header.Get("Access-Control-Allow-Origin") != "https://app.example" {
			t.Fatalf("preflight: %d %v", p.status, p.header)
		}
		a := c.call([]string{"GET", "HEAD"}[i%2], frame.AuthPath+"?frameVersions=2&clientId="+token, "")
		if got := a.header.Get(frame.RouteHeader); got != route {
			t.Fatalf("a %d has the route %q, want that of the token, %q", a.status, got, route)
		}
		return a
	}, 200)
	if a := preflight(); a.status/100 != 2 {
		t.Errorf("a preflight with an empty bucket: %d", a.status)
	}
	f("pairing", pairPerMinute, func(int) reply { return c.call("POST", frame.PairPath, "{") }, 490)
	if log := r.log.String(); !strings.Contains(log, "rate limited") || !strings.Contains(log, "peer=127.0.0.1:") {
		t.Errorf("no warning: %s", log)
	}
}

// TestKeepaliveRefusals: what is refused, in the contract's order, and what drop does.
func TestKeepaliveRefusals(t *testing.T) {
	began, release := make(chan bool, 1), make(chan bool)
	r := startRelay(t, relayOptions{origin: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path == "/hold" {
			began <- true
			<-release
		}
		digestOrigin(w, req)
	})}, "MAX_CONTROL_BODY_MIB=1", "MAX_PAIRS_PER_CLIENT=3")
	c := r.client()
	pairs := c.pairs(3)
	token := string(c.token.AppendText(nil))
	id := pairs[0].id.String()
	f := func(body string, reason frame.Reason, text string) {
		t.Helper()
		if e := c.call("POST", frame.KeepalivePath, body).wantRefusal(t, reason, frame.NoReason); !strings.Contains(e.Message, text) {
			t.Errorf("%s: message %q", body, e.Message)
		}
	}
	forged := c.token
	forged[39] ^= 1
	f(strings.Repeat(" ", 1<<20)+"{", frame.BodyTooLarge, "MAX_CONTROL_BODY_MIB")
	for _, drop := range []string{`["x"]`, `["AAAAAAAAAAAAAAAAAAAAAA"]`, `[1]`, `"` + id + `"`, `["` + id + `","` + id + `","` + id + `","` + id + `"]`} {
		f(`{"clientId":"`+token+`","drop":`+drop+`}`, frame.InvalidRequest, "drop")
		f(`{"clientId":"x","drop":`+drop+`}`, frame.InvalidRequest, "drop")
	}
	f(`{"drop":[]}`, frame.InvalidRequest, "clientId")
	f(`{"clientId":"`+string(forged.AppendText(nil))+`"}`, frame.InvalidToken, "")
	touched := func(want int, drop ...frame.PairID) {
		t.Helper()
		a := c.call("POST", frame.KeepalivePath, string(frame.AppendKeepalive(nil, &c.token, drop)))
		if n, err := frame.ParseTouched(a.body); err != nil || n != want {
			t.Errorf("%d %s, want %d touched", a.status, a.body, want)
		}
	}
	touched(3)
	touched(2, pairs[0].id)
	answer := make(chan reply)
	go func(b []byte) { answer <- c.post(b) }(pairs[1].get("hold"))
	<-began
	touched(1, pairs[1].id)
	release <- true
	if e := pairs[1].read(<-answer); e.status != 200 {
		t.Errorf("a request on a pair that was dropped meanwhile: %d", e.status)
	}
	pairs[1].want(gone)
	pairs[2].want(inStep)
}

// TestPlainAnswers: refusals that are ordinary HTTP have a JSON body and no ERROR.
func TestPlainAnswers(t *testing.T) {
	r := startRelay(t, relayOptions{domain: `"pass_through_routes":["/plain/*"]`})
	c := r.client()
	f := func(method, target string, reason frame.Reason) {
		t.Helper()
		a := c.send(c.head(method, target))
		var got struct {
			Code            int
			Message, Reason string
		}
		if err := json.Unmarshal(a.body, &got); err != nil || a.status != reason.Code() || got.Code != reason.Code() || got.Reason != reason.String() || got.Message == "" {
			t.Errorf("%s %s: %d %q", method, target, a.status, a.body)
		}
		if ct, e := a.header.Get("Content-Type"), a.header.Get(frame.ErrorHeader); ct != typeJSON || e != "" {
			t.Errorf("%s %s: content type %q, %s %q", method, target, ct, frame.ErrorHeader, e)
		}
	}
	f("GET", "/", frame.NotFound)
	f("POST", "/", frame.NotFound) // without the content type of frames
	f("GET", "/elsewhere", frame.NotFound)
	f("GET", "/api/mte-nothing", frame.NotFound)
	f("GET", "/plain/%2e%2E/x", frame.BadRequest)
	f("TRACE", "/plain/x", frame.MethodNotAllowed)
	f("PUT", frame.AuthPath, frame.MethodNotAllowed)
	f("GET", frame.KeepalivePath, frame.MethodNotAllowed)
}
