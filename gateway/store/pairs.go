package store

import (
	"sluice/codec/frame"
	"sluice/codec/open"
)

// A Client holds pairs. It belongs to one domain: the same id under another is
// another client.
type Client struct {
	Domain string // its key in DOMAIN_MAP
	ID     frame.ClientID
}

// A NewPair is a pair to be stored: the initial states of its two directions.
// They are secret and the store's from Add on, which wipes them in the end.
type NewPair struct {
	ID      frame.PairID
	Encoder []byte
	Decoder []byte
}

// Pairs keeps the state of the clients' pairs (contract, mte-relay §6 and §8). A
// pair lives for the session timeout from its last use or keepalive.
//
// What must be atomic, each a single step that nobody can look into:
//
//   - Take: find the pair, see that it is free, lock it, read both states;
//   - Lease.Release: write both states and unlock;
//   - Lease.Retire: delete and unlock;
//   - Add: see that no id exists, that the client stays within its limit, that
//     there is room, and store all of them;
//   - Keepalive: delete the dropped ones and refresh the others.
//
// No state ever goes back to an older one: an encoder would use a sequence
// number twice.
//
// Methods may be called from anywhere and never block. One whose answer is known
// at once returns it with ok true. Otherwise ok is false and the answer comes
// later, once, from any goroutine. now is the loops' clock. Reasons are those of
// the registry; NoReason is success.
type Pairs interface {
	// Add stores all pairs of one call or none: PairExists, PairLimit,
	// PoolExhausted, StateStoreUnavailable.
	Add(c Client, pairs []NewPair, now int64, later func(frame.Reason)) (r frame.Reason, ok bool)

	// Take locks a pair for one request, with both ends keyed for t:
	// InvalidClientID (the client has no pair here), PairNotFound, PairBusy,
	// NotOwner, DecoderRestoreFailed, EncoderRestoreFailed,
	// StateStoreUnavailable. A later answer goes to w.OnTaken.
	Take(c Client, id frame.PairID, t open.Type, now int64, w Waiter) (l Lease, r frame.Reason, ok bool)

	// Keepalive deletes the pairs of drop that exist, refreshes the client's
	// others and tells how many those are. A pair in use that is dropped goes
	// when its request ends. NotOwner, StateStoreUnavailable.
	Keepalive(c Client, drop []frame.PairID, now int64, later func(touched int, r frame.Reason)) (touched int, r frame.Reason, ok bool)

	// SetDomains tells which domains there are from now on, and their secrets, from
	// which a shared store derives what its states are encrypted under. Call it
	// before the first pair.
	SetDomains(secrets map[string]string)

	// Tidy forgets what has expired. Call it about once a second.
	Tidy(now int64)

	// Count is how many pairs are held, InUse how many of them carry a request;
	// of a shared store, by this node.
	Count() int64
	InUse() int64

	// Close gives back what others wait for. Call it when nothing is in use.
	Close()

	// Shared tells whether other nodes see the same pairs.
	Shared() bool
}

// A Waiter asked for a pair, or gave one back, and was not answered at once. It is
// called from any goroutine.
type Waiter interface {
	OnTaken(l Lease, r frame.Reason)
	OnReleased(r frame.Reason)
}

// A Lease is a pair that one request holds. Exactly one of Release and Retire
// ends it; nothing of it may be used afterwards.
type Lease interface {
	Encoder() open.Encoder
	Decoder() open.Decoder

	// Held reports whether the lock surely still holds at now. A holder asks
	// before every codec operation, and retires the pair when it does not.
	Held(now int64) bool

	// Release saves both states and unlocks the pair; used tells whether the
	// pair did something, and so lives on from now. If it is not answered at
	// once, w.OnReleased will be. StateStoreWriteFailed: the pair is gone.
	Release(now int64, used bool, w Waiter) (r frame.Reason, ok bool)

	// Retire deletes the pair.
	Retire()
}
