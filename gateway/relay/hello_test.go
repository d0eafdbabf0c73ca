package relay

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"math/big"
	"slices"
	"strings"
	"testing"
)

// publicKey is n as a little-endian key in base64.
func publicKey(n *big.Int) string {
	b := n.FillBytes(make([]byte, publicKeyBytes))
	slices.Reverse(b)
	return base64.StdEncoding.EncodeToString(b)
}

var (
	fieldPrime = new(big.Int).Sub(new(big.Int).Lsh(big.NewInt(1), 255), big.NewInt(19))
	goodKey    = base64.StdEncoding.EncodeToString([]byte("an ordinary public key, 32 byte\x20"))
)

// fieldPrimePlus is a key that many implementations would reduce.
func fieldPrimePlus(d int64) string {
	return publicKey(new(big.Int).Add(fieldPrime, big.NewInt(d)))
}

// helloVerdict feeds s in one piece, byte by byte, and in every pair of pieces if s is short, and fails
// when they do not agree.
func helloVerdict(t *testing.T, s string) (reject, ping bool) {
	t.Helper()
	var sc helloScanner
	sc.Write([]byte(s))
	reject = sc.End()
	ping = sc.json.complete() && sc.kind == messagePing

	sc.Reset()
	opaque := false
	for i := range len(s) {
		sc.Write([]byte{s[i]})
		broken := sc.json.state == jsonBroken
		if opaque && !broken {
			t.Fatalf("%q: no longer opaque at byte %d", s, i)
		}
		opaque = broken
	}
	if sc.End() != reject {
		t.Fatalf("%q: byte by byte it is judged differently", s)
	}
	if opaque && (reject || ping) {
		t.Fatalf("%q: opaque and judged", s)
	}
	if len(s) < 300 {
		for cut := range s {
			sc.Reset()
			sc.Write([]byte(s[:cut]))
			sc.Write([]byte(s[cut:]))
			if sc.End() != reject {
				t.Fatalf("%q: cut at %d it is judged differently", s, cut)
			}
		}
	}
	if isControlPing([]byte(s)) != ping {
		t.Fatalf("%q: isControlPing disagrees with the scanner", s)
	}
	return reject, ping
}

