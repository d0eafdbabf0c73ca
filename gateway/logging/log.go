// Package logging makes the process's log: one event, one line, whatever peers put into it.
package logging

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"unicode"
	"unicode/utf8"
)

// New returns a logger that writes lines to w, most often os.Stderr. level and format are legal
// values of LOG_LEVEL and LOG_FORMAT; anything else is a bug of the caller. It may be used from
// anywhere. A line is one Write, in which the caller waits.
func New(w io.Writer, level, format string) *slog.Logger {
	opt := &slog.HandlerOptions{Level: levelOf(level)}
	switch format {
	case "text":
		return slog.New(slog.NewTextHandler(guard{w}, opt))
	case "json":
		return slog.New(slog.NewJSONHandler(guard{w}, opt))
	}
	panic("BUG: no log format " + format)
}

func levelOf(s string) slog.Level {
	switch s {
	case "debug":
		return slog.LevelDebug
	case "info":
		return slog.LevelInfo
	case "warn":
		return slog.LevelWarn
	case "error":
		return slog.LevelError
	}
	panic("BUG: no log level " + s)
}

// A guard is the last thing a line passes. The handlers escape what their format needs, which
// leaves characters that a terminal or a line reader acts on: C1 controls (U+009B begins an
// escape sequence, U+0085 is a line break to many), U+2028, and those that reorder text. They
// can stand inside quotes only, where \uXXXX means the same in both formats.
type guard struct{ w io.Writer }

// Write passes one line on. A handler calls it once per event.
func (g guard) Write(line []byte) (int, error) {
	body := line
	if n := len(line); n > 0 && line[n-1] == '\n' {
		body = line[:n-1]
	}
	if isTame(body) {
		return g.w.Write(line)
	}
	out := make([]byte, 0, len(line)+64)
	for len(body) > 0 {
		r, n := utf8.DecodeRune(body)
		if isTameRune(r, n) {
			out = append(out, body[:n]...)
		} else {
			out = appendEscape(out, r)
		}
		body = body[n:]
	}
	if _, err := g.w.Write(append(out, '\n')); err != nil {
		return 0, err
	}
	return len(line), nil
}

func isTame(b []byte) bool {
	for i, c := range b {
		if c < ' ' || c == 0x7f {
			return false
		}
		if c >= utf8.RuneSelf {
			return isTameText(b[i:])
		}
	}
	return true
}

func isTameText(b []byte) bool {
	for len(b) > 0 {
		r, n := utf8.DecodeRune(b)
		if !isTameRune(r, n) {
			return false
		}
		b = b[n:]
	}
	return true
}

// isTameRune reports whether a reader sees r, of n bytes, and nothing else happens. A byte that
// is no UTF-8 decodes to U+FFFD and is replaced by it.
func isTameRune(r rune, n int) bool {
	broken := r == utf8.RuneError && n == 1
	return !broken && !unicode.Is(unicode.C, r) && r != '\u2028' && r != '\u2029'
}

func appendEscape(out []byte, r rune) []byte {
	if r > 0xffff {
		r -= 0x10000
		return fmt.Appendf(out, `\u%04x\u%04x`, 0xd800+(r>>10), 0xdc00+(r&0x3ff))
	}
	return fmt.Appendf(out, `\u%04x`, r)
}

// maxText is how many bytes of a peer's text a line repeats. A close reason fits whole.
const maxText = 128

// Text shortens what a peer said for a log line. Escaping is the logger's work.
func Text(s string) string {
	if len(s) <= maxText {
		return s
	}
	return s[:runeStart(s, maxText)] + "… (" + strconv.Itoa(len(s)) + " bytes)"
}

// runeStart returns the largest index up to at that does not split a character.
func runeStart(s string, at int) int {
	for i := at; i > at-utf8.UTFMax && i > 0; i-- {
		if utf8.RuneStart(s[i]) {
			return i
		}
	}
	return at // no UTF-8 anyway
}

// ID names a serverId, connectionId or client id in a log line without giving it away: its first
// 8 bytes where that is less than half of it, else 8 digits of its hash.
func ID(id string) string {
	const shown = 8
	if len(id) > 2*shown {
		return id[:runeStart(id, shown)] + "…"
	}
	if id == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(id))
	return "#" + hex.EncodeToString(sum[:shown/2])
}
