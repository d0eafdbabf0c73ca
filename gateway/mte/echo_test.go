package mte

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
)

func TestEchoOrigin(t *testing.T) {
	e, err := startEcho()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	f := func(method, target, body string, status int) (string, http.Header) {
		t.Helper()
		var r io.Reader
		if body != "" {
			r = strings.NewReader(body)
		}
		req, err := http.NewRequest(method, e.URL()+target, r)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "text/x-test")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != status {
			t.Fatalf("%s %s: %d, %v", method, target, resp.StatusCode, err)
		}
		if m := resp.Header.Get("X-Echo-Method"); m != method && method != "HEAD" {
			t.Errorf("X-Echo-Method is %q", m)
		}
		return string(b), resp.Header
	}
	// A body comes back as it was sent.
	got, h := f("POST", "/a", strings.Repeat("x", 100000), 200)
	if len(got) != 100000 || h.Get("Content-Type") != "text/x-test" {
		t.Errorf("%d bytes of %q came back", len(got), h.Get("Content-Type"))
	}
	// Without one there is a description.
	var seen struct {
		Method, Target string
		Headers        http.Header
	}
	got, _ = f("GET", "/a//b?c=d", "", 200)
	if err := json.Unmarshal([]byte(got), &seen); err != nil || seen.Target != "/a//b?c=d" || seen.Headers.Get("Content-Type") != "text/x-test" {
		t.Errorf("described as %s, %v", got, err)
	}
	// Events and statuses.
	got, h = f("GET", "/events?n=3&ms=1", "", 200)
	if strings.Count(got, "\n\n") != 3 || h.Get("Content-Type") != "text/event-stream" {
		t.Errorf("events: %q", got)
	}
	f("GET", "/status/418", "", 418)
	f("DELETE", "/status/204", "", 204)
	f("GET", "/status/99", "", 400)
}
