package mte

import (
	"math/rand/v2"
	"time"

	"sluice/codec/frame"
	"sluice/gateway/client"
	"sluice/loop"
)

const (
	// dropsEvery is the least time between keepalive calls out of turn: half of
	// what a relay lets through.
	dropsEvery = int64(time.Second)
	// upkeepRetry is how long a refresh or keepalive that failed is left alone.
	upkeepRetry = int64(10 * time.Second)
	// refillRetry is the pause after a refill that failed, while there are pairs
	// or nobody waits, and the least one after a refill that was one too many.
	refillRetry = int64(time.Second)
)

// An asking is what a host's control is at.
type asking uint8

const (
	// askNothing: the timer runs, or there is nothing to wait for. Leaves to
	// askAuth, askKeys, askKeepalive.
	askNothing asking = iota
	// askAuth: the call that authenticates, or refreshes the token. Leaves to
	// askNothing.
	askAuth
	// askKeys: workers make the keys of a batch. Leaves to askPairs.
	askKeys
	// askPairs: the pairing call. Leaves to askSecrets, or to askNothing.
	askPairs
	// askSecrets: workers open the other relay's secrets. Leaves to askNothing.
	askSecrets
	// askKeepalive: the keepalive call. Leaves to askNothing.
	askKeepalive
)

// A control makes the calls to the other relay's control endpoints, as the pool
// and the clock ask for them. It belongs to the loop of its host's home.
type control struct {
	h       *outboundHost
	session *client.Session
	call    relayCall
	timer   loop.Timer

	asking    asking
	refill    bool  // the pool waits for what is being done
	repairs   int   // full repairs since pairs were made last
	authRetry int64 // no refresh before
	keepRetry int64 // no keepalive before
	parted    bool  // the other relay was told that the host is served no longer

	pairing *client.Pairing
	id      *identity // whose pairs these are
	drops   int       // retired pairs named in the keepalive call

	// Written by a worker before it posts.
	made  client.Call
	pairs []*client.Pair
	err   error
}

func (c *control) init(h *outboundHost, s *client.Session) {
	c.h, c.session, c.call.control = h, s, c
}

// The session counts in time.Time, loops in nanoseconds.
func clock(now int64) time.Time { return time.Unix(0, now) }
func nanos(t time.Time) int64   { return t.UnixNano() }

// next does what is to be done now, or sets the timer for it.
func (c *control) next() {
	if c.asking != askNothing {
		return
	}
	h, l := c.h, c.h.home.l
	now := l.Now()
	c.timer.Stop()
	h.mu.Lock()
	c.id = h.pool.current
	if h.closed && h.idle() {
		c.part(now)
		return
	}
	if c.id == nil {
		c.session.Forget()
	}
	n, at := h.pool.Refill(now)
	authDue, keepDue := c.upkeepDue()
	keep := false
	switch c.refill = n > 0; {
	case c.refill:
		h.pool.Begin(now, n)
	case now >= authDue:
	case now >= keepDue:
		keep = true
		h.keptAt = now
		h.pool.Expire(int64(c.session.Relay().SessionTimeoutSeconds)*int64(time.Second), now)
	default:
		h.lookAt = min(at, authDue, keepDue)
		h.busy = false
		if h.lookAt < never {
			l.StartTimer(&c.timer, h.lookAt, c)
		}
		h.mu.Unlock()
		return
	}
	h.busy = true
	drops := h.pool.Drops()
	h.mu.Unlock()

	switch {
	case keep:
		c.drops = len(drops)
		c.send(askKeepalive, c.session.Keepalive(drops))
	case c.session.Known() && now < authDue:
		c.makeKeys(n)
	default:
		c.send(askAuth, c.session.Auth())
	}
}

