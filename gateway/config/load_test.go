package config

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io/fs"
	"math/big"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// files is a file system for Load.
type files map[string]string

func (f files) read(name string) ([]byte, error) {
	if text, ok := f[name]; ok {
		return []byte(text), nil
	}
	return nil, fs.ErrNotExist
}

// load is Load with an environment written as "A=1 B=2" (values without blanks) and one file.
func load(env, file string) (*Config, Faults, Notices) {
	environ := strings.Fields(env)
	if file != "" {
		environ = append(environ, "CONFIG_FILE=f")
	}
	return Load(environ, files{"f": file}.read)
}

func TestLoadDefaults(t *testing.T) {
	c, faults, notices := load("", "")
	if faults != nil {
		t.Fatal(faults)
	}
	want := func(what string, got, want any) {
		t.Helper()
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s is %v, want %v", what, got, want)
		}
	}
	want("version", c.Version, uint64(1))
	want("relay listener", c.Relay.Listen.Addr(), "127.0.0.1:4000")
	want("MTE listener", c.MTE.Listen.Addr(), "127.0.0.1:8080")
	want("admin listener", c.Admin.Listen.Addr(), "127.0.0.1:9090")
	want("ceiling", c.Relay.MaxWebSockets(), 20000)
	want("ownership", c.Relay.Ownership, OwnershipLocal)
	want("attach timeout", c.Relay.DataAttachTimeout, 15*time.Second)
	want("socket heap", c.Relay.SocketHeapBytes(), int64(1<<28))
	want("control body", c.MTE.MaxControlBodyBytes, int64(4<<20))
	want("pair bytes", c.MTE.MaxPairBytes, int64(1<<30))
	want("pair time", c.MTE.MaxPairTime, 24*time.Hour)
	want("rate limits", c.MTE.RateLimits, true)
	want("codec pool", c.MTE.CodecPoolSize, 250)
	want("minimum pairs", c.Client.MinPairs, 25)
	want("redis", c.Redis.On(), false)
	want("loops", c.Loops, defaultLoops())
	want("echo domain", c.MTE.Domains["localhost"].Echo, true)
	want("notices", len(notices), 2)
}

