package store

import (
	"errors"
	"net"
)

const (
	// guardBytes is the longest string an answer may hold, guardElements the most
	// elements of a list: far above anything of ours.
	guardBytes    = 16 << 20
	guardElements = 1 << 20
	// guardDepth is how deep lists may lie in each other, guardLine how long the
	// first line of a value may be.
	guardDepth = 8
	guardLine  = 64 << 10
)

var errNonsense = errors.New("what was read is no answer of Redis")

// A guard is a connection whose answers are looked at before the library sees
// them. That takes lengths for what they say and panics on an answer that nobody
// asked for, so that whoever answers on Redis's port could end the process. It is
// written and read by one goroutine each.
type guard struct {
	net.Conn
	asked  scanner // what is written
	answer scanner // what is read
}

// Write counts the commands.
func (g *guard) Write(b []byte) (int, error) {
	g.asked.scan(b) // before: the answer may be quick
	return g.Conn.Write(b)
}

// Read lets answers through, until there is one too many or one that is none.
func (g *guard) Read(b []byte) (int, error) {
	n, err := g.Conn.Read(b)
	if n > 0 && (!g.answer.scan(b[:n]) || g.answer.values.Load() > g.asked.values.Load()) {
		return 0, errNonsense
	}
	return n, err
}
