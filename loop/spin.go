package loop

// spinner decides whether a loop asks the poller again for a while before it
// blocks. A wake-up costs more than a short spin, but a spin that finds nothing
// is lost on top of it: so it goes by how long the last waits took.
//
// It belongs to its loop's goroutine.
type spinner struct {
	limit int64 // nanoseconds of one spin; 0 or less never spins
	score int8  // above 0: waits have been short
}

// spinScore bounds the memory of a spinner: so many long waits turn a busy
// loop's spinning off, so many short ones turn it on.
const spinScore = 8

// worth reports whether a spin is likely to find something.
func (s *spinner) worth() bool { return s.limit > 0 && s.score > 0 }

// waited notes a wait of d nanoseconds, spun or blocked, that ended with an event.
func (s *spinner) waited(d int64) {
	if d <= s.limit {
		s.score = min(s.score+1, spinScore)
	} else {
		s.score = max(s.score-2, -spinScore)
	}
}
