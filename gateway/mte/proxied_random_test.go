package mte

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
	"time"
)

// patterned is a body of n bytes that depends on its seed.
type patterned struct {
	seed uint64
	n    int
}

func (p *patterned) Read(b []byte) (int, error) {
	if p.n == 0 {
		return 0, io.EOF
	}
	n := min(len(b), p.n, 1+int(p.seed%20000)) // odd pieces
	for i := range b[:n] {
		p.seed = p.seed*6364136223846793005 + 1442695040888963407
		b[i] = byte(p.seed >> 56)
	}
	p.n -= n
	return n, nil
}

func digest(r io.Reader) string {
	h := sha256.New()
	io.Copy(h, r)
	return fmt.Sprintf("%x", h.Sum(nil))
}

// Many clients at once, bodies of all sizes both ways, clients that leave and
// origins that break off: every body that is said to be whole is, nothing is
// left behind, and the pools hold idle connections and nothing else.
func TestProxiedRandom(t *testing.T) {
	for _, secure := range []bool{false, true} {
		t.Run(fmt.Sprintf("tls=%v", secure), func(t *testing.T) { proxyRandomly(t, secure) })
	}
}

func proxyRandomly(t *testing.T, secure bool) {
	const clients, requests = 16, 40
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		size, _ := strconv.Atoi(q.Get("size"))
		seed, _ := strconv.ParseUint(q.Get("seed"), 10, 64)
		fault := q.Get("fault")
		if fault == "before" {
			panic(http.ErrAbortHandler)
		}
		if fault != "early" {
			w.Header().Set("X-Digest", digest(r.Body))
		}
		if seed%2 == 0 {
			w.Header().Set("Content-Length", strconv.Itoa(size))
		}
		if fault == "middle" {
			io.CopyN(w, &patterned{seed, size}, int64(size/2))
			panic(http.ErrAbortHandler)
		}
		io.Copy(w, &patterned{seed, size})
	})
	var up *upstream
	cfg := testOriginConfig()
	if secure {
		_, up, cfg = startTLSOrigin(t, handler, nil)
	} else {
		srv := httptest.NewServer(handler)
		t.Cleanup(srv.Close)
		var err error
		if up, err = newUpstream(srv.URL); err != nil {
			t.Fatal(err)
		}
	}
	g := startGateway(t, "127.0.0.1:0", cfg, up, 2)
	g.run()
	transport := &http.Transport{MaxIdleConnsPerHost: clients}
	client := &http.Client{Transport: transport}

	one := func(rnd *rand.Rand) error {
		sizeOf := func() int { return int(rnd.Uint64() % (1 << (rnd.Uint64() % 21))) }
		up, down, seed := sizeOf(), sizeOf(), rnd.Uint64()
		fault := ""
		switch rnd.IntN(12) {
		case 0:
			fault = "before"
		case 1:
			fault = "middle"
		case 2:
			fault = "early"
		}
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		leaves := rnd.IntN(8) == 0
		if leaves {
			time.AfterFunc(time.Duration(rnd.IntN(5000))*time.Microsecond, cancel)
		}
		var body io.Reader
		if up > 0 {
			body = struct{ io.Reader }{&patterned{seed + 1, up}}
		}
		url := fmt.Sprintf("http://%s/?size=%d&seed=%d&fault=%s", g.addr, down, seed, fault)
		req, err := http.NewRequestWithContext(ctx, "POST", url, body)
		if err != nil {
			return err
		}
		if rnd.IntN(2) == 0 {
			req.ContentLength = int64(up)
		}
		resp, err := client.Do(req)
		if err != nil {
			if leaves || fault == "early" {
				return nil
			}
			return err
		}
		defer resp.Body.Close()
		h := sha256.New()
		n, err := io.Copy(h, resp.Body)
		switch {
		case err != nil && (leaves || fault != ""):
			return nil
		case err != nil:
			return fmt.Errorf("the answer was cut: %w", err)
		case resp.StatusCode == 502 && fault != "":
			return nil
		case resp.StatusCode != 200:
			return fmt.Errorf("status %d", resp.StatusCode)
		case fault == "before" || fault == "middle" && down > 0 && n == int64(down):
			return fmt.Errorf("an answer that was broken off (%s) came whole", fault)
		case fault == "middle":
			if n > int64(down/2) || down > 1 {
				return fmt.Errorf("%d bytes of a broken answer of %d seemed whole", n, down)
			}
			return nil
		}
		if got, want := fmt.Sprintf("%x", h.Sum(nil)), digest(&patterned{seed, down}); got != want {
			return fmt.Errorf("the answer of %d bytes was altered (%d came)", down, n)
		}
		if got := resp.Header.Get("X-Digest"); got != "" && got != digest(&patterned{seed + 1, up}) {
			return fmt.Errorf("the request of %d bytes was altered", up)
		}
		return nil
	}
	var all sync.WaitGroup
	for i := range clients {
		all.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(i), 7))
			for range requests {
				if err := one(rnd); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	transport.CloseIdleConnections()
	for i := range g.loops {
		p := &testPool{g.pools[i], t}
		p.await("nothing but idle connections", func() bool {
			h := p.hosts[up.key]
			return h == nil || h.uses == h.idles && len(p.held) == 0 && len(p.late) == 0
		})
		p.on(p.closeIdle)
	}
}