// The values of one setting that the environment and a file may hold.
func TestLoadSuccess(t *testing.T) {
	f := func(env, file string, get func(*Config) any, want any) {
		t.Helper()
		c, faults, _ := load(env, file)
		if faults != nil {
			t.Errorf("%s %q: %v", env, file, faults)
			return
		}
		if got := get(c); !reflect.DeepEqual(got, want) {
			t.Errorf("%s %q: %v, want %v", env, file, got, want)
		}
	}
	drain := func(c *Config) any { return c.Relay.StartDraining }
	kyber := func(c *Config) any { return c.MTE.KyberStrength }
	attach := func(c *Config) any { return c.Relay.DataAttachTimeout }
	pairBytes := func(c *Config) any { return c.MTE.MaxPairBytes }
	certs := func(c *Config) any { return len(c.Edge.TrustedProxies) }

	// booleans
	for text, want := range map[string]bool{"true": true, "on": true, "1": true, "false": false, "off": false, "0": false} {
		f("PASEO_RELAY_DRAIN="+text, "", drain, want)
	}
	f("", `{"PASEO_RELAY_DRAIN":true}`, drain, true)
	f("", `{"PASEO_RELAY_DRAIN":1}`, drain, true)
	f("", "PASEO_RELAY_DRAIN: on", drain, true)
	f("", "PASEO_RELAY_DRAIN: True", drain, true)
	// the environment wins
	f("KYBER_STRENGTH=512", `{"KYBER_STRENGTH":768}`, kyber, 512)
	f("", "# c\nKYBER_STRENGTH: 768\nMAX_PAIRS_PER_BATCH: 9\n", kyber, 768)
	f("", "KYBER_STRENGTH: '768'", kyber, 768)
	f("", "\ufeff{\"KYBER_STRENGTH\":\"768\"}", kyber, 768)
	// even over a bad value
	f("KYBER_STRENGTH=512", "KYBER_STRENGTH: 7", kyber, 512)
	// an empty variable is unset where unset is a value
	f("TRUSTED_PROXIES=", "TRUSTED_PROXIES: [127.0.0.1, '10.0.0.0/8']", certs, 2)
	f("TRUSTED_PROXIES= TCP_CONGESTION= REDIS_URL= TLS_CERT_FILE= CONFIG_FILE= PASEO_RELAY_CLUSTER_QUERY=", "", certs, 0)
	f("", "TRUSTED_PROXIES:", certs, 0)
	f("", "TRUSTED_PROXIES: []", certs, 0)
	f("", "TRUSTED_PROXIES: \"\"\nTCP_CONGESTION: ''\nREDIS_URL: ''\nTLS_CERT_FILE: ''\nCONTROL_PLANE_URL: ''\nPASEO_RELAY_CLUSTER_QUERY: []", certs, 0)
	// defaults that bend to what was given
	f("PASEO_RELAY_DELIVERY_TIMEOUT_MS=1000", "", attach, time.Second)
	f("PASEO_RELAY_DELIVERY_TIMEOUT_MS=20000", "", attach, 15*time.Second)
	f("CLIENT_MAX_PAIRS=4", "", func(c *Config) any { return c.Client.MinPairs }, 4)
	f("MAX_POOL_SIZE_LIMIT=10", "", func(c *Config) any { return c.MTE.CodecPoolSize }, 10)
	f("REDIS_URL=redis://h PORT=0", "", func(c *Config) any { return c.Relay.Ownership }, OwnershipRedis)
	f("REDIS_URL=redis://h PORT=0 PASEO_RELAY_OWNERSHIP=local", "", func(c *Config) any { return c.Relay.Ownership }, OwnershipLocal)
	// the pair budget and its alias
	f("MAX_PAIR_MIB=2", "", pairBytes, int64(2<<20))
	f("MAX_PAIR_MIB=0", "", pairBytes, int64(1<<30))
	f("MAX_PAIR_MIB=2 MAX_PAIR_BYTES=5000000", "", pairBytes, int64(5000000))
	f("MAX_PAIR_MIB=2 MAX_PAIR_BYTES=0", "", pairBytes, int64(1<<30))
	f("MAX_PAIR_SECONDS=0", "", func(c *Config) any { return c.MTE.MaxPairTime }, 24*time.Hour)
	f("MAX_REQUEST_BODY_MIB=3", "", func(c *Config) any { return c.MTE.MaxRequestBodyBytes }, int64(3<<20))
	// hosts
	f("HOST=::1", "", func(c *Config) any { return c.MTE.Listen.Addr() }, "[::1]:8080")
	f("HOST=localhost", "", func(c *Config) any { return c.MTE.Listen.Addr() }, "127.0.0.1:8080")
	f("PASEO_RELAY_PORT=0", "", func(c *Config) any { return c.Relay.Listen.On() }, false)
	f("PASEO_RELAY_PORT=8080 PASEO_RELAY_HOST=127.0.0.2", "", func(c *Config) any { return c.Relay.Listen.Port }, uint16(8080))
	// the smallest legal values (contract, settings)
	f("PASEO_RELAY_INGRESS_BUDGET_BYTES=134217672", "", func(c *Config) any { return c.Relay.IngressBudgetBytes }, int64(134217672))
	f("PASEO_RELAY_INGRESS_WEIGHT=16", "", func(c *Config) any { return c.Relay.IngressWeight }, 16)
	f("DRAIN_SECONDS=0 PASEO_RELAY_INGRESS_WAIT_MS=0 PASEO_RELAY_TCP_RECEIVE_BUFFER_BYTES=0", "", func(c *Config) any { return c.Relay.IngressWait }, time.Duration(0))
	f("PASEO_RELAY_DELIVERY_TIMEOUT_MS=1000 PASEO_RELAY_TRANSPORT_SEND_TIMEOUT_MS=1001 PASEO_RELAY_DATA_ATTACH_TIMEOUT_MS=1000", "", attach, time.Second)
	// metadata that just fits
	f("MAX_FRAME_BYTES=16384 MAX_METADATA_BYTES_MKE=16296 MAX_METADATA_BYTES_MTE=2039", "", func(c *Config) any { return c.MTE.MaxMetadataBytesMTE }, int64(2039))
	f("MAX_FRAME_BYTES=4164 MAX_METADATA_BYTES_MKE=512 MAX_METADATA_BYTES_MTE=512", "", func(c *Config) any { return c.MTE.MaxFrameBytes }, int64(4164))
	// lists in both forms
	f("", `{"TRUSTED_PROXIES":"127.0.0.1, 10.0.0.0/24"}`, certs, 2)
	// of a name given twice the first counts
	f("KYBER_STRENGTH=512 KYBER_STRENGTH=768", "", kyber, 512)
}

