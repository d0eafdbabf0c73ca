package mte

import "testing"

func TestUpstreamSuccess(t *testing.T) {
	f := func(raw, key, host, base, hostLine string, numeric bool) {
		t.Helper()
		up, err := newUpstream(raw)
		if err != nil {
			t.Fatalf("%q: %v", raw, err)
		}
		if up.key != key || up.host != host || up.base != base || up.hostLine != hostLine || up.addr.IsValid() != numeric {
			t.Errorf("%q became %+v", raw, up)
		}
	}
	// Ports are those of the schemes if none is given, and Host says what the URL does.
	f("http://origin.example", "http://origin.example:80", "origin.example", "", "Host: origin.example\r\n", false)
	f("https://Origin.example/", "https://origin.example:443", "Origin.example", "", "Host: Origin.example\r\n", false)
	f("http://origin.example:8080/base/", "http://origin.example:8080", "origin.example", "/base", "Host: origin.example:8080\r\n", false)
	// Numeric hosts need no name.
	f("http://127.0.0.1:9900/a/b", "http://127.0.0.1:9900", "127.0.0.1", "/a/b", "Host: 127.0.0.1:9900\r\n", true)
	f("https://[2001:db8::1]", "https://[2001:db8::1]:443", "2001:db8::1", "", "Host: [2001:db8::1]\r\n", true)
	// A path stays as it is written.
	f("http://h/a%2Fb%20c/", "http://h:80", "h", "/a%2Fb%20c", "Host: h\r\n", false)
}

func TestUpstreamFailure(t *testing.T) {
	for _, raw := range []string{"", "origin.example", "ftp://h", "http://", "http:///a", "http://u:p@h", "http://h?q", "http://h#f", "http://h:0", "http://h:99999", "http://h:x"} {
		if up, err := newUpstream(raw); err == nil {
			t.Errorf("%q became %+v", raw, up)
		}
	}
}
