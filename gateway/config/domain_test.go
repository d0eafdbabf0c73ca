package config

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
)

const longSecret = "0123456789abcdef0123456789abcdef"

// domains is the map a DOMAIN_MAP value makes, through the environment.
func parseDomains(value string) (Domains, Faults) {
	c, faults, _ := Load([]string{"DOMAIN_MAP=" + value}, nil)
	if faults != nil {
		return nil, faults
	}
	return c.MTE.Domains, nil
}

func TestDomainSuccess(t *testing.T) {
	f := func(value string, get func(*Domain) any, want any) {
		t.Helper()
		d, faults := parseDomains(`{"a.test":` + value + `}`)
		if faults != nil {
			t.Errorf("%s: %v", value, faults)
			return
		}
		if got := get(d["a.test"]); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v, want %v", value, got, want)
		}
	}
	up := `"upstream":"http://127.0.0.1:1"`
	upstream := func(d *Domain) any { return d.Upstream.String() }

	f(`{`+up+`}`, upstream, "http://127.0.0.1:1")
	f(`{"upstream":"https://o.test/base/"}`, upstream, "https://o.test/base")
	f(`{"upstream":"https://o.test/"}`, upstream, "https://o.test")
	f(`{"upstream":"http://[::1]:80/a%2Fb/"}`, upstream, "http://[::1]:80/a%2Fb")
	f(`{`+up+`,"client_id_secret":"`+longSecret+`"}`, func(d *Domain) any { return string(d.Secret) }, longSecret)
	// length counts in bytes
	f(`{`+up+`,"client_id_secret":"`+strings.Repeat("ä", 16)+`"}`, func(d *Domain) any { return len(d.Secret) }, 32)
	f(`{`+up+`,"cors_origins":["https://app.example","http://localhost:3000","*","capacitor://localhost"]}`, func(d *Domain) any { return len(d.CORSOrigins) }, 4)
	f(`{`+up+`,"cors_origins":[]}`, func(d *Domain) any { return len(d.CORSOrigins) }, 0)
	f(`{`+up+`,"cors_methods":["GET","PURGE"]}`, func(d *Domain) any { return d.CORSMethods }, []string{"GET", "PURGE"})
	f(`{`+up+`,"cors_allowed_headers":["X-A"],"cors_exposed_headers":["X-B"]}`, func(d *Domain) any { return d.CORSExposedHeaders }, []string{"X-B"})
	f(`{`+up+`,"pass_through_routes":["/","/*"]}`, func(d *Domain) any { return d.PassThroughRoutes }, []string{"/", "/*"})
	f(`{`+up+`,"mte_routes":["/echo/*","/exact"]}`, func(d *Domain) any { return d.MTERoutes }, []string{"/echo/*", "/exact"})
	f(`{`+up+`,"forward_plain_headers":["X-Trace-Id","x-app-*","*"]}`, func(d *Domain) any { return d.ForwardPlainHeaders }, []string{"x-trace-id", "x-app-*", "*"})
	// cookies are forwarded unless told otherwise
	f(`{`+up+`}`, func(d *Domain) any { return d.ForwardCookies }, true)
	f(`{`+up+`,"forward_browser_cookies":false}`, func(d *Domain) any { return d.ForwardCookies }, false)
	f(`{`+up+`,"headers":{"X-B":"2","X-A":""}}`, func(d *Domain) any { return d.Headers }, []Header{{"X-A", ""}, {"X-B", "2"}})
	f(`{"outbound":"https://other.test"}`, func(d *Domain) any { return d.Outbound.String() }, "https://other.test")
	f(`{"outbound":"http://127.0.0.1:8080/","outbound_token":"let me through"}`, func(d *Domain) any { return string(d.OutboundToken) }, "let me through")
}

