package gateway_test

import (
	"bufio"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"sluice/gateway"
	"sluice/gateway/config"
)

const v2Signature = "\r\n\r\n\x00\r\nQUIT\n"

// proxyV2 is a binary header for an IPv4 client, with bytes behind its addresses.
func proxyV2(client [4]byte, port uint16, tlvs int) string {
	b := append([]byte(v2Signature), 0x21, 0x11)
	b = binary.BigEndian.AppendUint16(b, uint16(12+tlvs))
	b = append(append(b, client[:]...), 127, 0, 0, 1)
	b = binary.BigEndian.AppendUint16(b, port)
	b = binary.BigEndian.AppendUint16(b, 443)
	return string(append(b, make([]byte, tlvs)...))
}

// rawAnswer sends bytes and returns the status of the answer, or 0 when the
// connection was closed without one.
func rawAnswer(t testing.TB, addr, raw string) int {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(patience))
	io.WriteString(c, raw)
	r, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err == nil {
		return r.StatusCode
	}
	if !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("%.30q: %v", raw, err)
	}
	return 0
}

const healthRequest = "GET /health HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"

func TestProxyProtocol(t *testing.T) {
	t.Parallel()
	n := startNode(t, "PROXY_PROTOCOL=on", "TRUSTED_PROXIES=127.0.0.0/8", "PASEO_RELAY_HTTP_IDLE_TIMEOUT_MS=400")
	refused := 0
	f := func(what, header string, want int) {
		t.Helper()
		if got := rawAnswer(t, n.addr, header+healthRequest); got != want {
			t.Errorf("%s: %d", what, got)
		}
		if want == 0 {
			refused++
		}
	}
	f("version 1", "PROXY TCP4 192.0.2.7 127.0.0.1 4711 443\r\n", 200)
	f("version 1 of IPv6", "PROXY TCP6 2001:db8::7 ::1 4711 443\r\n", 200)
	f("UNKNOWN", "PROXY UNKNOWN\r\n", 200)
	f("version 2", proxyV2([4]byte{192, 0, 2, 7}, 4711, 0), 200)
	f("TLVs", proxyV2([4]byte{192, 0, 2, 7}, 4711, 300), 200)
	f("as many TLVs as there can be", proxyV2([4]byte{192, 0, 2, 7}, 4711, 65535-12), 200)
	f("LOCAL", v2Signature+"\x20\x00\x00\x00", 200)
	f("none", "", 0)
	f("malformed", "PROXY TCP4 192.0.2.7 127.0.0.1 4711\r\n", 0)
	f("malformed, version 2", v2Signature+"\x21\x11\x00\x01x", 0)
	f("twice", "PROXY UNKNOWN\r\nPROXY UNKNOWN\r\n", 400) // the second is a request, and a bad one
	// In time: nothing, a part, and a part of the TLVs.
	for _, part := range []string{"", "PROXY TC", v2Signature, proxyV2([4]byte{1, 2, 3, 4}, 5, 9)[:30]} {
		if got := rawAnswer(t, n.addr, part); got != 0 {
			t.Errorf("%q: %d", part, got)
		}
		refused++
	}
	// Byte by byte.
	c, err := net.Dial("tcp", n.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.(*net.TCPConn).SetNoDelay(true)
	c.SetDeadline(time.Now().Add(patience))
	for _, b := range []byte(proxyV2([4]byte{192, 0, 2, 8}, 4712, 5) + healthRequest) {
		c.Write([]byte{b})
	}
	if r, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil || r.StatusCode != 200 {
		t.Errorf("%v, %v", r, err)
	}
	c.Close() // or the node waits for its end
	n.untilTLS(`proxy_protocol_refusals_total{listener="relay"}`, fmt.Sprint(refused))
	n.untilRejections("proxy_protocol", refused)
	n.until("nothing is left", func() bool { return n.g.HTTPConnections() == 0 })
}

func (n *node) untilRejections(reason string, want int) {
	n.t.Helper()
	// The page lies behind the same rule: it is read on the admin listener.
	series := fmt.Sprintf("paseo_relay_connection_rejections_total{reason=%q} %d\n", reason, want)
	n.until(series, func() bool { return strings.Contains(httpDo(n.t, n.admin, "GET", "/metrics").body, series) })
}

// The address in the header is the peer: in log lines of the relay, whichever
// loop the socket ends up on.
func TestProxyProtocolPeerOfTheRelay(t *testing.T) {
	t.Parallel()
	n := startNode(t, "PROXY_PROTOCOL=on", "TRUSTED_PROXIES=127.0.0.1", "LOOPS=2")
	for i := range 8 {
		c, err := net.Dial("tcp", n.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(patience))
		client := [4]byte{192, 0, 2, byte(i)}
		q := wsQuery(fmt.Sprint("proxied", i), "client", 1, "-")
		io.WriteString(c, proxyV2(client, 4000, 7)+string(upgradeRequest("/ws?"+q, newKey()))+string(closeFrame(1000, "")))
		if r, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil || r.StatusCode != 101 {
			t.Fatalf("%v, %v", r, err)
		}
		want := fmt.Sprintf(`"peer":"192.0.2.%d:4000"`, i)
		n.until("the line of the end says "+want, func() bool { return len(n.log.with(want)) == 1 })
	}
}

// Who is not trusted must not send a header, and is served without one.
func TestProxyProtocolForeign(t *testing.T) {
	t.Parallel()
	n := startNode(t, "PROXY_PROTOCOL=on", "TRUSTED_PROXIES=10.0.0.0/8")
	for header, want := range map[string]int{
		"": 200, "\r\n": 200,
		"PROXY TCP4 192.0.2.7 127.0.0.1 4711 443\r\n": 0, "PROXY UNKNOWN\r\n": 0, proxyV2([4]byte{1, 2, 3, 4}, 5, 0): 0,
	} {
		if got := rawAnswer(t, n.addr, header+healthRequest); got != want {
			t.Errorf("%q: %d", header, got)
		}
	}
	n.untilTLS(`proxy_protocol_refusals_total{listener="relay"}`, "3")
	if lines := n.log.with("outside TRUSTED_PROXIES"); len(lines) != 3 {
		t.Errorf("log: %q", lines)
	}
}

// Who is not trusted and says too little in its time has broken no rule: it gets
// what it would get without PROXY_PROTOCOL.
func TestProxyProtocolForeignSilence(t *testing.T) {
	t.Parallel()
	const trusted, short = "TRUSTED_PROXIES=10.0.0.0/8", "PASEO_RELAY_HTTP_IDLE_TIMEOUT_MS=200"
	n := startNode(t, "PROXY_PROTOCOL=on", trusted, short)
	s := startTLSNode(t, "PROXY_PROTOCOL=on", trusted, short)
	for _, c := range []struct {
		n    *node
		raw  string
		want int
	}{
		{n, "", 0}, {s, "", 0},
		{n, "P", 408},   // of a POST, as far as one can tell
		{s, "PROXY", 0}, // neither a header nor TLS
	} {
		if got := rawAnswer(t, c.n.addr, c.raw); got != c.want {
			t.Errorf("%q: %d, want %d", c.raw, got, c.want)
		}
	}
	for _, n := range []*node{n, s} {
		n.until("nothing is left", func() bool { return n.g.HTTPConnections() == 0 })
		n.untilTLS(`proxy_protocol_refusals_total{listener="relay"}`, "0")
		if lines := n.log.with("by the rule of PROXY_PROTOCOL"); len(lines) > 0 {
			t.Errorf("log: %q", lines)
		}
	}
}

// With both the header comes in front of TLS, and the WebSocket runs as ever.
func TestProxyProtocolInFrontOfTLS(t *testing.T) {
	t.Parallel()
	n := startTLSNode(t, "PROXY_PROTOCOL=on", "TRUSTED_PROXIES=127.0.0.1")
	c, err := dialTCP(n.addr, wsDial{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	hello := clientHello(t)
	// Header and the beginning of the handshake in one segment, then the rest.
	s := &splitFirst{TCPConn: c, front: []byte(proxyV2([4]byte{192, 0, 2, 9}, 4713, 20)), cut: len(hello) / 2}
	tc := tls.Client(s, clientTLS("localhost"))
	tc.SetDeadline(time.Now().Add(patience))
	io.WriteString(tc, string(upgradeRequest("/ws?"+wsQuery("both", "client", 1, "-"), newKey())))
	br := bufio.NewReader(tc)
	if r, err := http.ReadResponse(br, nil); err != nil || r.StatusCode != 101 {
		t.Fatalf("%v, %v", r, err)
	}
	tc.Write(closeFrame(1000, ""))
	if b, err := io.ReadAll(br); err != nil || len(b) != 4 {
		t.Errorf("%q, %v", b, err)
	}
	n.until("the peer is the client", func() bool { return len(n.log.with(`"peer":"192.0.2.9:4713"`)) == 1 })
	// TLS without the header is refused.
	if _, err := tls.Dial("tcp", n.addr, clientTLS("localhost")); err == nil {
		t.Error("a handshake without a header")
	}
}

// splitFirst sends front and the first cut bytes of the first write together.
type splitFirst struct {
	*net.TCPConn
	front []byte
	cut   int
}

func (s *splitFirst) Write(b []byte) (int, error) {
	if s.front == nil {
		return s.TCPConn.Write(b)
	}
	first := append(s.front, b[:s.cut]...)
	s.front = nil
	if _, err := s.TCPConn.Write(first); err != nil {
		return 0, err
	}
	_, err := s.TCPConn.Write(b[s.cut:])
	return len(b), err
}

// The encrypting relay tells origins of the client that the header named.
func TestProxyProtocolForwardedFor(t *testing.T) {
	seen := make(chan string, 1)
	n := startMTEBehind(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen <- r.Header.Get("X-Forwarded-For")
	}), "PROXY_PROTOCOL=on", "TRUSTED_PROXIES=127.0.0.1")
	request := "GET /plain/x HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
	if got := rawAnswer(t, n.addr, proxyV2([4]byte{192, 0, 2, 10}, 1, 0)+request); got != 200 {
		t.Fatal(got)
	}
	if got := <-seen; got != "192.0.2.10" {
		t.Errorf("X-Forwarded-For: %s", got)
	}
}

// `sluice health` gets through TLS and the header when the relay's listener is
// the one to ask, and `check-config` looks into the files.
func TestCommandsOverTLS(t *testing.T) {
	a, dir := testAuthority(), t.TempDir()
	cert, key := a.write(t, dir, "good", time.Now().Add(time.Hour), "relay.test")
	env := []string{"PORT=0", "ADMIN_PORT=" + nextPort(), "PASEO_RELAY_PORT=" + nextPort(), "PASEO_RELAY_TLS_CERT_FILE=" + cert, "PASEO_RELAY_TLS_KEY_FILE=" + key,
		"PROXY_PROTOCOL=on", "TRUSTED_PROXIES=127.0.0.1", "DRAIN_SECONDS=0"}
	cfg, faults, _ := config.Load(env, os.ReadFile)
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	g, err := gateway.Start(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer g.Stop()
	if code := gateway.Health(env); code != 0 {
		t.Errorf("health by the admin listener: %d", code)
	}
	// Somebody who looks for the admin listener in the wrong place.
	env = append([]string{"ADMIN_PORT=" + nextPort()}, env...) // of two the first counts
	if code := gateway.Health(env); code != 0 {
		t.Errorf("health by the relay's listener: %d", code)
	}
	check := func(what string, want int, env ...string) {
		t.Helper()
		if code := gateway.CheckConfig(append([]string{"PASEO_RELAY_PORT=0"}, env...), io.Discard, io.Discard); code != want {
			t.Errorf("%s: %d", what, code)
		}
	}
	check("a good pair", 0, "TLS_CERT_FILE="+cert, "TLS_KEY_FILE="+key)
	check("a missing file", 1, "TLS_CERT_FILE="+cert+".no", "TLS_KEY_FILE="+key)
	check("no key", 1, "TLS_CERT_FILE="+cert)
	check("unequal lists", 1, "TLS_CERT_FILE="+cert+","+cert, "TLS_KEY_FILE="+key)
	other, _ := a.write(t, dir, "other", time.Now().Add(time.Hour), "relay.test")
	check("another's key", 1, "TLS_CERT_FILE="+other, "TLS_KEY_FILE="+key)
	old, oldKey := a.write(t, dir, "old", time.Now().Add(-time.Hour), "relay.test")
	check("an expired one", 0, "TLS_CERT_FILE="+old, "TLS_KEY_FILE="+oldKey)
	_, _, notices := config.Load([]string{"PASEO_RELAY_PORT=0", "TLS_CERT_FILE=" + old, "TLS_KEY_FILE=" + oldKey}, os.ReadFile)
	found := false
	for _, n := range notices {
		found = found || strings.Contains(n.Text, "expired")
	}
	if !found {
		t.Errorf("no warning about an expired certificate: %v", notices)
	}
}
