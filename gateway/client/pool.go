package client

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"sluice/codec/frame"
	"sluice/kyber"
)

// pairPool holds the pairs of a Client. It is guarded by Client.mu.
type pairPool struct {
	free    []*Pair // the one used last at the end
	count   int     // free and in use, of the current identity
	growing bool
	waiters []chan struct{} // in order of arrival; each has room for one wake-up
	drop    []frame.PairID  // given up here, still held by the relay

	// After a refusal that asks to back off, nothing is paired before then.
	pausedUntil time.Time
	pausedBy    error
}

// minPause is how long a back-off without a Retry-After lasts. Up to a tenth of a pause is added.
const minPause = time.Second

// acquire takes a pair, making more if there is room for them, or waits for one in order of arrival.
func (c *Client) acquire(ctx context.Context) (*Pair, error) {
	for {
		if err := c.ready(ctx); err != nil {
			return nil, err
		}
		pair, grow, wake, pause, err := c.tryAcquire()
		switch {
		case pair != nil || err != nil:
			return pair, err
		case grow:
			if err := c.growOnce(ctx); err != nil {
				return nil, err
			}
		case wake != nil:
			again, stop := after(pause)
			select {
			case <-wake:
				stop()
			case <-again: // there may be room for a pair that nobody gives back
				c.abandon(wake)
			case <-ctx.Done():
				stop()
				c.abandon(wake)
				return nil, ctx.Err()
			case <-c.closing.Done():
				stop()
				return nil, ErrClosed
			}
		}
	}
}

// after is a timer of d, and none if d is not positive.
func after(d time.Duration) (<-chan time.Time, func() bool) {
	if d <= 0 {
		return nil, func() bool { return false }
	}
	timer := time.NewTimer(d)
	return timer.C, timer.Stop
}

// tryAcquire is one look at the pool. It returns a pair; or grow, and the caller is to make more; or
// wake, and the caller is in the queue and waits for it, but no longer than a pause of pairing if
// there is one; or none of these, and the caller looks again.
func (c *Client) tryAcquire() (pair *Pair, grow bool, wake chan struct{}, pause time.Duration, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := &c.pool
	pause = time.Until(p.pausedUntil)
	paused := pause > 0
	switch last := len(p.free) - 1; {
	case c.isClosed:
		return nil, false, nil, 0, ErrClosed
	case last >= 0:
		pair, p.free = p.free[last], p.free[:last]
		pair.Renew(c.session.Relay())
		return pair, false, nil, 0, nil
	case !c.session.Known(): // another request has just learned that it is not
		return nil, false, nil, 0, nil
	case paused && p.count == 0:
		return nil, false, nil, 0, p.pausedBy
	case !paused && !p.growing && p.count < c.o.MaxPairs:
		p.growing = true
		return nil, true, nil, 0, nil
	}
	wake = make(chan struct{}, 1)
	p.waiters = append(p.waiters, wake)
	return nil, false, wake, pause, nil
}