// What a hello scanner refuses, and what it lets pass because it is not a hello or has a good key.
func TestHelloReject(t *testing.T) {
	f := func(s string) {
		t.Helper()
		if reject, _ := helloVerdict(t, s); !reject {
			t.Errorf("%.200q passed", s)
		}
		// a message cut short is broken JSON, wherever it is cut
		end := strings.LastIndexByte(s, '}')
		for cut := range s[:min(end+1, 400)] {
			var sc helloScanner
			sc.Write([]byte(s[:cut]))
			if sc.End() {
				t.Errorf("%q refused although cut short", s[:cut])
			}
		}
	}
	bad := func(key string) { t.Helper(); f(`{"type":"hello","key":` + key + `}`) }

	// no key, and keys that are no strings
	f(`{"type":"hello"}`)
	f(`{"type":"e2ee_hello"}`)
	bad(`null`)
	bad(`true`)
	bad(`0`)
	bad(`{"a":"` + goodKey + `"}`)
	bad(`["` + goodKey + `"]`)
	// texts that are no canonical base64 of 32 bytes
	bad(`""`)
	bad(`"bad"`)
	bad(`"` + goodKey[:43] + `"`)
	bad(`"` + goodKey + `="`)
	bad(`"` + goodKey + ` "`)
	bad(`" ` + goodKey[1:] + `"`)
	bad(`"` + goodKey[:20] + `\n` + goodKey[20:] + `"`)
	bad(`"` + goodKey[:20] + `\n` + goodKey[21:] + `"`)
	bad(`"` + goodKey[:42] + `\r="`)
	bad(`"` + strings.Repeat("A", 42) + `==` + `"`)
	bad(`"` + strings.Repeat("a", 44) + `"`)
	bad(`"` + base64.URLEncoding.EncodeToString(bytes.Repeat([]byte{0xfb, 0xff, 0xbf, 0x3f}, 8)) + `"`)
	bad(`"` + base64.StdEncoding.EncodeToString(make([]byte, 31)) + `"`)
	bad(`"` + base64.StdEncoding.EncodeToString(make([]byte, 33)) + `"`)
	bad(`"` + goodKey[:10] + "é" + goodKey[12:] + `"`)
	bad(`"` + goodKey[:10] + "\xff" + goodKey[11:] + `"`)
	bad(`"` + goodKey[:10] + `\u00e9` + goodKey[11:] + `"`)
	bad(`"` + goodKey[:10] + `\u0141` + goodKey[11:] + `"`)
	// unused bits in the last character
	bad(`"` + goodKey[:42] + string(goodKey[42]+1) + `="`)
	// the top bit, and numbers from the prime up
	bad(`"` + publicKey(new(big.Int).Lsh(big.NewInt(1), 255)) + `"`)
	bad(`"` + publicKey(new(big.Int).Add(new(big.Int).Lsh(big.NewInt(1), 255), big.NewInt(9))) + `"`)
	bad(`"` + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{0xff}, 32)) + `"`)
	for d := range int64(19) {
		bad(`"` + fieldPrimePlus(d) + `"`)
	}
	// low order
	bad(`"` + publicKey(big.NewInt(0)) + `"`)
	bad(`"` + publicKey(big.NewInt(1)) + `"`)
	bad(`"` + fieldPrimePlus(-1) + `"`)
	bad(`"4Ot6fDtBuK4WVuP68Z/EatoJjeucMrH9hmIFFl9JuAA="`)
	bad(`"X5yVvKNQjCSx0LFVnIPvWwREXMRYHI6G2CJO3dCfEVc="`)

	// byte order mark and white space
	f("\ufeff" + `{"type":"hello"}`)
	f("\ufeff \r\n\t" + `{"type":"hello"}`)
	f(" \t\r\n{ \n\"type\"\t:\r\"hello\" , \"key\" : \"bad\"\n}\n\t\r ")
	f(strings.Repeat(" ", 5000) + `{"type":"hello"}` + strings.Repeat("\n", 70000))
	// escapes in names and values
	f(`{"\u0074\u0079\u0070\u0065":"\u0068\u0065\u006c\u006C\u006f"}`)
	f(`{"type":"e2ee\u005fhello","k\u0065y":"bad"}`)
	// the last duplicate counts
	f(`{"type":"x","type":"hello"}`)
	f(`{"type":{"type":"x"},"type":"hello"}`)
	f(`{"type":["hello"],"type":"hello"}`)
	f(`{"type":"hello","key":"` + goodKey + `","key":"bad"}`)
	f(`{"type":"hello","key":"` + goodKey + `","key":null}`)
	f(`{"type":"hello","key":"` + goodKey + `","k\u0065y":{}}`)
	f(`{"key":"` + goodKey + `","type":"hello","key":[]}`)
	// members of other objects are not ours, whatever their name
	f(`{"a":{"type":"x","key":"` + goodKey + `"},"type":"hello"}`)
	f(`{"type":"hello","a":{"type":"x"}}`)
	f(`{"type":"hello","a":[{"key":"` + goodKey + `"}]}`)
	f(`{"__proto__":{"type":"x","key":"` + goodKey + `"},"type":"hello"}`)
	f(`{"type":"hello","Key":"` + goodKey + `"," key":"` + goodKey + `","key\u0000":"` + goodKey + `"}`)
	// every value there is, beside
	f(`{"a":[],"b":{},"c":[[],{},[{}]],"d":{"":{"":[]}},"type":"hello"}`)
	f(`{"a":[0,-0,1,-1,10,0.0,-0.5,1e1,1E+1,1e-1,0e0,120.25e+10,1e999],"type":"hello"}`)
	f(`{"a":[true,false,null],"b":true,"type":"hello"}`)
	f(`{"a":"\"\\\/\b\f\n\r\t\u0000\uD800\udc00x\uDFFF","type":"hello"}`)
	f("{\"a\":\"\x7f\u2028\u2029é😀\",\"type\":\"hello\"}")
	// bytes that are not UTF-8 are replaced, and take no ASCII with them
	f("{\"a\":\"\xff\xfe\",\"type\":\"hello\"}")
	f("{\"a\":\"\xe2\x82\",\"type\":\"hello\"}")
	f("{\"a\":\"\xc3\\\"\",\"type\":\"hello\"}")
	f("{\"a\":\"\xf0\x9d\",\"type\":\"hello\"}")
	f("{\"a\":\"\xed\xa0\x80\xc0\xaf\xf4\x90\x80\x80\",\"type\":\"hello\"}")
	f("{\"\xe2\":1,\"type\":\"hello\"}")
	// long strings around the two members
	long := strings.Repeat("x", 100000)
	f(`{"a":"` + long + `","type":"hello","key":"bad"}`)
	f(`{"type":"hello","key":"` + long + `"}`)
	f(`{"` + long + `":0,"type":"hello"}`)
	f(`{"a":"` + strings.Repeat(`\n`, 100000) + `","type":"hello"}`)
}

