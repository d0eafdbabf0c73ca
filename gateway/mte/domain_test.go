package mte

import "testing"

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