// Each case is one fault of one domain.
func TestDomainFailure(t *testing.T) {
	f := func(value string, words ...string) {
		t.Helper()
		_, faults := parseDomains(`{"a.test":` + value + `}`)
		if len(faults) != 1 || faults[0].Setting != "DOMAIN_MAP" {
			t.Errorf("%s: %d faults, want one of DOMAIN_MAP\n%v", value, len(faults), faults)
			return
		}
		for _, w := range append(words, `"a.test"`) {
			if !strings.Contains(faults.Error(), w) {
				t.Errorf("%s: %q is not in: %v", value, w, faults)
			}
		}
	}
	up := `"upstream":"http://127.0.0.1:1"`
	// shape
	f(`{}`, "neither")
	f(`5`, "a number")
	f(`{`+up+`,"outbound":"http://h"}`, "upstream and outbound")
	f(`{`+up+`,"unknown_member":1}`, "unknown_member")
	f(`{`+up+`,"Upstream":"http://h"}`, "Upstream")
	f(`{`+up+`,"outbound_token":"t"}`, "outbound_token", "wrong kind")
	f(`{"outbound":"http://h","client_id_secret":"`+longSecret+`"}`, "client_id_secret", "wrong kind")
	// URLs
	for _, u := range []string{"ftp://x", "not a url", "", "http://", "//h", "h:80", "http://h:0", "http://h:99999", "http://h:", "http://h/?q", "http://h#f", "http://u@h", "http://h x/", "http://ä.test", "http://h,i", "http:h"} {
		f(`{"upstream":"`+u+`"}`, "upstream")
		f(`{"outbound":"`+u+`"}`, "outbound")
	}
	f(`{"upstream":["http://h"]}`, "a list")
	f(`{"upstream":null}`, "nothing")
	f(`{"outbound":"http://h/base"}`, "outbound", "path")
	// secrets
	f(`{`+up+`,"client_id_secret":"`+longSecret[1:]+`"}`, "31 bytes", "32 bytes")
	f(`{`+up+`,"client_id_secret":""}`, "0 bytes")
	f(`{`+up+`,"client_id_secret":5}`, "a number")
	f(`{"outbound":"http://h","outbound_token":""}`, "outbound_token")
	f(`{"outbound":"http://h","outbound_token":" t"}`, "outbound_token")
	// lists
	f(`{`+up+`,"cors_origins":"https://app.example"}`, "cors_origins", "a string")
	f(`{`+up+`,"cors_methods":"GET"}`, "cors_methods")
	f(`{`+up+`,"forward_plain_headers":[1]}`, "forward_plain_headers", "a number")
	f(`{`+up+`,"cors_methods":["GET,POST"]}`, "GET,POST")
	f(`{`+up+`,"cors_allowed_headers":["x y"]}`, "x y")
	f(`{`+up+`,"cors_exposed_headers":[""]}`, "cors_exposed_headers")
	for _, o := range []string{"https://app.example/", "app.example", "https://App.example", "https://*.example", "null", "https://", "https://a:b"} {
		f(`{`+up+`,"cors_origins":["`+o+`"]}`, "cors_origins", o)
	}
	for _, r := range []string{"", "public/*", "*", "/a?b", "/a#b", "/a b", "/ä"} {
		f(`{`+up+`,"pass_through_routes":["`+r+`"]}`, "pass_through_routes", r)
		f(`{`+up+`,"mte_routes":["`+r+`"]}`, "mte_routes", r)
	}
	f(`{`+up+`,"forward_browser_cookies":"true"}`, "forward_browser_cookies", "a string")
	// headers
	f(`{`+up+`,"headers":["X-A"]}`, "headers", "a list")
	f(`{`+up+`,"headers":{"X A":"1"}}`, "X A")
	f(`{`+up+`,"headers":{"Transfer-Encoding":"chunked"}}`, "Transfer-Encoding")
	f(`{`+up+`,"headers":{"X-A":"1","x-a":"2"}}`, "x-a")
	f(`{`+up+`,"headers":{"X-A":1}}`, "a number")
	f(`{`+up+`,"headers":{"X-A":"1\r\nX-B: 2"}}`, "X-A")
	f(`{`+up+`,"headers":{"X-A":" 1"}}`, "X-A")
}

func TestDomainKeys(t *testing.T) {
	f := func(keys string, ok bool) {
		t.Helper()
		var b strings.Builder
		for i, k := range strings.Fields(keys) {
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteString(`"` + k + `":{"upstream":"http://h"}`)
		}
		if _, faults := parseDomains("{" + b.String() + "}"); (faults == nil) != ok {
			t.Errorf("%s: %v", keys, faults)
		}
	}
	f("a.test A-b.test:8443 127.0.0.1 127.0.0.1:80 [::1] [::1]:80 localhost x_y", true)
	f("a.test a.test:80", true)
	f("", true)
	f("a.test A.TEST", false)
	f("a.test a.test", false)
	f("*.test", false)
	f("http://a.test", false)
	f("a.test/", false)
	f("a.test.", false)
	f("a..test", false)
	f("a.test:0", false)
	f("a.test:x", false)
	f("-a.test", false)
	f("ä.test", false)
	f("1.2.3", false)
	f("::1", false)
	f("[1.2.3.4]", false)
	f("[::1", false)
	f(`a\nb`, false)
}

