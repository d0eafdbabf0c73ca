package gateway_test

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// bulk makes n bytes that repeat at no power of two.
func bulk(n int) []byte { return bytes.Repeat([]byte("0123456789abcdefg"), n/17+1)[:n] }

// startTLSBulk starts the encrypting role with TLS in front of an origin that
// hashes what it gets and sends what it is asked for.
func startTLSBulk(t testing.TB, whole []byte, sent *atomic.Int64) *mteNode {
	return startMTEBehind(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == "POST" {
			h := sha256.New()
			k, err := io.Copy(h, r.Body)
			fmt.Fprintf(w, "%d %x %v", k, h.Sum(nil), err)
			return
		}
		w.Header().Set("Content-Length", strconv.Itoa(len(whole)))
		for b := whole; len(b) > 0; {
			k, err := w.Write(b[:min(len(b), 64<<10)])
			sent.Add(int64(k))
			if b = b[k:]; err != nil {
				return
			}
		}
	}), testTLS("")...)
}

// Large bodies both ways, whole, several at once, with both versions.
func TestTLSBulk(t *testing.T) {
	t.Parallel()
	whole := bulk(8 << 20)
	n := startTLSBulk(t, whole, new(atomic.Int64))
	sum := fmt.Sprintf("%d %x <nil>", len(whole), sha256.Sum256(whole))
	var wg sync.WaitGroup
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		for range 2 {
			wg.Go(func() {
				cfg := clientTLS("localhost")
				cfg.MaxVersion = version
				tr := &http.Transport{TLSClientConfig: cfg}
				defer tr.CloseIdleConnections()
				client := &http.Client{Transport: tr, Timeout: 3 * patience}
				do := func(method string, body io.Reader) []byte {
					r, _ := http.NewRequest(method, "https://"+n.addr+"/plain/x", body)
					r.Host = "localhost"
					res, err := client.Do(r)
					if err != nil {
						t.Error(err)
						return nil
					}
					defer res.Body.Close()
					b, err := io.ReadAll(res.Body)
					if err != nil || res.StatusCode != 200 {
						t.Errorf("%s: %d, %v", method, res.StatusCode, err)
					}
					return b
				}
				for range 2 {
					if got := string(do("POST", bytes.NewReader(whole))); got != sum {
						t.Errorf("upload: %s", got)
					}
					if got := do("GET", nil); !bytes.Equal(got, whole) {
						t.Errorf("download: %d bytes", len(got))
					}
				}
			})
		}
	}
	wg.Wait()
	n.untilMetric("sluice_http_connections{listener=\"mte\"}", 0)
	n.untilMetric("sluice_tls_handshakes_in_progress", 0)
}

// Clients that stop reading a download stop the origin: what is kept of it does
// not grow, others go on, and who reads again has every byte.
func TestTLSStalledDownloads(t *testing.T) {
	whole := bulk(16 << 20)
	var sent atomic.Int64
	n := startTLSBulk(t, whole, &sent)
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	const stalled = 6
	var conns []tlsPeer
	for range stalled {
		c, err := dialAny(n.addr, wsDial{rcvBuf: 16 << 10})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		io.WriteString(c, "GET /plain/x HTTP/1.1\r\nHost: localhost\r\n\r\n")
		conns = append(conns, c.(tlsPeer))
	}
	// They are stalled when nothing more comes from the origin.
	last, since := int64(0), time.Now()
	if !poll(func() bool {
		if v := sent.Load(); v != last {
			last, since = v, time.Now()
		}
		return last > 0 && time.Since(since) > 500*time.Millisecond
	}) {
		t.Fatal("the origin is never stopped")
	}
	for range 20 {
		if a := httpDo(t, n.addr, "POST", "/plain/x", "Host:localhost"); a.status != 200 {
			t.Fatal(a)
		}
	}
	grown := heap() - before
	t.Logf("%d MiB sent by the origin, %d KiB kept for %d stalled downloads", last>>20, grown>>10, stalled)
	if grown > stalled<<20 {
		t.Errorf("%d bytes are kept", grown)
	}
	var wg sync.WaitGroup
	for _, c := range conns {
		wg.Go(func() {
			c.SetDeadline(time.Now().Add(3 * patience))
			r, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil {
				t.Error(err)
				return
			}
			if b, err := io.ReadAll(r.Body); err != nil || !bytes.Equal(b, whole) {
				t.Errorf("%d bytes, %v", len(b), err)
			}
			c.Close()
		})
	}
	wg.Wait()
	n.untilMetric("sluice_http_connections{listener=\"mte\"}", 0)
}
