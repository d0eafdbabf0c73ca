package gateway_test

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// relayOf is the WebSocket relay of a node, for its clients; the node stops itself.
func (n *liveNode) relayOf() *node {
	return &node{t: n.t, g: n.g, addr: n.relay, admin: n.admin, log: n.log, stopped: true}
}

// A loadKind is a kind of request that runs while the settings change.
type loadKind struct {
	name    string
	workers int
	// begin returns what one worker does again and again; it is called on the
	// test's goroutine.
	begin func(worker int) func(round int) error
}

// runLoad runs every kind until stop is called, which returns how often each was
// done. A failure is an error of the test, and ends its worker.
func runLoad(t *testing.T, kinds []loadKind) (stop func() map[string]int64) {
	var over atomic.Bool
	var wg sync.WaitGroup
	done := make([]atomic.Int64, len(kinds))
	for i, k := range kinds {
		for w := range k.workers {
			do := k.begin(w)
			wg.Go(func() {
				for round := 0; !over.Load(); round++ {
					if err := do(round); err != nil {
						t.Errorf("%s, worker %d, round %d: %v", k.name, w, round, err)
						return
					}
					done[i].Add(1)
				}
			})
		}
	}
	return func() map[string]int64 {
		over.Store(true)
		wg.Wait()
		counts := make(map[string]int64)
		for i, k := range kinds {
			counts[k.name] = done[i].Load()
		}
		return counts
	}
}

