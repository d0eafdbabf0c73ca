package store

import (
	"sync/atomic"

	"github.com/redis/rueidis"

	"sluice/codec/frame"
	"sluice/codec/open"
)

type takenState uint8

const (
	// takenAsking: Redis was asked for the pair. Leaves to takenHeld or
	// takenOver.
	takenAsking takenState = iota
	// takenHeld: the holder uses the instances. Leaves to takenSaving with
	// Release, to takenOver with Retire.
	takenHeld
	// takenSaving: the state is on its way. Leaves to takenOver.
	takenSaving
	takenOver
)

// A takenPair is a pair that one request of this node holds, from the call that
// asks for it. It belongs to whoever has to act next: the client's goroutine while
// Redis is asked, the holder's loop between. What renewal touches is atomic.
type takenPair struct {
	store  *RedisPairs
	v      *vault
	client frame.ClientID
	pair   frame.PairID
	typ    open.Type
	token  string // of the lock
	waiter Waiter

	state   takenState
	version uint64 // of the state that was taken
	used    bool   // of Release
	encoder open.Encoder
	decoder open.Decoder

	locked   atomic.Int64 // when the lock was asked for that surely holds
	lost     atomic.Bool  // another has it, or it has ended
	renewing atomic.Bool

	next, prev *takenPair // guarded by RedisPairs.mu
}

// Take implements Pairs.
func (s *RedisPairs) Take(c Client, id frame.PairID, t open.Type, now int64, w Waiter) (Lease, frame.Reason, bool) {
	v := s.vault(c.Domain)
	if v == nil {
		return nil, frame.InvalidClientID, true
	}
	l := &takenPair{store: s, v: v, client: c.ID, pair: id, typ: t, waiter: w}
	l.locked.Store(now)
	if !s.redis.Start(l) {
		return nil, frame.StateStoreUnavailable, true
	}
	return nil, frame.NoReason, false
}

// Prepare implements Task.
func (l *takenPair) Prepare() (*Script, []string, []string) {
	keys, timeout := []string{l.v.key(l.client)}, millis(l.store.limits.Timeout)
	switch l.state {
	case takenAsking:
		l.token = newToken()
		return takeScript, keys, []string{l.token, hexID(l.pair), millis(lockTime), timeout}
	case takenSaving:
		fresh := ""
		if l.used {
			fresh = l.v.seal(l.client, l.pair, l.version+1, l.encoder.AppendState(nil), l.decoder.AppendState(nil))
		}
		l.putInstances()
		return saveScript, keys, []string{l.token, hexID(l.pair), timeout, versionText(l.version), fresh}
	}
	panic("BUG: store: a lease has nothing to ask")
}

// Answer implements Task.
func (l *takenPair) Answer(m rueidis.RedisMessage, o Outcome) {
	switch l.state {
	case takenAsking:
		if r := l.took(m, o); r != frame.NoReason {
			l.state = takenOver
			l.waiter.OnTaken(nil, r)
			return
		}
		l.state = takenHeld
		l.store.enter(l)
		l.waiter.OnTaken(l, frame.NoReason)
	case takenSaving:
		l.state = takenOver
		l.waiter.OnReleased(l.saved(m, o))
	default:
		panic("BUG: store: an answer nobody asked for")
	}
}

// took reads the answer to a take.
func (l *takenPair) took(m rueidis.RedisMessage, o Outcome) frame.Reason {
	switch o {
	case NotExecuted:
		return frame.StateStoreUnavailable
	case Unknown:
		// If it is locked it was not used: unlock it. If that comes to nothing,
		// the pair ends with its lock.
		l.store.redis.Call(saveScript, []string{l.v.key(l.client)},
			[]string{l.token, hexID(l.pair), millis(l.store.limits.Timeout), "", ""}, func(rueidis.RedisMessage, Outcome) {})
		return frame.StateStoreUnavailable
	}
	switch first, second := word(m); first {
	case "taken":
		r := l.restore(second)
		if r != frame.NoReason {
			l.store.forget(l.v, l.client, l.token, l.pair)
		}
		return r
	case "busy":
		return frame.PairBusy
	case "owned":
		return frame.NotOwner
	case "missing":
		return frame.PairNotFound
	case "nobody":
		return frame.InvalidClientID
	}
	l.store.redis.Odd(takeScript)
	return frame.StateStoreUnavailable
}