// Without a secret a domain warns; with a shared store it does not start.
func TestDomainSecretNeeded(t *testing.T) {
	f := func(env string, notices, faults int) {
		t.Helper()
		_, fs, ns := Load(strings.Fields(env), nil)
		if len(fs) != faults || faults == 0 && len(ns) != notices {
			t.Errorf("%s: %v %v", env, fs, ns)
		}
	}
	const in = `DOMAIN_MAP={"a.test":{"upstream":"http://h"},"b.test":{"upstream":"http://h"},"c.test":{"outbound":"http://h"}}`
	f(in, 1, 0)
	f(in+" PORT=0", 0, 0)
	f(in+" REDIS_URL=redis://h PASEO_RELAY_OWNERSHIP_TARGET=x", 0, 1)
	f("REDIS_URL=redis://h PASEO_RELAY_OWNERSHIP_TARGET=x", 0, 1)
	f("REDIS_URL=redis://h PASEO_RELAY_OWNERSHIP_TARGET=x PORT=0", 0, 0)
	f(`DOMAIN_MAP={}`, 1, 0)

	// However many there are, one line tells.
	var many []string
	for i := range 5000 {
		many = append(many, fmt.Sprintf(`"h%d.test":{"upstream":"http://h"}`, i))
	}
	text := "DOMAIN_MAP={" + strings.Join(many, ",") + "}"
	f(text, 1, 0)
	if _, _, ns := Load([]string{text}, nil); len(ns) != 1 || len(ns[0].Text) > 1000 || !strings.Contains(ns[0].Text, "and 4980 more") {
		t.Errorf("%v", ns)
	}
}

// A fleet's domains may stand at the control plane alone: before it has answered
// there are none, and nothing is served without a secret that the nodes share.
func TestDomainsLeftToTheControlPlane(t *testing.T) {
	f := func(what string, control []byte, hosts, faults int, environ ...string) {
		t.Helper()
		c, bad, _ := LoadWith(environ, control, nil)
		if len(bad) != faults || c != nil && len(c.MTE.Domains) != hosts {
			t.Errorf("%s: %v %v", what, c, bad)
		}
	}
	const redis, plane = "REDIS_URL=redis://r", "CONTROL_PLANE_URL=https://control.example/"
	f("nothing is awaited", nil, 0, 1, redis)
	f("not yet", nil, 0, 0, redis, plane)
	f("it has none either", []byte(`{"MAX_REQUEST_BODY_MIB": 1}`), 0, 1, redis, plane)
	f("it has some", []byte(`{"DOMAIN_MAP": {"a.test": {"upstream": "http://a", "client_id_secret": "0123456789012345678901234567890123456789"}}}`), 1, 0, redis, plane)
	f("a secret is missing", nil, 0, 1, redis, plane, `DOMAIN_MAP={"a.test": {"upstream": "http://a"}}`)
	f("one node", nil, 1, 0, plane)
}

// A file's object and the environment's JSON mean the same.
func TestDomainsFromFile(t *testing.T) {
	c, faults, _ := load("", "DOMAIN_MAP:\n  a.test:\n    upstream: http://h\n    client_id_secret: "+longSecret+"\n    cors_origins: [\"*\"]\n  b.test: {outbound: 'http://o'}\n")
	if faults != nil {
		t.Fatal(faults)
	}
	want, _ := parseDomains(`{"a.test":{"upstream":"http://h","client_id_secret":"` + longSecret + `","cors_origins":["*"]},"b.test":{"outbound":"http://o"}}`)
	if !reflect.DeepEqual(c.MTE.Domains, want) {
		t.Fatalf("%v, want %v", c.MTE.Domains, want)
	}
	_, faults, _ = load("", "DOMAIN_MAP:\n  a.test:\n    upstream: ftp://h\n")
	if len(faults) != 1 || !strings.Contains(faults.Error(), "in f:2") {
		t.Fatalf("the file is not named: %v", faults)
	}
}
