package gateway_test

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fasthttp/websocket"
)

// startTLSNode is startNode for a relay that speaks TLS.
func startTLSNode(t testing.TB, settings ...string) *node {
	t.Helper()
	return startNode(t, append(settings, testTLS("PASEO_RELAY_")...)...)
}

// tlsMetric returns one series of the process's page.
func (n *node) tlsMetric(series string) string {
	n.t.Helper()
	for line := range strings.Lines(httpDo(n.t, n.admin, "GET", "/metrics").body) {
		if name, value, _ := strings.Cut(strings.TrimSpace(line), " "); name == "sluice_"+series {
			return value
		}
	}
	n.t.Fatalf("no series sluice_%s", series)
	return ""
}

func (n *node) untilTLS(series, want string) {
	n.t.Helper()
	var got string
	if !poll(func() bool { got = n.tlsMetric(series); return got == want }) {
		n.t.Fatalf("sluice_%s is %s, expected %s", series, got, want)
	}
}

// A client that shares no code with us, both roles of the protocol, both versions.
func TestTLSWebSocketClient(t *testing.T) {
	t.Parallel()
	n := startTLSNode(t)
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		cfg := clientTLS("localhost")
		cfg.MinVersion, cfg.MaxVersion = version, version
		d := websocket.Dialer{TLSClientConfig: cfg, HandshakeTimeout: patience}
		sid := n.sid()
		open := func(role string) *websocket.Conn {
			c, _, err := d.Dial("wss://"+n.addr+"/ws?"+wsQuery(sid, role, 1, "-"), nil)
			if err != nil {
				t.Fatal(err)
			}
			c.SetReadDeadline(time.Now().Add(patience))
			return c
		}
		s, c := open("server"), open("client")
		for _, size := range []int{0, 1, 125, 4000, 16 << 10, 70000, 3 << 20} {
			out := bytes.Repeat([]byte{byte(size)}, size)
			if err := s.WriteMessage(websocket.BinaryMessage, out); err != nil {
				t.Fatal(err)
			}
			if _, in, err := c.ReadMessage(); err != nil || !bytes.Equal(in, out) {
				t.Fatalf("%x: %d bytes: %d, %v", version, size, len(in), err)
			}
		}
		s.WriteMessage(websocket.CloseMessage, websocket.FormatCloseMessage(1000, ""))
		var end *websocket.CloseError
		if _, _, err := s.ReadMessage(); !errors.As(err, &end) || end.Code != 1000 {
			t.Errorf("%x: %v", version, err)
		}
		s.Close()
		c.Close()
	}
	n.untilTLS("tls_handshakes_total", "4")
	n.untilTLS("tls_handshakes_in_progress", "0")
}

// What the contract asks of the protocol, seen by crypto/tls.
func TestTLSNegotiation(t *testing.T) {
	t.Parallel()
	n := startTLSNode(t)
	f := func(what string, change func(*tls.Config), want func(tls.ConnectionState) bool) {
		t.Helper()
		cfg := clientTLS("localhost")
		change(cfg)
		c, err := tls.Dial("tcp", n.addr, cfg)
		switch {
		case err != nil && want != nil:
			t.Errorf("%s: %v", what, err)
		case err == nil && (want == nil || !want(c.ConnectionState())):
			t.Errorf("%s: %+v", what, c.ConnectionState())
		}
		if err == nil {
			c.Close()
		}
	}
	f("the newest", func(*tls.Config) {}, func(s tls.ConnectionState) bool {
		return s.Version == tls.VersionTLS13 && s.NegotiatedProtocol == "http/1.1"
	})
	f("1.2", func(c *tls.Config) { c.MaxVersion = tls.VersionTLS12 }, func(s tls.ConnectionState) bool { return s.Version == tls.VersionTLS12 })
	f("1.1", func(c *tls.Config) { c.MinVersion, c.MaxVersion = tls.VersionTLS10, tls.VersionTLS11 }, nil)
	f("without ALPN", func(c *tls.Config) { c.NextProtos = nil }, func(s tls.ConnectionState) bool { return s.NegotiatedProtocol == "" })
	f("h2 and http/1.1", func(c *tls.Config) { c.NextProtos = []string{"h2", "http/1.1"} }, func(s tls.ConnectionState) bool { return s.NegotiatedProtocol == "http/1.1" })
	f("h2 only", func(c *tls.Config) { c.NextProtos = []string{"h2"} }, nil)
	f("CBC only", func(c *tls.Config) {
		c.MaxVersion, c.CipherSuites = tls.VersionTLS12, []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA, tls.TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA}
	}, nil)
	n.untilTLS(`tls_handshake_failures_total{reason="protocol"}`, "3")
	// A second connection resumes the session.
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		cfg := clientTLS("localhost")
		cfg.MaxVersion, cfg.ClientSessionCache = version, tls.NewLRUClientSessionCache(4)
		for i := range 3 {
			c, err := tls.Dial("tcp", n.addr, cfg)
			if err != nil {
				t.Fatal(err)
			}
			io.WriteString(c, "GET /health HTTP/1.1\r\nHost: h\r\n\r\n")
			if r, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil || r.StatusCode != 200 {
				t.Fatalf("%v %v", r, err) // the tickets come in front of the answer
			}
			if c.ConnectionState().DidResume != (i > 0) {
				t.Errorf("version %x, connection %d: resumed %v", version, i, i == 0)
			}
			c.Close()
		}
	}
	n.untilTLS("tls_resumptions_total", "4")
	n.untilTLS("tls_handshakes_in_progress", "0")
}