// Each case is one fault, whose line holds every given word.
func TestLoadFailure(t *testing.T) {
	f := func(env, file string, words ...string) {
		t.Helper()
		c, faults, _ := load(env, file)
		if c != nil || len(faults) != 1 {
			t.Errorf("%s %q: %d faults, want one\n%v", env, file, len(faults), faults)
			return
		}
		line := faults.Error()
		for _, w := range words {
			if !strings.Contains(line, w) {
				t.Errorf("%s %q: %q is not in: %s", env, file, w, line)
			}
		}
		if strings.ContainsAny(line, "\n\r") {
			t.Errorf("%s: more than one line: %q", env, line)
		}
	}
	// numbers
	for _, v := range []string{"-5", "many", "1.5", "5s", "64K", "+1", "1_000", "0x10", "1e3", "010", "99999999999999999999", ""} {
		f("PASEO_RELAY_ACCEPTORS="+v, "", "PASEO_RELAY_ACCEPTORS: ", `"`+v+`"`, "1 to 2147483647")
	}
	// words
	for _, v := range []string{"maybe", "yes", "TRUE", "On", "2", ""} {
		f("PASEO_RELAY_DRAIN="+v, "", "PASEO_RELAY_DRAIN", `"`+v+`"`, "true, false, on, off, 1 or 0")
	}
	f("LOG_LEVEL=loud", "", "LOG_LEVEL", "loud", "debug, info, warn or error")
	f("LOG_FORMAT=xml", "", "LOG_FORMAT", "text or json")
	f("KYBER_STRENGTH=999", "", "KYBER_STRENGTH", "999", "1024, 768 or 512")
	f("PASEO_RELAY_OWNERSHIP=remote", "", "PASEO_RELAY_OWNERSHIP", "redis or local")
	// texts
	f("HOST=my-laptop", "", "HOST", "my-laptop", "IP address")
	f("HOST=", "", "HOST", "IP address")
	f("HOST=127.0.0.1:80", "", "HOST")
	f("HOST=fe80::1%eth0", "", "HOST")
	f("PASEO_RELAY_REROUTE_HEADER=x:y", "", "PASEO_RELAY_REROUTE_HEADER", "x:y")
	f("PASEO_RELAY_REROUTE_HEADER=Content-Length", "", "PASEO_RELAY_REROUTE_HEADER")
	f("PASEO_RELAY_REROUTE_HEADER=", "", "PASEO_RELAY_REROUTE_HEADER")
	f("PASEO_RELAY_OWNERSHIP_TARGET=", "", "PASEO_RELAY_OWNERSHIP_TARGET")
	f("PASEO_RELAY_OWNERSHIP_TARGET=nöde", "", "PASEO_RELAY_OWNERSHIP_TARGET")
	f("PASEO_RELAY_OWNERSHIP_TARGET="+strings.Repeat("x", 257), "", "PASEO_RELAY_OWNERSHIP_TARGET", "257 bytes")
	f("TCP_CONGESTION=cubic;", "", "TCP_CONGESTION", "cubic;")
	f("TLS_CERT_FILE=a,,b", "", "TLS_CERT_FILE", "a,,b")
	f("CONTROL_PLANE_URL=ftp://x", "", "CONTROL_PLANE_URL")
	f("CONTROL_PLANE_URL=http://u:p@x", "", "CONTROL_PLANE_URL", hidden)
	// ports
	f("PORT=70000", "", "PORT", "70000", "65535")
	f("ADMIN_PORT=0", "", "ADMIN_PORT")
	f("PASEO_RELAY_PORT=tcp://10.0.0.1:4000", "", "PASEO_RELAY_PORT", "tcp://10.0.0.1:4000", "service link")
	f("PORT=0 PASEO_RELAY_PORT=0", "", "PORT", "PASEO_RELAY_PORT")
	f("PORT=4000", "", "PORT", "PASEO_RELAY_PORT")
	f("ADMIN_PORT=4000 PASEO_RELAY_HOST=0.0.0.0", "", "ADMIN_PORT", "PASEO_RELAY_PORT")
	f("ADMIN_PORT=8080", "", "ADMIN_PORT")
	// contradictions of the relay
	f("PASEO_RELAY_TRANSPORT_SEND_TIMEOUT_MS=30000", "", "PASEO_RELAY_TRANSPORT_SEND_TIMEOUT_MS", `"30000"`, "PASEO_RELAY_DELIVERY_TIMEOUT_MS (30000)")
	f("PASEO_RELAY_DELIVERY_TIMEOUT_MS=40000", "", "PASEO_RELAY_TRANSPORT_SEND_TIMEOUT_MS", "35000", "default", "40000")
	f("PASEO_RELAY_DATA_ATTACH_TIMEOUT_MS=30001", "", "PASEO_RELAY_DATA_ATTACH_TIMEOUT_MS", "30001", "PASEO_RELAY_DELIVERY_TIMEOUT_MS (30000)")
	f("PASEO_RELAY_INGRESS_BUDGET_BYTES=134217671", "", "PASEO_RELAY_INGRESS_BUDGET_BYTES", "134217671", "PASEO_RELAY_INGRESS_WEIGHT (4)", "134217672")
	f("PASEO_RELAY_INGRESS_WEIGHT=17", "", "PASEO_RELAY_INGRESS_BUDGET_BYTES", "PASEO_RELAY_INGRESS_WEIGHT (17)")
	f("PASEO_RELAY_INGRESS_WEIGHT=2147483647", "", "PASEO_RELAY_INGRESS_BUDGET_BYTES")
	f("PASEO_RELAY_WEBSOCKET_MAX_HEAP_WORDS=33554431", "", "PASEO_RELAY_WEBSOCKET_MAX_HEAP_WORDS", "33554432")
	f("PASEO_RELAY_ACCEPTORS=65536 PASEO_RELAY_CONNECTIONS_PER_ACCEPTOR=65536", "", "PASEO_RELAY_ACCEPTORS", "product", "65536")
	// a setting at fault takes no part in contradictions
	f("PASEO_RELAY_DELIVERY_TIMEOUT_MS=0 PASEO_RELAY_DATA_ATTACH_TIMEOUT_MS=86400000", "", "PASEO_RELAY_DELIVERY_TIMEOUT_MS")
	// cluster
	f("PASEO_RELAY_MIN_CLUSTER_SIZE=2", "", "PASEO_RELAY_MIN_CLUSTER_SIZE", "REDIS_URL")
	f("PORT=0 REDIS_URL=redis://h PASEO_RELAY_MIN_CLUSTER_SIZE=2", "", "PASEO_RELAY_MIN_CLUSTER_SIZE", "PASEO_RELAY_OWNERSHIP_TARGET")
	f("PORT=0 REDIS_URL=redis://h PASEO_RELAY_MIN_CLUSTER_SIZE=2 PASEO_RELAY_OWNERSHIP=local PASEO_RELAY_OWNERSHIP_TARGET=a", "", "PASEO_RELAY_MIN_CLUSTER_SIZE", "PASEO_RELAY_OWNERSHIP")
	f("PASEO_RELAY_OWNERSHIP=redis", "", "PASEO_RELAY_OWNERSHIP", "REDIS_URL")
	f("PASEO_RELAY_CLUSTER_QUERY=relay.internal", "", "PASEO_RELAY_CLUSTER_QUERY", "relay.internal", "REDIS_URL", "PASEO_RELAY_OWNERSHIP_TARGET")
	f("PASEO_RELAY_CLUSTER_NODES=a@b", "", "PASEO_RELAY_CLUSTER_NODES", "a@b", "REDIS_URL")
	// encrypting relay
	f("MAX_FRAME_BYTES=4163 MAX_METADATA_BYTES_MKE=512 MAX_METADATA_BYTES_MTE=512", "", "MAX_FRAME_BYTES", "4163", "4164")
	f("MAX_METADATA_BYTES_MTE=511", "", "MAX_METADATA_BYTES_MTE", "511", "512")
	f("MAX_METADATA_BYTES_MKE=65449", "", "MAX_METADATA_BYTES_MKE", "65448", "MAX_FRAME_BYTES (65536)")
	f("MAX_FRAME_BYTES=16384 MAX_METADATA_BYTES_MKE=16296 MAX_METADATA_BYTES_MTE=2040", "", "MAX_METADATA_BYTES_MTE", "2039")
	f("DEFAULT_POOL_SIZE=100001", "", "DEFAULT_POOL_SIZE", "MAX_POOL_SIZE_LIMIT (100000)")
	f("CLIENT_MAX_PAIRS=4 CLIENT_MIN_PAIRS=5", "", "CLIENT_MIN_PAIRS", "CLIENT_MAX_PAIRS (4)")
	f("CLIENT_MAX_PAIRS=4 CLIENT_INITIAL_PAIRS=5", "", "CLIENT_INITIAL_PAIRS", "CLIENT_MAX_PAIRS (4)")
	f("CLIENT_INITIAL_PAIRS=0", "", "CLIENT_INITIAL_PAIRS", `"0"`)
	f("REDIS_URL=redis://h", "", "DOMAIN_MAP", "client_id_secret", "REDIS_URL")
	// files
	f("CONFIG_FILE=/nonexistent/file.json", "", "CONFIG_FILE", "/nonexistent/file.json")
	f("", `{"KYBER_STRENGTH":`, "CONFIG_FILE", "line 1", "not valid JSON")
	f("", "[]", "CONFIG_FILE", "a list")
	f("", "just text", "CONFIG_FILE", "a string")
	f("", " \n", "CONFIG_FILE", "empty")
	f("", "# only a comment\n", "CONFIG_FILE", "empty")
	f("", "{\"A\":1}\n{}", "CONFIG_FILE", "line 2")
	f("", "{\"PORT\":1,\n\"PORT\":2}", "CONFIG_FILE", "line 2", `"PORT"`, "twice")
	f("", "PORT: 1\nHOST: ::1\nPORT: 2\n", "CONFIG_FILE", "line 3", `"PORT"`, "twice")
	f("", "PORT: 1\n---\nPORT: 2\n", "CONFIG_FILE", "more than one document")
	f("", "PORT: &a 1\n", "CONFIG_FILE", "anchors")
	f("", "PORT: !!int 1\n", "CONFIG_FILE", "tags")
	f("", "{\"PORT\":\"\xff\"}", "CONFIG_FILE", "UTF-8")
	f("", `{"PORT":`+strings.Repeat("[", 40)+strings.Repeat("]", 40)+`}`, "CONFIG_FILE", "nested")
	f("", "PORT: "+strings.Repeat("[", 40), "CONFIG_FILE", "nested")
	f("", "PORT:\n  "+strings.Repeat("- ", 40)+"x", "CONFIG_FILE", "nested")
	f("", `{"NOSUCHKEY":1}`, "NOSUCHKEY: unknown key in f:1")
	f("", "PASEO_RELAY_NO_SUCH_SETTING: 1\n", "PASEO_RELAY_NO_SUCH_SETTING", "unknown key")
	f("", `{"a\nb":1}`, `"a\nb": unknown key`)
	f("", `{"port":1}`, "port: unknown key")
	f("", `{"CONFIG_FILE":"x"}`, "CONFIG_FILE", "only in the environment")
	f("", "\nMAX_FRAME_BYTES: 100", "MAX_FRAME_BYTES", "100", "f:2")
	f("", `{"MAX_FRAME_BYTES":-5}`, "MAX_FRAME_BYTES", "-5")
	f("", `{"MAX_FRAME_BYTES":65536.0}`, "MAX_FRAME_BYTES", "65536.0")
	f("", `{"MAX_FRAME_BYTES":null}`, "MAX_FRAME_BYTES")
	f("", `{"MAX_FRAME_BYTES":[1]}`, "MAX_FRAME_BYTES: a list in f:1")
	f("", `{"MAX_FRAME_BYTES":{}}`, "MAX_FRAME_BYTES: an object")
	f("", `{"MAX_FRAME_BYTES":true}`, "MAX_FRAME_BYTES", `"true"`)
	f("", `{"MAX_FRAME_BYTES":""}`, "MAX_FRAME_BYTES")
	f("", `{"MAX_FRAME_BYTES":[]}`, "MAX_FRAME_BYTES: a list")
	f("", `{"DOMAIN_MAP":[]}`, "DOMAIN_MAP")
	f("", `{"TRUSTED_PROXIES":[1]}`, "TRUSTED_PROXIES: a list")
	f("", `{"TRUSTED_PROXIES":["10.0.0.1,10.0.0.2"]}`, "TRUSTED_PROXIES: a list")
	f("", `{"DOMAIN_MAP":"{}"}`, "DOMAIN_MAP: a string")
	f("", "PORT: 0o17", "PORT", "0o17")
}

