package gateway_test

import (
	"testing"
	"time"
)

// The age of the oldest blocked delivery is that of the message which waits, and
// is gone with it.
func TestOldestBlocked(t *testing.T) {
	n := startNode(t, smallSend)
	if age := n.g.Relay().OldestBlocked(); age != 0 {
		t.Errorf("%v with nobody there", age)
	}
	began := time.Now()
	s, c := n.v1pair(smallBuffers)
	c.raw(frameHead(opBin, true, 8<<20, true), make([]byte, 8<<20))
	n.untilBlocked(1)
	first := n.g.Relay().OldestBlocked()
	if first <= 0 || first > time.Since(began) {
		t.Errorf("%v after %v", first, time.Since(began))
	}
	n.until("it grows older", func() bool { return n.g.Relay().OldestBlocked() > first })
	s.want(opBin, make([]byte, 8<<20))
	n.untilBlocked(0)
	if age := n.g.Relay().OldestBlocked(); age != 0 {
		t.Errorf("%v when nothing is blocked any more", age)
	}
}
