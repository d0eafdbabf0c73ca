package http1

import (
	"strings"
	"testing"
)

const browserFields = "User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0\r\n" +
	"Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8\r\nAccept-Language: en-US,en;q=0.5\r\n" +
	"Accept-Encoding: gzip, deflate, br, zstd\r\nConnection: keep-alive\r\nCookie: session=0123456789abcdef0123456789abcdef; theme=dark\r\n" +
	"Upgrade-Insecure-Requests: 1\r\nSec-Fetch-Dest: document\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-Site: none\r\n"

var timedHeads = map[string]string{
	"probe":   "GET /health HTTP/1.1\r\nHost: 127.0.0.1:4000\r\n\r\n",
	"browser": "GET /index.html?x=1 HTTP/1.1\r\nHost: www.example.org\r\n" + browserFields + "\r\n",
	"full":    "GET / HTTP/1.1\r\nHost: h\r\n" + strings.Repeat("X-Filler: some ordinary value\r\n", 127) + "\r\n",
}

func BenchmarkRequestParse(b *testing.B) {
	for name, head := range timedHeads {
		b.Run(name, func(b *testing.B) {
			in := []byte(head)
			var r Request
			b.SetBytes(int64(len(in)))
			b.ReportAllocs()
			for b.Loop() {
				var m Mark
				if _, err := r.Parse(in, &DefaultLimits, &m); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkChunkReader(b *testing.B) {
	for name, size := range map[string]int{"keystroke": 16, "screen": 4096} {
		b.Run(name, func(b *testing.B) {
			in := AppendChunkHeader(nil, size)
			in = append(append(in, strings.Repeat("x", size)...), CRLF...)
			var d ChunkReader
			b.SetBytes(int64(size))
			for b.Loop() {
				for rest := in; len(rest) > 0; {
					_, n, _, err := d.Next(rest, &DefaultLimits)
					if err != nil {
						b.Fatal(err)
					}
					rest = rest[n:]
				}
			}
		})
	}
}

func TestAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	f := func(name string, run func()) {
		t.Helper()
		run()
		if n := testing.AllocsPerRun(100, run); n != 0 {
			t.Fatalf("%s: %v allocations", name, n)
		}
	}
	var r Request
	for name, head := range timedHeads {
		in := []byte(head)
		f("request "+name, func() {
			var m Mark
			if n, err := r.Parse(in, &DefaultLimits, &m); n != len(in) || err != nil {
				t.Fatal(err)
			}
		})
		f("request in two pieces "+name, func() {
			var m Mark
			r.Parse(in[:len(in)/2], &DefaultLimits, &m)
			if n, err := r.Parse(in, &DefaultLimits, &m); n != len(in) || err != nil {
				t.Fatal(err)
			}
		})
	}
	upgrade := []byte("GET http://[::1]:80/ws HTTP/1.1\r\nHost: h\r\nConnection: X-A, Upgrade\r\nUpgrade: websocket\r\nX-A: 1\r\n\r\n")
	f("lookups", func() {
		var m Mark
		r.Parse(upgrade, &DefaultLimits, &m)
		for i := range r.Fields {
			r.HopByHop(&r.Fields[i])
		}
		if _, ok := r.Lookup("x-a"); !ok || !r.HasToken(FieldUpgrade, "websocket") {
			t.Fatal("not found")
		}
	})
	bad := []byte("GET / HTTP/1.1\r\nHost: h\r\nX : y\r\n\r\n")
	f("refusal", func() {
		var m Mark
		r.Parse(bad, &DefaultLimits, &m)
	})
	var resp Response
	answer := []byte("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n")
	chunks := []byte("5;a=b\r\nhello\r\n0\r\nX: y\r\n\r\n")
	f("response and body", func() {
		var m Mark
		if _, err := resp.Parse(answer, &DefaultLimits, &m, MethodGet); err != nil {
			t.Fatal(err)
		}
		var d Body
		d.Start(&resp.Head)
		for rest := chunks; len(rest) > 0; {
			_, n, _, _ := d.Next(rest, &DefaultLimits)
			rest = rest[n:]
		}
		if !d.Done() {
			t.Fatal("not done")
		}
	})
	out := make([]byte, 0, 512)
	f("encoding", func() {
		b := AppendStatusLine(out, 404)
		b = AppendField(b, "Content-Type", "text/plain")
		b = AppendField(b, "X-A", answer[:3])
		b = AppendContentLength(b, 12345)
		AppendChunkHeader(b, 77)
	})
}
