package store

import (
	"bytes"

	"github.com/redis/rueidis"

	"sluice/codec/frame"
	"sluice/codec/open"
)

// A cachedTake is one request's use of a pair that is kept, from Take on. It
// belongs to whoever has to act next, like a takenPair, and so do the states of
// its pair while that is being loaded or in use.
type cachedTake struct {
	s      *CachedPairs
	key    Client
	c      *cachedClient
	p      *cachedPair
	typ    open.Type
	waiter Waiter
	begun  int64 // when Redis was asked last, by the loops' clock
	begin  bool  // it asks for the lease, too

	state   takenState
	encoder open.Encoder
	decoder open.Decoder

	// What is being saved.
	newEncoder, newDecoder []byte
}

// Take implements Pairs.
func (s *CachedPairs) Take(key Client, id frame.PairID, t open.Type, now int64, w Waiter) (Lease, frame.Reason, bool) {
	return s.take(&cachedTake{s: s, key: key, typ: t, waiter: w, begun: now}, id)
}

func (s *CachedPairs) take(x *cachedTake, id frame.PairID) (Lease, frame.Reason, bool) {
	key := x.key
	v := s.vault(key.Domain)
	if v == nil {
		return nil, frame.InvalidClientID, true
	}
	sh := s.shard(&key)
	sh.mu.Lock()
	c := sh.clients[key]
	switch {
	case c == nil && max(s.clients.Load(), s.pairs.Load()) >= cachedMost:
		sh.mu.Unlock()
		return s.RedisPairs.Take(key, id, x.typ, x.begun, x.waiter)
	case c == nil:
		c = &cachedClient{shard: sh, key: key, v: v, token: newToken(), pairs: make(map[frame.PairID]*cachedPair)}
		sh.clients[key] = c
		s.clients.Add(1)
		x.begin = true
	case c.state == ownDoubtful && !s.leave(c):
		sh.mu.Unlock()
		return nil, frame.StateStoreUnavailable, true
	case c.state != ownLeased:
		c.waiting = append(c.waiting, waitingTake{x, id})
		sh.mu.Unlock()
		return nil, frame.NoReason, false
	}
	x.c = c
	switch p := c.pairs[id]; {
	case p == nil:
		s.makeRoom(c)
		x.p = &cachedPair{id: id}
		c.pairs[id] = x.p
		s.pairs.Add(1)
	case p.use == cachedFree:
		x.p = p
	default:
		dead := p.use == cachedDead
		sh.mu.Unlock()
		if dead {
			return nil, frame.PairNotFound, true
		}
		return nil, frame.PairBusy, true
	}
	c.inUse++
	local := x.p.use == cachedFree && c.holds(x.begun) && x.begun < max(x.p.touched, c.kept)+int64(s.limits.Timeout)
	x.p.use = cachedLoading
	if local {
		x.p.use = cachedInUse
	}
	sh.mu.Unlock()
	if local {
		if r := x.restore(); r != frame.NoReason {
			x.finish(cachedDead)
			return nil, r, true
		}
		x.hold()
		return x, frame.NoReason, true
	}
	if !s.redis.Start(x) {
		s.tell(x.refused(frame.StateStoreUnavailable), frame.StateStoreUnavailable)
		return nil, frame.StateStoreUnavailable, true
	}
	return nil, frame.NoReason, false
}

// makeRoom lets go of a pair of a client's, if too many are kept: Redis has it.
// The shard is locked.
func (s *CachedPairs) makeRoom(c *cachedClient) {
	if s.pairs.Load() < cachedMost {
		return
	}
	for _, p := range c.pairs {
		if p.use == cachedFree {
			s.removePair(c, p)
			return
		}
	}
}

// Prepare implements Task.
func (x *cachedTake) Prepare() (*Script, []string, []string) {
	keys, id := []string{x.c.v.key(x.c.key.ID)}, hexID(x.p.id)
	own, timeout := millis(ownTime), millis(x.s.limits.Timeout)
	switch {
	case x.state == takenSaving:
		fresh := x.c.v.seal(x.c.key.ID, x.p.id, x.p.version+1, bytes.Clone(x.newEncoder), bytes.Clone(x.newDecoder))
		return storeScript, keys, []string{x.c.token, id, own, timeout, versionText(x.p.version), fresh}
	case x.begin:
		return beginScript, keys, []string{x.c.token, id, own, timeout, "1"}
	default:
		return ownScript, keys, []string{x.c.token, id, own, timeout, "0"}
	}
}

