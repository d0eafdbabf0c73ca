package http1

import (
	"bytes"
	"testing"
)

func FuzzRequest(f *testing.F) {
	for _, s := range []string{
		"GET /a?b=c HTTP/1.1\r\nHost: h:80\r\n\r\n",
		"\r\n\r\nPOST http://[::1]:1/ HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\nhello",
		"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
		"CONNECT h:1 HTTP/1.1\r\nHost: h\r\nConnection: a, close,,upgrade\r\n\r\n",
		"OPTIONS * HTTP/1.0\r\nX: a\r\n b\r\n\r\n",
		"GET / HTTP/2.0\r\n\nX",
	} {
		f.Add([]byte(s))
	}
	lim := Limits{HeadBytes: 200, LineBytes: 100, Fields: 5}
	f.Fuzz(func(t *testing.T, b []byte) {
		var r Request
		var m Mark
		n, err := r.Parse(b, &lim, &m)
		if n > 0 && err != nil || n > len(b) || n > lim.HeadBytes || len(r.Fields) > lim.Fields {
			t.Fatalf("n %d, error %v, %d fields", n, err, len(r.Fields))
		}
		if n == 0 && err == nil {
			if len(b) >= lim.HeadBytes {
				t.Fatal("waits for more than the limit")
			}
			return
		}
		slow, n2, err2 := parseBytewise(b, &lim)
		if n2 != n || err2 != err || n > 0 && slow != describe(&r) {
			t.Fatalf("byte by byte: n %d, error %v, instead of %d, %v", n2, err2, n, err)
		}
		if n == 0 {
			return
		}
		// What is accepted contains nothing that another reader could take for a
		// line end or a second length.
		if bytes.ContainsAny(bytes.ReplaceAll(b[:n], []byte(CRLF), nil), "\r\n\x00") {
			t.Fatal("stray line end accepted")
		}
		if r.Count(FieldContentLength)+r.Count(FieldTransferEncoding) > 1 || r.Count(FieldHost) > 1 {
			t.Fatal("ambiguous framing accepted")
		}
	})
}

func FuzzResponse(f *testing.F) {
	for _, s := range []string{
		"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
		"HTTP/1.0 404\r\nConnection: keep-alive\r\n\r\n",
		"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
	} {
		f.Add([]byte(s), uint8(MethodGet))
		f.Add([]byte(s), uint8(MethodHead))
	}
	f.Fuzz(func(t *testing.T, b []byte, method uint8) {
		m := Method(method % uint8(numMethods))
		var r Response
		var mark Mark
		n, err := r.Parse(b, &DefaultLimits, &mark, m)
		if n == 0 && err == nil {
			return
		}
		if slow, n2, err2 := parseResponseBytewise(b, m); n2 != n || err2 != err || n > 0 && slow != describeResponse(&r) {
			t.Fatalf("byte by byte: n %d, error %v, instead of %d, %v", n2, err2, n, err)
		}
	})
}

func FuzzChunkReader(f *testing.F) {
	for _, s := range []string{
		"5\r\nhello\r\n0\r\n\r\n", "5 ;a=\"b\\\"\";c\r\nhello\r\n00\r\nX: y\r\n\r\n", "7FFFFFFFFFFFFFFF\r\nx", "1\r\na\r\n1;\r\n",
	} {
		f.Add([]byte(s), uint8(3))
	}
	lim := Limits{HeadBytes: 100, Fields: 4}
	f.Fuzz(func(t *testing.T, b []byte, size uint8) {
		data, used, done, err := readChunks(b, len(b)+1, &lim)
		data2, used2, done2, err2 := readChunks(b, int(size)+1, &lim)
		if !bytes.Equal(data, data2) || used != used2 || done != done2 || err != err2 {
			t.Fatalf("%d %v %v, in pieces %d %v %v", used, done, err, used2, done2, err2)
		}
		if err == nil && !done && used != len(b) {
			t.Fatal("not everything was used")
		}
	})
}
