package store

import (
	"math"
	"sync/atomic"
)

// A Tenure is this node's ownership of one serverId, from a claim that was won
// to the end of it. Who claims again later gets another tenure.
//
// Its methods may be called from anywhere. Held is one atomic load: it is asked
// on the path of every frame.
type Tenure struct {
	// until is when the lease may have ended, in the loops' nanoseconds. It grows
	// with every renewal, is given up (0) once the node has, and gone (-1) once it
	// has been lost.
	until atomic.Int64

	owner *RedisOwnership // nil: the local store's
	id    string
	lease lease // guarded by the shard that id belongs to
}

// localTenure is what a node without a fleet owns everything by.
var localTenure = func() *Tenure {
	t := new(Tenure)
	t.until.Store(math.MaxInt64)
	return t
}()

const (
	givenUp = 0
	gone    = -1
)

// ServerID returns what is owned. It is empty for a node without a fleet.
func (t *Tenure) ServerID() string { return t.id }

// Token returns the fencing token, which no other tenure of any node has; of one
// that Redis had forgotten and that was taken again it is another than before.
func (t *Tenure) Token() string {
	if t.owner == nil {
		return ""
	}
	return t.owner.token(t)
}

// Held reports whether nobody else can own the serverId at now.
func (t *Tenure) Held(now int64) bool { return now < t.until.Load() }

// Lost reports whether another node may own the serverId at now, although this
// one did not give it up.
func (t *Tenure) Lost(now int64) bool {
	until := t.until.Load()
	return until != givenUp && now >= until
}

// Attach says that a socket that had claimed has attached. It reports false if
// the claim has ended meanwhile.
func (t *Tenure) Attach() bool { return t.owner == nil || t.owner.attach(t) }

// Drop says that what had claimed does not attach. A claim that had no other
// use ends at once.
func (t *Tenure) Drop() {
	if t.owner != nil {
		t.owner.drop(t)
	}
}

// Release says that the last socket has left: the claim lives 30 s beyond, or
// ends at once while the node drains.
func (t *Tenure) Release() {
	if t.owner != nil {
		t.owner.release(t)
	}
}

// GiveUp ends the claim, sockets or not. It reports true if another node can have
// it now, and otherwise calls done, once, from any goroutine, when one can or the
// store could not be told.
func (t *Tenure) GiveUp(done func()) (ok bool) { return t.owner == nil || t.owner.giveUp(t, done) }
