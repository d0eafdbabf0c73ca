package gateway_test

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	wire "sluice/codec/frame"
	"sluice/codec/open"
)

// wholeAnswer is an HTTP answer but for its date.
func wholeAnswer(res *http.Response) (string, error) {
	res.Header.Del("Date")
	body, err := io.ReadAll(res.Body)
	var b bytes.Buffer
	fmt.Fprintln(&b, res.StatusCode)
	res.Header.Write(&b)
	return b.String() + string(body), err
}

// raw sends frames and returns the whole answer.
func (c *mteClient) raw(frames []byte) (string, error) {
	conn, err := c.n.dial()
	if err != nil {
		return "", err
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(patience))
	if _, err := conn.Write(append(c.frameHead(len(frames)), frames...)); err != nil {
		return "", err
	}
	res, err := http.ReadResponse(conn.r, &http.Request{Method: "POST"})
	if err != nil {
		return "", err
	}
	return wholeAnswer(res)
}

// A token that nobody issued, one of another domain, and one that was changed are
// told the same, byte for byte, on the data path and at the control endpoints: an
// attacker learns nothing by trying. All name the same client, for the route
// header repeats its id.
func TestForeignTokens(t *testing.T) {
	origin := startTestOrigin(t, &moodyOrigin{t: t})
	n := startMTE(t, domainMap("localhost", origin, "other.example", origin))
	c := newMTEClient(t, n, "localhost")
	p, err := c.pair()
	if err != nil {
		t.Fatal(err)
	}
	id, now := c.token.Client(), time.Now().Unix()
	var changed [3]wire.Token
	for i, at := range []int{20, 24, 39} { // its time, the first and the last byte of its MAC
		changed[i] = c.token
		changed[i][at] ^= 1
	}
	forged := []wire.Token{
		wire.NewTokenKey([]byte("a secret that was made up")).Issue(id, now),
		wire.NewTokenKey([]byte(mteSecret("other.example"))).Issue(id, now),
		changed[0], changed[1], changed[2],
	}
	requests := map[string]func() (string, error){
		"data path": func() (string, error) { return c.raw(p.request("GET", "m/sink?seed=1&up=0&down=0", false)) },
		"pairing": func() (string, error) {
			o, _, _ := c.offer()
			return c.rawControl(wire.PairPath, wire.AppendPairRequest(nil, &c.token, c.about.KyberStrength, []wire.PairOffer{o}))
		},
		"keepalive": func() (string, error) {
			return c.rawControl(wire.KeepalivePath, wire.AppendKeepalive(nil, &c.token, []wire.PairID{p.id}))
		},
	}
	own := c.token
	for name, send := range requests {
		var first string
		for i, token := range forged {
			c.token = token
			got, err := send()
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if i == 0 {
				first = got
				if !bytes.HasPrefix([]byte(got), []byte("475\n")) || !bytes.Contains([]byte(got), []byte("475 invalid_token")) {
					t.Errorf("%s: %q", name, got)
				}
			}
			if got != first {
				t.Errorf("%s: token %d is told %q, the first %q", name, i, got, first)
			}
		}
	}
	c.token = own
	if _, err := p.get("m/sink?seed=1&up=0&down=0"); err != nil {
		t.Errorf("the pair, after all that: %v", err)
	}
}

func (c *mteClient) rawControl(path string, body []byte) (string, error) {
	r, _ := http.NewRequest("POST", "http://"+c.n.addr+path, bytes.NewReader(body))
	r.Host = c.host
	res, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}).Do(r)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	return wholeAnswer(res)
}

// Clients and pairs belong to one domain, even where two have the same secret.
func TestDomainsShareNothing(t *testing.T) {
	origin := startTestOrigin(t, &moodyOrigin{t: t})
	same := fmt.Sprintf(`{"upstream":%q,"client_id_secret":"one secret for two domains, long enough"}`, origin)
	n := startMTE(t, fmt.Sprintf(`DOMAIN_MAP={"localhost":%s,"other.example":%s}`, same, same))
	c := newMTEClient(t, n, "localhost")
	p, err := c.pair()
	if err != nil {
		t.Fatal(err)
	}
	b := p.request("GET", "m/sink?seed=1&up=0&down=0", false)
	c.host = "other.example"
	if _, err := p.send(b); !refusedFor(err, wire.InvalidClientID) {
		t.Errorf("at the other domain: %v", orNothing(err))
	}
	c.host = "localhost"
	if _, err := p.send(b); err != nil {
		t.Errorf("at its own: %v", err)
	}
}

