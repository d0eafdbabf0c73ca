package frame

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func testDiscovery() Discovery {
	return Discovery{
		BuildVersion: "sluice/1", Features: []string{"http", "keepalive"}, Profile: "mte/open-1;kyber=1024;probe=00",
		ConfigVersion: 1, KyberStrength: 1024, MaxFrameBytes: 65536, MaxMetadataMKE: 61439, MaxMetadataMTE: 7168,
		MaxPairsPerBatch: 100, MaxPairsPerClient: 2048, MaxPairBytes: 1 << 30, MaxPairSeconds: 86400,
		MaxRequestSeconds: 30, MaxResponseSeconds: 31, DrainSeconds: 5, SessionTimeoutSeconds: 7200,
		TokenMaxAgeSeconds: 86400, StateMode: "memory", MaxRequestBodyBytes: 1 << 20,
		PassThroughRoutes: []string{"/health", "/p/*"}, ForwardPlainHeaders: []string{"x-\"a"}, ForwardBrowserCookies: true,
	}
}

// The discovery object has the contract's members with their types, and no others.
func TestDiscoveryVectors(t *testing.T) {
	var file struct {
		Members  map[string]string
		Required []string
		Never    []string `json:"never_on_an_http_only_relay"`
	}
	readJSON(t, "discovery.json", &file)
	d := testDiscovery()
	text := d.AppendJSON(nil)
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	var got map[string]any
	if err := dec.Decode(&got); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	kind := func(v any) string {
		switch v := v.(type) {
		case json.Number:
			if _, err := v.Int64(); err == nil {
				return "int"
			}
		case string:
			return "string"
		case bool:
			return "bool"
		case []any:
			if _, number := v[0].(json.Number); number {
				return "int[]"
			}
			return "string[]"
		case map[string]any:
			_, mke := v["MKE"].(json.Number)
			_, mte := v["MTE"].(json.Number)
			if mke && mte && len(v) == 2 {
				return "{MKE:int,MTE:int}"
			}
		}
		return fmt.Sprintf("%T", v)
	}
	for name, v := range got {
		if want := file.Members[name]; kind(v) != want || slices.Contains(file.Never, name) {
			t.Errorf("%s is %s, want %q", name, kind(v), want)
		}
	}
	for name := range file.Members {
		if _, ok := got[name]; !ok && !slices.Contains(file.Never, name) {
			t.Errorf("%s is missing", name)
		}
	}
	for _, name := range file.Required {
		if _, ok := got[name]; !ok {
			t.Errorf("%s is missing and required", name)
		}
	}
	d = Discovery{} // empty lists are lists
	if text := d.AppendJSON(nil); !json.Valid(text) || !bytes.Contains(text, []byte(`"passThroughRoutes":[],`)) {
		t.Errorf("%s", text)
	}
}

func TestAuthRoundTrip(t *testing.T) {
	d := testDiscovery()
	token := NewTokenKey([]byte("s")).Issue(ClientID{1}, 5)
	body := AppendAuth(nil, &token, &d)
	gotToken, got, err := ParseAuth(body)
	if err != nil || gotToken != token {
		t.Fatalf("%x, %v", gotToken, err)
	}
	want := d
	want.FrameVersions, want.SequenceWindow = []int{2}, SequenceWindow
	// what a client has no use for is not read
	want.MaxPairBytes, want.MaxPairSeconds, want.DrainSeconds = 0, 0, 0
	want.PassThroughRoutes, want.ForwardPlainHeaders, want.ForwardBrowserCookies = nil, nil, false
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	for i := range body {
		if _, _, err := ParseAuth(body[:i]); err != ErrAnswer {
			t.Fatalf("cut to %d: %v", i, err)
		}
	}
	f := func(from, to string) {
		t.Helper()
		bad := strings.Replace(string(body), from, to, 1)
		if _, _, err := ParseAuth([]byte(bad)); bad == string(body) || err != ErrAnswer {
			t.Errorf("%s: %v", to, err)
		}
	}
	f(`"clientId":"A`, `"clientId":"=`)
	f(`"clientId"`, `"id"`)
	f(`"relay":{`, `"relax":{`)
	f(`"maxFrameBytes":65536`, `"maxFrameBytes":"65536"`)
	f(`"sequenceWindow":-63`, `"sequenceWindow":--63`)
	f(`"frameVersions":[2]`, `"frameVersions":2`)
	f(`"kyberStrength":1024`, `"kyberStrength":1024,"kyberStrength":512`)
}