func TestHelloPass(t *testing.T) {
	f := func(s string) {
		t.Helper()
		if reject, _ := helloVerdict(t, s); reject {
			t.Errorf("%.200q refused", s)
		}
	}

	// good keys
	f(`{"type":"hello","key":"` + goodKey + `"}`)
	f(`{"key":"` + goodKey + `","type":"e2ee_hello"}`)
	f(`{"v":1,"type":"e2ee_hello","x":{"key":"no"},"key":"` + goodKey + `","y":[1]}`)
	f("\ufeff" + `{"type":"hello","key":"` + goodKey + `"}`)
	f(`{"type":"hello","key":"bad","key":"` + goodKey + `"}`)
	f(`{"type":"hello","key":"\u0041` + strings.Repeat("A", 41) + `I="}`)
	f(`{"type":"hello","key":"` + publicKey(big.NewInt(9)) + `"}`)
	f(`{"type":"hello","key":"` + publicKey(big.NewInt(2)) + `"}`)
	f(`{"type":"hello","key":"` + fieldPrimePlus(-2) + `"}`)
	f(`{"type":"hello","key":"` + fieldPrimePlus(-19) + `"}`)
	f(`{"type":"hello","key":"` + publicKey(new(big.Int).Lsh(big.NewInt(1), 254)) + `"}`)
	slash := base64.StdEncoding.EncodeToString(append(bytes.Repeat([]byte{0xfb, 0xff, 0xbf}, 10), 0xff, 0x3f))
	f(`{"type":"hello","key":"` + slash + `"}`)
	f(`{"type":"hello","key":"` + strings.ReplaceAll(slash, "/", `\/`) + `"}`)

	// no hello
	f(`{}`)
	f(`{"key":"bad"}`)
	f(`{"type":"x","key":"bad"}`)
	f(`{"type":"hello ","key":"bad"}`)
	f(`{"type":"Hello","key":"bad"}`)
	f(`{"type":"hello\u0000","key":"bad"}`)
	f("{\"type\":\"hello\xff\",\"key\":\"bad\"}")
	f(`{"type":null,"key":"bad"}`)
	f(`{"type":["hello"],"key":"bad"}`)
	f(`{"type":"hello","type":"x","key":"bad"}`)
	f(`{"type":"hello","type":null,"key":"bad"}`)
	f(`{"type":"hello","type":7,"key":"bad"}`)
	f(`{"type":"hello","type":{"type":"hello"},"key":"bad"}`)
	f(`{"a":{"type":"hello","key":"bad"}}`)
	f(`{"__proto__":{"type":"hello","key":"bad"}}`)
	f(`{"type":"` + strings.Repeat("hello", 20000) + `"}`)

	// no object
	f(``)
	f(` `)
	f("\ufeff")
	f(`null`)
	f(`"hello"`)
	f(`[{"type":"hello"}]`)
	f(`0`)
	f("\x00")
	f("\xff{\"type\":\"hello\"}")
	f(" \ufeff{\"type\":\"hello\"}")
	f("\ufeff\ufeff{\"type\":\"hello\"}")
	f("\xef\xbb{\"type\":\"hello\"}")
	f("\xef{\"type\":\"hello\"}")
	f("\u00a0{\"type\":\"hello\"}")
	f("\v{\"type\":\"hello\"}")

	// broken JSON round a hello
	broken := func(s string) { t.Helper(); f(s) }
	broken(`{"type":"hello","key":"bad"`)
	broken(`{"type":"hello","key":"bad"}x`)
	broken(`{"type":"hello"}{"type":"hello"}`)
	broken(`{"type":"hello"}` + "\ufeff")
	broken(`{"type":"hello"}` + "\x00")
	broken(`{"type":"hello",}`)
	broken(`{,"type":"hello"}`)
	broken(`{"type":"hello",,"a":1}`)
	broken(`{"type" "hello"}`)
	broken(`{"type"::"hello"}`)
	broken(`{"type":"hello":"x"}`)
	broken(`{"type","hello"}`)
	broken(`{type:"hello"}`)
	broken(`{'type':'hello'}`)
	broken(`{"type":"hello"]`)
	broken(`{"type":"hello","a":[}]}`)
	broken(`{"type":"hello","a":[1,]}`)
	broken(`{"type":"hello","a":[,1]}`)
	broken(`{"type":"hello","a":[1 2]}`)
	broken(`{"type":"hello","a":{"b":1]}`)
	broken(`{"type":"hello","a":{"b"}}`)
	broken(`{"type":"hello","a":{1:2}}`)
	broken(`{"type":"hello","a":}`)
	broken(`{"type":"hello" /* no comments */}`)
	broken(`{"type":"hello",` + "\u00a0" + `"a":1}`)
	for _, v := range []string{
		"01", "-", "-a", "+1", ".5", "1.", "1.e1", "1e", "1e+", "1e1.5", "1e1e1", "0x1", "00", "-01", "1_0", "1-", "--1", "NaN", "Infinity", "1.2.3",
		"tru", "truE", "truee", "nul", "nulll", "fals", "undefined", "True", "t", "-t",
		`"\x"`, `"\u"`, `"\u12"`, `"\u12g4"`, `"\U0041"`, `"\'"`, "\"\\\n\"", "\"\n\"", "\"\x00\"", "\"\x1f\"", "\"\t\"", `"`, `'a'`, "`a`",
	} {
		broken(`{"type":"hello","a":` + v + `}`)
		broken(`{"type":"hello","a":[` + v + `]}`)
		broken(`{"a":` + v + `,"type":"hello"}`)
		broken(`{"type":` + v + `,"type":"hello"}`)
	}
	broken(`{"type":"hello","` + "\x01" + `":1}`)
	broken("{\"type\":\xc0\xa2hello\"}")
	broken("{\"type\":\"hello\"\xff}")
	broken("{\"type\":\"hello\",\"a\":1\x80}")
}

