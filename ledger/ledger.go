// Package ledger is the node's account of what its sockets hold, and every
// decision about pressure: connection slots, weighted ingress bytes, delivery
// state and deadlines, who is shed and in which order, the memory watermark.
//
// It knows no socket and reads no clock: it is told facts and returns decisions,
// time is an argument. Contract, relay §5.
package ledger

import (
	"fmt"
	"sync/atomic"
	"time"
)

// Limits are the bounds a Ledger enforces.
type Limits struct {
	Sockets     int64         // upgraded sockets at once
	Budget      int64         // weighted ingress bytes
	Weight      int64         // weighted bytes per payload byte
	IngressWait time.Duration // how long a source waits for budget; 0 closes at once
}

// A Ledger is shared by all loops of a node; its methods may be called from
// anywhere. Counting is lock-free, on a cache line of its own each: the ingress
// account is touched twice per read, never per frame.
type Ledger struct {
	lim Limits
	_   [64]byte

	ingress atomic.Int64 // weighted bytes
	waiting atomic.Int64 // sources that wait for ingress
	_       [48]byte

	sockets atomic.Int64
	blocked atomic.Int64
	_       [48]byte

	waits waits
}

// New makes a ledger with nothing on it.
func New(lim Limits) *Ledger {
	if lim.Weight < 1 || lim.Budget < lim.Weight || lim.Sockets < 1 {
		panic(fmt.Sprintf("BUG: ledger limits %+v", lim))
	}
	return &Ledger{lim: lim}
}

// A Snapshot is what the gauges show.
type Snapshot struct {
	Sockets int64
	Ingress int64 // weighted bytes
	Blocked int64 // destinations that refuse bytes
	Waiting int64 // sources that wait for budget
}

// Snapshot reads every account.
func (l *Ledger) Snapshot() Snapshot {
	return Snapshot{
		Sockets: l.sockets.Load(), Ingress: l.ingress.Load(),
		Blocked: l.blocked.Load(), Waiting: l.waiting.Load(),
	}
}

// Empty returns an error naming every account that is not zero: what a test
// asks for when all its sockets are gone.
func (l *Ledger) Empty() error {
	s := l.Snapshot()
	if s.Sockets == 0 && s.Ingress == 0 && s.Blocked == 0 && s.Waiting == 0 {
		return nil
	}
	return fmt.Errorf("ledger not empty: %d sockets, %d weighted ingress bytes, %d blocked deliveries, %d sources waiting",
		s.Sockets, s.Ingress, s.Blocked, s.Waiting)
}
