package store

import (
	"context"
	"slices"
	"strconv"
)

// tenureState is where a tenure is between its claim and its end.
type tenureState uint8

const (
	// tenureAsked: the claim is on its way. Those who asked wait.
	// Leaves to held, or to ended.
	tenureAsked tenureState = iota
	// tenureLooking: as asked, but only to know who has it: this node takes
	// nothing new, or whoever asks would not attach. Leaves to ended, or to asked
	// if nobody has it and somebody wants it after all.
	tenureLooking
	// tenureHeld: it is the node's until Tenure.until, and is renewed.
	// Leaves to releasing, or to ended (lost).
	tenureHeld
	// tenureReleasing: nothing of it is used any more and Redis is being told.
	// Those who claim it anew wait. Leaves to ended.
	tenureReleasing
	// tenureEnded: in no map. Final.
	tenureEnded
)

// A lease is the part of a tenure that its shard's lock guards.
type lease struct {
	state    tenureState
	token    uint64 // behind the node's id
	attached bool   // a socket is there
	pending  int    // claims answered with Owned that neither attached nor were dropped
	used     bool   // a socket has been there
	asked    bool   // a call about it is under way or waits for its turn
	putOff   bool   // its release waits for the answer to a renewal
	expires  int64  // without a socket: when it is given up
	waiting  []claimant
	given    []func() // GiveUp's
}

// A claimant waits for the answer to its claim, or look.
type claimant struct {
	look  bool
	later func(Claim)
}

// wanted reports whether one of those who wait would take the serverId.
func (l *lease) wanted() bool {
	return slices.ContainsFunc(l.waiting, func(w claimant) bool { return !w.look })
}

// effects are calls to be made once the lock is free.
type effects []func()

func (e effects) run() {
	for _, f := range e {
		f()
	}
}

// Claim implements Ownership.
func (o *RedisOwnership) Claim(serverID string, look bool, later func(Claim)) (Claim, bool) {
	now := o.cfg.Now()
	s := o.shardOf(serverID)
	var after effects
	defer func() { after.run() }()
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.tenures[serverID]; t != nil {
		l := &t.lease
		switch {
		case l.state == tenureReleasing && !o.up():
			return Claim{Verdict: Unavailable}, true
		case l.state != tenureHeld:
			l.waiting = append(l.waiting, claimant{look, later})
			return Claim{}, false
		case t.Held(now):
			l.pending++
			if !l.attached {
				o.expireAt(s, l, max(l.expires, now+int64(o.cfg.Times.Reservation)))
			}
			return Claim{Verdict: Owned, Tenure: t}, true
		}
		o.lapsed.Add(1)
		after = o.end(s, t, after)
	}
	if !o.up() || o.abandoned.Load() || o.asking.Load() >= ownerAsking {
		return Claim{Verdict: Unavailable}, true
	}
	t := &Tenure{owner: o, id: serverID}
	t.lease.waiting = append(t.lease.waiting, claimant{look, later})
	t.lease.state = tenureAsked
	op := opClaim
	if look || o.draining.Load() || o.Nodes() < o.cfg.MinNodes {
		t.lease.state, op = tenureLooking, opLook
	}
	s.tenures[serverID] = t
	o.asking.Add(1)
	o.askFor(t, op)
	return Claim{}, false
}

// askFor puts a call about t into the queue. Its shard is locked, and there is
// no other: the queue is never longer than there are tenures.
func (o *RedisOwnership) askFor(t *Tenure, op leaseOp) {
	l := &t.lease
	if l.asked {
		panic("BUG: two calls about one serverId at a time")
	}
	switch op {
	case opClaim:
		l.token = o.tokens.Add(1)
	case opLook: // what is claimed from here on is not the look's to remove
		l.token = o.tokens.Load()
	}
	l.asked = true
	o.queue.add(ask{t, op, l.token, o.cfg.Now()})
}

// expireAt sets when a lease without a socket is given up.
func (o *RedisOwnership) expireAt(s *ownerShard, l *lease, when int64) {
	if l.expires == 0 {
		o.idle.Add(1)
	}
	l.expires = when
	s.next = min(s.next, when)
}

// unexpire: there is a socket, or no lease any more.
func (o *RedisOwnership) unexpire(l *lease) {
	if l.expires != 0 {
		o.idle.Add(-1)
		l.expires = 0
	}
}