// Nesting costs a bit a level: a million open arrays are nothing, and what is not closed is broken.
func TestHelloDeep(t *testing.T) {
	f := func(depth int, open, shut string, want bool) {
		t.Helper()
		var sc helloScanner
		sc.Write([]byte(`{"type":"hello","a":` + strings.Repeat(open, depth)))
		levels := depth * (strings.Count(open, "[") + strings.Count(open, "{"))
		if got, limit := sc.StackBytes(), max(64, levels/4); got > limit {
			t.Errorf("%d levels take %d bytes, want at most %d", levels, got, limit)
		}
		sc.Write([]byte(strings.Repeat(shut, depth)))
		sc.Write([]byte(`}`))
		if got := sc.End(); got != want {
			t.Errorf("%d times %s: refused = %v", depth, open, got)
		}
		sc.Reset()
		if got := sc.StackBytes(); got > 8*keptStackWords {
			t.Errorf("a scanner keeps %d bytes after Reset", got)
		}
		sc.Write([]byte(`{"type":"hello"}`))
		if !sc.End() {
			t.Errorf("a scanner is unusable after Reset")
		}
	}
	for _, depth := range []int{1, 61, 62, 63, 64, 65, 126, 127, 128, 129, 1000, 1000000} {
		f(depth, "[", "]", true)
		f(depth, "[", "}", false)
		f(depth, `{"type":`, "}", false)
	}
	for _, depth := range []int{62, 63, 64, 65, 130, 100000} {
		f(depth, `[{"b":`, "}]", false)       // a value is missing
		f(depth, `{"type":[{},`, "]}", false) // so is one here
		f(depth, `{"type":[`, "]}", true)
	}
}

