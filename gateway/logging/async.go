package logging

import (
	"io"
	"log/slog"
	"sync"
	"time"
)

const (
	// asyncBytes bounds the lines that wait to be written.
	asyncBytes = 1 << 20
	// closeTime is how long the end waits for a writer that takes nothing.
	closeTime = time.Second
)

// Async is a writer that never blocks: lines wait in memory, bounded, and a
// goroutine writes them. Event loops log through it, so that a log that nobody
// takes (a full pipe, a stuck disk) cannot stop them. Lines for which there is
// no room are left out and counted; a line tells how many they were.
type Async struct {
	w    io.Writer
	log  *slog.Logger // to w, without waiting
	done chan struct{}

	mu      sync.Mutex // guards the rest
	some    sync.Cond
	waiting []byte
	leftOut int
	closed  bool
	direct  bool // the goroutine has ended: nothing waits
}

// NewAsync starts the goroutine that writes to w, in a legal LOG_FORMAT.
func NewAsync(w io.Writer, format string) *Async {
	a := &Async{w: w, log: New(w, "warn", format), done: make(chan struct{})}
	a.some.L = &a.mu
	go a.run()
	return a
}

// Write takes a line. It may be called from anywhere.
func (a *Async) Write(line []byte) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.direct {
		return a.w.Write(line)
	}
	if len(a.waiting)+len(line) > asyncBytes {
		a.leftOut++
		return len(line), nil
	}
	a.waiting = append(a.waiting, line...)
	a.some.Signal()
	return len(line), nil
}

func (a *Async) run() {
	defer close(a.done)
	var spare []byte
	for {
		a.mu.Lock()
		for len(a.waiting) == 0 && !a.closed {
			a.some.Wait()
		}
		lines, leftOut := a.waiting, a.leftOut
		if len(lines) == 0 {
			a.direct = true
			a.mu.Unlock()
			return
		}
		a.waiting, a.leftOut = spare[:0], 0
		a.mu.Unlock()
		a.w.Write(lines)
		if leftOut > 0 {
			a.log.Warn("the log was not taken in time", "left_out", leftOut)
		}
		spare = lines
	}
}

// Close writes what waits and ends the goroutine. Lines written later go out at once.
// A writer that takes nothing gets a second: the process is to end all the same.
func (a *Async) Close() {
	a.mu.Lock()
	if !a.closed {
		a.closed = true
		a.some.Signal()
	}
	a.mu.Unlock()
	select {
	case <-a.done:
	case <-time.After(closeTime):
	}
}
