package logging

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// lines of w as a suspicious reader splits them.
func splitLines(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool {
		return strings.ContainsRune("\n\r\v\f\x1c\x1d\x1e\u0085\u2028\u2029", r)
	})
}

func TestNewLevels(t *testing.T) {
	f := func(level string, want int) {
		t.Helper()
		var b bytes.Buffer
		log := New(&b, level, "text")
		log.Debug("x")
		log.Info("x")
		log.Warn("x")
		log.Error("x")
		if got := strings.Count(b.String(), "\n"); got != want {
			t.Errorf("%s: %d lines, want %d", level, got, want)
		}
	}
	f("debug", 4)
	f("info", 3)
	f("warn", 2)
	f("error", 1)
}

func TestNewBugs(t *testing.T) {
	f := func(level, format string) {
		t.Helper()
		defer func() {
			if s, ok := recover().(string); !ok || !strings.HasPrefix(s, "BUG: ") {
				t.Errorf("%s %s does not panic", level, format)
			}
		}()
		New(nil, level, format)
	}
	f("loud", "text")
	f("info", "xml")
}

// What a peer writes stays inside its value, in both formats and wherever it stands.
func TestOneEventOneLine(t *testing.T) {
	f := func(evil string) {
		t.Helper()
		for _, format := range []string{"text", "json"} {
			var b bytes.Buffer
			log := New(&b, "info", format)
			log.Info(evil)
			log.Info("end", "reason", evil)
			log.Info("end", "err", errors.New(evil))
			log.Info("end", evil, 1)
			log.WithGroup(evil).With("a", []string{evil}).Info("end", "bytes", []byte(evil))
			text := b.String()
			lines := splitLines(text)
			if len(lines) != 5 || !strings.HasSuffix(text, "\n") {
				t.Errorf("%s %q: %d lines, want 5:\n%q", format, evil, len(lines), text)
			}
			if !utf8.ValidString(text) {
				t.Errorf("%s %q: not UTF-8: %q", format, evil, text)
			}
			for _, r := range text {
				if r != '\n' && (unicode.Is(unicode.C, r) || r == '\u2028' || r == '\u2029') {
					t.Errorf("%s %q: raw %U in %q", format, evil, r, text)
				}
			}
			for _, line := range lines {
				if format == "json" && !json.Valid([]byte(line)) {
					t.Errorf("%q: not JSON: %s", evil, line)
				}
			}
		}
	}
	f("wagtail one\nwagtail two\r\x1b[31m")
	f("a \"quoted\" \u2028 reason\n{\"x\":1}")
	f("\x00\x01\x7f")
	f("csi \u009b31m nel \u0085 bidi \u202e isolate \u2066 zwj \u200d")
	f("broken \xff\xc3( \xed\xa0\x80 \xf0\x9f\x98")
	f("tag \U000e0041 private \U0010fffd")
	f("time=2020-01-01 level=ERROR msg=fake")
	f("\\u2028 \\n \\")
	f("")
	f("plain")
	f("ä 😀 日本")
}

// A tame line goes through untouched, in one write.
func TestGuardPasses(t *testing.T) {
	var b bytes.Buffer
	New(&b, "info", "text").Info("ä 😀", "k", "日本 x")
	if !strings.Contains(b.String(), `msg="ä 😀" k="日本 x"`) {
		t.Errorf("%q", b.String())
	}
}

func TestText(t *testing.T) {
	f := func(s, want string) {
		t.Helper()
		if got := Text(s); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	f("", "")
	f(strings.Repeat("x", 128), strings.Repeat("x", 128))
	f(strings.Repeat("x", 129), strings.Repeat("x", 128)+"… (129 bytes)")
	// not inside a character
	f(strings.Repeat("x", 127)+"ä", strings.Repeat("x", 127)+"… (129 bytes)")
	f(strings.Repeat("x", 125)+"😀", strings.Repeat("x", 125)+"… (129 bytes)")
	f(strings.Repeat("\x80", 200), strings.Repeat("\x80", 128)+"… (200 bytes)")
}

func TestID(t *testing.T) {
	f := func(id, want string) {
		t.Helper()
		if got := ID(id); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	f("", "")
	f("conn_0123456789abcdef", "conn_012…")
	f("1234567äöü1234567", "1234567…")
	f("12345678901234567", "12345678…")
	// short ones are not shown at all
	f("1234567890123456", "#7a51d064")
	f("a", "#ca978112")
}

func FuzzOneEventOneLine(f *testing.F) {
	f.Add("a\nb", "k\u2028")
	f.Add("\xff\x1b", "\u009b")
	f.Fuzz(func(t *testing.T, msg, value string) {
		for _, format := range []string{"text", "json"} {
			var b bytes.Buffer
			New(&b, "info", format).Info(msg, "k", Text(value), value, ID(value))
			text := b.String()
			if len(splitLines(text)) != 1 || !utf8.ValidString(text) || strings.ContainsAny(text, "\x1b\x7f\u009b\u202e") {
				t.Fatalf("%q", text)
			}
			if format == "json" && !json.Valid(b.Bytes()) {
				t.Fatalf("not JSON: %q", text)
			}
		}
	})
}
