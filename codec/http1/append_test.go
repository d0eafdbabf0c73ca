package http1

import (
	"net/http"
	"testing"
	"time"
)

func TestAppendHead(t *testing.T) {
	b := AppendStatusLine(nil, 200)
	b = AppendDate(b, time.Date(2026, 2, 3, 4, 5, 6, 7, time.FixedZone("x", 3600)))
	b = AppendField(b, "X-A", []byte("b"))
	b = AppendField(b, []byte("X-B"), "c")
	b = AppendContentLength(b, 1<<64-1)
	b = append(b, CRLF...)
	want := "HTTP/1.1 200 OK\r\nDate: Tue, 03 Feb 2026 03:05:06 GMT\r\nX-A: b\r\nX-B: c\r\nContent-Length: 18446744073709551615\r\n\r\n"
	if string(b) != want {
		t.Fatalf("got %q", b)
	}
	if got := string(AppendRequestLine(nil, []byte("GET"), []byte("/x?y"))); got != "GET /x?y HTTP/1.1\r\n" {
		t.Fatalf("got %q", got)
	}
	if got := string(AppendStatusLine(nil, 478)); got != "HTTP/1.1 478 \r\n" {
		t.Fatalf("got %q", got)
	}
}

// Every status line we write must be one we accept.
func TestStatusLines(t *testing.T) {
	for status := 100; status <= 599; status++ {
		var r Response
		var m Mark
		if _, err := r.Parse(append(AppendStatusLine(nil, status), CRLF...), &DefaultLimits, &m, MethodGet); err != nil || r.Status != status {
			t.Fatalf("%d: %v", status, err)
		}
		text := StatusText(status)
		if text != "" && text != http.StatusText(status) && status != 413 && status != 414 {
			t.Fatalf("%d is %q, elsewhere %q", status, text, http.StatusText(status))
		}
	}
	for _, e := range []*Error{ErrBareLF, ErrHeadTooLarge, ErrLineTooLong, ErrVersion, ErrExpect, ErrCodingUnknown} {
		if StatusText(e.Status) == "" {
			t.Fatalf("%d has no text", e.Status)
		}
	}
}
