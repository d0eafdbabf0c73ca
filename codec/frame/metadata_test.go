package frame

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

func canonical(t testing.TB, text string) (string, error) {
	t.Helper()
	var m Metadata
	if err := m.Parse([]byte(text)); err != nil {
		return "", err
	}
	return string(m.AppendCanonical(nil)), nil
}

func TestMetadataVectors(t *testing.T) {
	type row struct{ Name, Input, Canonical, Error string }
	for _, row := range rows[row](t, "metadata", "cases") {
		got, err := canonical(t, row.Input)
		if vectorName(err) != row.Error || got != row.Canonical {
			t.Errorf("%s: %s (%v), want %s %s", row.Name, got, err, row.Canonical, row.Error)
			continue
		}
		if err == nil {
			if again, err := canonical(t, got); err != nil || again != got {
				t.Errorf("%s: again %s (%v)", row.Name, again, err)
			}
		}
	}
}

func TestMetadataSuccess(t *testing.T) {
	f := func(name, in, want string) {
		t.Helper()
		got, err := canonical(t, in)
		if err != nil || got != want {
			t.Errorf("%s: %s (%v), want %s", name, got, err, want)
		}
	}
	f("the least", `{"v":2}`, `{"v":2}`)
	f("white space everywhere", " {\t\"v\" :\r2 ,\n\"headers\" : { \"a\" : [ \"1\" , \"2\" ] } } ", `{"headers":{"a":["1","2"]},"v":2}`)
	f("headers null", `{"headers":null,"v":2}`, `{"v":2}`)
	f("an array of one stays one", `{"headers":{"a":["1"]},"v":2}`, `{"headers":{"a":["1"]},"v":2}`)
	f("an empty value", `{"headers":{"a":""},"v":2}`, `{"headers":{"a":""},"v":2}`)
	f("an empty path", `{"path":"","v":2}`, `{"path":"","v":2}`)
	f("a leading slash is not written", `{"path":"/a","v":2}`, `{"path":"a","v":2}`)
	f("the root with its slash", `{"path":"/","v":2}`, `{"path":"","v":2}`)
	f("all members", `{"v":2,"target":"t","status":599,"port":65535,"path":"p","method":"M","id":18446744073709551615,"headers":{"a":"b"}}`,
		`{"headers":{"a":"b"},"id":18446744073709551615,"method":"M","path":"p","port":65535,"status":599,"target":"t","v":2}`)
	f("id 0", `{"id":0,"v":2}`, `{"id":0,"v":2}`)
	f("short escapes", `{"target":"\u0022\u005c\u0008\u000c\u000a\u000d\u0009\u002f","v":2}`, `{"target":"\"\\\b\f\n\r\t/","v":2}`)
	f("long escapes in lower case", `{"target":"\u0000\u001F\u007f\u2028","v":2}`, "{\"target\":\"\\u0000\\u001f\x7f\u2028\",\"v\":2}")
	f("a surrogate pair", `{"target":"\ud83d\ude00","v":2}`, `{"target":"😀","v":2}`)
	f("numbers keep their text", `{"v":2,"x-a-b":[1.0,1E5,-0,0.10e-7,123456789012345678901234567890]}`, `{"v":2,"x-a-b":[1.0,1E5,-0,0.10e-7,123456789012345678901234567890]}`)
	f("keys sort by UTF-8 bytes, not UTF-16", `{"v":2,"x-a-b":{"\ud83d\ude00":1,"\uff5e":2}}`, "{\"v\":2,\"x-a-b\":{\"\uff5e\":2,\"😀\":1}}")
	f("a prefix sorts first", `{"v":2,"x-a-b":{"ab":1,"a":2,"":3}}`, `{"v":2,"x-a-b":{"":3,"a":2,"ab":1}}`)
	f("vendor members sort", `{"x-b-c":1,"v":2,"x-a-c":2}`, `{"v":2,"x-a-c":2,"x-b-c":1}`)
	f("what only looks like a vendor's", `{"x-":1,"x--a":1,"x-a":1,"x-A-b":1,"X-a-b":1,"v":2}`, `{"v":2}`)
	f("the same key in different objects", `{"v":2,"x-a-b":{"v":{"v":1}}}`, `{"v":2,"x-a-b":{"v":{"v":1}}}`)
	f("all hop-by-hop names", `{"headers":{"connection":"close","keep-alive":"1","proxy-connection":"1","proxy-authenticate":"1","proxy-authorization":"1","te":"1","trailer":"1","transfer-encoding":"1","upgrade":"1","content-length":"1","host":"1","content-type":"x"},"v":2}`, `{"headers":{"content-type":"x"},"v":2}`)
	f("what Connection lists", `{"headers":{"x-a":"1","connection":" close ,X-A,,\tx-b","x-b":["1","2"],"x-c":"3"},"v":2}`, `{"headers":{"x-c":"3"},"v":2}`)
	f("several Connection values", `{"headers":{"connection":["x-a","X-b"],"x-a":"1","x-b":"2"},"v":2}`, `{"v":2}`)
	f("a header beyond ASCII", `{"headers":{"a":"é"},"v":2}`, `{"headers":{"a":"é"},"v":2}`)
}

