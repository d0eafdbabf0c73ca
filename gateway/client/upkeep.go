package client

import (
	"context"
	"slices"
	"time"

	"sluice/codec/frame"
)

const (
	// upkeepTimeout bounds one call of the upkeep.
	upkeepTimeout = 30 * time.Second
	// upkeepRetry is how long it waits after one that failed.
	upkeepRetry = 10 * time.Second
)

// keep refreshes the token and keeps the pairs alive, until Close.
func (c *Client) keep() {
	retry := time.Time{}
	for {
		c.mu.Lock()
		due := c.session.AuthDue()
		if next := c.session.KeepaliveDue(); next.Before(due) {
			due = next
		}
		c.mu.Unlock()
		if due.Before(retry) {
			due = retry
		}
		timer := time.NewTimer(time.Until(due))
		select {
		case <-timer.C:
		case <-c.closing.Done():
			timer.Stop()
			return
		}
		retry = time.Now()
		if wait := c.keepOnce(); wait > 0 {
			retry = retry.Add(wait)
		}
	}
}

// keepOnce does what is due and tells how long to wait if it failed.
func (c *Client) keepOnce() (wait time.Duration) {
	ctx, cancel := context.WithTimeout(c.closing, upkeepTimeout)
	defer cancel()
	if err := c.lockControl(ctx); err != nil {
		return upkeepRetry
	}
	defer c.unlockControl()
	c.mu.Lock()
	now := time.Now()
	if !c.session.Known() { // after a repair, the next request authenticates
		c.mu.Unlock()
		return upkeepRetry
	}
	id := c.session.ClientID()
	auth := !now.Before(c.session.AuthDue())
	keepalive := !now.Before(c.session.KeepaliveDue())
	c.mu.Unlock()

	var err error
	if auth {
		err = c.auth(ctx)
	}
	if keepalive && err == nil {
		err = c.keepalive(ctx)
	}
	if err == nil {
		return 0
	}
	c.trace("upkeep: %v", err)
	wait = upkeepRetry
	if refusal, ok := err.(*Refusal); ok {
		if refusal.Action() == frame.FullRepair {
			c.repair(id)
		}
		wait = max(wait, refusal.RetryAfter)
	}
	return wait
}

func (c *Client) keepalive(ctx context.Context) error {
	c.mu.Lock()
	drop := slices.Clone(c.pool.drop)
	if most := c.session.Relay().MaxPairsPerClient; most > 0 {
		drop = drop[:min(len(drop), most)]
	}
	call := c.session.Keepalive(drop)
	c.mu.Unlock()
	body, err := c.call(ctx, &call)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	pairs, err := c.session.Touched(body, time.Now())
	if err != nil {
		return err
	}
	c.pool.drop = slices.DeleteFunc(c.pool.drop, func(id frame.PairID) bool { return slices.Contains(drop, id) })
	c.trace("kept %d pairs alive, dropped %d", pairs, len(drop))
	return nil
}