// answered takes the answer to a claim, a look or a release that was sent at sent.
func (o *RedisOwnership) answered(a ask, answer string, err error, sent int64) {
	t, s := a.t, o.shardOf(a.t.id)
	var after effects
	s.mu.Lock()
	t.lease.asked = false
	switch t.lease.state {
	case tenureAsked:
		o.asking.Add(-1)
		after = o.claimed(s, t, answer, err, sent, after)
	case tenureLooking:
		c := o.seen(answer, err)
		if c.Verdict == Nobody && t.lease.wanted() { // taken back: a drain, for instance
			t.lease.state = tenureAsked
			o.askFor(t, opClaim)
			break
		}
		o.asking.Add(-1)
		after = o.refuse(s, t, c, after)
	case tenureReleasing:
		after = o.end(s, t, after)
	default:
		panic("BUG: an answer that nobody waits for")
	}
	s.mu.Unlock()
	after.run()
}

// seen judges the answer to a look.
func (o *RedisOwnership) seen(answer string, err error) Claim {
	switch {
	case err != nil:
		return Claim{Verdict: Unavailable}
	case answer != "":
		return elsewhere(answer)
	case o.draining.Load():
		return Claim{Verdict: Draining}
	case o.abandoned.Load():
		return Claim{Verdict: Unavailable}
	case o.Nodes() < o.cfg.MinNodes:
		return Claim{Verdict: BelowFloor}
	}
	return Claim{Verdict: Nobody}
}

// claimed takes the answer to the claim of t.
func (o *RedisOwnership) claimed(s *ownerShard, t *Tenure, answer string, err error, sent int64, after effects) effects {
	l := &t.lease
	if err != nil {
		return o.refuse(s, t, Claim{Verdict: Unavailable}, after)
	}
	if answer != answerOurs {
		return o.refuse(s, t, elsewhere(answer), after)
	}
	now := o.cfg.Now()
	l.state = tenureHeld
	t.until.Store(o.heldUntil(sent))
	if !t.Held(now) || o.abandoned.Load() { // too late to be of use
		waiting := l.waiting
		l.waiting = nil
		after = tell(waiting, Claim{Verdict: Unavailable}, after)
		o.startRelease(t)
		return after
	}
	l.pending += len(l.waiting)
	o.expireAt(s, l, now+int64(o.cfg.Times.Reservation))
	s.next = min(s.next, t.until.Load())
	waiting := l.waiting
	l.waiting = nil
	return tell(waiting, Claim{Verdict: Owned, Tenure: t}, after)
}

// heldUntil is how long what Redis granted provably stands: its clock began
// after ours.
func (o *RedisOwnership) heldUntil(sent int64) int64 {
	return sent + int64(o.cfg.Times.Lease-o.cfg.Times.Margin)
}

func elsewhere(answer string) Claim {
	if target, ok := targetOf(answer); ok {
		return Claim{Verdict: Elsewhere, Target: target}
	}
	return Claim{Verdict: Unavailable} // nonsense: nobody can say who has it
}

func tell(waiting []claimant, c Claim, after effects) effects {
	for _, w := range waiting {
		after = append(after, func() { w.later(c) })
	}
	return after
}

// refuse ends a claim that was not won.
func (o *RedisOwnership) refuse(s *ownerShard, t *Tenure, c Claim, after effects) effects {
	waiting := t.lease.waiting
	t.lease.waiting = nil
	return tell(waiting, c, o.end(s, t, after))
}

// end takes a tenure out of the map. Who may have sockets of it is told, and who
// waits for its end claims anew.
func (o *RedisOwnership) end(s *ownerShard, t *Tenure, after effects) effects {
	l := &t.lease
	if l.state == tenureHeld {
		t.until.Store(gone)
	}
	if l.state == tenureHeld && (l.attached || l.pending > 0) {
		after = append(after, func() { o.lost(t) })
	}
	l.state = tenureEnded
	o.unexpire(l)
	delete(s.tenures, t.id)
	after = append(after, l.given...)
	for _, w := range l.waiting {
		after = append(after, func() {
			if c, ok := o.Claim(t.id, w.look, w.later); ok {
				w.later(c)
			}
		})
	}
	l.given, l.waiting = nil, nil
	return after
}

// startRelease has Redis told that nobody has t any more. Its shard is locked.
func (o *RedisOwnership) startRelease(t *Tenure) {
	l := &t.lease
	t.until.Store(givenUp)
	l.state, l.attached = tenureReleasing, false
	o.unexpire(l)
	if l.asked {
		l.putOff = true
		return
	}
	o.askFor(t, opRelease)
}

