package gateway_test

import (
	"crypto/tls"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// A tlsFront terminates TLS in front of a relay and passes the bytes on. Its
// certificate is good for 127.0.0.1, not for localhost.
type tlsFront struct {
	url    string
	roots  string // file that holds the certificate of its authority
	target atomic.Pointer[string]
	opened atomic.Int64 // handshakes that came about
}

func startTLSFront(t testing.TB) *tlsFront {
	t.Helper()
	lender := httptest.NewTLSServer(http.NotFoundHandler()) // has a certificate
	lender.Close()
	f := &tlsFront{roots: filepath.Join(t.TempDir(), "roots.pem")}
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: lender.Certificate().Raw})
	if err := os.WriteFile(f.roots, authority, 0o600); err != nil {
		t.Fatal(err)
	}
	ln, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: lender.TLS.Certificates, NextProtos: []string{"http/1.1"}})
	if err != nil {
		t.Fatal(err)
	}
	f.url = "https://" + ln.Addr().String()
	var all sync.WaitGroup
	var mu sync.Mutex
	open := map[net.Conn]bool{}
	ended := false
	keep := func(c net.Conn) bool {
		mu.Lock()
		defer mu.Unlock()
		open[c] = true
		return !ended
	}
	all.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer conn.Close()
				if !keep(conn) || conn.(*tls.Conn).Handshake() != nil {
					return
				}
				f.opened.Add(1)
				inner, err := net.Dial("tcp", *f.target.Load())
				if err != nil {
					return
				}
				defer inner.Close()
				if !keep(inner) {
					return
				}
				all.Go(func() {
					io.Copy(inner, conn)
					inner.(*net.TCPConn).CloseWrite()
				})
				io.Copy(conn, inner)
				conn.(*tls.Conn).CloseWrite()
			})
		}
	})
	t.Cleanup(func() {
		ln.Close()
		mu.Lock()
		ended = true
		for c := range open {
			c.Close()
		}
		mu.Unlock()
		all.Wait()
	})
	return f
}

// The other relay behind https: everything passes, and nothing goes to one whose
// certificate is not good.
func TestOutboundTLS(t *testing.T) {
	front := startTLSFront(t)
	talk := &talkative{make(chan string)}
	p := startRelayProcesses(t, pairOptions{
		origin: muxOrigin{"": http.HandlerFunc(mirror), "talk": talk, "long": mover{t}},
		domain: map[string]any{"outbound": front.url},
		out:    []string{"SSL_CERT_FILE=" + front.roots, slowPairing},
	})
	front.target.Store(&p.in.addr)
	t.Run("exchanges", func(t *testing.T) { outboundExchanges(t, p.at(t)) })
	t.Run("bodies", func(t *testing.T) { outboundBodies(t, p.at(t)) })
	t.Run("streams", func(t *testing.T) { outboundStreams(t, p.at(t), "/talk", talk.pieces) })
	const size = 16 << 20
	target := fmt.Sprintf("/long?n=%d", size)
	if a := p.do("POST", target, &longBody{n: size}); a.status != 200 {
		t.Errorf("upload: %d %s", a.status, a.body)
	}
	res, err := p.client.Do(p.request(t.Context(), "GET", target, nil))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if err := isLong(res.Body, size); err != nil {
		t.Errorf("download: %v", err)
	}
	// Connections are kept.
	opened := front.opened.Load()
	for range 50 {
		p.do("GET", "/", nil)
	}
	if n := front.opened.Load() - opened; n > 5 {
		t.Errorf("%d handshakes for 50 requests", n)
	}
	p.out.untilMetric(`mte_relay_outbound_pairs{state="in_use"}`, 0)
}

func TestOutboundTLSVerifies(t *testing.T) {
	front := startTLSFront(t)
	p := startRelayProcesses(t, pairOptions{
		origin: http.HandlerFunc(mirror),
		domain: map[string]any{"outbound": front.url},
		out:    []string{"SSL_CERT_FILE=/dev/null", "SSL_CERT_DIR=" + t.TempDir()},
	})
	front.target.Store(&p.in.addr)
	f := func(what, detail string) {
		t.Helper()
		p.do("GET", "/", nil).wantRefusal(t, 502, "upstream_connect_failed", "")
		if !poll(func() bool { return len(p.out.log.with(detail)) > 0 }) {
			t.Errorf("%s: logged %q", what, p.out.log.with("control call"))
		}
	}
	f("nobody vouches for it", "certificate signed by unknown authority")
	p.serveOut(map[string]any{"outbound": strings.Replace(front.url, "127.0.0.1", "localhost", 1)}, "SSL_CERT_FILE="+front.roots)
	p.connect()
	f("it is another's", "not localhost")
	if n := p.in.metric(`mte_relay_requests_total{kind="auth"}`); n != 0 {
		t.Errorf("%v calls arrived", n)
	}
}