// Answer implements Task.
func (x *cachedTake) Answer(m rueidis.RedisMessage, o Outcome) {
	first, second := "", ""
	if o == Answered {
		first, second = word(m)
	}
	if x.state == takenSaving {
		x.state = takenOver
		x.waiter.OnReleased(x.saved(first))
		return
	}
	if x.begin && o == Unknown {
		x.s.disown(x.c, func(Outcome) {}) // if it began after all
	}
	r := x.took(first, second, o)
	switch {
	case first == "lost": // another node was here: what is kept is old
		x.lose()
		return
	case first != "taken" && second != "leased":
		waiting := x.refused(r)
		if r == frame.NotOwner || r == frame.StateStoreUnavailable {
			x.s.tell(waiting, r)
		} else {
			x.s.takeAgain(waiting) // they may ask for another pair
		}
	default:
		waiting, over := x.leased()
		x.s.takeAgain(waiting)
		switch {
		case over != frame.NoReason:
			r = over
			x.drop()
		case r == frame.DecoderRestoreFailed || r == frame.EncoderRestoreFailed:
			x.finish(cachedDead)
		case r != frame.NoReason:
			x.drop()
		default:
			x.hold()
			x.waiter.OnTaken(x, r)
			return
		}
	}
	x.state = takenOver
	x.waiter.OnTaken(nil, r)
}

// took reads the answer to a take and has both ends keyed.
func (x *cachedTake) took(first, second string, o Outcome) frame.Reason {
	switch {
	case o != Answered:
		return frame.StateStoreUnavailable
	case first == "lost", first == "owned":
		return frame.NotOwner
	case first == "busy":
		return frame.PairBusy
	case first == "missing":
		return frame.PairNotFound
	case first == "nobody":
		return frame.InvalidClientID
	case first != "taken":
		x.s.redis.Odd(ownScript)
		return frame.StateStoreUnavailable
	}
	if x.p.encoder == nil { // else what is kept is the same, or newer
		var ok bool
		x.p.version, x.p.encoder, x.p.decoder, ok = x.c.v.open(x.c.key.ID, x.p.id, second)
		if !ok {
			return frame.DecoderRestoreFailed
		}
	}
	return x.restore()
}

// restore keys both ends from the states that are kept.
func (x *cachedTake) restore() frame.Reason {
	codec := x.s.codec
	x.encoder, x.decoder = codec.Encoder(x.typ), codec.Decoder(x.typ)
	encoder, decoder := x.encoder.Restore(x.p.encoder), x.decoder.Restore(x.p.decoder)
	switch {
	case decoder != nil:
		x.putInstances()
		return frame.DecoderRestoreFailed
	case encoder != nil:
		x.putInstances()
		return frame.EncoderRestoreFailed
	}
	return frame.NoReason
}

func (x *cachedTake) putInstances() {
	if x.encoder != nil {
		x.s.codec.PutEncoder(x.encoder)
		x.s.codec.PutDecoder(x.decoder)
		x.encoder, x.decoder = nil, nil
	}
}

// hold begins the holder's time.
func (x *cachedTake) hold() {
	x.state = takenHeld
	x.s.inUse.Add(1)
}

// leased notes that the client's lease holds from when this call began, and tells
// who waited for that, and whether it is over already, or the pair was dropped.
func (x *cachedTake) leased() (waiting []waitingTake, over frame.Reason) {
	c := x.c
	c.shard.mu.Lock()
	defer c.shard.mu.Unlock()
	if c.state == ownGone {
		return nil, frame.StateStoreUnavailable
	}
	c.extend(x.begun)
	if c.state == ownAsking {
		c.state = ownLeased
		waiting, c.waiting = c.waiting, nil
	}
	x.p.touched = x.begun
	x.p.use = cachedInUse
	if x.p.dropped {
		over = frame.PairNotFound
	}
	return waiting, over
}

// refused ends a take that got no pair. If it was to begin the lease the client
// goes, and who waited for that is returned.
func (x *cachedTake) refused(r frame.Reason) (waiting []waitingTake) {
	x.state = takenOver
	if x.begin {
		x.c.shard.mu.Lock()
		waiting = x.s.forgetClient(x.c)
		x.c.shard.mu.Unlock()
	}
	if r == frame.StateStoreUnavailable && x.p.encoder != nil {
		x.finish(cachedFree) // it is as it was
	} else {
		x.drop()
	}
	return waiting
}

