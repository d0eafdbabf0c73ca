package gateway_test

import (
	"io"
	"runtime"
	"strings"
	"testing"
	"time"
)

// A message relayed over TLS allocates nothing in code of ours. What crypto/tls
// allocates, at both ends, is its own: so allocations are told apart by the
// function that made them.
func TestTLSNoAllocationOfOurs(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	was := runtime.MemProfileRate
	runtime.MemProfileRate = 1
	defer func() { runtime.MemProfileRate = was }()
	n := startTLSNode(t, "LOOPS=1")
	n.g.StopSampling()
	for _, size := range []int{64, 1 << 10, 16 << 10} {
		s, c := n.v1pair()
		const batch = 8
		var out []byte
		for range batch {
			out = append(out, frame(opBin, true, make([]byte, size))...)
		}
		in := make([]byte, batch*(size+4))
		if size < 126 {
			in = in[:batch*(size+2)]
		}
		s.nc.SetDeadline(time.Time{})
		c.nc.SetDeadline(time.Time{})
		rounds := func(k int) {
			for range k {
				s.nc.Write(out)
				io.ReadFull(c.nc, in)
			}
		}
		rounds(50)
		before := ourAllocations()
		if len(before) == 0 {
			t.Fatal("the profile knows nothing of ours")
		}
		const measured = 200
		rounds(measured)
		after := ourAllocations()
		for name, count := range after {
			if made := count - before[name]; made > measured*batch/20 {
				t.Errorf("%d bytes: %s allocated %d times in %d messages", size, name, made, measured*batch)
			}
		}
		s.rst()
		c.rst()
	}
}

// ourAllocations counts allocations by the function of ours that made them, tests
// left out.
func ourAllocations() map[string]int64 {
	runtime.GC() // the profile is that of the last but one collection
	runtime.GC()
	records := make([]runtime.MemProfileRecord, 20000)
	k, ok := runtime.MemProfile(records, true)
	if !ok {
		panic("BUG: more places of allocation than expected")
	}
	counts := make(map[string]int64)
	for _, r := range records[:k] {
		frames := runtime.CallersFrames(r.Stack())
		for {
			f, more := frames.Next()
			if !strings.HasPrefix(f.Function, "runtime.") {
				if strings.HasPrefix(f.Function, "sluice/") && !strings.HasPrefix(f.Function, "sluice/gateway_test") {
					counts[f.Function] += r.AllocObjects
				}
				break
			}
			if !more {
				break
			}
		}
	}
	return counts
}
