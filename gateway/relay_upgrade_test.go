package gateway_test

import (
	"bufio"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// exchange sends raw bytes on a new connection and returns the response.
func (n *node) exchange(raw string) (*http.Response, string) {
	n.t.Helper()
	c, err := dialAny(n.addr, wsDial{})
	if err != nil {
		n.t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(patience))
	io.WriteString(c, raw)
	method, _, _ := strings.Cut(raw, " ")
	r, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: method})
	if err != nil {
		n.t.Fatalf("%.60q: %v", raw, err)
	}
	if r.StatusCode == 101 {
		c.SetLinger(0)
		return r, ""
	}
	body, _ := io.ReadAll(r.Body)
	return r, string(body)
}

func TestEndpoints(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	f := func(method, target string, status int, body string) {
		t.Helper()
		if method == "HEAD" {
			body = ""
		}
		if a := httpDo(t, n.addr, method, target); a.status != status || a.body != body {
			t.Errorf("%s %s: %d %q, expected %d %q", method, target, a.status, a.body, status, body)
		}
	}
	for _, method := range []string{"GET", "HEAD"} {
		f(method, "/health", 200, `{"status":"ok"}`)
		f(method, "/ready", 200, `{"status":"ready"}`)
		f(method, "/health?x=1", 200, `{"status":"ok"}`)
		f(method, "/", 404, "not found\n")
		f(method, "/wsx", 404, "not found\n")
		f(method, "/ws/", 404, "not found\n")
		f(method, "/WS", 404, "not found\n")
		f(method, "/healthz", 404, "not found\n")
		f(method, "/drain", 404, "not found\n")
		f(method, "/ws", 426, "Expected WebSocket upgrade")
	}
	f("POST", "/health", 404, "not found\n")
	f("DELETE", "/metrics", 404, "not found\n")
	if a := httpDo(t, n.addr, "GET", "/metrics"); a.status != 200 || !strings.HasPrefix(a.header.Get("Content-Type"), "text/plain") {
		t.Errorf("/metrics: %d %v", a.status, a.header)
	}
}

const key = "dGhlIHNhbXBsZSBub25jZQ=="

func TestUpgradeSuccess(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	f := func(headers ...string) {
		t.Helper()
		r, _ := n.exchange(string(upgradeRequest("/ws?"+wsQuery(n.sid(), "client", 1, "-"), key, headers...)))
		if r.StatusCode != 101 || r.Header.Get("Sec-WebSocket-Accept") != "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" ||
			!strings.EqualFold(r.Header.Get("Upgrade"), "websocket") || !strings.EqualFold(r.Header.Get("Connection"), "upgrade") {
			t.Errorf("%q: %d %v", headers, r.StatusCode, r.Header)
		}
		for _, h := range []string{"Sec-WebSocket-Extensions", "Sec-WebSocket-Protocol"} {
			if r.Header.Get(h) != "" {
				t.Errorf("%q: %s: %s", headers, h, r.Header.Get(h))
			}
		}
	}
	f()
	// Case and blanks.
	f("Upgrade: WebSocket", "Connection: keep-alive, UPGRADE")
	f("Upgrade:  \twebsocket\t", "Sec-WebSocket-Version:  13 ", "Sec-WebSocket-Key: \t"+key+"  ")
	// Offers are ignored.
	f("Sec-WebSocket-Extensions: permessage-deflate", "Sec-WebSocket-Protocol: chat")
	f("Origin: https://example.org", "Cookie: a=b")
}

