package gateway_test

import (
	"fmt"
	mrand "math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// The model-based test: sessions that attach, send, stall, resume, replace,
// close and drain at random, and an oracle that knows the contract and nothing
// of the relay. Per source and destination: every message once, in order, whole,
// with its opcode; every close with its code and reason; nothing in the ledger
// at the end. A run is repeated with SLUICE_SEED.

func TestModel(t *testing.T) { runModel(t, 3*time.Second, 6) }

func TestAcceptModel(t *testing.T) {
	onlyFull(t)
	runModel(t, 2*time.Minute, 12)
}

func TestSoakModel(t *testing.T) {
	minutes, err := strconv.Atoi(os.Getenv("SOAK_MINUTES"))
	if err != nil {
		t.Skip("set SOAK_MINUTES")
	}
	runModel(t, time.Duration(minutes)*time.Minute, 24)
}

func runModel(t *testing.T, d time.Duration, worlds int) {
	seed := uint64(time.Now().UnixNano())
	if s, err := strconv.ParseUint(os.Getenv("SLUICE_SEED"), 10, 64); err == nil {
		seed = s
	}
	t.Logf("SLUICE_SEED=%d", seed)
	n := startNode(t, smallSend)
	until := time.Now().Add(d)
	m := &model{n: n}
	var wg sync.WaitGroup
	for i := range worlds {
		wg.Go(func() {
			r := mrand.New(mrand.NewPCG(seed, uint64(i)))
			for round := 0; time.Now().Before(until) && !t.Failed(); round++ {
				w := &world{m: m, r: r, sid: fmt.Sprintf("model-%d-%d", i, round), v2: r.IntN(3) > 0, places: map[string]*place{}, clients: map[string][]*modelPeer{}}
				if err := w.run(until); err != nil {
					t.Errorf("world %s, seed %d: %v\nlast steps: %q", w.sid, seed, err, w.steps[max(0, len(w.steps)-25):])
				}
				w.end()
			}
		})
	}
	wg.Wait()
	t.Logf("%d steps, %d messages, %s", m.steps.Load(), m.messages.Load(), mib(m.bytes.Load()))
}

// model is what the worlds of a run share.
type model struct {
	n                      *node
	draining               sync.RWMutex // a step holds it shared, a drain alone
	steps, messages, bytes atomic.Int64
	sources                atomic.Uint32
}

// pattern is what payloads are cut from: ASCII, so that it is text and binary.
var pattern = func() []byte {
	b := make([]byte, 600<<10)
	for i := range b {
		b[i] = byte('a' + i*i%23)
	}
	return b
}()

const (
	modelHead = 18 // bytes: "ssssssss:qqqqqqqq" in hexadecimal and a flag
	flagEmpty = 'E'
	flagPlain = '-'
)

// modelPayload is message seq of a source.
func modelPayload(src uint32, seq, size int, flag byte) []byte {
	b := fmt.Appendf(nil, "%08x:%08x%c", src, seq, flag)
	at := (int(src)*7 + seq*13) % 251
	return append(b, pattern[at:at+size]...)
}
