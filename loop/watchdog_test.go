package loop

import (
	"testing"
	"time"
)

// TestWatchdogLook drives the watchdog by hand: time is what we say, and a loop
// that does not run answers nothing.
func TestWatchdogLook(t *testing.T) {
	well := start(t, 1, Config{})[0]
	stuck, err := New(1, Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stuck.Stop()
		stuck.Run()
	})
	var stalls []*Loop
	w := newWatchdog([]*Loop{well, stuck}, time.Second, func(l *Loop) { stalls = append(stalls, l) })
	want(t, "it looks four times a second", w.step == 250*time.Millisecond)

	now := w.last
	f := func(sentence string, after time.Duration, stalled int) {
		t.Helper()
		turns(t, well, 1) // it answers what it was asked
		now += int64(after)
		w.look(now)
		if len(stalls) != stalled {
			t.Errorf("%s: %d stalls, want %d", sentence, len(stalls), stalled)
		}
	}
	f("the first look asks", 0, 0)
	f("the second waits", 250*time.Millisecond, 0)
	f("and the third", 250*time.Millisecond, 0)
	f("until just before the timeout", 499*time.Millisecond, 0)
	f("at the timeout it is a stall", time.Millisecond, 1)
	want(t, "of the loop that is stuck", stalls[0] == stuck)
	for range 20 {
		f("which is told once", 250*time.Millisecond, 1)
	}

	// The loop answers after all; its next stall is a new one.
	stuck.turn(stuck.poll.ask())
	f("it answered, and is asked again", 250*time.Millisecond, 1)
	for range 3 {
		f("its new time runs", 250*time.Millisecond, 1)
	}
	f("and ends", 250*time.Millisecond, 2)
}

// TestWatchdogLate: a watchdog that was itself held up starts its count again.
func TestWatchdogLate(t *testing.T) {
	stuck, err := New(0, Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stuck.Stop()
		stuck.Run()
	})
	stalls := 0
	w := newWatchdog([]*Loop{stuck}, time.Second, func(*Loop) { stalls++ })
	now := w.last
	f := func(sentence string, after time.Duration, stalled int) {
		t.Helper()
		now += int64(after)
		w.look(now)
		if stalls != stalled {
			t.Errorf("%s: %d stalls, want %d", sentence, stalls, stalled)
		}
	}
	want(t, "nothing is owed before a question", w.Owed(0) == 0)
	f("it asks", 0, 0)
	want(t, "an answer is owed from the question on", w.Owed(0) > 0)
	f("it waits", 250*time.Millisecond, 0)
	f("the process stood for a minute", time.Minute, 0)
	f("the count began again", 400*time.Millisecond, 0)
	f("and goes on", 400*time.Millisecond, 0)
	f("a look a little late does no harm", 199*time.Millisecond, 0)
	f("a second after the minute it is a stall", time.Millisecond, 1)
}

// TestWatchdogStep: the smallest timeouts are looked after as often as a
// ticker can.
func TestWatchdogStep(t *testing.T) {
	f := func(timeout, step time.Duration) {
		t.Helper()
		if w := newWatchdog(nil, timeout, nil); w.step != step {
			t.Errorf("with a timeout of %v it looks every %v, want %v", timeout, w.step, step)
		}
	}
	f(5*time.Second, 250*time.Millisecond)
	f(400*time.Millisecond, 100*time.Millisecond)
	f(time.Millisecond, time.Millisecond)
}

// TestWatchdog: a live loop that its handler blocks is reported, once, not
// before the timeout; Late tells meanwhile, and no more when it answers.
func TestWatchdog(t *testing.T) {
	loops := start(t, 2, Config{})
	const timeout = 40 * time.Millisecond
	type stall struct {
		l  *Loop
		at int64
	}
	stalls := make(chan stall, 8)
	w := WatchLoops(loops, timeout, func(l *Loop) { stalls <- stall{l, Now()} })
	defer w.Stop()
	for range 2 {
		release := hold(t, loops[1])
		held := Now()
		s := await(t, "the stall", stalls)
		want(t, "it is the loop that is held", s.l == loops[1])
		// It may have owed an answer since a step before it was held.
		want(t, "it had its time", s.at-held >= int64(timeout-w.step))
		want(t, "it is late", w.Late(timeout/2))
		want(t, "though not by an hour", !w.Late(time.Hour))
		release()
		eventually(t, "it is late no more", func() bool { return !w.Late(timeout / 2) })
	}
	want(t, "each stall was told once", len(stalls) == 0)
	w.Stop()
	w.Stop()
}