// part lets go of what a host that is no longer served holds: the other relay is
// told once, since it would keep the pairs for a session timeout otherwise. The
// host's mu is held, and given up.
func (c *control) part(now int64) {
	h := c.h
	h.pool.Part()
	if drops := h.pool.Drops(); len(drops) > 0 && c.session.Known() && !c.parted {
		c.parted, c.refill, h.busy = true, false, true
		h.keptAt = now
		h.mu.Unlock()
		c.drops = len(drops)
		c.send(askKeepalive, c.session.Keepalive(drops))
		return
	}
	h.pool.Forget(c.id, now)
	h.pool.begun = false
	h.busy, h.lookAt = false, never // a request that comes late begins anew
	h.mu.Unlock()
}

// upkeepDue is when the token is to be refreshed, and when the pairs are to be
// kept alive. The host's mu is held.
func (c *control) upkeepDue() (auth, keep int64) {
	if !c.session.Known() {
		return never, never
	}
	auth, keep = nanos(c.session.AuthDue()), nanos(c.session.KeepaliveDue())
	if c.h.pool.DropsDue() {
		keep = min(keep, c.h.keptAt+dropsEvery)
	}
	return max(auth, c.authRetry), max(keep, c.keepRetry)
}

// retryLater leaves the refresh or keepalive that failed alone. The other one goes
// on: a refresh that keeps failing must not cost the pairs, which die without
// keepalives long before the token does.
func (c *control) retryLater(pause, now int64) {
	at := now + max(pause, upkeepRetry)
	switch c.asking {
	case askAuth:
		c.authRetry = at
	case askKeepalive:
		c.keepRetry = at
	default:
		panic("BUG: mte: upkeep that is none")
	}
}

// OnTimer implements loop.TimerHandler.
func (c *control) OnTimer(int64) {
	if c.pairing != nil {
		c.submit()
		return
	}
	c.next()
}

// done ends what was being done and goes on with what is next.
func (c *control) done() {
	c.asking = askNothing
	if c.pairing != nil {
		c.pairing.Wipe()
		c.pairing = nil
	}
	c.next()
}

func (c *control) send(what asking, call client.Call) {
	c.asking = what
	c.call.send(c.h, &call)
}

// answered takes the 200 answer of a call.
func (c *control) answered(body []byte) {
	h, now := c.h, c.h.home.l.Now()
	var err error
	switch c.asking {
	case askAuth:
		if err = c.session.Authed(body, clock(now)); err != nil {
			break
		}
		h.know(c.session, now)
		c.landed(nil)
		c.done()
		return
	case askPairs:
		if err = c.pairing.Answered(body); err != nil {
			break
		}
		c.asking = askSecrets
		c.pairing.OnDone = c.secretsOpened
		c.submit()
		return
	case askKeepalive:
		if _, err = c.session.Touched(body, clock(now)); err != nil {
			break
		}
		h.mu.Lock()
		if h.pool.current == c.id {
			h.pool.Dropped(c.drops)
		}
		h.mu.Unlock()
		c.done()
		return
	default:
		panic("BUG: mte: an answer that was not asked for")
	}
	c.fail(refusal{reason: frame.UpstreamResponseFailed, message: "the other relay: " + err.Error()}, refillRetry)
}

// makeKeys begins a batch of n pairs.
func (c *control) makeKeys(n int) {
	c.asking = askKeys
	c.pairing = c.session.NewPairing(n)
	c.pairing.OnDone = c.keysMade
	c.submit()
}

// submit hands the arithmetic to the workers, whose queue may be full for now.
func (c *control) submit() {
	if !c.h.r.kem.Submit(c.pairing, c.pairing.Steps()) {
		l := c.h.home.l
		l.StartTimer(&c.timer, l.Now()+int64(offloadRetry), c)
	}
}

// keysMade writes the call, still on a worker.
func (c *control) keysMade(p *client.Pairing) {
	c.made = p.Call()
	c.h.home.l.Post((*keysMade)(c))
}

type keysMade control

// Deliver makes the pairing call.
func (m *keysMade) Deliver(*loop.Loop) {
	c := (*control)(m)
	call := c.made
	c.made = client.Call{}
	c.send(askPairs, call)
}

