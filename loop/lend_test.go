package loop

import (
	"runtime"
	"sync"
	"testing"
	"time"
)

// TestLentLoopServes: a loop that waits for goroutines which leave no processor
// idle still delivers what comes and keeps its deadlines.
func TestLentLoopServes(t *testing.T) {
	l := start(t, 1, Config{})[0]
	on(t, l, func() { l.Lend(1) })
	stopping := make(chan struct{})
	var busy sync.WaitGroup
	for range runtime.GOMAXPROCS(0) + 1 {
		busy.Go(func() {
			for {
				select {
				case <-stopping:
					return
				default:
					for end := Now() + int64(50*time.Microsecond); Now() < end; {
					}
					runtime.Gosched()
				}
			}
		})
	}
	t.Cleanup(func() { close(stopping); busy.Wait() })
	for range 100 {
		on(t, l, func() {})
	}
	fired := make(chan struct{})
	var timer Timer
	on(t, l, func() {
		l.StartTimer(&timer, l.Now()+int64(20*time.Millisecond), timerFunc(func(int64) { close(fired) }))
	})
	await(t, "a timer fires while others compute", fired)
}

// TestLentLoopBlocks: where nobody wants its processor, a loop that waits for
// others sleeps as always.
func TestLentLoopBlocks(t *testing.T) {
	l := start(t, 1, Config{})[0]
	const pause = 100 * time.Millisecond
	before, fired := int64(0), make(chan int64)
	var timer Timer
	on(t, l, func() {
		l.Lend(1)
		before = l.stats.Turns.Load()
		l.StartTimer(&timer, l.Now()+int64(pause), timerFunc(func(int64) { fired <- l.stats.Turns.Load() }))
	})
	after := await(t, "a timer fires", fired)
	// A turn that finds nothing takes a microsecond or two. Not each yield need be
	// brief on a busy machine, so some turns there are.
	want(t, "an idle loop does not turn", after-before < int64(pause/(10*time.Microsecond)))
}