// restore keys both ends from a sealed state.
func (l *takenPair) restore(sealed string) frame.Reason {
	version, encoder, decoder, ok := l.v.open(l.client, l.pair, sealed)
	if !ok {
		return frame.DecoderRestoreFailed
	}
	l.version = version
	l.encoder, l.decoder = l.store.codec.Encoder(l.typ), l.store.codec.Decoder(l.typ)
	encoderErr, decoderErr := l.encoder.Restore(encoder), l.decoder.Restore(decoder)
	clear(encoder)
	clear(decoder)
	switch {
	case decoderErr != nil:
		l.putInstances()
		return frame.DecoderRestoreFailed
	case encoderErr != nil:
		l.putInstances()
		return frame.EncoderRestoreFailed
	}
	return frame.NoReason
}

func (l *takenPair) putInstances() {
	l.store.codec.PutEncoder(l.encoder)
	l.store.codec.PutDecoder(l.decoder)
	l.encoder, l.decoder = nil, nil
}

// enter and leave keep the list of pairs in use.
func (s *RedisPairs) enter(l *takenPair) {
	s.inUse.Add(1)
	s.mu.Lock()
	defer s.mu.Unlock()
	l.prev, l.next = s.taken.prev, &s.taken
	l.prev.next, l.next.prev = l, l
}

func (s *RedisPairs) leave(l *takenPair) {
	if l.state != takenHeld {
		panic("BUG: store: a pair is given back twice")
	}
	s.inUse.Add(-1)
	s.mu.Lock()
	defer s.mu.Unlock()
	l.next.prev, l.prev.next = l.prev, l.next
	l.next, l.prev = nil, nil
}

// Encoder implements Lease.
func (l *takenPair) Encoder() open.Encoder { return l.encoder }

// Decoder implements Lease.
func (l *takenPair) Decoder() open.Decoder { return l.decoder }

// Held implements Lease.
func (l *takenPair) Held(now int64) bool {
	return now-l.locked.Load() < int64(lockTime-lockMargin) && !l.lost.Load()
}

// renew asks for another lockTime.
func (l *takenPair) renew(now int64) {
	begun := l.store.redis.Call(renewScript, []string{l.v.key(l.client)},
		[]string{l.token, hexID(l.pair), millis(lockTime), millis(l.store.limits.Timeout)},
		func(m rueidis.RedisMessage, o Outcome) {
			if o == Answered {
				if first, _ := word(m); first == "renewed" {
					l.locked.Store(now)
				} else {
					l.lost.Store(true)
				}
			}
			l.renewing.Store(false)
		})
	if !begun {
		l.renewing.Store(false)
	}
}

// Release implements Lease.
func (l *takenPair) Release(_ int64, used bool, w Waiter) (frame.Reason, bool) {
	l.store.leave(l)
	l.state, l.used, l.waiter = takenSaving, used, w
	if !l.store.redis.Start(l) {
		l.state = takenOver
		l.putInstances()
		return frame.StateStoreWriteFailed, true
	}
	return frame.NoReason, false
}

// saved reads the answer to a save.
func (l *takenPair) saved(m rueidis.RedisMessage, o Outcome) frame.Reason {
	if o == Answered {
		switch first, _ := word(m); first {
		case "saved":
			return frame.NoReason
		case "gone":
			return frame.StateStoreWriteFailed
		}
		l.store.redis.Odd(saveScript)
	}
	l.store.forget(l.v, l.client, l.token, l.pair)
	return frame.StateStoreWriteFailed
}

// Retire implements Lease. If Redis cannot be told, the pair ends with its lock.
func (l *takenPair) Retire() {
	l.store.leave(l)
	l.state = takenOver
	l.putInstances()
	l.store.forget(l.v, l.client, l.token, l.pair)
}
