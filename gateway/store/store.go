// Package store keeps what nodes share: who owns a serverId, and the state of
// pairs. The local and the memory store serve a node that stands alone.
package store

// Verdict says who owns a serverId.
type Verdict uint8

const (
	// Unavailable: the store cannot be asked.
	Unavailable Verdict = iota
	// Owned: by this node, as the tenure that comes with the verdict.
	Owned
	// Elsewhere: by the node whose target comes with the verdict.
	Elsewhere
	// BelowFloor: nobody's, and fewer nodes are alive than MIN_CLUSTER_SIZE asks for.
	BelowFloor
	// Draining: nobody's, and this node takes nothing new.
	Draining
	// Nobody: nobody's, and it was only asked. Claim says so of a look alone.
	Nobody
)

// Claim is the answer to a claim of a serverId.
type Claim struct {
	Verdict Verdict
	Target  string  // with Elsewhere: the owner's opaque target
	Tenure  *Tenure // with Owned: to be attached to or dropped, once per claim
}

// Ownership decides which node serves a serverId. Contract, relay §7. What must
// be atomic: of all nodes that claim an unowned serverId at once, exactly one
// gets it. Its methods may be called from anywhere and never block, Close apart.
type Ownership interface {
	// Start begins the work in the background. lost is called, from any
	// goroutine, with every tenure that ended although it may have sockets.
	Start(lost func(*Tenure))
	// Claim takes serverID for this node unless another has it. It returns the
	// answer at once when it is known here (ok), and otherwise calls later, once,
	// from any goroutine. A claim that no socket attaches to lives 5 s. With look it
	// does not take what nobody has: the node has no room for it. What is this node's
	// already, or is just being claimed for another, is Owned for a look, too.
	Claim(serverID string, look bool, later func(Claim)) (c Claim, ok bool)
	// Drain says whether the node drains: it takes nothing new then, and gives a
	// claim up with its last socket.
	Drain(on bool)
	// Abandon gives every claim up, sockets or not: the node is about to fail.
	Abandon()
	// Ready reports whether new sessions can be claimed, and if not, why.
	Ready() (ok bool, why Verdict)
	// Nodes returns how many nodes are alive, this one included.
	Nodes() int
	// Close gives up what is left, for at most about a second, and ends the work
	// in the background.
	Close()
}

// Local owns everything: the store of a node without a fleet. The zero value is
// ready. The time that a claim outlives its sockets means nothing here, since
// nobody else could take it.
type Local struct{}

// Start does nothing.
func (Local) Start(func(*Tenure)) {}

// Claim always succeeds.
func (Local) Claim(string, bool, func(Claim)) (Claim, bool) {
	return Claim{Verdict: Owned, Tenure: localTenure}, true
}

// Drain does nothing.
func (Local) Drain(bool) {}

// Abandon does nothing.
func (Local) Abandon() {}

// Ready is always true.
func (Local) Ready() (bool, Verdict) { return true, Owned }

// Nodes returns 1.
func (Local) Nodes() int { return 1 }

// Close does nothing.
func (Local) Close() {}