func TestAuthQuery(t *testing.T) {
	f := func(query, token string, offered ...int) {
		t.Helper()
		q := ParseAuthQuery(query)
		if q.Token != token || !slices.Equal(q.Offered(), offered) {
			t.Errorf("%q: token %q, offered %v", query, q.Token, q.Offered())
		}
	}
	f("", "")
	f("frameVersions=2", "", 2)
	f("frameVersions=1,2,%203", "", 1, 2, 3)
	f("frameVersions=2%2C3&clientId=abc", "abc", 2, 3)
	f("frameVersions=two,2.0,,0x2", "")
	f("clientId=%zz&frameVersions=2", "", 2)
	f("frameversions=2", "")
	if got := VersionMessage([]int{1, 3}); got != "server accepts [2], client offered [1, 3]" {
		t.Errorf("%s", got)
	}
	if got := VersionMessage(nil); got != "server accepts [2], client offered []" {
		t.Errorf("%s", got)
	}
}

func testOffers(n int) (offers []PairOffer) {
	for i := range n {
		offers = append(offers, PairOffer{
			ID: PairID{1, byte(i)}, FrameVersion: 2,
			EncoderKey: bytes.Repeat([]byte{byte(i), 0xff}, 40+i), DecoderKey: bytes.Repeat([]byte{0xfb}, 7),
			EncoderPerson: fmt.Appendf(nil, "mte-relay/2/http/%022d/host\u00e9", i),
			DecoderPerson: fmt.Appendf(nil, "mte-relay/2/http/%022d", i),
			Profile:       []byte("mte/open-1;probe=\"x\""),
		})
	}
	return offers
}

func TestPairRequestRoundTrip(t *testing.T) {
	token := NewTokenKey([]byte("s")).Issue(ClientID{1}, 5)
	var p PairRequest
	for _, n := range []int{1, 3, 100, 2} {
		offers := testOffers(n)
		body := AppendPairRequest(nil, &token, 1024, offers)
		if err := p.Parse(bytes.Clone(body), 100, 1024); err != nil { // it decodes in place
			t.Fatalf("%d pairs: %v", n, err)
		}
		if got, ok := ParseToken(p.Token); !ok || got != token || !reflect.DeepEqual(p.Pairs, offers) {
			t.Errorf("%d pairs: token %s, %+v", n, p.Token, p.Pairs[0])
		}
		if !json.Valid(body) {
			t.Errorf("%s", body)
		}
		if n == 3 {
			for i := range body {
				if err := p.Parse(bytes.Clone(body[:i]), 100, 1024); err == nil {
					t.Fatalf("cut to %d: accepted", i)
				}
			}
		}
	}
}

