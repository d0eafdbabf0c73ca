package store

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	// patience is how long a call may have failed before the circuit looks at it,
	// although it will try again.
	patience = time.Second
	// beatEvery is how often Redis is asked for a sign of life while it is up,
	// and probeEvery while it is not.
	beatEvery  = time.Second
	probeEvery = 250 * time.Millisecond
	// probeTimeout bounds such a question.
	probeTimeout = time.Second
	// freshAfter is how long a client may fail before it is made anew: addresses
	// are resolved and sentinels asked again.
	freshAfter = time.Second
)

type circuitState uint8

const (
	// circuitStarting: Redis was never reached. Calls are refused, it is probed.
	// Leaves to circuitUp.
	circuitStarting circuitState = iota
	// circuitUp: calls are made. Leaves to circuitDown when one has failed and
	// none has succeeded since that one began.
	circuitUp
	// circuitDown: calls are refused at once, Redis is probed. Leaves to
	// circuitUp with the first probe that may write.
	circuitDown
)

// A circuit knows whether Redis can be used.
type circuit struct {
	state   atomic.Uint32 // circuitState; written by the goroutine of watch alone
	success atomic.Int64  // when a call last succeeded, in ns since base
	base    time.Time
	noticed chan struct{} // has room for one: wrong was set

	mu    sync.Mutex
	wrong *failure  // why the circuit should open; nil: nothing is wrong
	began time.Time // when the call did that found it
}

func (c *circuit) init() {
	c.base = time.Now()
	c.noticed = make(chan struct{}, 1)
}

func (c *circuit) up() bool { return circuitState(c.state.Load()) == circuitUp }

// since reports whether a call has succeeded since then.
func (c *circuit) since(then time.Time) bool { return c.success.Load() >= int64(then.Sub(c.base)) }

func (c *circuit) succeeded() { c.success.Store(int64(time.Since(c.base))) }

// failed takes the failure of a call that began then.
func (c *circuit) failed(f *failure, began time.Time) {
	if c.since(began) {
		return // others get through: it is this call's bad luck, or its cluster node's
	}
	c.mu.Lock()
	c.wrong, c.began = f, began
	c.mu.Unlock()
	select {
	case c.noticed <- struct{}{}:
	default:
	}
}

// complaint takes the failure that was noticed last, unless a call got through
// before anybody came to look.
func (c *circuit) complaint() (f *failure) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f, c.wrong = c.wrong, nil
	if f != nil && c.since(c.began) {
		return nil
	}
	return f
}

// setState changes the state and writes the line about it.
func (r *Redis) setState(to circuitState, f *failure, since time.Time) {
	from := circuitState(r.circuit.state.Load())
	defer r.circuit.state.Store(uint32(to)) // behind the line: who sees it finds the reason
	log := r.cfg.Log.With("setting", "REDIS_URL", "mode", r.cfg.Mode.String())
	switch {
	case to == circuitUp && from == circuitStarting:
		log.Info("Redis is reached")
	case to == circuitUp:
		log.Info("Redis can be used again", "down", time.Since(since).Round(time.Millisecond))
	case to == circuitStarting:
		log.Warn("Redis cannot be used yet; the node is not ready until it can", "reason", f.kind.String(), "detail", f.detail)
	default:
		log.Warn("Redis cannot be used; what needs it is refused until it can", "reason", f.kind.String(), "detail", f.detail)
	}
}

// watch connects, asks Redis for signs of life, and opens and closes the circuit.
// It is one goroutine for the life of the client.
func (r *Redis) watch() {
	defer r.busy.Done()
	var (
		changed = time.Now() // when the state did
		made    time.Time    // when the client was
		told    bool         // of circuitStarting
	)
	timer := time.NewTimer(0)
	defer timer.Stop()
	tried := sync.OnceFunc(func() { close(r.tried) })
	defer tried()
	for {
		select {
		case <-timer.C:
		case <-r.circuit.noticed:
		case <-r.ctx.Done():
			r.dropClient()
			return
		}
		up := r.circuit.up()
		if up {
			if f := r.circuit.complaint(); f != nil {
				r.setState(circuitDown, f, changed)
				up, changed, made = false, time.Now(), time.Now()
			}
		}
		if r.client.Load() == nil {
			made = time.Now()
		}
		began := time.Now()
		f := r.probe()
		for range r.cfg.Connections {
			if f == nil || !up || f.kind != failBroken {
				break
			}
			f = r.probe() // connections may end; what counts is whether a new one works
		}
		switch {
		case r.ctx.Err() != nil:
		case f != nil && up && f.kind == failTimeout && r.circuit.since(began):
			// Slow, but calls get through; they may wait longer than a probe.
		case f == nil && !up:
			r.circuit.complaint()
			r.setState(circuitUp, nil, changed)
			up, changed = true, time.Now()
		case f != nil && up:
			r.setState(circuitDown, f, changed)
			up, changed, made = false, time.Now(), time.Now()
		case f != nil:
			if circuitState(r.circuit.state.Load()) == circuitStarting && !told {
				told = true
				r.setState(circuitStarting, f, changed)
			}
			if time.Since(made) > freshAfter {
				r.dropClient()
			}
		}
		tried()
		if up {
			timer.Reset(beatEvery)
		} else {
			timer.Reset(probeEvery)
		}
	}
}
