package frame

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"strings"
	"testing"
)

type tokenVector struct {
	Secret, ClientID, Raw, Text string
	IssuedAt                    int64
}

func loadToken(t testing.TB) tokenVector {
	t.Helper()
	var file struct{ Token tokenVector }
	readJSON(t, "token.json", &file)
	return file.Token
}

func TestTokenVector(t *testing.T) {
	v := loadToken(t)
	key := NewTokenKey([]byte(v.Secret))
	got := key.Issue(ClientID(unhex(t, v.ClientID)), v.IssuedAt)
	if hex.EncodeToString(got[:]) != v.Raw || string(got.AppendText(nil)) != v.Text {
		t.Fatalf("token %x %s, want %s %s", got, got.AppendText(nil), v.Raw, v.Text)
	}
	if len(v.Text) != TokenTextBytes {
		t.Errorf("text of %d bytes", len(v.Text))
	}
	back, ok := ParseToken([]byte(v.Text))
	if !ok || back != got || !key.Verify(&back) {
		t.Errorf("read %x, %v", back, ok)
	}
	if client := back.Client(); hex.EncodeToString(client[:]) != v.ClientID || back.IssuedAt() != uint64(v.IssuedAt) {
		t.Errorf("client %x issued at %d", client, back.IssuedAt())
	}
	var file struct {
		Domain string `json:"token_domain"`
	}
	if readJSON(t, "registry.json", &file); file.Domain != tokenDomain {
		t.Errorf("domain %q", file.Domain)
	}
}

// The MAC without crypto/hmac equals crypto/hmac, for secrets around the block size.
func TestTokenMAC(t *testing.T) {
	for size := range 140 {
		secret := bytes.Repeat([]byte{byte(size), 7}, size)[:size]
		got := NewTokenKey(secret).Issue(ClientID{1, 2, 3}, 1<<40+int64(size))
		h := hmac.New(sha256.New, secret)
		h.Write([]byte("mte-relay/token/2"))
		h.Write(got[:24])
		if want := h.Sum(nil)[:16]; !bytes.Equal(got[24:], want) {
			t.Errorf("secret of %d bytes: %x, want %x", size, got[24:], want)
		}
	}
}

func TestTokenFailure(t *testing.T) {
	v := loadToken(t)
	key := NewTokenKey([]byte(v.Secret))
	good := key.Issue(ClientID{9}, 1000)
	for i := range good {
		for bit := range 8 {
			bad := good
			bad[i] ^= 1 << bit
			if key.Verify(&bad) {
				t.Fatalf("bit %d of byte %d does not matter", bit, i)
			}
		}
	}
	if NewTokenKey([]byte(v.Secret + "x")).Verify(&good) {
		t.Error("another domain knows the token")
	}

	f := func(name, text string) {
		t.Helper()
		if got, ok := ParseToken([]byte(text)); ok {
			t.Errorf("%s: %x", name, got)
		}
	}
	text := string(good.AppendText(nil))
	f("nothing", "")
	f("short", text[:53])
	f("long", text+"A")
	f("padded", text+"==")
	f("spare bits", text[:53]+"x") // the last character carries two bits
	f("standard base64", base64.RawStdEncoding.EncodeToString(bytes.Repeat([]byte{0xff}, 40)))
	f("a line break", text[:53]+"\n")
	f("hex", hex.EncodeToString(good[:]))
	f("garbage", strings.Repeat("!", 54))
	for c := range 256 { // one text for one token
		if got, ok := ParseToken([]byte(text[:53] + string(rune(c)))); ok && string(got.AppendText(nil)) != text[:53]+string(rune(c)) {
			t.Errorf("%#x is not what is written for its value", c)
		}
	}
}

func TestTokenAge(t *testing.T) {
	key := NewTokenKey([]byte("secret"))
	const now, maxAge = 1_000_000, 3600
	f := func(name string, at int64, want bool) {
		t.Helper()
		token := key.Issue(ClientID{1}, at)
		if got := key.VerifyAge(&token, now, maxAge); got != want {
			t.Errorf("%s: %v", name, got)
		}
		if !key.Verify(&token) {
			t.Errorf("%s: not even its MAC", name)
		}
		token[39] ^= 1
		if key.VerifyAge(&token, now, maxAge) {
			t.Errorf("%s: forged", name)
		}
	}
	f("now", now, true)
	f("the oldest", now-maxAge, true)
	f("a second older", now-maxAge-1, false)
	f("the furthest ahead", now+60, true)
	f("a second further", now+61, false)
	f("at the start of time", 0, false)
	f("at the end of time", -1, false)
	f("past the signed range", -1<<63, false)
}

func TestTokenAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	key := NewTokenKey([]byte("secret"))
	token := key.Issue(ClientID{1}, 1)
	text := token.AppendText(nil)
	buf := make([]byte, 0, 100)
	if got := testing.AllocsPerRun(100, func() {
		token, ok := ParseToken(text)
		if !ok || !key.Verify(&token) {
			t.Fatal("refused")
		}
		token.AppendText(buf)
		token.Client().AppendRoute(buf)
	}); got != 0 {
		t.Errorf("%v allocations", got)
	}
}

func TestPairID(t *testing.T) {
	id := NewPairID()
	text := id.AppendText(nil)
	back, ok := ParsePairID(text)
	if !ok || back != id || len(text) != 22 {
		t.Errorf("%s read as %x, %v", text, back, ok)
	}
	if got := string(id.AppendHex(nil)); got != hex.EncodeToString(id[:]) || id.String() != got[:8] {
		t.Errorf("%s, %s", got, id)
	}
	f := func(name, text string) {
		t.Helper()
		if id, ok := ParsePairID([]byte(text)); ok {
			t.Errorf("%s: %x", name, id)
		}
	}
	f("nothing", "")
	f("all zero", "AAAAAAAAAAAAAAAAAAAAAA")
	f("padded", string(text)+"==")
	f("short", string(text[:21]))
	f("spare bits", string(text[:21])+"_")
	f("standard alphabet", "++++++++++++++++++++++"[:21]+"w")
	f("a line break", string(text[:21])+"\n")
}

func TestRoute(t *testing.T) {
	id := NewClientID()
	route := id.AppendRoute(nil)
	if !ValidRoute(route) || string(route) != hex.EncodeToString(id[:]) || id.String() != string(route[:8]) {
		t.Errorf("route %s of %s", route, id)
	}
	f := func(v string, want bool) {
		t.Helper()
		if got := ValidRoute(v); got != want {
			t.Errorf("%q: %v", v, got)
		}
	}
	f("0123456789abcdef0123456789abcdef", true)
	f("0123456789ABCDEF0123456789abcdef", false)
	f("0123456789abcdef0123456789abcde", false)
	f("0123456789abcdef0123456789abcdef0", false)
	f(strings.Repeat("g", 32), false)
	f("", false)
}

func FuzzToken(f *testing.F) {
	f.Add([]byte(loadToken(f).Text))
	f.Fuzz(func(t *testing.T, text []byte) {
		if token, ok := ParseToken(text); ok && !bytes.Equal(token.AppendText(nil), text) {
			t.Errorf("%q is written %q", text, token.AppendText(nil))
		}
		if id, ok := ParsePairID(text); ok && !bytes.Equal(id.AppendText(nil), text) {
			t.Errorf("%q is written %q", text, id.AppendText(nil))
		}
	})
}

func BenchmarkTokenVerify(b *testing.B) {
	key := NewTokenKey([]byte("secret"))
	token := key.Issue(ClientID{1}, 1)
	for b.Loop() {
		key.Verify(&token)
	}
}
