package gateway_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
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

// The settings change a hundred times, by file and control plane in turns, with
// bad versions between, while both roles work: no socket is lost, no request
// fails, and nothing is left behind.
func TestAcceptLiveChangesUnderLoad(t *testing.T) {
	const changes = 100
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
	n := startLive(t, "CONFIG_FILE="+file, "CONTROL_PLANE_URL="+p.url, "KYBER_STRENGTH=512", "CLIENT_MIN_PAIRS=2")
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
		{"plain requests", workers, func(int) func(int) error { return plain("steady.test") }},
		{"outbound requests", workers, func(int) func(int) error { return plain("out.test") }},
	})

	version := 1
	change := func() {
		t.Helper()
		refused := `sluice_config_refused_total{cause="settings"}`
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
	for range changes / 5 { // what is made once and kept
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
	t.Logf("%d versions applied; %v", version-1, counts)
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
