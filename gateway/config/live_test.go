package config

import (
	"slices"
	"testing"
)

// Settings that changed are told apart by whether they need a restart.
func TestDiff(t *testing.T) {
	load := func(env ...string) *Config {
		t.Helper()
		c, faults, _ := Load(env, nil)
		if len(faults) > 0 {
			t.Fatal(faults)
		}
		return c
	}
	f := func(was, is []string, live, restart []string) {
		t.Helper()
		gotLive, gotRestart := load(was...).Diff(load(is...))
		if !slices.Equal(gotLive, live) || !slices.Equal(gotRestart, restart) {
			t.Errorf("Diff(%q, %q) = %q, %q; want %q, %q", was, is, gotLive, gotRestart, live, restart)
		}
	}
	domain := `DOMAIN_MAP={"a.test":{"upstream":"http://127.0.0.1:1","client_id_secret":"0123456789abcdef0123456789abcdef"}}`
	// nothing changed
	f(nil, nil, nil, nil)
	f([]string{domain}, []string{domain}, nil, nil)
	// live ones
	f(nil, []string{"MAX_REQUEST_BODY_MIB=3"}, []string{"MAX_REQUEST_BODY_MIB"}, nil)
	f(nil, []string{domain}, []string{"DOMAIN_MAP"}, nil)
	// one that needs a restart, alone and beside a live one
	f(nil, []string{"PASEO_RELAY_INGRESS_WEIGHT=2"}, nil, []string{"PASEO_RELAY_INGRESS_WEIGHT"})
	f(nil, []string{domain, "LOOPS=3"}, []string{"DOMAIN_MAP"}, []string{"LOOPS"})
}