// A refusal of the checks 1 to 5 leaves nothing behind.
func TestUpgradeRefusals(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	good := wsQuery("s", "client", 1, "-")
	notUpgrade := func(raw string) {
		t.Helper()
		r, body := n.exchange(raw)
		if r.StatusCode != 426 || r.Header.Get("Sec-WebSocket-Version") != "13" {
			t.Errorf("%q: %d %v", raw, r.StatusCode, r.Header)
		}
		if want := "Expected WebSocket upgrade"; body != want && !strings.HasPrefix(raw, "HEAD") {
			t.Errorf("%q: body %q", raw, body)
		}
	}
	with := func(headers ...string) string { return string(upgradeRequest("/ws?"+good, key, headers...)) }
	notUpgrade(with("Upgrade:"))
	notUpgrade(with("Upgrade: h2c"))
	notUpgrade(with("Connection:"))
	notUpgrade(with("Connection: close"))
	notUpgrade(with("Connection: keep-alive, upgraded"))
	notUpgrade(with("Sec-WebSocket-Version:"))
	notUpgrade(with("Sec-WebSocket-Version: 8"))
	notUpgrade(with("Sec-WebSocket-Version: 13, 8"))
	notUpgrade(with("Sec-WebSocket-Key:"))
	notUpgrade(with("Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ"))
	notUpgrade(with("Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAA"))     // 15 bytes
	notUpgrade(with("Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAAA=")) // 17
	notUpgrade(with("Sec-WebSocket-Key: !!hlIHNhbXBsZSBub25jZQ=="))
	notUpgrade(strings.Replace(with(), "HTTP/1.1", "HTTP/1.0", 1))
	notUpgrade(strings.Replace(with("Content-Length: 0"), "GET", "POST", 1))
	notUpgrade(strings.Replace(with(), "GET", "HEAD", 1))
	// Before any look at the query.
	notUpgrade(strings.Replace(with("Upgrade:"), good, "role=bogus", 1))

	const (
		role    = "Missing or invalid role parameter"
		missing = "Missing serverId parameter"
		long    = "serverId is too long"
		version = "Invalid v parameter (expected 1 or 2)"
	)
	f := func(query, body string) { t.Helper(); n.refused(query, 400, body) }
	f("", role)
	f("serverId=a", role)
	f("serverId=a&role=", role)
	f("serverId=a&role=Server", role)
	f("serverId=a&role=+server", role)
	f("serverId=a&role=server&role=x", role)
	f("role=server", missing)
	f("role=server&serverId=", missing)
	f("role=server&serverId=a&serverId=", missing)
	f("role=server&serverId="+strings.Repeat("a", 257), long)
	f("role=server&serverId="+strings.Repeat("%C3%A4", 129), long)
	f("role=server&serverId=%ff", "serverId is not valid UTF-8")
	f("role=server&serverId=a&v=0", version)
	f("role=server&serverId=a&v=3", version)
	f("role=server&serverId=a&v=2x", version)
	f("role=server&serverId=a&v=2&connectionId="+strings.Repeat("c", 257), "connectionId is too long")
	f("role=server&serverId=a&v=2&connectionId=%c3%28", "connectionId is not valid UTF-8")
	// In this order.
	f("role=x&v=9", role)
	f("role=client&v=9&connectionId="+strings.Repeat("c", 257), missing)
	f("role=client&serverId="+strings.Repeat("a", 257)+"&v=9", long)
	f("role=client&serverId=a&v=9&connectionId="+strings.Repeat("c", 257), version)

	if s := n.g.Ledger().Snapshot(); s.Sockets != 0 || n.g.Relay().Sessions() != 0 {
		t.Errorf("refusals left %+v, %d sessions", s, n.g.Relay().Sessions())
	}
	n.untilMetric(`connection_rejections_total{reason="bad_request"}`, 21)
}

func TestQueryForms(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	meet := func(server, client string) {
		t.Helper()
		s, c := n.ws(server, "server"), n.ws(client, "client")
		c.text("met")
		s.wantText("met")
		s.rst()
		c.rst()
	}
	// The last of repeated parameters counts.
	meet("role=client&role=server&serverId=x&serverId=a1", "serverId=a1&role=client&v=7&v=1")
	// v absent, blank, trimmed.
	meet("role=server&serverId=a2&v=", "role=client&serverId=a2&v=%201%09")
	// Percent and plus in either notation; a malformed percent stays.
	meet("role=server&serverId=a+b%2Bc", "role=client&serverId=a%20b%2bc")
	meet("role=server&serverId=100%", "role=client&serverId=100%25")
	meet("role=server&serverId=%zz%4", "role=client&serverId=%25zz%254")
	meet("%72ole=server&server%49d=n1", "role=client&serverId=n1")
	// The longest.
	meet("role=server&serverId="+strings.Repeat("a", 256), "role=client&serverId="+strings.Repeat("%61", 256))
	// serverId is not trimmed, connectionId is.
	sid := n.sid()
	ctl := n.ws("v=2&role=server&serverId=+"+sid+"&connectionId=%20", "control")
	ctl.wantJSON(syncJSON())
	n.ws("v=+2&role=client&serverId=%20"+sid+"&connectionId=+in+ner+", "client")
	ctl.wantJSON(connectedJSON("in ner"))
	n.ws("v=2&role=client&serverId="+sid+"&connectionId=x", "client")
	ctl.barrier()
}