// heapAfter is what the process holds when everything that can be is collected.
func heapAfter() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// The settings change a hundred times (ten in every day's tests), by file and control plane in turns, and the
// certificates of both listeners with them, bad versions of either between, while
// both roles work over TLS: no socket is lost, no request fails, and nothing is left
// behind.
func TestAcceptLiveChangesUnderLoad(t *testing.T) {
	changes := scaled(100, 10)
	sockets, workers := scaled(200, 10), scaled(8, 2)
	origin := startTestOrigin(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(w, r.Body)
		io.WriteString(w, r.URL.Path)
	}))
	in := startMTE(t, "KYBER_STRENGTH=512", domainMap("127.0.0.1", origin))
	in.descriptors, in.goroutines = 1<<30, 1<<30 // the other node's are among them

	// What stays, and what is another in each version.
	document := func(version int) string {
		domains := domainsAt(origin, "localhost", "steady.test")
		domains["out.test"] = map[string]any{"outbound": "http://" + in.addr}
		domains["steady.test"].(map[string]any)["headers"] = map[string]any{"X-Version": fmt.Sprint(version)}
		for i := range version % 5 {
			domains[fmt.Sprintf("extra%d.test", i)] = map[string]any{"upstream": origin, "client_id_secret": mteSecret("extra")}
			domains[fmt.Sprintf("out%d.test", i)] = map[string]any{"outbound": "http://" + in.addr}
		}
		return settingsText(map[string]any{"DOMAIN_MAP": domains})
	}
	limit := func(version int) string {
		return settingsText(map[string]any{"MAX_REQUEST_BODY_MIB": 1 + version%3})
	}
	p := startPlane(t, document(0))
	file := tempFile(t, "sluice.json", limit(0))
	a, dir, later := testAuthority(), t.TempDir(), time.Now().Add(time.Hour)
	certificates := func() (settings []string) {
		for prefix, name := range map[string]string{"PASEO_RELAY_": "relay", "": "encrypting"} {
			cert, key := a.write(t, dir, name, later, "localhost")
			settings = append(settings, prefix+"TLS_CERT_FILE="+cert, prefix+"TLS_KEY_FILE="+key)
		}
		return settings
	}
	n := startLive(t, append(certificates(), "CONFIG_FILE="+file, "CONTROL_PLANE_URL="+p.url, "KYBER_STRENGTH=512", "CLIENT_MIN_PAIRS=2")...)
	n.descriptors, n.goroutines = 1<<30, 1<<30 // connections between the two end at their leisure
	relay := n.relayOf()
	t.Cleanup(func() {
		for _, c := range relay.clients {
			c.rst()
		}
		if err := relay.emptied(); err != nil {
			t.Error(err)
		}
	})

	var serials sync.Map // of the certificates that clients saw
	through := n.httpClient()
	plain := func(host string) func(int) error {
		return func(round int) error {
			want := fmt.Sprintf("/plain/%d", round)
			res, err := through.Get("http://" + host + want)
			if err != nil {
				return err
			}
			defer res.Body.Close()
			if b, err := io.ReadAll(res.Body); err != nil || res.StatusCode != 200 || string(b) != want {
				return fmt.Errorf("%d %q, %v", res.StatusCode, b, err)
			}
			return nil
		}
	}
	stop := runLoad(t, []loadKind{
		{"messages", sockets, func(w int) func(int) error {
			s, c := relay.v1pair()
			payload := bytes.Repeat([]byte{byte(w)}, 100+w)
			hop := func(from, to *wsClient) error {
				if err := from.write(frame(opBin, true, payload)); err != nil {
					return err
				}
				m, err := to.message(patience)
				if err == nil && !bytes.Equal(m.data, payload) {
					err = errors.New("another message came")
				}
				return err
			}
			return func(int) error { return errors.Join(hop(c, s), hop(s, c)) }
		}},
		{"encrypted requests", workers, func(int) func(int) error {
			pair, err := newMTEClient(t, n.mteNode, "localhost").pair()
			if err != nil {
				t.Fatal(err)
			}
			return func(round int) error {
				want := fmt.Sprint("/", round)
				if body, err := pair.get(want[1:]); err != nil || body != want {
					return fmt.Errorf("%q, %v", body, err)
				}
				return nil
			}
		}},
		{"handshakes", workers, func(w int) func(int) error {
			cache := tls.NewLRUClientSessionCache(4)
			return func(round int) error {
				addr := []string{n.relay, n.addr}[(w+round)%2]
				cfg := clientTLS("localhost")
				if round%3 > 0 {
					cfg.ClientSessionCache = cache // tickets outlive certificates
				}
				c, err := tls.Dial("tcp", addr, cfg)
				if err != nil {
					return err
				}
				defer c.Close()
				serials.Store(c.ConnectionState().PeerCertificates[0].SerialNumber.String(), true)
				c.SetDeadline(time.Now().Add(patience))
				io.WriteString(c, "GET /plain/tickets HTTP/1.1\r\nHost: steady.test\r\n\r\n")
				_, err = http.ReadResponse(bufio.NewReader(c), nil) // the tickets come in front of it
				return err
			}
		}},
		{"plain requests", workers, func(int) func(int) error { return plain("steady.test") }},
		{"outbound requests", workers, func(int) func(int) error { return plain("out.test") }},
	})

	version := 1
	change := func() {
		t.Helper()
		refused := `sluice_config_refused_total{cause="settings"}`
		if version%10 == 5 {
			before := n.metric("sluice_tls_certificate_reload_failures_total")
			replaceFile(t, filepath.Join(dir, "relay.crt"), "-----BEGIN CERTIFICATE-----\nMIIB")
			n.g.ReadCertificates()
			n.untilMetric("sluice_tls_certificate_reload_failures_total", before+1)
		}
		certificates()
		n.g.ReadCertificates()
		if version%10 == 0 {
			before := n.metric(refused)
			p.serve(`{"MAX_REQUEST_BODY_MIB": "many"}`)
			n.look()
			n.untilMetric(refused, before+1)
		}
		if version%2 == 0 {
			p.serve(document(version))
		} else {
			replaceFile(t, file, limit(version))
		}
		n.look()
		version++
		n.untilMetric("sluice_config_version", float64(version))
	}
	for range max(changes/5, 5) { // what is made once and kept
		change()
	}
	running, open, heap := goroutines(), descriptors(t), heapAfter()
	for range changes {
		change()
	}
	var nowGoroutines, nowOpen int
	if !poll(func() bool {
		nowGoroutines, nowOpen = goroutines(), descriptors(t)
		return nowGoroutines <= running+4 && nowOpen <= open+4
	}) {
		t.Errorf("%d goroutines where there were %d, %d descriptors where there were %d", nowGoroutines, running, nowOpen, open)
	}
	if now := heapAfter(); now > heap+16<<20 {
		t.Errorf("the heap grew from %d to %d bytes", heap, now)
	}
	counts := stop()
	seen := 0
	serials.Range(func(_, _ any) bool { seen++; return true })
	t.Logf("%d versions applied, %d certificates seen; %v", version-1, seen, counts)
	if got := n.metric("sluice_tls_certificate_reloads_total"); got != float64(2*(version-1)) {
		t.Errorf("%v certificates were taken into use for %d versions and 2 listeners", got, version-1)
	}
	if seen < 3 { // a change of one listener's at least, however slow clients are
		t.Errorf("clients saw %d certificates", seen)
	}
	for name, addr := range map[string]string{"relay": n.relay, "encrypting": n.addr} {
		last, err := tls.LoadX509KeyPair(filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key"))
		if err != nil {
			t.Fatal(err)
		}
		c, err := tls.Dial("tcp", addr, clientTLS("localhost"))
		if err != nil {
			t.Fatal(err)
		}
		if !c.ConnectionState().PeerCertificates[0].Equal(last.Leaf) {
			t.Errorf("the %s listener has not the last certificate", name)
		}
		c.Close()
	}
	for kind, count := range counts {
		if count == 0 {
			t.Errorf("no %s", kind)
		}
	}
	if ended := n.log.with(`"connection ended"`); len(ended) > 0 {
		t.Errorf("%d sockets lost: %s", len(ended), ended[0])
	}
	if v := int64(2 * sockets); n.g.Ledger().Snapshot().Sockets != v {
		t.Errorf("%d sockets, expected %d", n.g.Ledger().Snapshot().Sockets, v)
	}
	if err := n.g.CheckPairs(); err != nil {
		t.Error(err)
	}
}