func TestHelloCandidate(t *testing.T) {
	f := func(head string, wantDecided, wantCandidate bool) {
		t.Helper()
		decided, candidate := helloCandidate([]byte(head))
		if decided != wantDecided || candidate != wantCandidate {
			t.Errorf("helloCandidate(%q) = %v, %v", head, decided, candidate)
		}
	}
	// nothing significant yet
	f("", false, false)
	f(" \t\r\n", false, false)
	f("\xef", false, false)
	f("\xef\xbb", false, false)
	f("\xef\xbb\xbf", false, false)
	f("\xef\xbb\xbf ", false, false)
	// an object begins
	f("{", true, true)
	f("  {\"a\"", true, true)
	f("\xef\xbb\xbf\n{", true, true)
	// something else does
	f("[", true, false)
	f(" x{", true, false)
	f("\xef\xbc", true, false)
	f("\xef{", true, false)
	f("\xef\xbb\xbf\xef\xbb\xbf{", true, false)
	f(" \xef\xbb\xbf{", true, false)
	f("\x00", true, false)
	f("\xff", true, false)
}

func TestIsControlPing(t *testing.T) {
	f := func(s string, want bool) {
		t.Helper()
		if _, got := helloVerdict(t, s); got != want {
			t.Errorf("isControlPing(%q) = %v", s, got)
		}
	}
	f(`{"type":"ping"}`, true)
	f("\ufeff"+` { "type" : "ping" , "ts" : 12 } `, true)
	f(`{"t\u0079pe":"p\u0069ng"}`, true)
	f(`{"type":"x","type":"ping"}`, true)
	f(`{"type":"ping","type":"x"}`, false)
	f(`{"type":"ping","type":null}`, false)
	f(`{"type":"PING"}`, false)
	f(`{"type":"ping"`, false)
	f(`{"type":"ping"}{"type":"ping"}`, false)
	f(`["ping"]`, false)
	f(`{"a":{"type":"ping"}}`, false)
	f(`null`, false)
	f(``, false)
}

// slowHello is the check by way of a general parser and big numbers. It knows no nesting beyond the
// 10,000 levels of encoding/json.
func slowHello(payload []byte) (reject, ping bool) {
	text := bytes.TrimPrefix(payload, byteOrderMark)
	if text = bytes.TrimLeft(text, " \t\r\n"); len(text) == 0 || text[0] != '{' {
		return false, false
	}
	var members map[string]json.RawMessage
	if json.Unmarshal(text, &members) != nil {
		return false, false
	}
	str := func(name string) (s string) {
		if raw := members[name]; len(raw) > 0 && raw[0] == '"' {
			json.Unmarshal(raw, &s)
		}
		return s
	}
	kind := str("type")
	return (kind == "hello" || kind == "e2ee_hello") && !slowKey(str("key")), kind == "ping"
}