// openssl decides about what a Go client cannot even ask for.
func TestTLSOpenSSL(t *testing.T) {
	t.Parallel()
	openssl, err := exec.LookPath("openssl")
	if err != nil {
		t.Skip("no openssl; scripts/deps installs it")
	}
	n := startTLSNode(t)
	run := func(in string, args ...string) string {
		cmd := exec.Command(openssl, append([]string{"s_client", "-connect", n.addr, "-servername", "localhost"}, args...)...)
		stdin, _ := cmd.StdinPipe()
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		io.WriteString(stdin, in)
		if in == "" {
			stdin.Close()
		}
		done := make(chan error, 1)
		go func() { done <- cmd.Wait() }()
		select {
		case <-done:
		case <-time.After(patience):
			cmd.Process.Kill()
			<-done
			t.Errorf("openssl %v does not end", args)
		}
		return out.String()
	}
	good := func(args ...string) {
		t.Helper()
		if out := run("", args...); !strings.Contains(out, "Cipher is ") || strings.Contains(out, "Cipher is (NONE)") {
			t.Errorf("%v: %s", args, out)
		}
	}
	bad := func(args ...string) {
		t.Helper()
		if out := run("", args...); strings.Contains(out, "Cipher is ") && !strings.Contains(out, "Cipher is (NONE)") {
			t.Errorf("%v was accepted: %s", args, out)
		}
	}
	good("-tls1_3")
	good("-tls1_2")
	good("-tls1_2", "-cipher", "ECDHE-ECDSA-AES128-GCM-SHA256")
	good("-tls1_2", "-cipher", "ECDHE-ECDSA-CHACHA20-POLY1305")
	bad("-tls1_1", "-cipher", "ALL:@SECLEVEL=0")
	bad("-tls1", "-cipher", "ALL:@SECLEVEL=0")
	for _, weak := range []string{"aNULL", "eNULL", "RC4", "3DES", "kRSA", "SHA1", "CAMELLIA", "ARIA", "AESCCM", "PSK", "DHE-RSA-AES128-GCM-SHA256", "ECDHE-ECDSA-AES128-SHA256"} {
		bad("-tls1_2", "-cipher", weak+":@SECLEVEL=0")
	}
	// Renegotiation that the client begins: R on a line of its own.
	if out := run("R\n", "-tls1_2"); !strings.Contains(out, "RENEGOTIATING") || !strings.Contains(out, "no renegotiation") && !strings.Contains(out, "errno") && !strings.Contains(out, "error") {
		t.Errorf("renegotiation: %s", out)
	}
	n.untilTLS("tls_handshakes_in_progress", "0")
}