func TestLoadReportsEveryFault(t *testing.T) {
	_, faults, _ := load("KYBER_STRENGTH=999 MAX_FRAME_BYTES=-5 RATE_LIMITS=maybe", `{"X":1,"MAX_PAIRS":0}`)
	var names []string
	for _, f := range faults {
		names = append(names, f.Setting)
	}
	want := []string{"X", "KYBER_STRENGTH", "RATE_LIMITS", "MAX_FRAME_BYTES", "MAX_PAIRS"}
	if !slices.Equal(names, want) {
		t.Fatalf("faults of %v, want %v", names, want)
	}
}

func TestLoadNotices(t *testing.T) {
	f := func(env string, words ...string) {
		t.Helper()
		_, faults, notices := load(env+` DOMAIN_MAP={"a.test":{"outbound":"http://h"}}`, "")
		if faults != nil {
			t.Fatal(faults)
		}
		if words == nil {
			if notices != nil {
				t.Errorf("%s: %v", env, notices)
			}
			return
		}
		if len(notices) != 1 {
			t.Errorf("%s: notices %v, want one", env, notices)
			return
		}
		for _, w := range words {
			if !strings.Contains(fmt.Sprint(notices), w) {
				t.Errorf("%s: %q is not in %v", env, w, notices)
			}
		}
	}
	f("")
	// unknown variables are told by their prefix
	f("PASEO_RELAY_ACCEPTOR=1", "WARN", "PASEO_RELAY_ACCEPTOR:", "unknown")
	f("CLIENT_PAIRS=1", "CLIENT_PAIRS")
	f("REDIS_HOST=x", "REDIS_HOST")
	f("SERVER_X=1 PATH=/bin")
	f("PASEO_RELAY_SERVICE_HOST=10.0.0.1 PASEO_RELAY_PORT_4000_TCP=tcp://10.0.0.1:4000 REDIS_PORT=tcp://10.0.0.2:6379",
		"PASEO_RELAY_SERVICE_HOST", "PASEO_RELAY_PORT_4000_TCP", "REDIS_PORT", "service links")
	f("RELEASE_NODE=a RELEASE_COOKIE=s3cret ERL_FLAGS=x", "INFO", "RELEASE_NODE", "ERL_FLAGS", "ignored")
	// settings without effect
	f("REDIS_POOL_SIZE=4 LOCAL_STATE_CACHE=on", "REDIS_POOL_SIZE", "LOCAL_STATE_CACHE", "REDIS_URL")
	f("CONTROL_PLANE_TOKEN_FILE=/t", "CONTROL_PLANE_URL")
	f("PROXY_PROTOCOL=on", "TRUSTED_PROXIES")
	f("REDIS_URL=redis://h", "PASEO_RELAY_OWNERSHIP_TARGET")
	f("REDIS_URL=redis://h PASEO_RELAY_OWNERSHIP=local")
	f("REDIS_URL=redis://h PASEO_RELAY_OWNERSHIP_TARGET=a PASEO_RELAY_CLUSTER_NODES=x@y", "PASEO_RELAY_CLUSTER_NODES")
	f("MAX_PAIR_MIB=2 MAX_PAIR_BYTES=5000000", "MAX_PAIR_MIB", "MAX_PAIR_BYTES")
	f("MAX_PAIR_MIB=2 MAX_PAIR_BYTES=2097152")
}