func slowKey(text string) bool {
	raw, err := base64.StdEncoding.DecodeString(text)
	if err != nil || len(raw) != 32 || base64.StdEncoding.EncodeToString(raw) != text {
		return false
	}
	slices.Reverse(raw)
	n := new(big.Int).SetBytes(raw)
	if n.Cmp(fieldPrime) >= 0 {
		return false
	}
	// u is of low order if doubling the point three times ends at infinity, where u is 1/0.
	// Doubling: u' = (u²-1)² / 4u(u²+486662u+1).
	x, z := n, big.NewInt(1)
	for range 3 {
		mul := func(a, b *big.Int) *big.Int { m := new(big.Int).Mul(a, b); return m.Mod(m, fieldPrime) }
		xx, zz, xz := mul(x, x), mul(z, z), mul(x, z)
		d := new(big.Int).Sub(xx, zz)
		e := new(big.Int).Add(xx, zz)
		e.Add(e, mul(big.NewInt(486662), xz))
		x, z = mul(d, d), mul(mul(big.NewInt(4), xz), e)
	}
	return z.Sign() != 0
}

func TestUsableKeyAgainstCurve(t *testing.T) {
	f := func(n *big.Int) {
		t.Helper()
		text := publicKey(n)
		if got, want := usableKey([]byte(text)), slowKey(text); got != want {
			t.Errorf("usableKey of %v = %v", n, got)
		}
	}
	for d := int64(-40); d < 40; d++ {
		f(new(big.Int).Add(fieldPrime, big.NewInt(d)))
		f(big.NewInt(max(d, -d)))
		f(new(big.Int).Add(new(big.Int).Lsh(big.NewInt(1), 254), big.NewInt(d)))
	}
	for i := range lowOrder {
		raw := lowOrder[i]
		slices.Reverse(raw[:])
		n := new(big.Int).SetBytes(raw[:])
		f(n)
		f(new(big.Int).Add(n, big.NewInt(1)))
		if slowKey(publicKey(n)) {
			t.Errorf("point %d of the list is not of low order", i)
		}
	}
}

func TestHelloNoAllocation(t *testing.T) {
	payload := []byte(`{"v":1,"type":"e2ee_hello","x":{"a":[1,2.5,true,"\u0041"]},"key":"` + goodKey + `"}`)
	deep := []byte(strings.Repeat(`{"a":[`, 1000))
	var s helloScanner
	f := func(name string, fn func()) {
		t.Helper()
		if n := testing.AllocsPerRun(100, fn); n != 0 {
			t.Errorf("%s allocates %v times", name, n)
		}
	}
	f("a hello", func() { s.Reset(); s.Write(payload); s.End() })
	f("nesting again", func() { s.Reset(); s.Write(deep); s.End() })
	f("helloCandidate", func() { helloCandidate(payload) })
	f("isControlPing", func() { isControlPing(payload) })
}

func FuzzHello(f *testing.F) {
	f.Add([]byte(`{"type":"hello","key":"` + goodKey + `"}`))
	f.Add([]byte("\ufeff {\"ty\\u0070e\":\"e2ee_hello\",\"a\":[1.5e-3,{\"b\":null}],\"key\":\"bad\"}\n"))
	f.Add([]byte(`{"type":"ping","ts":12}`))
	f.Add([]byte("{\"a\":\"\xc3\\\"\",\"type\":\"hello\",\"key\":7}"))
	f.Fuzz(func(t *testing.T, payload []byte) {
		if bytes.Count(payload, []byte("["))+bytes.Count(payload, []byte("{")) > 9000 {
			return
		}
		reject, ping := helloVerdict(t, string(payload))
		if wantReject, wantPing := slowHello(payload); reject != wantReject || ping != wantPing {
			t.Fatalf("%q: refused %v, ping %v", payload, reject, ping)
		}
		if decided, candidate := helloCandidate(payload); decided && !candidate && (reject || ping) {
			t.Fatalf("%q: judged but no candidate", payload)
		}
	})
}