// growOnce makes a batch of pairs. A failure is the caller's only if there are no pairs to wait for;
// if there are, the relay is not asked again at once.
func (c *Client) growOnce(ctx context.Context) error {
	err := c.grow(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	p := &c.pool
	p.growing = false
	p.wakeAll()
	if err == nil || p.count == 0 || ctx.Err() != nil {
		return err
	}
	if now := time.Now(); now.After(p.pausedUntil) {
		p.pausedUntil, p.pausedBy = now.Add(minPause), err
	}
	return nil
}

// abandon takes a waiter out; a wake-up it got meanwhile goes to the next.
func (c *Client) abandon(wake chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if i := slices.Index(c.pool.waiters, wake); i >= 0 {
		c.pool.waiters = slices.Delete(c.pool.waiters, i, i+1)
		return
	}
	c.pool.wakeOne()
}

func (p *pairPool) wakeOne() {
	if len(p.waiters) > 0 {
		p.waiters[0] <- struct{}{}
		p.waiters = p.waiters[1:]
	}
}

func (p *pairPool) wakeAll() {
	for len(p.waiters) > 0 {
		p.wakeOne()
	}
}

// release gives a pair back, or gives it up. gone tells that the relay does not hold it any more.
func (c *Client) release(pair *Pair, replace, gone bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := &c.pool
	current := c.session.Known() && pair.token.Client() == c.session.ClientID()
	switch {
	case !current || c.isClosed:
		pair.Wipe()
	case replace:
		pair.Wipe()
		p.count--
		if !gone {
			p.drop = append(p.drop, pair.ID)
		}
		c.trace("pair %v given up", pair.ID)
	default:
		pair.LastUsed = time.Now()
		p.free = append(p.free, pair)
	}
	p.wakeOne()
}

// forget drops all pairs of an identity; those in use are dropped when they come back, and who waits
// for one has room for another.
func (p *pairPool) forget() {
	p.wipe()
	p.count, p.drop = 0, nil
	p.wakeAll()
}

func (p *pairPool) wipe() {
	for _, pair := range p.free {
		pair.Wipe()
	}
	p.free = nil
}

// grow makes one batch of pairs.
func (c *Client) grow(ctx context.Context) error {
	if err := c.lockControl(ctx); err != nil {
		return err
	}
	defer c.unlockControl()
	repaired := false
	for batch := c.o.Batch; ; {
		err := c.pair(ctx, batch)
		refusal, ok := err.(*Refusal)
		if !ok {
			return err
		}
		switch action := refusal.Action(); {
		case refusal.Code == frame.BodyTooLarge.Code() && batch > 1:
			batch /= 2
		case action == frame.FullRepair && !repaired:
			repaired = true
			c.mu.Lock()
			id := c.session.ClientID()
			c.mu.Unlock()
			c.repair(id)
			if err := c.auth(ctx); err != nil {
				return err
			}
		case action == frame.BackOff || action == frame.BackOffNotOwner:
			c.pause(refusal)
			return err
		default:
			return err
		}
	}
}

func (c *Client) pause(r *Refusal) {
	d := max(r.RetryAfter, minPause)
	d += time.Duration(rand.Int64N(int64(d)/10 + 1))
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pool.pausedUntil, c.pool.pausedBy = time.Now().Add(d), r
	c.trace("pairing pauses for %v: %v", d.Round(time.Millisecond), r)
}

// pair makes up to batch pairs and frees them for use.
func (c *Client) pair(ctx context.Context, batch int) error {
	start := time.Now()
	c.mu.Lock()
	relay := c.session.Relay()
	room := c.o.MaxPairs - c.pool.count
	if most := relay.MaxPairsPerClient; most > 0 {
		room = min(room, max(most-c.pool.count, 1))
	}
	p := c.session.NewPairing(min(batch, relay.MaxPairsPerBatch, room))
	id := c.session.ClientID()
	c.mu.Unlock()
	defer p.Wipe()
	if err := c.compute(ctx, p); err != nil {
		return err
	}
	call := p.Call()
	body, err := c.call(ctx, &call)
	if err != nil {
		return err
	}
	if err := p.Answered(body); err != nil {
		return err
	}
	if err := c.compute(ctx, p); err != nil {
		return err
	}
	pairs, err := p.Pairs()
	if err != nil {
		return err
	}
	c.trace("paired %d in %v at strength %d", len(pairs), time.Since(start).Round(time.Millisecond), relay.KyberStrength)
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.session.Known() || c.session.ClientID() != id || c.isClosed {
		for _, pair := range pairs {
			pair.Wipe()
		}
		return nil
	}
	c.pool.free = append(c.pool.free, pairs...)
	c.pool.count += len(pairs)
	return nil
}

// compute does one phase of a pairing, on the pool if there is one that takes it.
func (c *Client) compute(ctx context.Context, p *Pairing) error {
	if c.o.Kyber != nil {
		done := make(chan struct{})
		p.OnDone = func(*Pairing) { close(done) }
		if c.o.Kyber.Submit(p, p.Steps()) {
			<-done // milliseconds; the steps write to p until then
			return ctx.Err()
		}
	}
	var e kyber.Engine
	for i := range p.Steps() {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		p.Step(&e, i)
	}
	return nil
}
