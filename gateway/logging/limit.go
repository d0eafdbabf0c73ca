package logging

import (
	"log/slog"
	"sync"
	"time"
)

// linesPerSecond is how many lines of one reason may be written in any second (contract, relay
// §8): enough to see what happens, too few to fill a disk.
const linesPerSecond = 10

// A Limiter thins out lines that a stranger can cause. R is a closed enum of the reasons for
// such lines, counted from 0: what a peer sends cannot make a Limiter grow.
//
// All methods may be called from anywhere. now comes from one monotonic clock, in nanoseconds;
// callers may be a little apart.
type Limiter[R Reason] struct {
	log   *slog.Logger
	cells []cell
}

// A Reason names why a line is written.
type Reason interface {
	~uint8
	String() string
}

// cell is the state of one reason.
type cell struct {
	mu      sync.Mutex
	written [linesPerSecond]int64 // when the last lines were, a ring
	lines   int                   // in the ring
	next    int                   // the oldest of a full ring
	leftOut uint64                // since the last line
}

// NewLimiter returns a Limiter for the reasons below count, whose lines go to log.
func NewLimiter[R Reason](log *slog.Logger, count R) *Limiter[R] {
	return &Limiter[R]{log: log, cells: make([]cell, count)}
}

// Line returns the logger for one line of reason r, or nil when the line is to be left out. The
// first line after such ones says how many they were, as left_out:
//
//	if log := limit.Line(reason, now); log != nil {
//		log.Warn("upgrade refused", "peer", peer)
//	}
func (l *Limiter[R]) Line(r R, now int64) *slog.Logger {
	c := &l.cells[r]
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.take(now) {
		c.leftOut++
		return nil
	}
	log := l.log
	if c.leftOut > 0 {
		log = log.With("left_out", c.leftOut)
		c.leftOut = 0
	}
	return log
}

// take uses one of the lines of the second that ends now.
func (c *cell) take(now int64) bool {
	if c.lines < linesPerSecond {
		c.written[c.lines] = now
		c.lines++
		return true
	}
	if now-c.written[c.next] < int64(time.Second) {
		return false
	}
	c.written[c.next] = now
	c.next = (c.next + 1) % linesPerSecond
	return true
}

// Flush writes the counts that no later line has told, as lines of their own. Call it about once
// a second, and with math.MaxInt64 at the end, when nothing is left out any more.
func (l *Limiter[R]) Flush(now int64) {
	for i := range l.cells {
		if n := l.cells[i].untold(now); n > 0 {
			l.log.Warn("lines left out", "reason", R(i).String(), "left_out", n)
		}
	}
}

// untold takes the count of the lines left out, if there is room for a line about them.
func (c *cell) untold(now int64) uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.leftOut == 0 || !c.take(now) {
		return 0
	}
	n := c.leftOut
	c.leftOut = 0
	return n
}