// Nothing that opens anything stands in a log line: the log of a busy day, down to
// debug, is searched for all that was secret in it.
func TestSecretsStayOutOfTheLog(t *testing.T) {
	origin := startTestOrigin(t, &moodyOrigin{t: t})
	n := startMTE(t, domainMap("localhost", origin, "other.example", origin, "dead.example", "http://127.0.0.1:1"), "RATE_LIMITS=true")
	secrets := map[string][]byte{}
	for _, host := range []string{"localhost", "other.example", "dead.example"} {
		secrets["client_id_secret of "+host] = []byte(mteSecret(host))
	}
	const path = "m/sink?seed=1&up=0&down=9&password=hunter2"
	secrets["query"] = []byte("hunter2")
	note := func(what string, b []byte) { secrets[what] = b }
	noteID := func(what string, b []byte) {
		note(what+", raw", b)
		note(what+", hex", []byte(hex.EncodeToString(b)))
		note(what+", base64url", base64.RawURLEncoding.AppendEncode(nil, b))
		note(what+", base64", base64.RawStdEncoding.AppendEncode(nil, b))
	}
	for _, host := range []string{"localhost", "dead.example"} {
		c := newMTEClient(t, n, host)
		noteID("token at "+host, c.token[:])
		p, err := c.pair()
		if err != nil {
			t.Fatal(err)
		}
		noteID("pair at "+host, p.id[:])
		state := p.enc.AppendState(nil)
		noteID("root key at "+host, state[1:33])

		// A request that is answered or fails at its origin, then what is refused
		// and logged: a replay, a mismatch, another profile, wrong bytes.
		b := p.request("GET", path, false)
		p.send(b)
		p.send(b)
		mismatch := p.request("GET", path, true)
		mismatch = p.appendData(mismatch, []byte("the body of a request"), wire.FlagEnd)
		mismatch[len(mismatch)-p.c.profile.EncodedBytes(open.MKE, len("the body of a request")+1)-wire.EnvelopeBytes+5] = 0
		p.send(mismatch)
		note("body", []byte("the body of a request"))
		forged := *p
		forged.c = &mteClient{n: n, host: host, token: wire.NewTokenKey([]byte("made up")).Issue(c.token.Client(), time.Now().Unix()), about: c.about, profile: c.profile}
		noteID("forged token at "+host, forged.c.token[:])
		forged.send(forged.request("GET", path, false))
		o, _, _ := c.offer()
		note("personalization at "+host, o.EncoderPerson)
		noteID("key at "+host, o.EncoderKey)
		o.Profile = bytes.Replace(o.Profile, []byte("probe="), []byte("probe=0"), 1)[:len(o.Profile)]
		c.postControl(wire.PairPath, wire.AppendPairRequest(nil, &c.token, c.about.KyberStrength, []wire.PairOffer{o}))
		c.postControl(wire.PairPath, []byte(`{"clientId":"`+string(c.token.AppendText(nil))+`"`))
		httpDo(t, n.addr, "GET", "/plain/../x?password=hunter2", "Host:"+host, "Cookie:session=hunter2")
		httpDo(t, n.addr, "GET", "/plain/m/sink?seed=1&up=0&down=1&password=hunter2", "Host:"+host, "Authorization:hunter2")
		for range 70 { // over the rate limit of a client
			c.postControl(wire.PairPath, wire.AppendPairRequest(nil, &c.token, c.about.KyberStrength, []wire.PairOffer{o}))
		}
	}
	// The lines that a day like that must have written are there.
	for _, reason := range []string{"replay_rejected", "header_mismatch", "rate limited", "upstream_connect_failed"} {
		if !poll(func() bool { return len(n.log.with(reason)) > 0 }) {
			t.Errorf("no line about %s: what was searched is not the whole log", reason)
		}
	}
	for what, s := range secrets {
		for _, line := range n.log.with(string(s)) {
			t.Errorf("%s stands in the log: %s", what, line)
		}
	}
}