// secretsOpened makes the pairs, still on a worker.
func (c *control) secretsOpened(p *client.Pairing) {
	c.pairs, c.err = p.Pairs()
	c.h.home.l.Post((*secretsOpened)(c))
}

type secretsOpened control

// Deliver hands the pairs to the pool.
func (m *secretsOpened) Deliver(*loop.Loop) {
	c := (*control)(m)
	keys, err := c.pairs, c.err
	c.pairs, c.err = nil, nil
	if err != nil {
		c.fail(refusal{reason: frame.UpstreamResponseFailed, message: "the other relay's answer to a pairing call: " + err.Error()}, refillRetry)
		return
	}
	pairs := make([]*pooledPair, len(keys))
	for i, key := range keys {
		pairs[i] = &pooledPair{key: key, of: c.id, id: key.ID}
	}
	c.repairs = 0
	c.landed(pairs)
	c.done()
}

// landed ends a refill, or what came before one.
func (c *control) landed(pairs []*pooledPair) {
	if !c.refill {
		return
	}
	c.h.mu.Lock()
	c.h.pool.Landed(pairs, c.h.home.l.Now())
	c.h.mu.Unlock()
}

// refused acts on a refusal of a control call.
func (c *control) refused(r *client.Refusal) {
	h, now := c.h, c.h.home.l.Now()
	switch r.Action() {
	case frame.FullRepair:
		h.repair(c.id, r, now)
		if c.repairs++; c.repairs > 1 {
			break // a new identity is not accepted either: who waits is told
		}
		c.landed(nil)
		c.done()
		return
	case frame.BackOff, frame.BackOffNotOwner:
		c.backOff(r)
		return
	}
	if r.Code == frame.BodyTooLarge.Code() && c.asking == askPairs && c.pairing.Steps() > 2 {
		h.mu.Lock()
		h.pool.Smaller(c.pairing.Steps() / 2)
		h.mu.Unlock()
		c.landed(nil)
		c.done()
		return
	}
	pause := max(refillRetry, int64(r.RetryAfter))
	if c.refill && r.RetryAfter > 0 {
		h.mu.Lock()
		h.pool.Pause(now + pause)
		h.mu.Unlock()
	}
	c.fail(refusalBy(r), pause)
}

// backOff pauses after a refusal that says that we ask too much. Requests go on
// with the pairs there are.
func (c *control) backOff(r *client.Refusal) {
	h, now := c.h, c.h.home.l.Now()
	pause := max(refillRetry, int64(r.RetryAfter))
	pause += rand.Int64N(pause/10 + 1) // so that replicas do not come back at once
	if log := h.r.limit.Line(logPairing, now); log != nil {
		log.Warn("Pairing rate limited", "host", h.host, "code", r.Code, "reason", r.Reason, "pause", time.Duration(pause).Round(time.Millisecond))
	}
	if c.refill {
		h.mu.Lock()
		no := refusalBy(r)
		h.pool.Failed(&no, pause, true, now)
		h.mu.Unlock()
	}
	if !c.refill || c.asking == askAuth {
		c.retryLater(pause, now)
	}
	c.done()
}

// fail ends what was being done without success.
func (c *control) fail(no refusal, pause int64) { c.failFor(no, no.message, pause) }

// failFor is fail with what the log is told, and callers are not.
func (c *control) failFor(no refusal, detail string, pause int64) {
	h, now := c.h, c.h.home.l.Now()
	if log := h.r.limit.Line(logPairing, now); log != nil {
		log.Warn("a control call to the other relay failed", "host", h.host, "code", no.reason.Code(), "reason", no.reason.String(), "detail", detail)
	}
	refresh := c.asking == askAuth && c.session.Known()
	if !c.refill || refresh {
		c.retryLater(pause, now)
	}
	switch {
	case !c.refill:
	case refresh:
		c.landed(nil) // it goes on with the token there is
	default:
		h.mu.Lock()
		h.pool.Failed(&no, pause, false, now)
		h.mu.Unlock()
	}
	c.done()
}
