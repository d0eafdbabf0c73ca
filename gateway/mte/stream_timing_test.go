package mte

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"sluice/codec/open"
)

// wire is a keep-alive client that sends ready frames and reads answers without
// decoding them, so that what is measured is the relay.
type wire struct {
	conn net.Conn
	in   *bufio.Reader
	req  []byte
}

func (w *wire) exchange(t testing.TB) {
	if _, err := w.conn.Write(w.req); err != nil {
		t.Fatal(err)
	}
	for length := -1; ; {
		line, err := w.in.ReadSlice('\n')
		if err != nil {
			t.Fatal(err)
		}
		if len(line) == 2 {
			for length != 0 { // chunks
				line, err := w.in.ReadSlice('\n')
				if err != nil {
					t.Fatal(err)
				}
				n := 0
				for _, c := range line[:len(line)-2] {
					n = n*16 + strings.IndexByte("0123456789abcdef", c)
				}
				length = n
				w.in.Discard(n + 2)
			}
			return
		}
	}
}

// startWire makes a relay whose origin is a plain loop over a socket, so that the
// test's own allocations are few, and a client of it.
func startWire(t testing.TB, typ open.Type) (*wire, func()) {
	r := startRelay(t, relayOptions{origin: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		conn, rw, err := w.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		body := strings.Repeat("b", 1024)
		answer := []byte(fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n%s", len(body), body))
		rw.Discard(1024)
		for {
			if _, err := conn.Write(answer); err != nil {
				return
			}
			for {
				line, err := rw.ReadSlice('\n')
				if err != nil {
					return
				}
				if len(line) == 2 {
					rw.Discard(1024)
					break
				}
			}
		}
	})})
	c := r.client()
	p := c.pair()
	p.use(typ)
	w := &wire{conn: c.dial()}
	w.in = bufio.NewReaderSize(w.conn, 64<<10)
	app := make([]byte, 1024)
	meta := metadata("POST", "x", "content-type", "text/plain")
	next := func() {
		b := append(p.request(0, 1, meta), p.data(1, app)...)
		w.req = append(w.req[:0], c.head("POST", "/", "Content-Type: "+typeFrames, "Content-Length: "+strconv.Itoa(len(b)))...)
		w.req = append(w.req, b...)
	}
	return w, next
}

// TestRelayedAllocations: a relayed request allocates nothing of ours. The
// client's side is measured apart and taken off.
func TestRelayedAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	for _, typ := range []open.Type{open.MKE, open.MTE} {
		w, next := startWire(t, typ)
		warm := func() { next(); w.exchange(t) }
		for range 100 {
			warm()
		}
		// Requests are made before the measurement: each can be sent once.
		var reqs [][]byte
		for range 400 {
			next()
			reqs = append(reqs, append([]byte(nil), w.req...))
		}
		i := 0
		n := testing.AllocsPerRun(200, func() {
			w.req = reqs[i]
			i++
			w.exchange(t)
		})
		if n > 0.5 {
			t.Errorf("%s: %.1f allocations per request", typ, n)
		}
	}
}

// BenchmarkRelayed is one client at a time: 1 KiB up, 1 KiB down.
func BenchmarkRelayed(b *testing.B) {
	w, next := startWire(b, open.MKE)
	b.ReportAllocs()
	for b.Loop() {
		next()
		w.exchange(b)
	}
}
