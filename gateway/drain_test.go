package gateway

import (
	"log/slog"
	"testing"
	"time"

	"sluice/gateway/config"
)

// Nothing but a drain that is taken back cuts a lame duck's time short: not a
// second order to drain, not the timer of an order before, not the end.
func TestLameDuckIsNotCutShort(t *testing.T) {
	t.Parallel()
	const lame = time.Hour
	g := &Gateway{cfg: &config.Config{}, log: slog.New(slog.DiscardHandler)}
	g.cfg.Lifecycle.LameDuck = lame
	g.setState(stateReady)
	want := func(after string, s lifeState) {
		t.Helper()
		if got := g.currentState(); got != s {
			t.Fatalf("%s: %v, expected %v", after, got, s)
		}
	}
	order := func(on bool) {
		t.Helper()
		if !g.SetDraining(on) {
			t.Fatal("an order is refused")
		}
	}

	order(true)
	want("drain", stateLameDuck)
	first := g.order.lame
	order(true)
	want("drain, twice", stateLameDuck)
	if g.order.lame != first {
		t.Error("the second order began the time anew")
	}

	fire := func(t *time.Timer) {
		g.order.mu.Lock()
		defer g.order.mu.Unlock()
		g.endLameDuck(t)
	}

	order(false)
	want("taken back", stateReady)
	if first.Stop() {
		t.Error("the timer runs on")
	}
	order(true)
	fire(first) // it had fired when it was stopped
	want("an old timer", stateLameDuck)
	second := g.order.lame
	fire(second)
	want("the time is over", stateDraining)
	order(false)
	want("taken back again", stateReady)

	order(true)
	if left := g.beginEnd(); left <= lame/2 || left > lame {
		t.Errorf("new sessions are admitted for %v more of %v", left, lame)
	}
	want("the end", stateLameDuck)
	if g.order.lame != nil {
		t.Error("the timer runs on beside the end")
	}
	if g.SetDraining(false) || !g.SetDraining(true) {
		t.Error("the end was taken back")
	}
	want("orders after it", stateLameDuck)
}

// Without an order before it the end has the whole time.
func TestLameDuckOfTheEnd(t *testing.T) {
	t.Parallel()
	for _, lame := range []time.Duration{0, time.Hour} {
		g := &Gateway{cfg: &config.Config{}, log: slog.New(slog.DiscardHandler)}
		g.cfg.Lifecycle.LameDuck = lame
		g.setState(stateReady)
		if left := g.beginEnd(); left != lame {
			t.Errorf("%v of %v", left, lame)
		}
	}
}

// A lame duck's timer may fire before the order that began it has returned.
func TestLameDuckOfNoTime(t *testing.T) {
	t.Parallel()
	g := &Gateway{cfg: &config.Config{}, log: slog.New(slog.DiscardHandler)}
	g.cfg.Lifecycle.LameDuck = 1
	g.setState(stateReady)
	for range 200 {
		g.SetDraining(true)
		for until := time.Now().Add(time.Minute); g.currentState() != stateDraining; time.Sleep(10 * time.Microsecond) {
			if time.Now().After(until) {
				t.Fatal("its time never ends")
			}
		}
		g.SetDraining(false)
	}
}