// No line shows a secret, in whichever place it stands and whatever else is wrong there.
func TestLoadHidesSecrets(t *testing.T) {
	const secret = "hush-hush"
	f := func(env, file string) {
		t.Helper()
		c, faults, notices := load(env, file)
		out := fmt.Sprintf("%v\n%v\n%+v\n%#v", faults, notices, c, c)
		if c != nil {
			for _, d := range c.MTE.Domains {
				out += fmt.Sprintf("%+v %#v %q %x", *d, *d, d.Secret, d.OutboundToken)
			}
		}
		if strings.Contains(out, secret) {
			t.Errorf("%s %q shows the secret:\n%s", env, file, out)
		}
	}
	f("REDIS_URL=redis://:"+secret+"@h:port", "")
	f("REDIS_URL=http://:"+secret+"@h", "")
	f("REDIS_URL=redis://:"+secret+"@h PASEO_RELAY_CLUSTER_QUERY=x", "")
	f("CONTROL_PLANE_URL=http://u:"+secret+"@h", "")
	f("RELEASE_COOKIE="+secret, "")
	f(`DOMAIN_MAP={"a":{"upstream":"http://h","client_id_secret":"`+secret+`"}}`, "")
	f(`DOMAIN_MAP={"a":{"upstream":"http://h","client_id_secret":"`+secret+`"`, "")
	f(`DOMAIN_MAP={"a":{"upstream":"http://u:`+secret+`@h"}}`, "")
	f(`DOMAIN_MAP={"a":{"outbound":"http://h?k=`+secret+`"}}`, "")
	f(`DOMAIN_MAP={"a":{"outbound":"http://h","outbound_token":"`+secret+`"}}`, "")
	f(`DOMAIN_MAP={"a":{"outbound":"http://h","outbound_token":"`+secret+`\n"}}`, "")
	f(`DOMAIN_MAP={"a":{"upstream":"http://h","headers":{"x-key":"`+secret+`\n"}}}`, "")
	f(`DOMAIN_MAP={"a":{"upstream":"http://h","client_id_secret":"`+secret+secret+secret+secret+`"}}`, "")
	f("", "DOMAIN_MAP:\n  a:\n    client_id_secret: "+secret+"\n   upstream: x\n")
	f("", "DOMAIN_MAP: {a: {client_id_secret: "+secret+" ]")
	f("", "DOMAIN_MAP: {a: {client_id_secret: \""+secret+"\\q\"}}")
	f("", "REDIS_URL: [redis://:"+secret+"@h]")
	f("", "REDIS_URL: redis://:"+secret+"@h:x")
}