// lose forgets a client that another node has had, and asks for it again.
func (x *cachedTake) lose() {
	x.c.shard.mu.Lock()
	waiting := x.s.forgetClient(x.c)
	x.c.shard.mu.Unlock()
	x.p.wipe()
	x.s.takeAgain(append(waiting, waitingTake{x, x.p.id}))
}

// finish gives the pair back to its client, as free or dead. One that a keepalive
// dropped meanwhile is dead: Redis may not have heard of that, and has an older
// state of it.
func (x *cachedTake) finish(use cachedUse) {
	x.putInstances()
	c := x.c
	c.shard.mu.Lock()
	defer c.shard.mu.Unlock()
	c.inUse--
	switch {
	case c.state == ownGone:
		x.s.removePair(c, x.p)
	case use == cachedDead || x.p.dropped: // the keepalive may have failed
		x.p.wipe()
		x.p.use = cachedDead
		x.s.delete(c, x.p, x.begun)
	default:
		x.p.use = use
	}
}

// drop removes it.
func (x *cachedTake) drop() {
	x.putInstances()
	x.c.shard.mu.Lock()
	defer x.c.shard.mu.Unlock()
	x.c.inUse--
	x.s.removePair(x.c, x.p)
}

// Encoder implements Lease.
func (x *cachedTake) Encoder() open.Encoder { return x.encoder }

// Decoder implements Lease.
func (x *cachedTake) Decoder() open.Decoder { return x.decoder }

// Held implements Lease.
func (x *cachedTake) Held(now int64) bool { return x.c.holds(now) }

// end ends the holder's time.
func (x *cachedTake) end() {
	if x.state != takenHeld {
		panic("BUG: store: a pair is given back twice")
	}
	x.state = takenOver
	x.s.inUse.Add(-1)
}

// Release implements Lease: an unused pair is as it was, a used one is written
// through.
func (x *cachedTake) Release(now int64, used bool, w Waiter) (frame.Reason, bool) {
	x.end()
	x.c.shard.mu.Lock()
	dropped := x.p.dropped
	x.c.shard.mu.Unlock()
	if !used || dropped {
		x.finish(cachedFree)
		return frame.NoReason, true
	}
	x.newEncoder, x.newDecoder = x.encoder.AppendState(nil), x.decoder.AppendState(nil)
	x.putInstances()
	x.state, x.waiter, x.begun = takenSaving, w, now
	if !x.s.redis.Start(x) {
		x.state = takenOver
		x.saved("")
		return frame.StateStoreWriteFailed, true
	}
	return frame.NoReason, false
}

// saved takes the answer to a save, empty if there is none.
func (x *cachedTake) saved(first string) frame.Reason {
	defer func() {
		clear(x.newEncoder)
		clear(x.newDecoder)
	}()
	switch first {
	case "saved":
		x.p.wipe()
		x.p.encoder, x.p.decoder = bytes.Clone(x.newEncoder), bytes.Clone(x.newDecoder)
		x.p.version++
		x.p.touched = x.begun
		x.c.extend(x.begun)
		x.finish(cachedFree)
		return frame.NoReason
	case "gone":
		x.drop()
	case "lost":
		x.c.shard.mu.Lock()
		waiting := x.s.forgetClient(x.c)
		x.c.shard.mu.Unlock()
		x.drop()
		x.s.takeAgain(waiting)
	default:
		x.finish(cachedDead)
	}
	return frame.StateStoreWriteFailed
}

// Retire implements Lease.
func (x *cachedTake) Retire() {
	x.end()
	x.finish(cachedDead)
}

// A waitingTake is one that waits until it is known whose the client is.
type waitingTake struct {
	x  *cachedTake
	id frame.PairID
}

// takeAgain has those who waited try again.
func (s *CachedPairs) takeAgain(waiting []waitingTake) {
	for _, w := range waiting {
		*w.x = cachedTake{s: s, key: w.x.key, typ: w.x.typ, waiter: w.x.waiter, begun: w.x.begun}
		if l, r, ok := s.take(w.x, w.id); ok {
			w.x.waiter.OnTaken(l, r)
		}
	}
}

// tell refuses those who waited.
func (s *CachedPairs) tell(waiting []waitingTake, r frame.Reason) {
	for _, w := range waiting {
		w.x.state = takenOver
		w.x.waiter.OnTaken(nil, r)
	}
}
