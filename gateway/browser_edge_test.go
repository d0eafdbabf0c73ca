package gateway_test

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"sluice/gateway/store/redistest"
)

// trustsTestTLS is the switch with which Chromium takes the certificate of tlsFiles,
// by the hash of its key, although it does not know the authority. Everything else
// is verified as ever.
func trustsTestTLS(t testing.TB) string {
	t.Helper()
	leaf := testLeaf(t)
	sum := sha256.Sum256(leaf.RawSubjectPublicKeyInfo)
	return "--ignore-certificate-errors-spki-list=" + base64.StdEncoding.EncodeToString(sum[:])
}

// testLeaf is the certificate of tlsFiles.
func testLeaf(t testing.TB) *x509.Certificate {
	t.Helper()
	cert, err := tls.LoadX509KeyPair(tlsFiles())
	if err != nil {
		t.Fatal(err)
	}
	return cert.Leaf
}

// wss opens a client's socket in the page and waits until it is open. What it gets
// and how it ends is in got.
func (p *tab) wss(addr, serverID string) {
	p.t.Helper()
	p.await(`(() => { window.got = []; window.ws = new WebSocket("wss://` + addr + `/ws?` + wsQuery(serverID, "client", 1, "-") + `");
		ws.onmessage = m => got.push(m.data);
		ws.onclose = e => got.push(e.code + " " + e.reason + " " + e.wasClean);
		return new Promise((ok, no) => { ws.onopen = () => ok("open"); ws.onerror = () => no("refused"); }); })()`)
}

// talks has the page and a server exchange a message, and a large one.
func (p *tab) talks(s *wsClient) {
	p.t.Helper()
	large := strings.Repeat("x", 200_000)
	p.eval(`got.length = 0; ws.send("from the browser"); ws.send("x".repeat(200000))`)
	s.wantText("from the browser")
	s.wantText(large)
	s.text("to the browser")
	s.text(large)
	p.until(`got.map(m => m.length < 100 ? m : m.length).join()`, "to the browser,200000")
}

// drains has a node drain while the page and a server are connected.
func (n *node) drains(p *tab, s *wsClient) {
	n.t.Helper()
	p.eval(`got.length = 0`)
	done := make(chan struct{})
	go func() {
		defer close(done)
		n.g.Drain()
	}()
	s.wantCloseFrame(1012, "Service restart")
	p.until(`got.join()`, "1012 Service restart true")
	<-done
}

// A browser connects over wss, to the relay itself.
func browserTLS(t *testing.T, b *browser) {
	n := startTLSNode(t)
	p := b.open(t, startTestOrigin(t, http.NotFoundHandler())+"/")
	s := n.v1("server", "over-tls")
	p.wss(n.addr, "over-tls")
	p.talks(s)
	n.drains(p, s)
	if got := n.tlsMetric("tls_handshakes_total"); got != "2" {
		t.Errorf("%s handshakes", got)
	}
}

// A browser connects over wss through HAProxy, which passes TLS on and says in a
// header in front of it who the client is.
func browserBehindHAProxy(t *testing.T, b *browser) {
	haproxy := debianProgram(t, "haproxy")
	n := startTLSNode(t, "PROXY_PROTOCOL=on", "TRUSTED_PROXIES="+haproxyAddress)
	at := "127.0.0.1:" + nextPort()
	conf := savedFile(t, t.TempDir(), "haproxy.cfg", `
defaults
    mode tcp
    log stdout format raw local0 info
    timeout connect 5s
    timeout client 60s
    timeout server 60s
listen relay
    bind `+at+`
    server one `+n.addr+` send-proxy-v2 source `+haproxyAddress+`
`)
	untilListening(t, at, startProgram(t, nil, haproxy, "-db", "-f", conf))
	noteTLS(at, testTLS(""))
	p := b.open(t, startTestOrigin(t, http.NotFoundHandler())+"/")
	s, err := dialWS(t, at, wsQuery("through", "server", 1, "-"), "server")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.rst)
	p.wss(at, "through")
	p.talks(s)
	n.drains(p, s)
	s.write(closeFrame(1012, ""))
	s.bye()
	// One of the two lines is the browser's, whose address only the header knew.
	n.until("the lines of both ends", func() bool { return len(n.log.with(`"connection ended"`)) == 2 })
	if lines := n.log.with(`"peer":"` + haproxyAddress); len(lines) != 0 {
		t.Errorf("HAProxy's address stands for a client's: %q", lines)
	}
	if lines := n.log.with(fmt.Sprintf(`"peer":%q`, s.nc.LocalAddr())); len(lines) != 1 {
		t.Errorf("the server's address: %q", lines)
	}
}

// The page with everything on: TLS, Redis, PROXY protocol. It tells of Redis when
// that goes away and comes back, and its console stays empty.
func pageWithEverything(t *testing.T, b *browser) {
	r := redistest.Start(t)
	n := startTLSNode(t, "REDIS_URL="+r.URL(), "OWNERSHIP_TARGET=here", "PROXY_PROTOCOL=on", "TRUSTED_PROXIES="+haproxyAddress)
	n.untilReady()
	s, c := n.v1pair()
	c.text("hello")
	s.wantText("hello")
	p := b.open(t, "http://"+n.admin+"/")
	const up = "1 while the last operation reached Redis"
	p.until(value("WebSockets"), "2 of 20,000")
	p.until(value("Nodes that are alive, this one included"), "1")
	p.until(value(up), "1")
	p.until(value("Unix time at which the first certificate ends"), testLeaf(t).NotAfter.UTC().Format("2006-01-02 15:04 MST"))
	if got := p.eval(`document.querySelectorAll("figure polyline").length`); got != "9" {
		t.Errorf("%s charts", got)
	}
	titles := p.eval(`Array.from(document.querySelectorAll("h2")).map(h => h.textContent).join()`)
	for _, want := range []string{"TLS", "Redis", "PROXY protocol"} {
		if !strings.Contains(titles+",", ","+want+",") {
			t.Errorf("no section %s among %s", want, titles)
		}
	}
	r.Kill()
	p.until(`document.getElementById("state").textContent + ", " + document.getElementById("why").textContent`, "not ready, the ownership store is unavailable")
	p.until(value(up), "0")
	r.Restart()
	p.until(`document.getElementById("state").textContent`, "ready")
	p.until(value(up), "1")
	if _, errors := p.seen(); len(errors) != 0 {
		t.Errorf("console: %q", errors)
	}
	if text := p.eval(`document.documentElement.outerHTML`); strings.Contains(text, r.Addr) || strings.Contains(text, "127.0.0.1") {
		t.Error("the page tells an address")
	}
}
