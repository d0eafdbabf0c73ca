package relay

import (
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestParseQuerySuccess(t *testing.T) {
	f := func(raw string, want query) {
		t.Helper()
		got, refusal := parseQuery([]byte(raw))
		if refusal != "" || got != want {
			t.Errorf("parseQuery(%q) = %+v, %q", raw, got, refusal)
		}
	}
	long := strings.Repeat("s", maxIDBytes)

	// the two roles and the two versions, absent and blank being 1
	f("serverId=S&role=server", query{ServerID: "S", Server: true})
	f("role=client&serverId=S&v=1", query{ServerID: "S"})
	f("role=client&serverId=S&v=", query{ServerID: "S"})
	f("role=client&serverId=S&v", query{ServerID: "S"})
	f("role=client&serverId=S&v=+%20%09", query{ServerID: "S"})
	f("role=client&serverId=S&v=2", query{ServerID: "S", V2: true})
	f("role=client&serverId=S&v=%202+", query{ServerID: "S", V2: true})
	f("role=client&serverId=S&v=%C2%A02", query{ServerID: "S", V2: true})
	// connectionId: trimmed, kept inside; ignored in v1 whatever it holds
	f("role=server&serverId=S&v=2&connectionId=C", query{ServerID: "S", ConnectionID: "C", Server: true, V2: true})
	f("role=server&serverId=S&v=2&connectionId=%20%20", query{ServerID: "S", Server: true, V2: true})
	f("role=server&serverId=S&v=2&connectionId=+a+b%0A", query{ServerID: "S", ConnectionID: "a b", Server: true, V2: true})
	f("role=client&serverId=S&v=2&connectionId=a%00b", query{ServerID: "S", ConnectionID: "a\x00b", V2: true})
	f("role=client&serverId=S&v=2&connectionId=a%2Fb%3Fc%3Dd%26e%23f", query{ServerID: "S", ConnectionID: "a/b?c=d&e#f", V2: true})
	f("role=client&serverId=S&v=2&connectionId="+strings.Repeat("%20", 600)+"C", query{ServerID: "S", ConnectionID: "C", V2: true})
	f("role=client&serverId=S&v=2&connectionId=+"+long, query{ServerID: "S", ConnectionID: long, V2: true})
	f("role=client&serverId=S&connectionId=C", query{ServerID: "S"})
	f("role=client&serverId=S&connectionId=%FF", query{ServerID: "S"})
	f("role=client&serverId=S&v=1&connectionId="+long+"x", query{ServerID: "S"})
	// serverId: not trimmed, counted after decoding
	f("role=client&serverId=+S%20", query{ServerID: " S "})
	f("role=client&serverId=+", query{ServerID: " "})
	f("role=client&serverId="+long, query{ServerID: long})
	f("role=client&serverId="+strings.Repeat("%73", maxIDBytes), query{ServerID: long})
	f("role=client&serverId=%F0%9F%98%80%C3%A9", query{ServerID: "😀é"})
	// malformed escapes stay as they are
	f("role=client&serverId=%", query{ServerID: "%"})
	f("role=client&serverId=%4", query{ServerID: "%4"})
	f("role=client&serverId=%zz", query{ServerID: "%zz"})
	f("role=client&serverId=a%", query{ServerID: "a%"})
	f("role=client&serverId=%%41", query{ServerID: "%A"})
	f("role=client&serverId=%4%41", query{ServerID: "%4A"})
	// the last duplicate counts
	f("serverId=S&role=bogus&role=server", query{ServerID: "S", Server: true})
	f("serverId=&serverId=S&role=server", query{ServerID: "S", Server: true})
	f("serverId=S&role=server&v=9&v=1", query{ServerID: "S", Server: true})
	f("serverId=S&role=server&v=9&v=", query{ServerID: "S", Server: true})
	f("serverId=S&role=server&v=2&connectionId="+long+"x&connectionId=a", query{ServerID: "S", ConnectionID: "a", Server: true, V2: true})
	f("serverId=S&role=server&v=2&connectionId=a&connectionId=", query{ServerID: "S", Server: true, V2: true})
	// names are escaped too; unknown and empty ones do not matter
	f("%72ole=client&server%49d=S", query{ServerID: "S"})
	f("&&role=client&=x&serverId=a=b&Role=server&server=1&"+long+"="+long, query{ServerID: "a=b"})
	f("role=cl%69ent&serverId=S", query{ServerID: "S"})
}

func TestParseQueryFailure(t *testing.T) {
	f := func(raw, want string) {
		t.Helper()
		got, refusal := parseQuery([]byte(raw))
		if refusal != want || got != (query{}) {
			t.Errorf("parseQuery(%q) = %+v, %q, want %q", raw, got, refusal, want)
		}
	}
	long := strings.Repeat("s", maxIDBytes+1)

	// role
	f("", refuseRole)
	f("serverId=S", refuseRole)
	f("serverId=S&role=", refuseRole)
	f("serverId=S&role=admin", refuseRole)
	f("serverId=S&role=Server", refuseRole)
	f("serverId=S&role=%20server", refuseRole)
	f("serverId=S&role=server+", refuseRole)
	f("serverId=S&role=server&role=bogus", refuseRole)
	f("serverId=S;role=server", refuseRole)
	// serverId
	f("role=client", refuseNoServerID)
	f("role=client&serverId=", refuseNoServerID)
	f("role=client&serverId", refuseNoServerID)
	f("role=client&serverId=S&serverId=", refuseNoServerID)
	f("role=client&serverid=S", refuseNoServerID)
	f("role=client&serverId="+long, refuseLongServerID)
	f("role=client&serverId="+strings.Repeat("+", 70000), refuseLongServerID)
	f("role=client&serverId=%FF", refuseServerIDText)
	f("role=client&serverId=%F4%90%80%80", refuseServerIDText)
	f("role=client&serverId="+long[:200]+"%E2%82", refuseServerIDText)
	f("role=client&serverId=\xed\xa0\x80", refuseServerIDText)
	// v
	f("role=client&serverId=S&v=0", refuseVersion)
	f("role=client&serverId=S&v=v2", refuseVersion)
	f("role=client&serverId=S&v=3", refuseVersion)
	f("role=client&serverId=S&v=02", refuseVersion)
	f("role=client&serverId=S&v=1&v=9", refuseVersion)
	f("role=client&serverId=S&v=1+2", refuseVersion)
	f("role=client&serverId=S&v=%EF%BB%BF1", refuseVersion)
	// connectionId
	f("role=client&serverId=S&v=2&connectionId="+long, refuseLongConnectionID)
	f("role=server&serverId=S&v=2&connectionId="+strings.Repeat("%C3%A9", 129), refuseLongConnectionID)
	f("role=client&serverId=S&v=2&connectionId=a&connectionId="+long, refuseLongConnectionID)
	f("role=server&serverId=S&v=2&connectionId=%FF", refuseConnectionIDText)
	f("role=client&serverId=S&v=2&connectionId="+long[:200]+"%E2%82", refuseConnectionIDText)

	// the order of the checks, each fault with all that come after it
	f("role=x&serverId=&v=9&connectionId="+long, refuseRole)
	f("role=client&serverId=&v=9&connectionId="+long, refuseNoServerID)
	f("role=client&serverId=%FF"+long+"&v=9&connectionId="+long, refuseLongServerID)
	f("role=client&serverId=%FF&v=9&connectionId="+long, refuseServerIDText)
	f("role=client&serverId=S&v=9&connectionId="+long, refuseVersion)
	f("role=client&serverId=S&v=2&connectionId=%FF"+long, refuseLongConnectionID)
}

func TestParseQueryAllocation(t *testing.T) {
	f := func(raw string, want float64) {
		t.Helper()
		if n := testing.AllocsPerRun(100, func() { parseQuery([]byte(raw)) }); n > want {
			t.Errorf("parseQuery(%q) allocates %v times, want %v", raw, n, want)
		}
	}
	// the two ids and nothing else; a refusal has none
	f("serverId=%53&role=server&v=2&connectionId=abc", 2)
	f("serverId=S&role=x", 0)
	f("serverId=S&role=client&v=9", 0)
}

func TestNewConnectionID(t *testing.T) {
	form := regexp.MustCompile(`^conn_[0-9a-f]{16}$`)
	seen := map[string]bool{}
	for range 1000 {
		id := newConnectionID()
		if !form.MatchString(id) || seen[id] {
			t.Fatalf("newConnectionID() = %q", id)
		}
		seen[id] = true
	}
}

// slowQuery is parseQuery in the words of the contract.
func slowQuery(raw string) (q query, refusal string) {
	escape := regexp.MustCompile(`%[0-9A-Fa-f]{2}`)
	unescape := func(s string) string {
		return escape.ReplaceAllStringFunc(strings.ReplaceAll(s, "+", " "), func(e string) string {
			n, _ := strconv.ParseUint(e[1:], 16, 8)
			return string([]byte{byte(n)})
		})
	}
	last := map[string]string{}
	for _, pair := range strings.Split(raw, "&") {
		name, value, _ := strings.Cut(pair, "=")
		last[unescape(name)] = unescape(value)
	}
	role, sid := last["role"], last["serverId"]
	v, cid := strings.TrimSpace(last["v"]), strings.TrimSpace(last["connectionId"])
	switch {
	case role != "server" && role != "client":
		return q, "Missing or invalid role parameter"
	case sid == "":
		return q, "Missing serverId parameter"
	case len(sid) > 256:
		return q, "serverId is too long"
	case !utf8.ValidString(sid):
		return q, "serverId is not valid UTF-8"
	case v != "" && v != "1" && v != "2":
		return q, "Invalid v parameter (expected 1 or 2)"
	case v == "2" && len(cid) > 256:
		return q, "connectionId is too long"
	case v == "2" && !utf8.ValidString(cid):
		return q, "connectionId is not valid UTF-8"
	case v != "2":
		cid = ""
	}
	return query{ServerID: sid, ConnectionID: cid, Server: role == "server", V2: v == "2"}, ""
}

func FuzzParseQuery(f *testing.F) {
	f.Add("serverId=S&role=server&v=2&connectionId=C")
	f.Add("serverId=%F0%9F%98%80&role=cl%69ent&v=+1&v=%202")
	f.Add("role=client&role=client&serverId=%%41&connectionId=%FF&v=2")
	f.Fuzz(func(t *testing.T, raw string) {
		q, refusal := parseQuery([]byte(raw))
		if wantQ, want := slowQuery(raw); q != wantQ || refusal != want {
			t.Fatalf("parseQuery(%q) = %+v, %q, want %+v, %q", raw, q, refusal, wantQ, want)
		}
	})
}
