package gateway

import (
	"os"
	"sync"
	"time"

	"sluice/loop"
)

// lifeState is where the process is between its start and its end.
type lifeState int32

const (
	// stateStarting: listeners may be open, nothing is promised. Leaves to
	// ready, or to draining with PASEO_RELAY_DRAIN.
	stateStarting lifeState = iota
	// stateReady: new work is accepted. Leaves to lameDuck, draining, failed.
	stateReady
	// stateLameDuck: /ready is 503, and new sessions are still admitted for
	// balancers that need time to notice. Leaves to draining, or back to ready.
	stateLameDuck
	// stateDraining: new sessions are refused, existing ones go on and may
	// reconnect. Leaves to closing, or back to ready.
	stateDraining
	// stateClosing: what is left is closed. Leaves to stopped.
	stateClosing
	// stateFailed: a loop is stuck; the process is about to exit. Final.
	stateFailed
	// stateStopped: everything has ended. Final.
	stateStopped
)

var stateNames = [...]string{"starting", "ready", "about to drain", "draining", "closing", "failed", "stopped"}

func (s lifeState) String() string { return stateNames[s] }

const (
	exitWedged = 70
	// failTime is how long the other loops may take to close when one is stuck.
	failTime = time.Second

	// longestClosing is the time kept back at the end of a drain for sockets to
	// take their close frames, at most an eighth of the closing quarter.
	longestClosing = 5 * time.Second
	// leastDrain is what a drain of 0 s still has for its close frames.
	leastDrain = 200 * time.Millisecond
	// drainStep is how often the end of a drain is looked for.
	drainStep = 20 * time.Millisecond
	// progressEvery is the time between two lines about a drain.
	progressEvery = 5 * time.Second
)

func (g *Gateway) currentState() lifeState { return lifeState(g.state.Load()) }

// setState changes the state; a final one stays.
func (g *Gateway) setState(s lifeState) {
	for {
		old := g.currentState()
		if old == s || old == stateStopped || old == stateFailed && s != stateStopped {
			return
		}
		if g.state.CompareAndSwap(int32(old), int32(s)) {
			g.log.Info("state changed", "from", old.String(), "to", s.String())
			return
		}
	}
}

// A drainOrder is what was asked of the gateway's life and is not over yet. Orders
// come from the admin listener, from signals and from the lame duck's timer.
type drainOrder struct {
	mu      sync.Mutex  // guards the rest, and the change of state that goes with it
	ending  bool        // by Drain: nothing takes that back
	lame    *time.Timer // of stateLameDuck, when it was begun without Drain
	lameEnd time.Time   // when it fires
}

// SetDraining begins a drain without an end, or takes it back. It may be called
// from anywhere. It returns false if a drain cannot be taken back because the
// process ends.
func (g *Gateway) SetDraining(on bool) bool {
	o := &g.order
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ending {
		return on
	}
	s := g.currentState()
	switch {
	case on && s == stateLameDuck: // was asked for
	case on && s == stateReady && g.cfg.Lifecycle.LameDuck > 0:
		g.setState(stateLameDuck)
		o.lameEnd = time.Now().Add(g.cfg.Lifecycle.LameDuck)
		var t *time.Timer
		t = time.AfterFunc(g.cfg.Lifecycle.LameDuck, func() {
			o.mu.Lock() // t may not have been set yet
			defer o.mu.Unlock()
			g.endLameDuck(t)
		})
		o.lame = t
	case on:
		g.refuseNew(true)
	case s == stateLameDuck || s == stateDraining:
		o.stopLameDuck()
		g.setState(stateReady)
		g.refuseNew(false)
	}
	return true
}

// endLameDuck is what the timer t does, with order.mu held. One that fired while
// it was stopped is late: another may have taken its place.
func (g *Gateway) endLameDuck(t *time.Timer) {
	if g.order.lame == t {
		g.order.lame = nil
		g.refuseNew(true)
	}
}

func (o *drainOrder) stopLameDuck() {
	if o.lame != nil {
		o.lame.Stop()
		o.lame = nil
	}
}

// beginEnd makes the drain one that is not taken back, and returns for how long
// new sessions are still admitted: what is left of a lame duck's time that is
// under way, or all of it if nobody was told before.
func (g *Gateway) beginEnd() time.Duration {
	o := &g.order
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ending = true
	switch g.currentState() {
	case stateReady:
		if g.cfg.Lifecycle.LameDuck > 0 {
			g.setState(stateLameDuck)
		}
		return g.cfg.Lifecycle.LameDuck
	case stateLameDuck:
		o.stopLameDuck()
		return time.Until(o.lameEnd)
	}
	return 0
}

func (g *Gateway) refuseNew(on bool) {
	if on {
		g.setState(stateDraining)
	}
	if g.relay != nil {
		g.owner.Drain(on)
		g.relay.SetDraining(on)
		g.front.Drain(on)
	}
	if g.encrypting != nil {
		g.encrypting.drain(on)
	}
}

// Wait runs until a signal or a failure and returns the exit code. The first
// signal drains and stops, the second ends the process at once.
func (g *Gateway) Wait(signals <-chan os.Signal) int {
	select {
	case code := <-g.failed:
		return code
	case s := <-signals:
		g.log.Info("stopping", "signal", s.String(), "lame_duck", g.cfg.Lifecycle.LameDuck, "drain", g.cfg.Lifecycle.Drain,
			"hint", "a second signal exits at once")
		g.notifier.stopping(g.cfg.Lifecycle.LameDuck + g.cfg.Lifecycle.Drain)
	}
	done := make(chan struct{})
	go func() {
		g.Drain()
		g.Stop()
		close(done)
	}()
	select {
	case <-done:
		return 0
	case code := <-g.failed:
		return code
	case s := <-signals:
		g.log.Warn("second signal, exiting at once", "signal", s.String())
		return 1
	}
}

// Drain refuses new sessions, waits for the existing ones to end and closes
// what is left, evenly over the last quarter of DRAIN_SECONDS. It returns when
// no socket is left and the clients have what was answered, or the time is over.
// From the last socket's end on no connection is accepted.
func (g *Gateway) Drain() {
	time.Sleep(g.beginEnd())
	g.refuseNew(true)
	total := max(g.cfg.Lifecycle.Drain, leastDrain)
	start := loop.Now()
	end := start + int64(total)
	quarter := int64(total) / 4
	from, to := end-quarter, end-min(int64(longestClosing), quarter/8)
	first := g.sockets()
	if g.relay != nil && first > 0 {
		g.relay.CloseEvenly(from, to, end)
	}
	tick := time.NewTicker(drainStep)
	defer tick.Stop()
	told := start
	for now := start; now < end; now = loop.Now() {
		left := g.sockets()
		if left == 0 {
			break
		}
		if now >= from {
			g.setState(stateClosing)
		}
		if now-told >= int64(progressEvery) {
			told = now
			g.log.Info("draining", "closed", max(0, first-left), "of", first, "left_seconds", (end-now)/1e9)
		}
		<-tick.C
	}
	left := g.sockets()
	g.refuseConnections()
	if g.encrypting != nil {
		g.encrypting.finish(end)
	}
	g.log.Info("drained", "closed", max(0, first-left), "of", first, "reset", left)
}

// sockets returns how many upgraded sockets exist, and requests through the
// encrypting relay.
func (g *Gateway) sockets() (n int64) {
	if g.relay != nil {
		n += g.relay.Sockets()
	}
	if g.encrypting != nil {
		n += g.encrypting.role.Active()
	}
	return n
}
