package http1

import (
	"bytes"
	"fmt"
	"testing"
)

func parseResponseBytewise(b []byte, method Method) (got string, n int, err *Error) {
	var r Response
	var m Mark
	for i := 1; i <= len(b); i++ {
		piece := b[:i]
		if i < 2048 {
			piece = bytes.Clone(piece)
		}
		if n, err = r.Parse(piece, &DefaultLimits, &m, method); n > 0 || err != nil {
			break
		}
	}
	return describeResponse(&r), n, err
}

func describeResponse(r *Response) string {
	return fmt.Sprintf("%d %s 1.%d framing=%d length=%d keep=%v", r.Status, r.Reason, r.Minor, r.Framing, r.Length, r.KeepAlive)
}

func TestResponseSuccess(t *testing.T) {
	f := func(method Method, in, want string) {
		t.Helper()
		var r Response
		var m Mark
		n, err := r.Parse([]byte(in+"body"), &DefaultLimits, &m, method)
		if n != len(in) || err != nil {
			t.Fatalf("%q: n %d, error %v", in, n, err)
		}
		got := describeResponse(&r)
		if got != want {
			t.Fatalf("%q:\n got %s\nwant %s", in, got, want)
		}
		for i := range in {
			m = Mark{}
			if n, err := r.Parse([]byte(in[:i]), &DefaultLimits, &m, method); n != 0 || err != nil {
				t.Fatalf("prefix %q: n %d, error %v", in[:i], n, err)
			}
		}
		if slow, n, err := parseResponseBytewise([]byte(in+"body"), method); slow != got || n != len(in) || err != nil {
			t.Fatalf("%q byte by byte: %s, n %d, error %v", in, slow, n, err)
		}
	}
	// the four framings
	f(MethodGet, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", "200 OK 1.1 framing=1 length=5 keep=true")
	f(MethodGet, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "200 OK 1.1 framing=0 length=0 keep=true")
	f(MethodGet, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "200 OK 1.1 framing=2 length=-1 keep=true")
	f(MethodGet, "HTTP/1.1 200 OK\r\n\r\n", "200 OK 1.1 framing=3 length=-1 keep=false")
	// persistence
	f(MethodGet, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\n", "200 OK 1.1 framing=1 length=5 keep=false")
	f(MethodGet, "HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\n", "200 OK 1.0 framing=1 length=5 keep=false")
	f(MethodGet, "HTTP/1.0 200 OK\r\nContent-Length: 5\r\nConnection: Keep-Alive\r\n\r\n", "200 OK 1.0 framing=1 length=5 keep=true")
	// no body by method or status
	f(MethodHead, "HTTP/1.1 200 OK\r\nContent-Length: 12345\r\n\r\n", "200 OK 1.1 framing=0 length=12345 keep=true")
	f(MethodHead, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "200 OK 1.1 framing=0 length=-1 keep=true")
	f(MethodHead, "HTTP/1.1 200 OK\r\n\r\n", "200 OK 1.1 framing=0 length=-1 keep=true")
	f(MethodGet, "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", "304 Not Modified 1.1 framing=0 length=5 keep=true")
	f(MethodGet, "HTTP/1.1 204 No Content\r\n\r\n", "204 No Content 1.1 framing=0 length=-1 keep=true")
	f(MethodGet, "HTTP/1.1 102 Processing\r\n\r\n", "102 Processing 1.1 framing=0 length=-1 keep=true")
	f(MethodGet, "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\n\r\n", "101 Switching Protocols 1.1 framing=0 length=-1 keep=false")
	f(MethodConnect, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", "200 OK 1.1 framing=3 length=5 keep=false")
	// reason phrases: empty, without its blank, with anything in it
	f(MethodGet, "HTTP/1.1 599 \r\nContent-Length: 5\r\n\r\n", "599  1.1 framing=1 length=5 keep=true")
	f(MethodGet, "HTTP/1.1 200\r\nContent-Length: 5\r\n\r\n", "200  1.1 framing=1 length=5 keep=true")
	f(MethodGet, "HTTP/1.1 404  Nicht\tda \xfc\r\nContent-Length: 5\r\n\r\n", "404  Nicht\tda \xfc 1.1 framing=1 length=5 keep=true")
}

func TestResponseFailure(t *testing.T) {
	f := func(in string, want *Error) {
		t.Helper()
		var r Response
		var m Mark
		if n, err := r.Parse([]byte(in), &DefaultLimits, &m, MethodGet); n != 0 || err != want {
			t.Fatalf("%q: n %d, error %v, want %v", in, n, err, want)
		}
		if _, n, err := parseResponseBytewise([]byte(in), MethodGet); n != 0 || err != want {
			t.Fatalf("%q byte by byte: n %d, error %v, want %v", in, n, err, want)
		}
	}
	for _, line := range []string{"HTTP/1.1 abc OK", "HTTP/1.1 -20 OK", "http/1.1 200 OK", "ICY 200 OK", "HTTP/1.1200 OK", "HTTP 200 OK", "HTTP/1.1  200 OK",
		"HTTP/1.1 20 OK", "HTTP/1.1 2000 OK", "HTTP/1.1 200OK", "HTTP/1.1\t200 OK", "HTTP/1.1 200\tOK", "HTTP/1.1 200 a\x00b", "HTTP/1.1 200 a\rb", "", "HTTP/1.1",
		"HTTP/1.1 ", "HTTP/01.1 200 OK", " HTTP/1.1 200 OK", "<html>"} {
		f(line+"\r\nContent-Length: 5\r\n\r\n", ErrStatusLine)
	}
	f("HTTP/2.0 200 OK\r\n", ErrVersion)
	for _, s := range []string{"000", "099", "600", "999"} {
		f("HTTP/1.1 "+s+" X\r\n", ErrStatus)
	}
	f("HTTP/1.1 200 OK\nContent-Length: 5\n\n", ErrBareLF)
	f("HTTP/1.1 200 OK\r\nX-A: b\r\n c\r\n\r\n", ErrFold)
	f("HTTP/1.1 200 OK\r\nX-A: b\rX-Inj: c\r\n\r\n", ErrFieldValue)
	f("HTTP/1.1 200 OK\r\nXAb\r\n\r\n", ErrFieldName)
	f("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n", ErrLengthRepeated)
	f("HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", ErrLength)
	f("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", ErrLengthAndCoding)
	f("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n", ErrCodingUnknown)
	f("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, chunked\r\n\r\n", ErrCoding)
	f("HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", ErrCodingVersion)
	f("HTTP/1.1 200 OK\r\n"+string(bytes.Repeat([]byte("X-A: b\r\n"), 200)), ErrTooManyFields)
	f("HTTP/1.1 200 OK\r\nX-A: "+string(bytes.Repeat([]byte("a"), 70000)), ErrHeadTooLarge)
	f("HTTP/1.1 200 "+string(bytes.Repeat([]byte("a"), 70000)), ErrHeadTooLarge)
}