// The certificate is chosen by name, of those that fit by the kind of key.
func TestTLSServerName(t *testing.T) {
	t.Parallel()
	a, dir, later := testAuthority(), t.TempDir(), time.Now().Add(time.Hour)
	c1, k1 := a.write(t, dir, "one", later, "one.test", "shared.test")
	c2, k2 := a.write(t, dir, "two", later, "*.two.test", "shared.test")
	n := startNode(t, "PASEO_RELAY_TLS_CERT_FILE="+c1+","+c2, "PASEO_RELAY_TLS_KEY_FILE="+k1+","+k2)
	for name, want := range map[string]string{
		"one.test": "one.test", "ONE.test": "one.test", "shared.test": "one.test",
		"x.two.test": "*.two.test", "two.test": "one.test", "a.b.two.test": "one.test", "unknown": "one.test", "": "one.test",
	} {
		cfg := &tls.Config{ServerName: name, InsecureSkipVerify: true}
		c, err := tls.Dial("tcp", n.addr, cfg)
		if err != nil {
			t.Fatal(err)
		}
		if got := c.ConnectionState().PeerCertificates[0].Subject.CommonName; got != want {
			t.Errorf("%q got the certificate of %s", name, got)
		}
		c.Close()
	}
}

// Whatever is no TLS is closed, counted and says so in the log, a few times.
func TestTLSGarbage(t *testing.T) {
	t.Parallel()
	n := startTLSNode(t, "PASEO_RELAY_HTTP_IDLE_TIMEOUT_MS=300")
	send := func(b string) (answer string, err error) {
		c, err := net.Dial("tcp", n.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(patience))
		io.WriteString(c, b)
		got, err := io.ReadAll(c)
		return string(got), err
	}
	plain := 0
	for _, b := range []string{"GET / HTTP/1.1\r\nHost: h\r\n\r\n", "\x00", "PROXY TCP4 1.2.3.4 1.2.3.4 1 2\r\n", "\x16\x02", "\x16\x03\x01\xff\xff", "\x80\x2e\x01\x00\x02", "SSH-2.0-x\r\n"} {
		if answer, err := send(b); answer != "" || err != nil && !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("%q: %q, %v", b, answer, err)
		}
		plain++
	}
	n.untilTLS(`tls_handshake_failures_total{reason="plain"}`, fmt.Sprint(plain))
	// A record that crypto/tls refuses: the answer is an alert.
	if answer, err := send("\x16\x03\x01\x00\x04\x01\x00\x00\x00"); !strings.HasPrefix(answer, "\x15\x03") {
		t.Errorf("%q, %v", answer, err)
	}
	n.untilTLS(`tls_handshake_failures_total{reason="protocol"}`, "1")
	// Silence, before and within a record.
	for _, b := range []string{"", "\x16\x03\x01\x02\x00half"} {
		if answer, err := send(b); answer != "" || err != nil && !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("%q: %q, %v", b, answer, err)
		}
	}
	n.untilTLS(`tls_handshake_failures_total{reason="timeout"}`, "2")
	// A peer that goes away.
	c, _ := net.Dial("tcp", n.addr)
	c.Close()
	n.untilTLS(`tls_handshake_failures_total{reason="closed"}`, "1")
	n.until("no connection is left", func() bool { return n.g.HTTPConnections() == 0 })
	n.untilTLS("tls_handshakes_in_progress", "0")
	if n.tlsMetric("tls_handshakes_total") != "0" {
		t.Error("one of them counts as a handshake")
	}
}

// clientHello is the first flight of a client.
func clientHello(t testing.TB) []byte {
	t.Helper()
	a, b := net.Pipe()
	go tls.Client(a, clientTLS("localhost")).Handshake()
	defer a.Close()
	defer b.Close()
	buf := make([]byte, 32<<10)
	n, err := b.Read(buf)
	if err != nil {
		t.Fatal(err)
	}
	return buf[:n]
}

