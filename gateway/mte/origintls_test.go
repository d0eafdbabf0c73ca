package mte

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// startTLSOrigin starts an https origin and returns a configuration that trusts it.
func startTLSOrigin(t *testing.T, h http.Handler, change func(*tls.Config)) (*httptest.Server, *upstream, originConfig) {
	t.Helper()
	srv := httptest.NewUnstartedServer(h)
	srv.TLS = &tls.Config{}
	if change != nil {
		change(srv.TLS)
	}
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.StartTLS()
	t.Cleanup(srv.Close)
	up, err := newUpstream(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	cfg := testOriginConfig()
	cfg.RootCAs = x509.NewCertPool()
	cfg.RootCAs.AddCert(srv.Certificate())
	return srv, up, cfg
}

func TestOriginTLS(t *testing.T) {
	var resumed, handshakes atomic.Int64
	_, up, cfg := startTLSOrigin(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.TLS.NegotiatedProtocol != "http/1.1" || r.TLS.Version < tls.VersionTLS12 {
			t.Errorf("negotiated %q, version %x", r.TLS.NegotiatedProtocol, r.TLS.Version)
		}
		if r.TLS.DidResume {
			resumed.Add(1)
		}
		b, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %d", r.Method, len(b))
	}), func(c *tls.Config) {
		c.VerifyConnection = func(tls.ConnectionState) error { handshakes.Add(1); return nil }
	})
	p := startPool(t, cfg)
	// The head waits for the connection, and so does a body.
	p.start(up, "GET", "/", 0, nil).wantAnswer(200, "GET 0")
	p.wantIdle(up, 1)
	for range 3 {
		c := p.start(up, "POST", "/", -1, nil)
		p.on(func() { c.o.Write(make([]byte, 50000)); c.o.Write(make([]byte, 1)); c.o.End() })
		c.wantAnswer(200, "POST 50001")
	}
	p.wantIdle(up, 1)
	if n := handshakes.Load(); n != 1 {
		t.Errorf("%d handshakes for requests one after the other", n)
	}
	// Another connection resumes the session.
	p.on(p.closeIdle)
	p.start(up, "GET", "/", 0, nil).wantAnswer(200, "GET 0")
	if resumed.Load() == 0 {
		t.Error("the session was not resumed")
	}
	p.on(p.closeIdle)
	p.wantIdle(up, 0)
}

func TestOriginTLSFailure(t *testing.T) {
	f := func(change func(*tls.Config), spoil func(*originConfig, **upstream), want string) {
		t.Helper()
		_, up, cfg := startTLSOrigin(t, http.NotFoundHandler(), change)
		if spoil != nil {
			spoil(&cfg, &up)
		}
		p := startPool(t, cfg)
		p.start(up, "GET", "/", 0, nil).wantFailure(failConnect, want)
		p.await("everything gone", func() bool { return p.hosts[up.key].uses == 0 })
	}
	// Nobody vouches for the certificate.
	f(nil, func(c *originConfig, _ **upstream) { c.RootCAs = x509.NewCertPool() }, "certificate")
	// It is another's.
	f(nil, func(_ *originConfig, up **upstream) {
		u, err := newUpstream("https://localhost:" + fmt.Sprint((*up).port))
		if err != nil {
			t.Fatal(err)
		}
		*up = u
	}, "not localhost")
	// Too old, and another protocol.
	f(func(c *tls.Config) { c.MaxVersion = tls.VersionTLS11; c.MinVersion = tls.VersionTLS10 }, nil, "protocol version")
	f(func(c *tls.Config) { c.NextProtos = []string{"h3"} }, nil, "protocol")
	// No TLS at all, silence, and a close.
	plain := func(play func(c *originPeer), want string) {
		t.Helper()
		origin := listenRaw(t, play)
		up, err := newUpstream("https" + strings.TrimPrefix(origin.up.key, "http"))
		if err != nil {
			t.Fatal(err)
		}
		cfg := testOriginConfig()
		cfg.Connect = 100 * time.Millisecond
		p := startPool(t, cfg)
		p.start(up, "GET", "/", 0, nil).wantFailure(failConnect, want)
		p.await("everything gone", func() bool { return p.hosts[up.key].uses == 0 })
	}
	plain(func(c *originPeer) { c.send("HTTP/1.1 400 Bad Request\r\n\r\n"); c.wantGone() }, "first record")
	plain(func(c *originPeer) { c.wantGone() }, "timed out")
	plain(func(c *originPeer) {}, "closed")
}

