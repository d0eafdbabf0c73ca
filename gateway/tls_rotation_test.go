package gateway_test

import (
	"bufio"
	"crypto/tls"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sluice/gateway"
)

// Certificates replaced a hundred times under load: nobody loses a socket, no
// request fails, new connections see the new ones, and files that are no good
// change nothing.
func TestTLSRotation(t *testing.T) {
	t.Parallel()
	a, dir, later := testAuthority(), t.TempDir(), time.Now().Add(time.Hour)
	cert, key := a.write(t, dir, "it", later, "localhost")
	n := startNode(t, "PASEO_RELAY_TLS_CERT_FILE="+cert, "PASEO_RELAY_TLS_KEY_FILE="+key, "CONFIG_POLL_SECONDS=3600") // looked at when we say so
	s, c := n.v1pair()
	var wg sync.WaitGroup
	var stop atomic.Bool
	var messages, requests atomic.Int64
	wg.Go(func() {
		for i := 0; !stop.Load(); i++ {
			if err := s.write(frame(opBin, true, numbered(i, 2000))); err != nil {
				t.Error(err)
				return
			}
			m, err := c.message(patience)
			if err != nil || string(m.data) != string(numbered(i, 2000)) {
				t.Errorf("message %d: %v, %v", i, m, err)
				return
			}
			messages.Add(1)
		}
	})
	serials := sync.Map{}
	for range 2 {
		wg.Go(func() {
			cache := tls.NewLRUClientSessionCache(4)
			for i := 0; !stop.Load(); i++ {
				cfg := clientTLS("localhost")
				if i%3 > 0 {
					cfg.ClientSessionCache = cache // tickets outlive certificates
				}
				d, err := tls.Dial("tcp", n.addr, cfg)
				if err != nil {
					t.Error(err)
					return
				}
				serials.Store(d.ConnectionState().PeerCertificates[0].SerialNumber.String(), true)
				d.SetDeadline(time.Now().Add(patience))
				io.WriteString(d, "GET /health HTTP/1.1\r\nHost: h\r\n\r\n")
				if r, err := http.ReadResponse(bufio.NewReader(d), nil); err != nil || r.StatusCode != 200 {
					t.Errorf("%v, %v", r, err)
					return
				}
				d.Close()
				requests.Add(1)
			}
		})
	}
	spoiled := 0
	for i := range 100 {
		switch {
		case i%10 == 5: // a half-written file
			os.WriteFile(cert, []byte("-----BEGIN CERTIFICATE-----\nMIIB"), 0o600)
			spoiled++
		case i%10 == 7: // another's key
			_, k := a.issue(later, "localhost")
			os.WriteFile(key, k, 0o600)
			spoiled++
		default:
			a.write(t, dir, "it", later, "localhost")
		}
		n.g.ReadCertificates()
		at := requests.Load()
		n.until("a request with this version", func() bool { return requests.Load() > at+2 || t.Failed() })
	}
	stop.Store(true)
	wg.Wait()
	if got := n.tlsMetric("tls_certificate_reloads_total"); got != strconv.Itoa(100-spoiled) {
		t.Errorf("%s versions taken into use", got)
	}
	if got := n.tlsMetric("tls_certificate_reload_failures_total"); got != strconv.Itoa(spoiled) {
		t.Errorf("%s versions refused", got)
	}
	seen := 0
	serials.Range(func(_, _ any) bool { seen++; return true })
	if seen < 20 {
		t.Errorf("clients saw %d certificates", seen)
	}
	if lines := n.log.with("the certificates in use stay"); len(lines) != spoiled || !strings.Contains(lines[0], "PASEO_RELAY_TLS_CERT_FILE") {
		t.Errorf("log: %q", lines)
	}
	// Looked at again, what is no good is not complained of again.
	os.WriteFile(cert, []byte("nothing"), 0o600)
	n.g.ReadCertificates()
	n.g.ReadCertificates()
	if got := n.tlsMetric("tls_certificate_reload_failures_total"); got != strconv.Itoa(spoiled+1) {
		t.Errorf("%s versions refused", got)
	}
	t.Logf("%d messages, %d requests, %d certificates", messages.Load(), requests.Load(), seen)
}

// The poll finds new files by itself, and one that has expired is warned of.
func TestTLSRotationByPoll(t *testing.T) {
	a, dir := testAuthority(), t.TempDir()
	cert, key := a.write(t, dir, "it", time.Now().Add(time.Hour), "localhost")
	n := startMTE(t, "TLS_CERT_FILE="+cert, "TLS_KEY_FILE="+key, "CONFIG_POLL_SECONDS=1")
	expiry := n.metric("sluice_tls_certificate_expiry_seconds")
	if d := time.Until(time.Unix(int64(expiry), 0)); d < 50*time.Minute || d > time.Hour {
		t.Errorf("expires in %v", d)
	}
	a.write(t, dir, "it", time.Now().Add(-time.Minute), "localhost")
	n.untilMetric("sluice_tls_certificate_reloads_total", 1)
	if !poll(func() bool { return len(n.log.with("not valid at this time")) == 1 }) {
		t.Error("no warning")
	}
}

// TestCertificateIsAPipe: what may be read without end is no certificate, neither at
// a start nor later, and holds nothing up.
func TestCertificateIsAPipe(t *testing.T) {
	a, dir := testAuthority(), t.TempDir()
	cert, key := a.write(t, dir, "it", time.Now().Add(time.Hour), "localhost")
	n := startMTE(t, "TLS_CERT_FILE="+cert, "TLS_KEY_FILE="+key, "CONFIG_POLL_SECONDS=1")
	if err := os.Remove(cert); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(cert, 0o600); err != nil {
		t.Fatal(err)
	}
	n.untilMetric("sluice_tls_certificate_reload_failures_total", 1)
	if code := gateway.CheckConfig([]string{"PASEO_RELAY_PORT=0", "TLS_CERT_FILE=" + cert, "TLS_KEY_FILE=" + key}, io.Discard, io.Discard); code != 1 {
		t.Errorf("check-config: %d", code)
	}
	if err := os.Remove(cert); err != nil {
		t.Fatal(err)
	}
	a.write(t, dir, "it", time.Now().Add(2*time.Hour), "localhost")
	n.untilMetric("sluice_tls_certificate_reloads_total", 1)
}
