package store

import (
	"fmt"
	"testing"
	"time"
)

// TestHangingMaster: a third of the parts have a master that hangs. The sessions of
// the others go on, whether that costs each call a little or all its time, and
// however many scripts a part takes.
func TestHangingMaster(t *testing.T) {
	t.Parallel()
	f := func(sessions int, cost time.Duration) {
		f, ns := fakeFleet(t, 1, func(c *OwnerConfig) { c.OpTimeout = cost })
		n := ns[0]
		hung := func(tag int) bool { return tag%3 == 0 }
		healthy := map[*Tenure]bool{}
		for i := range sessions {
			if ten := n.own(fmt.Sprint(i)); !hung(ownerTag(ten.id)) {
				healthy[ten] = true
			}
		}
		pass(f, 9*time.Second, n) // each part is renewed once
		n.hung = hung
		pass(f, 40*time.Second, n)
		if len(n.gone) != sessions-len(healthy) {
			t.Errorf("%d sessions, calls of %v: %d ended, %d have a master that hangs", sessions, cost, len(n.gone), sessions-len(healthy))
		}
		for _, ten := range n.gone {
			if healthy[ten] {
				t.Fatalf("%d sessions, calls of %v: one ended whose master answers", sessions, cost)
			}
		}
		n.hung = nil
		for i := range 1000 {
			if c := n.claim(fmt.Sprint(i)); c.Verdict != Owned {
				t.Fatalf("%d sessions, calls of %v: verdict %d when all masters answer again", sessions, cost, c.Verdict)
			}
		}
	}
	f(1000, 200*time.Millisecond)
	f(1000, 5*time.Second)
	// More scripts than are sent at once.
	f(20000, 5*time.Second)
}