// releaseRest releases what waits for renewals that nobody will see the answers
// of. A renewal that comes behind its release finds nothing to prolong.
func (o *RedisOwnership) releaseRest() {
	var batches []*leaseBatch
	for i := range o.shards {
		s := &o.shards[i]
		s.mu.Lock()
		var b *leaseBatch
		for _, t := range s.tenures {
			if !t.lease.putOff {
				continue
			}
			if b == nil || len(b.ids) == ownerBatch {
				b = &leaseBatch{op: opRelease}
				batches = append(batches, b)
			}
			b.ids, b.tokens = append(b.ids, t.id), append(b.tokens, t.lease.token)
		}
		s.mu.Unlock()
	}
	if len(batches) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(o.ctx, ownerLast)
	defer cancel()
	o.redis.run(ctx, o.node, o.cfg.Target, o.cfg.Times.Lease, batches)
}

func (o *RedisOwnership) token(t *Tenure) string {
	s := o.shardOf(t.id)
	s.mu.Lock()
	defer s.mu.Unlock()
	return o.node + "-" + strconv.FormatUint(t.lease.token, 10)
}

func (o *RedisOwnership) attach(t *Tenure) bool {
	s := o.shardOf(t.id)
	s.mu.Lock()
	defer s.mu.Unlock()
	l := &t.lease
	if l.state != tenureHeld || !t.Held(o.cfg.Now()) {
		return false
	}
	l.pending--
	l.attached, l.used = true, true
	o.unexpire(l)
	return true
}

func (o *RedisOwnership) drop(t *Tenure) {
	s := o.shardOf(t.id)
	s.mu.Lock()
	defer s.mu.Unlock()
	l := &t.lease
	if l.state != tenureHeld {
		return
	}
	l.pending--
	if l.pending == 0 && !l.attached && (!l.used || o.draining.Load()) {
		o.startRelease(t)
	}
}

func (o *RedisOwnership) release(t *Tenure) {
	s := o.shardOf(t.id)
	s.mu.Lock()
	defer s.mu.Unlock()
	l := &t.lease
	if l.state != tenureHeld {
		return
	}
	l.attached = false
	if l.pending == 0 && (o.draining.Load() || o.idle.Load() >= ownerIdle) {
		o.startRelease(t)
		return
	}
	o.expireAt(s, l, o.cfg.Now()+int64(o.cfg.Times.Linger))
}

func (o *RedisOwnership) giveUp(t *Tenure, done func()) (ok bool) {
	s := o.shardOf(t.id)
	s.mu.Lock()
	defer s.mu.Unlock()
	l := &t.lease
	if l.state == tenureHeld {
		o.startRelease(t)
	}
	if l.state != tenureReleasing {
		return true
	}
	l.given = append(l.given, done)
	return false
}

// giveUpAll releases what is held and chosen.
func (o *RedisOwnership) giveUpAll(chosen func(*Tenure) bool) {
	for i := range o.shards {
		s := &o.shards[i]
		s.mu.Lock()
		for _, t := range s.tenures {
			if t.lease.state == tenureHeld && chosen(t) {
				o.startRelease(t)
			}
		}
		s.mu.Unlock()
	}
}

// sweep ends the leases that are not provably held any more, and gives up those
// that nobody used for their time.
func (o *RedisOwnership) sweep(now int64) {
	for i := range o.shards {
		o.sweepShard(&o.shards[i], now)
	}
	if n := o.lapsed.Swap(0); n > 0 {
		o.cfg.Log.Warn("leases of sessions ended because Redis did not renew them; their sockets are closed with 1012",
			"sessions", n, "setting", "REDIS_URL")
	}
	if n := o.moved.Swap(0); n > 0 {
		o.cfg.Log.Warn("sessions have another owner since Redis failed over or lost data; their sockets here are closed with 1012", "sessions", n)
	}
}

func (o *RedisOwnership) sweepShard(s *ownerShard, now int64) {
	var after effects
	s.mu.Lock()
	if now >= s.next {
		s.next = now + int64(o.cfg.Times.Lease)
		for _, t := range s.tenures {
			l := &t.lease
			if l.state != tenureHeld {
				continue
			}
			until := t.until.Load()
			switch {
			case now >= until:
				if l.attached || l.pending > 0 {
					o.lapsed.Add(1)
				}
				after = o.end(s, t, after)
				continue
			case !l.attached && now >= l.expires:
				l.pending = 0
				o.startRelease(t)
				continue
			}
			s.next = min(s.next, until)
			if !l.attached {
				s.next = min(s.next, l.expires)
			}
		}
	}
	s.mu.Unlock()
	after.run()
}