// Both ways bodies are whole, the user is stopped by an origin that does not
// read, and what the user does not read stays with the origin.
func TestOriginTLSBackpressure(t *testing.T) {
	const size = 16 << 20
	go1 := make(chan struct{})
	pattern := bytes.Repeat([]byte("0123456789abcdef!"), size/17+1)[:size]
	_, up, cfg := startTLSOrigin(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == "POST" {
			<-go1
			b, _ := io.ReadAll(r.Body)
			fmt.Fprint(w, bytes.Equal(b, pattern))
			return
		}
		w.Write(pattern)
	}), nil)
	p := startPool(t, cfg)

	c := p.start(up, "POST", "/", size, nil)
	at, stops := 0, 0
	fill := func() {
		for at < size {
			n := min(60000, size-at)
			at += n
			if c.o.Write(pattern[at-n:at]) && at < size {
				stops++
				return
			}
		}
		c.o.End()
	}
	p.on(fill)
	if at == size {
		t.Fatal("nothing said stop")
	}
	close(go1)
	for seen := 0; at < size; {
		p.await("OnDrain", func() bool { return c.drains > seen })
		p.on(func() {
			if o := c.o; cap(o.out) > 1<<20 {
				t.Errorf("%d bytes are kept", cap(o.out))
			}
			seen = c.drains
			fill()
		})
	}
	c.wantAnswer(200, "true")

	var got bytes.Buffer
	first := 0
	c = p.start(up, "GET", "/", 0, func(c *testCall) {
		c.onHead = func() { c.o.Pause() }
		c.onData = func(b []byte) { got.Write(b); c.body.Reset() }
	})
	<-c.headed
	p.on(func() { first = got.Len(); c.o.Resume() })
	if first > 2*originRead {
		t.Errorf("%d bytes came behind Pause", first)
	}
	c.wait()
	if c.failure != nil || !bytes.Equal(got.Bytes(), pattern) {
		t.Errorf("got %d bytes, failure %v", got.Len(), c.failure)
	}
	p.on(p.closeIdle)
}

// An origin that is to get no more of a request holds up nobody who writes it, even
// if it never takes the record that TLS had begun to send.
func TestOriginTLSGiveUp(t *testing.T) {
	goOn := make(chan struct{})
	_, up, cfg := startTLSOrigin(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := http.NewResponseController(w)
		c.EnableFullDuplex() // else it reads first
		io.WriteString(w, "he")
		c.Flush()
		<-goOn
		io.WriteString(w, "llo")
	}), nil)
	release := sync.OnceFunc(func() { close(goOn) })
	t.Cleanup(release)
	p := startPool(t, cfg)
	c := p.start(up, "POST", "/", -1, nil)
	<-c.headed
	piece := make([]byte, 1<<20)
	p.on(func() {
		for !c.o.Write(piece) {
		}
		c.o.GiveUp()
	})
	p.await("OnDrain", func() bool { return c.drains > 0 })
	p.on(func() {
		if c.o.Write(piece) {
			t.Error("what is dropped is reported to wait")
		}
	})
	release()
	c.wantAnswer(200, "hello")
	p.on(c.o.End)
	p.wantIdle(up, 0)
}

// Without a close_notify nobody knows who ended a body that ends with the
// connection.
func TestOriginTLSEnd(t *testing.T) {
	cert := httptest.NewUnstartedServer(nil)
	cert.StartTLS()
	defer cert.Close()
	f := func(notify bool, answer string, check func(c *testCall)) {
		t.Helper()
		origin := listenRaw(t, func(c *originPeer) {
			s := tls.Server(c.TCPConn, &tls.Config{Certificates: cert.TLS.Certificates, NextProtos: []string{"http/1.1"}})
			b := make([]byte, 4096)
			if _, err := s.Read(b); err != nil {
				t.Errorf("reading the request: %v", err)
				return
			}
			io.WriteString(s, answer)
			if notify {
				s.CloseWrite()
			}
		})
		up, err := newUpstream("https" + strings.TrimPrefix(origin.up.key, "http"))
		if err != nil {
			t.Fatal(err)
		}
		cfg := testOriginConfig()
		cfg.RootCAs = x509.NewCertPool()
		cfg.RootCAs.AddCert(cert.Certificate())
		p := startPool(t, cfg)
		c := p.start(up, "GET", "/", 0, nil).wait()
		check(c)
		p.await("everything gone", func() bool { return p.hosts[up.key].uses == 0 })
	}
	whole := func(c *testCall) { t.Helper(); c.wantAnswer(200, "hello") }
	cut := func(c *testCall) { t.Helper(); c.wantFailure(failResponse, originEarlyEnd) }
	f(true, "HTTP/1.1 200 OK\r\n\r\nhello", whole)
	f(false, "HTTP/1.1 200 OK\r\n\r\nhello", cut)
	// A length says it better, either way.
	f(true, okHello, whole)
	f(false, okHello, whole)
	f(true, "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nhello", cut)
}

// A handshake that nobody waits for any more ends, and its goroutine with it.
func TestOriginTLSCancelledHandshake(t *testing.T) {
	arrived := make(chan struct{}, 1)
	origin := listenRaw(t, func(c *originPeer) {
		c.r.Peek(1)
		arrived <- struct{}{}
		c.wantGone()
	})
	up, err := newUpstream("https" + strings.TrimPrefix(origin.up.key, "http"))
	if err != nil {
		t.Fatal(err)
	}
	p := startPool(t, testOriginConfig())
	c := p.start(up, "GET", "/", 0, nil)
	<-arrived
	p.on(c.o.Cancel)
	p.await("its goroutine is gone", func() bool { return p.cfg.TLS.Handshaking() == 0 })
	p.wantIdle(up, 0)
}
