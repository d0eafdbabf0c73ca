package gateway_test

import (
	"bytes"
	"context"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"testing"

	"sluice/gateway"
)

// `sluice call` against a relay as it starts without a DOMAIN_MAP: what README.md
// shows, and the exit codes it promises.
func TestCall(t *testing.T) {
	// The first of these starts a goroutine that stays for the life of the process.
	_, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	stop()
	n := startMTE(t)
	at := "http://localhost:" + n.addr[strings.LastIndexByte(n.addr, ':')+1:]
	f := func(code int, args ...string) (out, said string) {
		t.Helper()
		var outB, errB bytes.Buffer
		if got := gateway.Call(args, &outB, &errB); got != code {
			t.Errorf("%v: exit %d, want %d; %s%s", args, got, code, outB.String(), errB.String())
		}
		return outB.String(), errB.String()
	}
	has := func(text string, parts ...string) {
		t.Helper()
		for _, p := range parts {
			if !strings.Contains(text, p) {
				t.Errorf("%q is not in %q", p, text)
			}
		}
	}
	out, said := f(0, "-v", at+"/hello")
	has(out, `"method": "GET"`, `"target": "/hello"`)
	has(said, "connected to 127.0.0.1:", "GET /api/mte-relay: 200", "authenticated as client", "POST /api/mte-pair: 200", "paired 1", "at strength 1024", "POST /: ", "RESPONSE 200")
	if out, said = f(0, at+"/hello"); said != "" || out == "" {
		t.Errorf("without -v: %q", said)
	}
	out, _ = f(0, "-i", "-d", "some body", at+"/up")
	has(out, "200\n", "\n\nsome body")
	if out, _ = f(0, at+"/events?n=3&ms=1"); strings.Count(out, "data:") != 3 {
		t.Errorf("events: %q", out)
	}
	out, _ = f(0, "-d", "", at+"/hello")
	has(out, `"method": "POST"`)
	_, said = f(1, at+"//hello") // metadata carries no such path, and another is not asked for
	has(said, "metadata path is illegal")
	f(22, at+"/status/418")
	out, _ = f(0, "-mte", "-X", "PUT", "-H", "X-Of-Call: yes", at+"/a%20b?c=d")
	has(out, `"method": "PUT"`, `"target": "/a%20b?c=d"`, "X-Of-Call", "yes")
	file := filepath.Join(t.TempDir(), "body")
	body := strings.Repeat("of a file ", 50_000)
	if err := os.WriteFile(file, []byte(body), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, _ = f(0, "-d", "@"+file, at+"/up"); out != body {
		t.Errorf("%d bytes of %d came back", len(out), len(body))
	}
	// A relay has no domain of another name, not even 127.0.0.1, unless it is asked for.
	_, said = f(1, strings.Replace(at, "localhost", "127.0.0.1", 1)+"/hello")
	has(said, "480", "no_domain_for_host")
	out, _ = f(0, "-host", "localhost", strings.Replace(at, "localhost", "127.0.0.1", 1)+"/hello")
	has(out, `"target": "/hello"`)
	f(1, "-d", "@"+file+".not", at+"/up")
	f(1, "-timeout", "1ms", at+"/events?n=1000&ms=1000")
	for _, args := range [][]string{{}, {at, at}, {"ftp://localhost"}, {"localhost"}, {"-nothing", at}, {"-H", "no colon", at}} {
		f(2, args...)
	}
	f(0, "-h")
}