func TestLoadTLS(t *testing.T) {
	cert, key := newPair(t)
	cert2, key2 := newPair(t)
	fsys := files{"c": cert, "k": key, "c2": cert2, "k2": key2, "bad": "x"}
	f := func(env, fault string) {
		t.Helper()
		c, faults, _ := Load(strings.Fields(env), fsys.read)
		switch {
		case fault == "" && faults != nil:
			t.Errorf("%s: %v", env, faults)
		case fault == "":
			if len(c.MTE.TLS.CertFiles) != len(c.MTE.TLS.KeyFiles) || !c.MTE.TLS.On() && !c.Relay.TLS.On() {
				t.Errorf("%s: %+v", env, c.MTE.TLS)
			}
		case len(faults) != 1 || faults[0].Setting != fault:
			t.Errorf("%s: %v, want one fault of %s", env, faults, fault)
		}
	}
	f("TLS_CERT_FILE=c TLS_KEY_FILE=k", "")
	f("PASEO_RELAY_TLS_CERT_FILE=c PASEO_RELAY_TLS_KEY_FILE=k", "")
	f("TLS_CERT_FILE=c,c2 TLS_KEY_FILE=k,k2", "")
	// one without the other, different lengths, wrong order, missing and broken files
	f("TLS_CERT_FILE=c", "TLS_CERT_FILE")
	f("TLS_KEY_FILE=k", "TLS_CERT_FILE")
	f("PASEO_RELAY_TLS_KEY_FILE=k", "PASEO_RELAY_TLS_CERT_FILE")
	f("TLS_CERT_FILE=c,c2 TLS_KEY_FILE=k", "TLS_CERT_FILE")
	f("TLS_CERT_FILE=c,c2 TLS_KEY_FILE=k2,k", "TLS_CERT_FILE")
	f("TLS_CERT_FILE=none TLS_KEY_FILE=k", "TLS_CERT_FILE")
	f("TLS_CERT_FILE=c TLS_KEY_FILE=none", "TLS_KEY_FILE")
	f("TLS_CERT_FILE=bad TLS_KEY_FILE=k", "TLS_CERT_FILE")
}

// newPair makes a self-signed certificate and its key in PEM.
func newPair(t *testing.T) (cert, key string) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := x509.Certificate{SerialNumber: big.NewInt(1)}
	der, err := x509.CreateCertificate(rand.Reader, &tmpl, &tmpl, &k.PublicKey, k)
	if err != nil {
		t.Fatal(err)
	}
	pk, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	block := func(kind string, b []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: b}))
	}
	return block("CERTIFICATE", der), block("PRIVATE KEY", pk)
}

func TestCheckFileLimit(t *testing.T) {
	c, _, _ := load("", "")
	f := func(limit uint64, want int) {
		t.Helper()
		n := c.CheckFileLimit(limit)
		if len(n) != want {
			t.Errorf("limit %d: %v", limit, n)
		}
		for _, x := range n {
			if !strings.Contains(x.Text, "RLIMIT_NOFILE ("+fmt.Sprint(limit)+")") {
				t.Errorf("the limit is not named: %s", x.Text)
			}
		}
	}
	f(21000, 0)
	f(20999, 1)
	f(10999, 2)
	f(0, 2)
}
