package config

import (
	"slices"
	"strings"
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

// The control plane's answer goes between the environment and the file.
func TestLoadWith(t *testing.T) {
	f := func(env, control, file string, want int64) {
		t.Helper()
		environ := []string{"CONFIG_FILE=f"}
		if env != "" {
			environ = append(environ, env)
		}
		c, faults, _ := LoadWith(environ, []byte(control), files{"f": file}.read)
		if faults != nil {
			t.Fatal(faults)
		}
		if got := c.MTE.MaxRequestBodyBytes >> 20; got != want {
			t.Errorf("%q, %q, %q: %d, want %d", env, control, file, got, want)
		}
	}
	f("", "{}", "MAX_REQUEST_BODY_MIB: 3", 3)
	f("", "MAX_REQUEST_BODY_MIB: 2", "{}", 2)
	f("", "MAX_REQUEST_BODY_MIB: 2", "MAX_REQUEST_BODY_MIB: 3", 2)
	f("MAX_REQUEST_BODY_MIB=1", "MAX_REQUEST_BODY_MIB: 2", "MAX_REQUEST_BODY_MIB: 3", 1)
	// a row that means "unset" leaves the row of the file
	f("", `{"CONTROL_PLANE_CACHE_FILE": null}`, "MAX_REQUEST_BODY_MIB: 3", 3)
}

func TestLoadWithFailure(t *testing.T) {
	f := func(control, want string, form bool) {
		t.Helper()
		c, faults, _ := LoadWith(nil, []byte(control), nil)
		if c != nil || len(faults) != 1 || faults[0].String() != want || faults.OfForm() != form {
			t.Errorf("%.40q: %v, of form %v", control, faults, faults.OfForm())
		}
	}
	f("", "CONTROL_PLANE_URL: line 1: it is empty; legal: a JSON or YAML object of settings, each once", true)
	f("[]", "CONTROL_PLANE_URL: line 1: it is a list, not an object of settings; legal: a JSON or YAML object of settings, each once", true)
	f(strings.Repeat(" ", MaxDocument)+"{}", "CONTROL_PLANE_URL: longer than 1 MiB; legal: at most 1 MiB", true)
	f("\n\nMAX_REQUEST_BODY_MIB: x", `MAX_REQUEST_BODY_MIB: "x" in CONTROL_PLANE_URL:3; legal: whole MiB from 1 to 1048576, or 0 (unlimited)`, false)
	f("WHAT: 1", "WHAT: unknown key in CONTROL_PLANE_URL:1; legal: the names of the settings reference", false)
	f("CONFIG_FILE: x", "CONFIG_FILE: given in CONTROL_PLANE_URL:1; legal: only in the environment", false)
}

func TestDomainChanges(t *testing.T) {
	domains := func(members string) Domains {
		t.Helper()
		c, faults, _ := Load([]string{"DOMAIN_MAP={" + members + "}"}, nil)
		if faults != nil {
			t.Fatal(faults)
		}
		return c.MTE.Domains
	}
	f := func(was, is string, added, removed, changed []string) {
		t.Helper()
		a, r, c := domains(was).Changes(domains(is))
		if !slices.Equal(a, added) || !slices.Equal(r, removed) || !slices.Equal(c, changed) {
			t.Errorf("%s → %s: added %q, removed %q, changed %q", was, is, a, r, c)
		}
	}
	const a, b = `"a.test":{"upstream":"http://127.0.0.1:1"}`, `"b.test":{"outbound":"http://127.0.0.1:1"}`
	f("", "", nil, nil, nil)
	f(a+","+b, b+","+a, nil, nil, nil)
	f("", a+","+b, []string{"a.test", "b.test"}, nil, nil)
	f(a+","+b, "", nil, []string{"a.test", "b.test"}, nil)
	f(a, b, []string{"b.test"}, []string{"a.test"}, nil)
	f(a, strings.Replace(a, ":1", ":2", 1), nil, nil, []string{"a.test"})
	f(b, strings.Replace(b, `:1"`, `:1","outbound_token":"x"`, 1), nil, nil, []string{"b.test"})
}

// A token that everybody on the way could read is a warning.
func TestPlainControlPlane(t *testing.T) {
	f := func(url string, want bool) {
		t.Helper()
		_, faults, notices := Load([]string{"CONTROL_PLANE_URL=" + url, "CONTROL_PLANE_TOKEN_FILE=t"}, nil)
		got := slices.ContainsFunc(notices, func(n Notice) bool { return strings.HasPrefix(n.Text, "CONTROL_PLANE_TOKEN_FILE: ") })
		if faults != nil || got != want {
			t.Errorf("%s: warned %v, %v", url, got, faults)
		}
	}
	f("http://control.example/", true)
	f("http://10.0.0.1:8000", true)
	f("http://127.0.0.1:8000", false)
	f("http://[::1]:8000", false)
	f("http://localhost", false)
	f("https://control.example/", false)
}