func TestPairRequestFailure(t *testing.T) {
	var p PairRequest
	text := func(change func(pair map[string]any)) string {
		pair := map[string]any{
			"pairId": "AQAAAAAAAAAAAAAAAAAAAA", "encoderPublicKey": "AAAA", "decoderPublicKey": "AAA=",
			"encoderPersonalizationStr": "mte-relay/2/http/0123456789012345678901",
			"decoderPersonalizationStr": "mte-relay/2/http/0123456789012345678901",
			"mteProfile":                "p", "kyberStrength": 1024, "frameVersion": 2, "future": []any{map[string]any{}},
		}
		change(pair)
		b, err := json.Marshal(map[string]any{"clientId": "t", "pairs": []any{pair}, "future": 1})
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	f := func(name, body, want string) {
		t.Helper()
		err := p.Parse([]byte(body), 2, 1024)
		if _, ok := err.(ControlFault); want != "" && (!ok || !strings.Contains(err.Error(), want)) || want == "" && err != nil {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
	}
	f("nothing wrong", text(func(map[string]any) {}), "")
	for _, name := range []string{"pairId", "encoderPublicKey", "decoderPublicKey", "encoderPersonalizationStr", "decoderPersonalizationStr", "mteProfile", "kyberStrength"} {
		f("no "+name, text(func(p map[string]any) { delete(p, name) }), "pairs[0]: "+name+" is missing")
		for _, v := range []any{nil, true, []any{}, map[string]any{}} {
			f(fmt.Sprintf("%s %v", name, v), text(func(p map[string]any) { p[name] = v }), "pairs[0]: "+name)
		}
	}
	for _, v := range []any{"x", "AAAAAAAAAAAAAAAAAAAAAA", "AQAAAAAAAAAAAAAAAAAAAB", "AQAAAAAAAAAAAAAAAAAAAA=="} {
		f(fmt.Sprintf("pairId %v", v), text(func(p map[string]any) { p["pairId"] = v }), "pairs[0]: pairId")
	}
	for _, v := range []any{"A", "AA", "AAA", "AAB=", "A\nAA", "AA\nAA", "AAAA\n", "----"} {
		f(fmt.Sprintf("key %q", v), text(func(p map[string]any) { p["encoderPublicKey"] = v }), "pairs[0]: encoderPublicKey: not padded base64")
	}
	f("a personalization of another transport", text(func(p map[string]any) { p["decoderPersonalizationStr"] = "mte-relay/2/ws/0123456789012345678901" }), "pairs[0]: decoderPersonalizationStr")
	for _, name := range []string{"encoderPublicKey", "decoderPublicKey", "mteProfile"} { // judged by who knows keys and profiles
		f(name+" empty", text(func(p map[string]any) { p[name] = "" }), "")
	}
	for _, v := range []any{512, 1024.5, "1024", -1024} {
		f(fmt.Sprintf("strength %v", v), text(func(p map[string]any) { p["kyberStrength"] = v }), "kyberStrength must be 1024")
	}
	for _, v := range []any{1, 3, "2", 2.5, nil, true} { // judged later, as 478
		f(fmt.Sprintf("frame version %v", v), text(func(p map[string]any) { p["frameVersion"] = v }), "")
		if p.Pairs[0].FrameVersion == 2 {
			t.Errorf("frame version %v counts as 2", v)
		}
	}
	f("no frame version", text(func(p map[string]any) { delete(p, "frameVersion") }), "")
	for _, body := range []string{"", "{", "[]", "null", "5", `{"clientId":"t","pairs":[{]}`, `{"clientId":"t","pairs":[{}]}x`} {
		f(body, body, "the body is not the JSON object")
	}
	f("a key twice", `{"clientId":"t","clientId":"t","pairs":[]}`, "twice")
	f("a member twice", `{"clientId":"t","pairs":[{"pairId":"a","pairId":"a"}]}`, "twice")
	f("no clientId", `{"pairs":[{}]}`, "clientId is missing")
	f("clientId a number", `{"clientId":5,"pairs":[{}]}`, "clientId must be a string")
	f("clientId null", `{"clientId":null,"pairs":[{}]}`, "clientId must be a string")
	f("no pairs", `{"clientId":"t"}`, "pairs is missing")
	f("pairs null", `{"clientId":"t","pairs":null}`, "pairs must be an array")
	f("no pair", `{"clientId":"t","pairs":[]}`, "pairs is empty")
	f("a pair that is no object", `{"clientId":"t","pairs":[1]}`, "pairs[0]: not an object")
	f("too many", `{"clientId":"t","pairs":[{},{},{}]}`, "maxPairsPerBatch, 2 (MAX_PAIRS_PER_BATCH)")
	if p.Token == nil {
		t.Error("the token before a fault is lost")
	}
	if ControlFault("x").Reason() != InvalidRequest {
		t.Error("a control fault is not 490 invalid_request")
	}
}

func TestPairAnswers(t *testing.T) {
	var want []PairAnswer
	for i := range 5 {
		want = append(want, PairAnswer{
			ID: PairID{2, byte(i)}, EncoderNonce: uint64(i), DecoderNonce: 1<<63 - 1,
			EncoderSecret: bytes.Repeat([]byte{byte(i)}, 10+i), DecoderSecret: []byte{1},
		})
	}
	body := AppendPairAnswers(nil, want)
	got, err := ParsePairAnswers(bytes.Clone(body))
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Fatalf("%+v, %v", got, err)
	}
	var loose []map[string]string // all members are strings
	if err := json.Unmarshal(body, &loose); err != nil || loose[4]["encoderNonce"] != "4" || loose[4]["decoderSecret"] != base64.StdEncoding.EncodeToString([]byte{1}) {
		t.Errorf("%s: %v", body, err)
	}
	for i := range body {
		if _, err := ParsePairAnswers(bytes.Clone(body[:i])); err != ErrAnswer {
			t.Fatalf("cut to %d: %v", i, err)
		}
	}
	f := func(from, to string) {
		t.Helper()
		bad := strings.Replace(string(body), from, to, 1)
		if _, err := ParsePairAnswers([]byte(bad)); bad == string(body) || err != ErrAnswer {
			t.Errorf("%s: %v", to, err)
		}
	}
	f(`"encoderNonce":"0"`, `"encoderNonce":0`)
	f(`"encoderNonce":"0"`, `"encoderNonce":"00"`)
	f(`"encoderNonce":"0"`, `"encoderNonce":""`)
	f(`"encoderNonce":"0"`, `"encoderNonce":"9223372036854775808"`)
	f(`"encoderNonce"`, `"encoderNonces"`)
	f(`"pairId":"Ag`, `"pairId":"A`)
	f(`"decoderSecret":"AQ=="`, `"decoderSecret":"AQ"`)
	if got, err := ParsePairAnswers(AppendPairAnswers(nil, nil)); err != nil || len(got) != 0 {
		t.Errorf("no pairs: %v, %v", got, err)
	}
}

func TestKeepalive(t *testing.T) {
	token := NewTokenKey([]byte("s")).Issue(ClientID{1}, 5)
	var k Keepalive
	for _, drop := range [][]PairID{nil, {{1}}, {{1}, {2}, {3}}} {
		body := AppendKeepalive(nil, &token, drop)
		if err := k.Parse(body, 3); err != nil || !slices.Equal(k.Drop, drop) {
			t.Errorf("%s: %v, %v", body, k.Drop, err)
		}
		if got, ok := ParseToken(k.Token); !ok || got != token {
			t.Errorf("token %s", k.Token)
		}
		for i := range body {
			if err := k.Parse(body[:i], 3); err == nil {
				t.Fatalf("%s cut to %d: accepted", body, i)
			}
		}
	}
	f := func(body, want string) {
		t.Helper()
		err := k.Parse([]byte(body), 3)
		if _, ok := err.(ControlFault); !ok || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", body, err, want)
		}
	}
	for _, body := range []string{"", "{", "[]", "null"} {
		f(body, "not the JSON object")
	}
	f(`{}`, "clientId is missing")
	f(`{"clientId":5}`, "clientId must be a string")
	for _, drop := range []string{`null`, `{}`, `"AQAAAAAAAAAAAAAAAAAAAA"`, `[1]`, `["x"]`, `["AAAAAAAAAAAAAAAAAAAAAA"]`, `[null]`,
		`[` + strings.Repeat(`"AQAAAAAAAAAAAAAAAAAAAA",`, 3) + `"AQAAAAAAAAAAAAAAAAAAAA"]`} {
		f(`{"clientId":"t","drop":`+drop+`}`, "maxPairsPerClient")
	}
	if err := k.Parse([]byte(`{"clientId":"t","drop":[],"future":{"a":[1]}}`), 0); err != nil {
		t.Errorf("unknown members: %v", err)
	}

	if n, err := ParseTouched(AppendTouched(nil, 3)); n != 3 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	for _, body := range []string{"", "{}", `{"touched":"3"}`, `{"touched":-1}`, `{"touched":3}x`} {
		if n, err := ParseTouched([]byte(body)); err != ErrAnswer {
			t.Errorf("%s: %d, %v", body, n, err)
		}
	}
}

