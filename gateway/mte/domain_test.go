package mte

import (
	"log/slog"
	"net/url"
	"strings"
	"testing"

	"sluice/gateway/config"
)

// A domain whose upstream cannot be used is an error that names it.
func TestNewFailure(t *testing.T) {
	cfg, faults, _ := config.Load([]string{"PORT=1", "PASEO_RELAY_PORT=0",
		`DOMAIN_MAP={"bad.test":{"upstream":"http://origin.test","client_id_secret":"` + testSecret + `"}}`}, nil)
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	cfg.MTE.Domains["bad.test"].Upstream = &url.URL{Scheme: "ftp", Host: "origin.test"}
	if _, err := New(Config{MTE: cfg.MTE}, nil, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "bad.test") {
		t.Errorf("error %v", err)
	}
}

// A host is looked up in any case, and a key with the port goes before one without.
func TestDomainLookup(t *testing.T) {
	list := domains{}
	for _, key := range []string{"both.test", "both.test:81", "ported.test:8443", "[::1]"} {
		list[key] = &domain{host: key}
	}
	f := func(host, key string) {
		t.Helper()
		got := list.lookup([]byte(host))
		if got == nil && key == "" || got != nil && got.host == key {
			return
		}
		t.Errorf("%q: %+v, want %q", host, got, key)
	}
	f("both.test", "both.test")
	f("BOTH.test:80", "both.test")
	f("both.test:81", "both.test:81")
	f("ported.test:8443", "ported.test:8443")
	f("ported.test", "")
	f("ported.test:80", "")
	f("[::1]", "[::1]")
	f("[::1]:8080", "[::1]")
	f("", "")
	f(":80", "")
	f("other.test", "")
}
