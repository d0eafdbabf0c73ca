package gateway

import (
	"bytes"
	"os"
	"runtime/debug"
	"strconv"
	"time"

	"sluice/ledger"
	"sluice/loop"
)

// memoryEvery is how often resident memory is read.
const memoryEvery = 250 * time.Millisecond

// memory samples the process's resident memory and acts on the watermark. It
// runs on a goroutine of its own.
type memory struct {
	quit chan struct{}
	done chan struct{}
}

func watchMemory(g *Gateway) *memory {
	m := &memory{quit: make(chan struct{}), done: make(chan struct{})}
	go m.run(g)
	return m
}

func (m *memory) stop() {
	close(m.quit)
	<-m.done
}

func (m *memory) run(g *Gateway) {
	defer close(m.done)
	tick := time.NewTicker(memoryEvery)
	defer tick.Stop()
	mark := ledger.Watermark{Mark: g.cfg.Relay.MemoryWatermarkBytes}
	for {
		select {
		case <-m.quit:
			return
		case <-tick.C:
		}
		rss := residentBytes()
		g.flushLines(loop.Now())
		if g.relay == nil {
			continue
		}
		g.relay.FlushLog(loop.Now())
		p := mark.Sample(rss, loop.Now())
		if was := g.relay.Pressed(); was != p.Stop {
			g.relay.SetPressed(p.Stop)
			g.log.Warn("memory pressure", "on", p.Stop, "resident", rss, "watermark", mark.Mark, "setting", "PASEO_RELAY_MEMORY_WATERMARK_BYTES")
		}
		if p.Shed > 0 {
			n, held := g.relay.Shed(p.Shed)
			if n > 0 {
				g.log.Warn("sockets shed for memory", "sockets", n, "bytes", held, "resident", rss, "watermark", mark.Mark)
			}
			debug.FreeOSMemory()
		} else if g.relay.TakeFreed() {
			debug.FreeOSMemory()
		}
	}
}

// residentBytes reads the resident set size from the kernel; 0 if it cannot.
func residentBytes() int64 {
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	f := bytes.Fields(b)
	if len(f) < 2 {
		return 0
	}
	pages, err := strconv.ParseInt(string(f[1]), 10, 64)
	if err != nil {
		return 0
	}
	return pages * int64(os.Getpagesize())
}
