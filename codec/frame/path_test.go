package frame

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"
)

type pathRow struct {
	URL, Path, Target, Error string
	Pad                      []any
}

func (r pathRow) path() string {
	if r.Pad != nil {
		return strings.Repeat(r.Pad[0].(string), int(r.Pad[1].(float64)))
	}
	return r.Path
}

func TestPathVectors(t *testing.T) {
	for _, row := range rows[pathRow](t, "path", "from_url") {
		if got, err := AppendPathFromURL(nil, row.URL); vectorName(err) != row.Error || string(got) != row.Path {
			t.Errorf("%s: %q, %v, want %q", row.URL, got, err, row.Path)
		}
	}
	for _, row := range rows[pathRow](t, "path", "to_target") {
		if got, err := AppendTarget(nil, []byte(row.Path)); vectorName(err) != row.Error || string(got) != row.Target {
			t.Errorf("%q: %q, %v, want %q", row.Path, got, err, row.Target)
		}
	}
	for _, row := range rows[pathRow](t, "path", "write") {
		if err := CheckPath([]byte(row.path())); vectorName(err) != row.Error {
			t.Errorf("writing %.40q of %d bytes: %v, want %q", row.path(), len(row.path()), err, row.Error)
		}
	}
	for _, row := range rows[pathRow](t, "path", "read") {
		if ok := readablePath([]byte(row.path())); ok != (row.Error == "") {
			t.Errorf("reading %q: %v", row.Path, ok)
		}
	}
}

func TestTargetSuccess(t *testing.T) {
	f := func(path, want string) {
		t.Helper()
		got, err := AppendTarget([]byte("GET "), []byte(path))
		if err != nil || string(got) != "GET "+want {
			t.Errorf("%q: %q, %v, want %q", path, got, err, want)
		}
		checkTarget(t, got[4:])
	}
	f("", "/")
	f("/", "/")
	f("?q=1", "/?q=1")
	f("a//b", "/a//b")
	f("a/./b", "/a/./b")
	f("...", "/...")
	f("%2e%2e%2e", "/%2e%2e%2e")
	f("..a/b..", "/..a/b..")
	f("a/..%2Fb", "/a/..%2Fb")
	f("a%2f..%2fb", "/a%2f..%2fb")
	f("x?a=../..", "/x?a=../..")
	f("..#x", "/..%23x")
	f("100%", "/100%")
	f("a%zz", "/a%zz")
	f("a\tb c\x7f", "/a%09b%20c%7F")
	f("caf\u00e9", "/caf%C3%A9")
	f("\"<>\\^`{|}#", "/%22%3C%3E%5C%5E%60%7B%7C%7D%23")
	f("!$&'()*+,;=:@-._~[]", "/!$&'()*+,;=:@-._~[]")
	f(strings.Repeat("p", MaxPathBytes), "/"+strings.Repeat("p", MaxPathBytes))
}

func TestTargetFailure(t *testing.T) {
	f := func(path string) {
		t.Helper()
		if got, err := AppendTarget(nil, []byte(path)); err != BadPath || got != nil {
			t.Errorf("%q: %q, %v", path, got, err)
		}
	}
	f("//a")
	f("..")
	f("/..")
	f("../a")
	f("a/..")
	f("a/../b")
	f("a/..?x")
	f("%2e%2e")
	f("a/%2E%2e/b")
	f(".%2e")
	f("a/%2e.")
	f("a\x00")
	f("a\r")
	f("a?b\n")
	f(strings.Repeat("p", MaxPathBytes+1))
}

// checkTarget judges what reaches an origin's request line.
func checkTarget(t testing.TB, target []byte) {
	t.Helper()
	if len(target) == 0 || target[0] != '/' {
		t.Errorf("target %q", target)
	}
	for _, c := range target {
		if c <= ' ' || c >= 0x7f || strings.IndexByte("\"<>\\^`{|}#", c) >= 0 {
			t.Errorf("target %q holds %q", target, c)
		}
	}
	path, _, _ := strings.Cut(string(target), "?")
	for _, segment := range strings.Split(path, "/") {
		if strings.NewReplacer("%2e", ".", "%2E", ".").Replace(segment) == ".." {
			t.Errorf("target %q has a parent segment", target)
		}
	}
}

func TestFromURLFailure(t *testing.T) {
	f := func(url string) {
		t.Helper()
		if got, err := AppendPathFromURL(nil, url); err != BadPath {
			t.Errorf("%q: %q, %v", url, got, err)
		}
	}
	f("r.example/x")
	f("https://r.example//evil.example")
	f("https://r.example/a\nb")
	f("https://r.example/" + strings.Repeat("a", MaxPathBytes+1))
	if got, err := AppendPathFromURL([]byte("x"), "http://h?q=1#f"); err != nil || string(got) != "x?q=1" {
		t.Errorf("a query at once: %q, %v", got, err)
	}
}

func TestHasDotSegment(t *testing.T) {
	f := func(target string, want bool) {
		t.Helper()
		if got := HasDotSegment([]byte(target)); got != want {
			t.Errorf("%q: %v", target, got)
		}
	}
	for _, target := range []string{"/.", "/..", "/a/../b", "/a/./b", "/a/..", "/%2e", "/%2E%2e", "/.%2e/a", "/a/%2e./b", "/a/.%2E/b", "//..", "/../"} {
		f(target, true)
	}
	for _, target := range []string{"/", "//", "/a/b", "/...", "/..a", "/..a/.b", "/a..", "/.well-known", "/%2e%2e%2e", "/a.b/c.d", "/%252e", "/%2", "/%", "/a%2e", "/..%2f", "/a/..%2fb", "/a?b=/../"} {
		f(target, false)
	}
}

func FuzzPath(f *testing.F) {
	for _, row := range rows[pathRow](f, "path", "to_target") {
		f.Add([]byte(row.Path))
	}
	f.Fuzz(func(t *testing.T, path []byte) {
		target, err := AppendTarget(nil, path)
		if err != nil {
			return
		}
		checkTarget(t, target)
		// what was read can be written, and comes back as the same target
		again, err := AppendTarget(nil, target)
		if err != nil || !bytes.Equal(again, target) {
			t.Errorf("%q became %q, then %q (%v)", path, target, again, err)
		}
		if !utf8.Valid(path) {
			return
		}
		var w MetadataWriter
		var m Metadata
		text, err := w.AppendRequest(nil, []byte("GET"), path)
		if err != nil || m.Parse(text) != nil {
			t.Fatalf("%q: %s, %v", path, text, err)
		}
		if again, err := AppendTarget(nil, m.Path); err != nil || !bytes.Equal(again, target) {
			t.Errorf("%q became %q over the wire, want %q", path, again, target)
		}
	})
}