func TestMetadataFailure(t *testing.T) {
	f := func(name, in string, want Fault) {
		t.Helper()
		if got, err := canonical(t, in); err != want {
			t.Errorf("%s: %s, %v, want %v", name, got, err, want)
		}
		if want.Reason() != MetadataInvalid {
			t.Errorf("%s: reason %v", name, want.Reason())
		}
	}
	f("nothing", ``, BadJSON)
	f("blank", ` `, BadJSON)
	f("no object", `[]`, BadJSON)
	f("a byte order mark", "\ufeff{\"v\":2}", BadJSON)
	f("two values", `{"v":2}{"v":2}`, BadJSON)
	f("a comma at the end", `{"v":2,}`, BadJSON)
	f("a comma at the start", `{,"v":2}`, BadJSON)
	f("two commas", `{"v":2,,"id":1}`, BadJSON)
	f("no comma", `{"v":2"id":1}`, BadJSON)
	f("no colon", `{"v"2}`, BadJSON)
	f("a comment", `{"v":2/**/}`, BadJSON)
	f("a bare key", `{v:2}`, BadJSON)
	f("single quotes", `{'v':2}`, BadJSON)
	f("an array that is not closed", `{"v":2,"a":[1}`, BadJSON)
	f("a comma at the end of an array", `{"v":2,"a":[1,]}`, BadJSON)
	f("a comma at the start of an array", `{"v":2,"a":[,1]}`, BadJSON)
	f("a leading zero", `{"v":2,"a":01}`, BadJSON)
	f("a plus", `{"v":2,"a":+1}`, BadJSON)
	f("a dot without digits", `{"v":2,"a":1.}`, BadJSON)
	f("a dot in front", `{"v":2,"a":.5}`, BadJSON)
	f("an exponent without digits", `{"v":2,"a":1e}`, BadJSON)
	f("a minus alone", `{"v":2,"a":-}`, BadJSON)
	f("NaN", `{"v":2,"a":NaN}`, BadJSON)
	f("a wrong literal", `{"v":2,"a":nul}`, BadJSON)
	f("a tab in a string", "{\"v\":2,\"a\":\"\t\"}", BadJSON)
	f("an unknown escape", `{"v":2,"a":"\x41"}`, BadJSON)
	f("a short escape", `{"v":2,"a":"\u12"}`, BadJSON)
	f("a NUL byte", "{\"v\":2}\x00", BadJSON)
	f("invalid UTF-8", "{\"v\":2,\"a\":\"\xff\"}", BadJSON)
	f("a surrogate in UTF-8", "{\"v\":2,\"a\":\"\xed\xa0\x80\"}", BadJSON)
	f("an overlong character", "{\"v\":2,\"a\":\"\xc0\x80\"}", BadJSON)
	f("invalid UTF-8 after an escape", "{\"v\":2,\"a\":\"\\n\xff\"}", BadJSON)
	f("a lone high surrogate", `{"v":2,"a":"\ud800"}`, BadJSON)
	f("a high surrogate before a letter", `{"v":2,"a":"\ud800x"}`, BadJSON)
	f("a high surrogate before another escape", `{"v":2,"a":"\ud800\n12345"}`, BadJSON)
	f("two high surrogates", `{"v":2,"a":"\ud800\ud800"}`, BadJSON)
	f("a lone low surrogate", `{"v":2,"\udfff":1}`, BadJSON)
	f("too deep", `{"v":2,"a":`+strings.Repeat("[", maxDepth)+strings.Repeat("]", maxDepth)+`}`, BadJSON)
	f("a key twice", `{"v":2,"v":2}`, DuplicateKey)
	f("a key twice by escapes", `{"v":2,"\u0076":2}`, DuplicateKey)
	f("a key twice, apart", `{"b":1,"v":2,"a":1,"b":1}`, DuplicateKey)
	f("a key twice, deep in what is dropped", `{"v":2,"a":[{"b":{"c":1,"c":1}}]}`, DuplicateKey)
	f("a header twice", `{"headers":{"a":"1","a":"1"},"v":2}`, DuplicateKey)
	f("a dropped header twice", `{"headers":{"host":"1","host":"1"},"v":2}`, DuplicateKey)
	f("no v", `{}`, BadMetadataVersion)
	for _, v := range []string{"1", "3", "2.0", "2e0", "20e-1", `"2"`, "null", "true", "[2]", "-2", "{}"} {
		f("v "+v, `{"v":`+v+`}`, BadMetadataVersion)
	}
	for _, v := range []string{`""`, `"GE T"`, `"GET\n"`, "null", "1", `"G:"`, `"é"`} {
		f("method "+v, `{"method":`+v+`,"v":2}`, BadMember)
	}
	for _, v := range []string{"99", "600", "200.0", "2e2", `"200"`, "null", "-200", "18446744073709551816"} {
		f("status "+v, `{"status":`+v+`,"v":2}`, BadMember)
	}
	for _, v := range []string{"0", "65536", `"80"`, "null", "-1", "8e1"} {
		f("port "+v, `{"port":`+v+`,"v":2}`, BadMember)
	}
	for _, v := range []string{"-1", "18446744073709551616", "184467440737095516150", `"1"`, "null", "1.0"} {
		f("id "+v, `{"id":`+v+`,"v":2}`, BadMember)
	}
	f("path null", `{"path":null,"v":2}`, BadMember)
	f("path a number", `{"path":1,"v":2}`, BadMember)
	f("path of two slashes", `{"path":"//a","v":2}`, BadPath)
	f("path too long", `{"path":"`+strings.Repeat("a", MaxPathBytes+1)+`","v":2}`, BadPath)
	f("target a number", `{"target":1,"v":2}`, BadMember)
	for _, v := range []string{"[]", `""`, "1", "false"} {
		f("headers "+v, `{"headers":`+v+`,"v":2}`, BadHeader)
	}
	for _, v := range []string{"1", "null", "true", "{}", "[]", "[1]", `["a",null]`, `[["a"]]`, `"a\nb"`, `"a\rb"`, `"a\u0000b"`, `["a","\n"]`} {
		f("header "+v, `{"headers":{"x":`+v+`},"v":2}`, BadHeader)
	}
	for _, name := range []string{"", "x y", "x:y", `x\ny`, "é", "X-Upper", "x(y", `x\"y`} {
		f("header name "+name, `{"headers":{"`+name+`":"a"},"v":2}`, BadHeader)
	}
	f("an illegal value of a dropped header", `{"headers":{"host":"a\nb"},"v":2}`, BadHeader)
}

