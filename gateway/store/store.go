// Package store keeps what nodes share: who owns a serverId. The local store
// serves a node that stands alone.
package store

// Verdict says who owns a serverId.
type Verdict uint8

const (
	// Owned: by this node; the claim is held until Release.
	Owned Verdict = iota
	// Elsewhere: by the node whose target comes with the verdict.
	Elsewhere
	// Unavailable: the store cannot be asked.
	Unavailable
	// BelowFloor: fewer nodes are alive than MIN_CLUSTER_SIZE asks for.
	BelowFloor
)

// Claim is the answer to a claim of a serverId.
type Claim struct {
	Verdict Verdict
	Target  string // with Elsewhere: the owner's opaque target
}

// Ownership decides which node serves a serverId. Contract, relay §7. What must
// be atomic: of all nodes that claim an unowned serverId at once, exactly one
// gets it. Its methods may be called from anywhere and never block.
type Ownership interface {
	// Claim takes serverID for this node unless another has it. It returns the
	// answer at once when it is known here (ok), and otherwise calls later, once,
	// from any goroutine. A claim that no socket attaches to lives 5 s.
	Claim(serverID string, later func(Claim)) (c Claim, ok bool)
	// Release says that the last socket of serverID has left: the claim lives
	// 30 s beyond, or ends at once while draining.
	Release(serverID string)
	// Drain says whether the node drains.
	Drain(on bool)
	// Abandon gives every claim up, sockets or not: the node is about to fail.
	Abandon()
	// Ready reports whether new sessions can be claimed, and if not, why.
	Ready() (ok bool, why Verdict)
	// Nodes returns how many nodes are alive, this one included.
	Nodes() int
}

// Local owns everything: the store of a node without a fleet. The zero value is
// ready. The time that a claim outlives its sockets means nothing here, since
// nobody else could take it.
type Local struct{}

// Claim always succeeds.
func (Local) Claim(string, func(Claim)) (Claim, bool) { return Claim{Verdict: Owned}, true }

// Release does nothing.
func (Local) Release(string) {}

// Drain does nothing.
func (Local) Drain(bool) {}

// Abandon does nothing.
func (Local) Abandon() {}

// Ready is always true.
func (Local) Ready() (bool, Verdict) { return true, Owned }

// Nodes returns 1.
func (Local) Nodes() int { return 1 }
