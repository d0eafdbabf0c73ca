package relay

import (
	"sync"
	"time"

	"sluice/ledger"
	"sluice/loop"
)

// shedAnswer is how long Shed waits for the loops to name their holders; one
// that does not answer has nobody shed.
const shedAnswer = time.Second

// SetPressed says whether memory is above its watermark: upgrades are refused
// while it is.
func (r *Relay) SetPressed(on bool) { r.pressed.Store(on) }

// Pressed reports what SetPressed said.
func (r *Relay) Pressed() bool { return r.pressed.Load() }

// Shed closes sockets with 1013 Memory pressure that hold need bytes together,
// as the ledger picks them. It returns how many, and what they hold. It waits
// for the loops and must not be called on one.
func (r *Relay) Shed(need int64) (sockets int, bytes int64) {
	var mu sync.Mutex
	var all []ledger.Holder
	done := make(chan struct{}, len(r.shards))
	for _, s := range r.shards {
		s.l.Post(loop.Func(func(*loop.Loop) {
			var mine []ledger.Holder
			for k := s.all; k != nil; k = k.nextAll {
				if n := k.accounted(); n > 0 && k.state < closingState {
					mine = append(mine, ledger.Holder{ID: k.c.ID(), Bytes: n, Blocked: k.out.d.Blocked()})
				}
			}
			mu.Lock()
			all = append(all, mine...)
			mu.Unlock()
			done <- struct{}{}
		}))
	}
	limit := time.After(shedAnswer)
	for range r.shards {
		select {
		case <-done:
		case <-limit:
		}
	}
	mu.Lock()
	picked := ledger.Shed(all, need)
	all = nil
	mu.Unlock()
	if len(picked) == 0 {
		return 0, 0
	}
	ids := make(map[uint64]bool, len(picked))
	for _, h := range picked {
		ids[h.ID] = true
		bytes += h.Bytes
	}
	for _, s := range r.shards {
		s.l.Post(loop.Func(func(*loop.Loop) {
			var mine []*sock
			for k := s.all; k != nil; k = k.nextAll {
				if ids[k.c.ID()] {
					mine = append(mine, k)
				}
			}
			for _, k := range mine {
				k.shed()
			}
		}))
	}
	return len(picked), bytes
}

const (
	// muchFreed is what makes it worth while to hand memory back to the system
	// at once instead of waiting for the collector; someFreed is enough when
	// nothing more comes free.
	muchFreed = 16 << 20
	someFreed = 1 << 20
	// upgradeFreed is what an upgrade leaves behind: the HTTP connection and
	// what its head was parsed with.
	upgradeFreed = 1 << 10
)

// Freed notes n bytes that others gave up, for TakeFreed. It may be called from
// anywhere.
func (r *Relay) Freed(n int64) { r.freed.Add(n) }

// TakeFreed reports whether enough memory was given up for a collection. One
// goroutine calls it, a few times a second.
func (r *Relay) TakeFreed() bool {
	n := r.freed.Load()
	quiet := n == r.lastFreed
	r.lastFreed = n
	if n < someFreed || n < muchFreed && !quiet {
		return false
	}
	r.freed.Add(-n)
	r.lastFreed = 0
	return true
}

// shed closes k for the memory it holds, which comes free at once.
func (k *sock) shed() {
	if k.waitBytes > 0 {
		k.ch.dropWaitingIf(func(p *parcel) bool { return p.from == k })
	}
	k.shut(closeMemory)
}