// Ids reach control as JSON strings, whatever is in them.
func TestIDsAreEscaped(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	sid := n.sid()
	ctl := n.control(sid)
	for _, cid := range []string{"a b", `q"uo\te`, "new\nline", "</script>", "a\u2028b", "tab\tx", "emoji😀", "a+b&c=d#e", "\x01\x1f\x7f"} {
		c := n.client(sid, cid)
		m, err := ctl.message(patience)
		if err != nil || !sameJSON(m.data, jsonOf("connected", cid)) {
			t.Fatalf("%q: %v %v", cid, m, err)
		}
		c.rst()
		if m, err = ctl.message(patience); err != nil || !sameJSON(m.data, jsonOf("disconnected", cid)) {
			t.Fatalf("%q: %v %v", cid, m, err)
		}
	}
}

func TestCeiling(t *testing.T) {
	t.Parallel()
	n := startNode(t, "ACCEPTORS=2", "CONNECTIONS_PER_ACCEPTOR=2")
	sid := n.sid()
	d, c := n.data(sid, "c"), n.client(sid, "c")
	ctl := n.control(sid, "c")
	if a := httpDo(t, n.addr, "GET", "/ready"); a.status != 200 {
		t.Errorf("/ready at 3 of 4: %d", a.status)
	}
	last := n.v1("server", n.sid())
	if a := httpDo(t, n.addr, "GET", "/ready"); a.status != 503 || a.body != `{"status":"unready"}` {
		t.Errorf("/ready at 4 of 4: %d %s", a.status, a.body)
	}
	for _, q := range []string{wsQuery(n.sid(), "server", 1, "-"), wsQuery(sid, "client", 2, "c"), wsQuery(sid, "server", 2, "other")} {
		if n.refused(q, 503, "at capacity").Get("Retry-After") == "" {
			t.Error("no Retry-After")
		}
	}
	// The same identities replace themselves.
	ctl2 := n.control(sid, "c")
	ctl.wantClose(1008, "Replaced by new connection")
	n.untilSockets(4)
	d2 := n.data(sid, "c")
	d.wantClose(1008, "Replaced by new connection")
	n.untilSockets(4)
	c.text("still")
	d2.wantText("still")
	last.leave(1000)
	n.untilSockets(3)
	n.v1("client", n.sid()).barrier()
	ctl2.barrier()
	n.untilMetric(`connection_rejections_total{reason="capacity"}`, 3)
}

// A slow head is answered 408 or closed, and costs no slot.
func TestSlowHead(t *testing.T) {
	t.Parallel()
	n := startNode(t, "PASEO_RELAY_HTTP_IDLE_TIMEOUT_MS=100")
	r, _ := n.exchange("GET /ws?serverId=a HTTP/1.1\r\nHost: x\r\n")
	if r.StatusCode != 408 {
		t.Errorf("status %d", r.StatusCode)
	}
	n.until("no connection is left", func() bool { return n.g.HTTPConnections() == 0 })
}

// An upgrade frees its place among HTTP connections.
func TestHTTPCeilingDoesNotCountWebSockets(t *testing.T) {
	t.Parallel()
	n := startNode(t, "HTTP_MAX_CONNECTIONS=2")
	for range 6 {
		n.v1("client", n.sid()).barrier()
	}
	n.until("no HTTP connection", func() bool { return n.g.HTTPConnections() == 0 })
}