// Handshakes that never go on hold up nobody, and end at their deadline. How many
// there may be is tested beside the engine.
func TestTLSSlowHandshakes(t *testing.T) {
	t.Parallel()
	n := startTLSNode(t, "PASEO_RELAY_HTTP_IDLE_TIMEOUT_MS=5000")
	hello := clientHello(t)
	const many = 200
	for range many {
		c, err := net.Dial("tcp", n.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		c.Write(hello)
	}
	n.untilTLS("tls_handshakes_in_progress", fmt.Sprint(many))
	s, c := n.v1pair()
	s.text("through")
	c.wantText("through")
	n.untilTLS(`tls_handshake_failures_total{reason="timeout"}`, fmt.Sprint(many))
	n.untilTLS("tls_handshakes_in_progress", "0")
	n.until("they are gone", func() bool { return n.g.HTTPConnections() == 0 })
}

// The close frame, then close_notify, then FIN: in that order and each once.
func TestTLSCloseOrder(t *testing.T) {
	t.Parallel()
	n := startTLSNode(t)
	c := n.v1("client", n.sid())
	p := c.nc.(tlsPeer)
	c.raw(closeFrame(1000, ""))
	c.wantCloseFrame(1000, "")
	p.Conn.SetReadDeadline(time.Now().Add(patience))
	if k, err := p.Conn.Read(make([]byte, 1)); k != 0 || err != io.EOF { // crypto/tls tells EOF from a cut
		t.Errorf("behind the close frame: %d bytes, %v", k, err)
	}
	// HTTP: the last answer of a connection likewise.
	d, err := tls.Dial("tcp", n.addr, clientTLS("localhost"))
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	d.SetDeadline(time.Now().Add(patience))
	io.WriteString(d, "GET /health HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
	if all, err := io.ReadAll(d); err != nil || !bytes.HasSuffix(all, []byte(`{"status":"ok"}`)) {
		t.Errorf("%q, %v", all, err)
	}
}

// A stream that was cut ends the socket like one that ended without a close
// frame; cut within a record it is broken.
func TestTLSTruncation(t *testing.T) {
	t.Parallel()
	n := startTLSNode(t)
	c := n.v1("client", n.sid())
	c.nc.(tlsPeer).tcp.TCPConn.CloseWrite()
	n.untilMetric(`closes_total{code="none",by="peer"}`, 1)
	c = n.v1("client", n.sid())
	c.nc.(tlsPeer).tcp.TCPConn.Write([]byte("\x17\x03\x03\x00\xff123"))
	c.nc.(tlsPeer).tcp.TCPConn.CloseWrite()
	n.untilMetric(`closes_total{code="reset",by="peer"}`, 1)
	// Bytes changed on the way: an alert, and the end.
	c = n.v1("client", n.sid())
	c.nc.(tlsPeer).tcp.TCPConn.Write(append([]byte("\x17\x03\x03\x00\x40"), make([]byte, 64)...))
	n.untilMetric(`closes_total{code="reset",by="peer"}`, 2)
	n.untilSockets(0)
}

// Without the suites of tests over TLS the ones below run on every change; the
// whole of the relay's tests runs over wss with SLUICE_SCALE=full.
func TestAcceptRelayOverTLS(t *testing.T) {
	if overTLS {
		t.Skip("this is that run")
	}
	if raceEnabled && !fullScale() {
		t.Skip("make accept runs it")
	}
	args := []string{"-test.short", "-test.timeout", "10m"}
	if fullScale() {
		// What is not of the relay, and what measures or counts both ends' crypto/tls.
		args = append(args, "-test.skip", "^Test(TLS|MTE|Proxy|Accept|Soak|Mixed|Events|Long|Outbound|Secrets|Foreign|Domains|Relayed|IdleSocket|DeclaredPayloadMemory|Deploy|InBrowser)|^Fuzz")
	} else {
		args = append(args, "-test.run", "^Test(StalledDestinationStopsItsSource|StalledReceiverMemoryIsFlat|CloseFrameSurvivesUnreadInput|PartialWriteBehindAGatheredMessage|"+
			"DeliveryDeadline|DeadlineOfLastMessages|MessagesKeepOpcodeAndBytes|LargestMessage|FramesBehindTheUpgrade|FinishBehindTheQueue|PressureInBothDirections|"+
			"ChargesReturnAfterEveryEnd|V2WaitingFramesComeFirst|UpgradeRefusals|DrainByAdmin|ReplacementUnderLoad)$")
	}
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), "SLUICE_TEST_TLS=1", "SLUICE_SCALE=")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out[max(0, len(out)-8<<10):])
	}
}