// No cut of a valid text is valid, and none panics.
func TestMetadataCuts(t *testing.T) {
	text := []byte(`{"headers":{"a":"1","b":["2","\u00e9\t"]},"id":12,"method":"GET","path":"a/b","status":200,"v":2,"x-a-b":{"c":[true,null,-1.5e3]}}`)
	var m Metadata
	if err := m.Parse(text); err != nil {
		t.Fatal(err)
	}
	for i := range text {
		if err := m.Parse(text[:i]); err == nil {
			t.Errorf("cut to %d: accepted", i)
		}
		for _, c := range []byte{0, '"', '\\', '{', '}', ',', 0xff} {
			bad := bytes.Clone(text)
			bad[i] = c
			m.Parse(bad)
		}
	}
}

func TestMetadataChecks(t *testing.T) {
	f := func(name, in string, method byte, want error) {
		t.Helper()
		var m Metadata
		if err := m.Parse([]byte(in)); err != nil {
			t.Fatal(err)
		}
		if got := m.CheckRequest(method); got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	f("agreement", `{"method":"POST","path":"","v":2}`, 1, nil)
	f("another method", `{"method":"PATCH","path":"","v":2}`, 1, MethodMismatch)
	f("the string decides", `{"method":"PROPFIND","path":"","v":2}`, OtherMethod, nil)
	f("the string decides, with a byte of its own", `{"method":"GET","path":"","v":2}`, OtherMethod, nil)
	f("no method", `{"path":"","v":2}`, 1, MissingMember)
	f("no path", `{"method":"POST","v":2}`, 1, MissingMember)
	if MethodMismatch.Reason() != HeaderMismatch {
		t.Error("a mismatch is not 483")
	}
	var m Metadata
	if err := m.Parse([]byte(`{"status":204,"v":2}`)); err != nil || m.CheckResponse(204) != nil || m.CheckResponse(200) == nil {
		t.Errorf("status check: %v", err)
	}
	if err := m.Parse([]byte(`{"v":2}`)); err != nil || m.CheckResponse(200) == nil {
		t.Errorf("status check without a status: %v", err)
	}
}

// A value that is used again holds nothing of what it held before.
func TestMetadataReuse(t *testing.T) {
	var m Metadata
	if err := m.Parse([]byte(`{"headers":{"connection":"x-a","a":"1"},"id":1,"method":"GET","path":"p","port":1,"status":200,"target":"t","v":2,"x-a-b":1}`)); err != nil {
		t.Fatal(err)
	}
	if err := m.Parse([]byte(`{"headers":{"x-a":"1"},"v":2}`)); err != nil {
		t.Fatal(err)
	}
	if got := string(m.AppendCanonical(nil)); got != `{"headers":{"x-a":"1"},"v":2}` {
		t.Errorf("reused: %s", got)
	}
	if err := m.Parse([]byte(`{"method":"GET"}`)); err == nil || m.Method != nil || len(m.Headers()) != 0 {
		t.Errorf("after a refusal: %v, %q", err, m.Method)
	}
}

// Random objects survive the canonical form unchanged, and it is what encoding/json makes of them,
// escapes aside. Canonical text of canonical text is itself.
func TestCanonicalJSONProperty(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	var value func(depth int) any
	value = func(depth int) any {
		switch k := r.IntN(8); {
		case k == 0 && depth > 0:
			m := map[string]any{}
			for range r.IntN(6) {
				m[randomText(r)] = value(depth - 1)
			}
			return m
		case k == 1 && depth > 0:
			a := []any{}
			for range r.IntN(6) {
				a = append(a, value(depth-1))
			}
			return a
		case k == 2:
			return nil
		case k == 3:
			return r.IntN(2) == 0
		case k == 4:
			return json.Number(fmt.Sprint(r.Int64() - 1<<62))
		default:
			return randomText(r)
		}
	}
	for range 2000 {
		v := value(4)
		var in bytes.Buffer
		enc := json.NewEncoder(&in)
		enc.SetEscapeHTML(r.IntN(2) == 0)
		if r.IntN(2) == 0 {
			enc.SetIndent(" ", "\t")
		}
		if err := enc.Encode(v); err != nil {
			t.Fatal(err)
		}
		got, err := AppendCanonicalJSON(nil, in.Bytes())
		if err != nil {
			t.Fatalf("%s: %v", in.Bytes(), err)
		}
		var back any
		dec := json.NewDecoder(bytes.NewReader(got))
		dec.UseNumber()
		if err := dec.Decode(&back); err != nil {
			t.Fatalf("%s: %v", got, err)
		}
		a, _ := json.Marshal(v)
		b, _ := json.Marshal(back)
		if !bytes.Equal(a, b) {
			t.Fatalf("%s became %s", a, b)
		}
		if again, err := AppendCanonicalJSON(nil, got); err != nil || !bytes.Equal(again, got) {
			t.Fatalf("%s became %s (%v)", got, again, err)
		}
	}
}

// randomText is any valid text, often short, often with what has to be escaped.
func randomText(r *rand.Rand) string {
	var s []rune
	for range r.IntN(12) {
		switch r.IntN(5) {
		case 0:
			s = append(s, rune(r.IntN(0x20)))
		case 1:
			s = append(s, []rune(`"\/<&` + "\x7f\u2028é\uff5e😀")[r.IntN(10)])
		case 2:
			if c := rune(r.IntN(0x110000)); c < 0xd800 || c > 0xdfff {
				s = append(s, c)
			}
		default:
			s = append(s, rune('a'+r.IntN(3)))
		}
	}
	return string(s)
}

// The fast scan for plain bytes finds what a slow one finds, at every offset.
func TestPlain(t *testing.T) {
	slow := func(b []byte) int {
		for i, c := range b {
			if c < 0x20 || c >= 0x80 || c == '"' || c == '\\' {
				return i
			}
		}
		return len(b)
	}
	buf := bytes.Repeat([]byte("a"), 40)
	for at := range buf {
		for c := range 256 {
			buf[at] = byte(c)
			for from := range 9 {
				if got, want := plain(buf[from:]), slow(buf[from:]); got != want {
					t.Fatalf("byte %#x at %d of %d: %d, want %d", c, at, from, got, want)
				}
			}
		}
		buf[at] = 'a'
	}
	r := rand.New(rand.NewPCG(4, 4))
	for range 20000 {
		b := make([]byte, r.IntN(40))
		for i := range b {
			b[i] = byte(r.IntN(256))
			if r.IntN(4) > 0 {
				b[i] = " a~\x7f!#[]"[r.IntN(8)]
			}
		}
		if got, want := plain(b), slow(b); got != want {
			t.Fatalf("%x: %d, want %d", b, got, want)
		}
	}
}

func TestMetadataWriter(t *testing.T) {
	var w MetadataWriter
	add := func(fields ...string) {
		t.Helper()
		w.Reset()
		for i := 0; i < len(fields); i += 2 {
			if err := w.Add([]byte(fields[i]), []byte(fields[i+1])); err != nil {
				t.Fatalf("%s: %v", fields[i], err)
			}
		}
	}
	f := func(want string) {
		t.Helper()
		if got := string(w.AppendResponse(nil, 200)); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	add()
	f(`{"status":200,"v":2}`)
	add("B", "2", "a", "1", "Set-Cookie", "x=1", "b", "3", "SET-COOKIE", "y=2")
	f(`{"headers":{"a":"1","b":["2","3"],"set-cookie":["x=1","y=2"]},"status":200,"v":2}`)
	add("Connection", "close, X-Listed", "X-Listed", "1", "Content-Length", "5", "Transfer-Encoding", "chunked", "Host", "h", "X-Kept", "2")
	f(`{"headers":{"x-kept":"2"},"status":200,"v":2}`)
	add("X-Latin", "caf\xe9 \xff\"", "X-Utf", "café", "X-Tab", "a\tb")
	f(`{"headers":{"x-latin":"café ÿ\"","x-tab":"a\tb","x-utf":"café"},"status":200,"v":2}`)
	for _, bad := range [][2]string{{"", "x"}, {"a b", "x"}, {"a:", "x"}, {"é", "x"}, {"a", "x\ny"}, {"a", "x\ry"}, {"a", "x\x00y"}} {
		if err := w.Add([]byte(bad[0]), []byte(bad[1])); err != BadHeader {
			t.Errorf("%q: %q: %v", bad[0], bad[1], err)
		}
	}

	add("Accept", "x")
	got, err := w.AppendRequest([]byte("."), []byte("PROPFIND"), []byte("/a?b"))
	if want := `.{"headers":{"accept":"x"},"method":"PROPFIND","path":"a?b","v":2}`; err != nil || string(got) != want {
		t.Errorf("%s (%v), want %s", got, err, want)
	}
	for _, bad := range []struct {
		method, path string
		want         error
	}{{"", "", BadMember}, {"A B", "", BadMember}, {"GET", "//a", BadPath}, {"GET", "a\nb", BadPath}, {"GET", "\xff", BadPath}} {
		if got, err := w.AppendRequest(nil, []byte(bad.method), []byte(bad.path)); err != bad.want || got != nil {
			t.Errorf("%q %q: %s, %v", bad.method, bad.path, got, err)
		}
	}
}

// What the writer wrote is canonical, and the parser reads the same fields from it.
func TestMetadataWriterRoundTrip(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 5))
	var w MetadataWriter
	var m Metadata
	for range 1000 {
		type field struct{ name, value string }
		var want []field
		w.Reset()
		for range r.IntN(20) {
			name := []string{"Accept", "x-A", "X-b", "set-cookie", "TE", "ETag"}[r.IntN(6)]
			value := strings.Map(func(c rune) rune {
				if c == 0 || c == '\r' || c == '\n' {
					return '.'
				}
				return c
			}, randomText(r))
			if err := w.Add([]byte(name), []byte(value)); err != nil {
				t.Fatal(err)
			}
			if name != "TE" {
				want = append(want, field{strings.ToLower(name), value})
			}
		}
		text := w.AppendResponse(nil, 404)
		if err := m.Parse(text); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if again := m.AppendCanonical(nil); !bytes.Equal(again, text) {
			t.Fatalf("written %s, canonical %s", text, again)
		}
		slices.SortStableFunc(want, func(a, b field) int { return strings.Compare(a.name, b.name) })
		if len(m.Headers()) != len(want) {
			t.Fatalf("%s: %d fields, want %d", text, len(m.Headers()), len(want))
		}
		for i, f := range m.Headers() {
			if string(f.Name) != want[i].name || string(f.Value) != want[i].value {
				t.Fatalf("%s: field %d is %s: %q", text, i, f.Name, f.Value)
			}
		}
	}
}

func TestMetadataAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	var m Metadata
	var w MetadataWriter
	text := []byte(`{"headers":{"accept":"*/*","b":["1","2"],"connection":"X-C","x-c":"\n\u00e9"},"method":"GET","path":"a","v":2,"x-a-b":{"z":1,"a":[{}]}}`)
	text = bytes.Replace(text, []byte(`\n`), []byte(`\t`), 1)
	buf := make([]byte, 0, 1000)
	date, now, connection, closed := []byte("Date"), []byte("now"), []byte("Connection"), []byte("Close")
	if got := testing.AllocsPerRun(100, func() {
		if err := m.Parse(text); err != nil {
			t.Fatal(err)
		}
		w.Reset()
		w.Add(date, now)
		w.Add(connection, closed)
		for _, f := range m.Headers() {
			w.Add(f.Name, f.Value)
		}
		w.AppendResponse(buf, 200)
		if _, err := w.AppendRequest(buf, m.Method, m.Path); err != nil {
			t.Fatal(err)
		}
		AppendTarget(buf, m.Path)
	}); got != 0 {
		t.Errorf("%v allocations", got)
	}
}

func FuzzMetadata(f *testing.F) {
	for _, row := range rows[struct{ Input string }](f, "metadata", "cases") {
		f.Add([]byte(row.Input))
	}
	f.Add([]byte(`{"v":2,"x-a-b":{"z":[1.50,{"\ud83d\ude00":null}],"a":"\u0000"}}`))
	var m, again Metadata
	f.Fuzz(func(t *testing.T, text []byte) {
		if err := m.Parse(text); err != nil {
			return
		}
		if !json.Valid(text) {
			t.Fatalf("%q is no JSON", text)
		}
		first := m.AppendCanonical(nil)
		if err := again.Parse(first); err != nil {
			t.Fatalf("%q became %q: %v", text, first, err)
		}
		if second := again.AppendCanonical(nil); !bytes.Equal(first, second) {
			t.Fatalf("%q became %q, then %q", text, first, second)
		}
		if m.Path != nil {
			if target, err := AppendTarget(nil, m.Path); err == nil {
				checkTarget(t, target)
			}
		}
	})
}

func FuzzJSON(f *testing.F) {
	f.Add([]byte(`{"a":[1,2.5e-3,"\u00e9",{"b":null}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		got, err := AppendCanonicalJSON(nil, text)
		if err != nil {
			return
		}
		if !json.Valid(text) || !json.Valid(got) {
			t.Fatalf("%q became %q", text, got)
		}
		if again, err := AppendCanonicalJSON(nil, got); err != nil || !bytes.Equal(again, got) {
			t.Fatalf("%q became %q, then %q (%v)", text, got, again, err)
		}
	})
}