func FuzzControl(f *testing.F) {
	token := NewTokenKey([]byte("s")).Issue(ClientID{1}, 5)
	d := testDiscovery()
	f.Add(AppendPairRequest(nil, &token, 1024, testOffers(2)))
	f.Add(AppendPairAnswers(nil, []PairAnswer{{ID: PairID{1}, EncoderSecret: []byte{1, 2}}}))
	f.Add(AppendKeepalive(nil, &token, []PairID{{1}}))
	f.Add(AppendAuth(nil, &token, &d))
	f.Add([]byte(`{"touched":1}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		var p, again PairRequest
		if p.Parse(bytes.Clone(body), 10, 1024) == nil && len(p.Token) == TokenTextBytes {
			if token, ok := ParseToken(p.Token); ok {
				text := AppendPairRequest(nil, &token, 1024, p.Pairs)
				if err := again.Parse(text, 10, 1024); err != nil {
					t.Errorf("%q became %q: %v", body, text, err)
				}
			}
		}
		var k Keepalive
		k.Parse(body, 10)
		ParseTouched(body)
		ParseAuth(body)
		if answers, err := ParsePairAnswers(bytes.Clone(body)); err == nil {
			if back, err := ParsePairAnswers(AppendPairAnswers(nil, answers)); err != nil || len(back) != len(answers) {
				t.Errorf("%q: %v", body, err)
			}
		}
		ParseAuthQuery(string(body))
	})
}

// Parsing and answering a batch costs little beside the 200 encapsulations (10 ms) in between.
func BenchmarkPairBatch(b *testing.B) {
	token := NewTokenKey([]byte("s")).Issue(ClientID{1}, 5)
	offers := testOffers(100)
	answers := make([]PairAnswer, 100)
	for i := range offers {
		offers[i].EncoderKey, offers[i].DecoderKey = make([]byte, 1568), make([]byte, 1568)
		answers[i] = PairAnswer{PairID{1}, 1 << 62, make([]byte, 1568), 1 << 61, make([]byte, 1568)}
	}
	body := AppendPairRequest(nil, &token, 1024, offers)
	b.Run("parse", func(b *testing.B) {
		var p PairRequest
		scratch := make([]byte, len(body))
		b.SetBytes(int64(len(body)))
		b.ReportAllocs()
		for b.Loop() {
			copy(scratch, body)
			if err := p.Parse(scratch, 100, 1024); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("answer", func(b *testing.B) {
		var dst []byte
		b.ReportAllocs()
		for b.Loop() {
			dst = AppendPairAnswers(dst[:0], answers)
		}
		b.SetBytes(int64(len(dst)))
	})
}

func BenchmarkMetadata(b *testing.B) {
	text := []byte(`{"headers":{"accept":"text/html,application/xhtml+xml","accept-language":"en-US,en;q=0.9","cookie":"session=0123456789abcdef0123456789abcdef","user-agent":"Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36"},"method":"POST","path":"api/v1/users?page=2&limit=50","v":2}`)
	var m Metadata
	var w MetadataWriter
	b.Run("parse", func(b *testing.B) {
		b.SetBytes(int64(len(text)))
		b.ReportAllocs()
		for b.Loop() {
			if err := m.Parse(text); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("write", func(b *testing.B) {
		names := [][]byte{[]byte("Server"), []byte("Date"), []byte("Content-Type"), []byte("Content-Length"), []byte("Cache-Control")}
		value := []byte("Mon, 30 Nov 2026 00:00:00 GMT")
		var dst []byte
		b.ReportAllocs()
		for b.Loop() {
			w.Reset()
			for _, name := range names {
				w.Add(name, value)
			}
			dst = w.AppendResponse(dst[:0], 200)
		}
	})
}
