package gateway_test

import (
	"bytes"
	"net/http"
	"strings"
	"testing"

	"sluice/gateway"
)

// check-config judges what the control plane says, too.
func TestCheckConfigControlPlane(t *testing.T) {
	p := startPlane(t, "MAX_REQUEST_BODY_MIB: 1")
	f := func(name string, code int, want string, settings ...string) {
		t.Helper()
		var out, errOut bytes.Buffer
		got := gateway.CheckConfig(append(settings, "CONTROL_PLANE_URL="+p.url), &out, &errOut)
		where := out.String()
		if code != 0 {
			where = errOut.String()
		}
		if got != code || !strings.Contains(where, want) {
			t.Errorf("%s: %d\n%s\n%s\nwant %d with %q", name, got, &out, &errOut, code, want)
		}
	}
	f("good", 0, "the settings are good")
	f("a token that cannot be read", 0, "CONTROL_PLANE_TOKEN_FILE: open /none", "CONTROL_PLANE_TOKEN_FILE=/none")
	f("a cache that cannot be", 0, "CONTROL_PLANE_CACHE_FILE: nothing can be kept there", "CONTROL_PLANE_CACHE_FILE=/none/kept")
	f("a fault of the environment", 1, "LOOPS: ", "LOOPS=none")
	p.serve("MAX_REQUEST_BODY_MIB: x")
	f("a bad value", 1, `CONTROL_PLANE_URL (settings): MAX_REQUEST_BODY_MIB: "x" in CONTROL_PLANE_URL:1; legal: `)
	p.serve("LOOPS: 77")
	f("what the environment has", 0, "the settings are good", "LOOPS=1")
	f("what needs a restart", 1, "CONTROL_PLANE_URL (restart): needs a restart: LOOPS")
}

// Without an answer check-config says what a start would do.
func TestCheckConfigWithoutControlPlane(t *testing.T) {
	p := startPlane(t, "")
	p.play(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) })
	f := func(name, kept string, code int, want string) {
		t.Helper()
		settings := []string{"CONTROL_PLANE_URL=" + p.url}
		if kept != "" {
			settings = append(settings, "CONTROL_PLANE_CACHE_FILE="+tempFile(t, "kept", kept))
		}
		var out bytes.Buffer
		if got := gateway.CheckConfig(settings, &out, &out); got != code || !strings.Contains(out.String(), want) {
			t.Errorf("%s: %d\n%s", name, got, &out)
		}
		if !strings.Contains(out.String(), "no settings from "+p.url+" now (status): status 500") {
			t.Errorf("%s: not told why\n%s", name, &out)
		}
	}
	f("nothing kept", "", 0, "nothing is kept")
	f("a good version", "MAX_REQUEST_BODY_MIB: 1", 0, "a start would use the version that is kept")
	f("a bad version", "MAX_REQUEST_BODY_MIB: x", 1, "CONTROL_PLANE_CACHE_FILE (settings): ")
}
