package store

import (
	"fmt"
	"testing"
	"time"
)

// TestHangingMaster: a third of the parts have a master that hangs. The sessions of
// the others go on, whether that costs each call a little or all its time.
func TestHangingMaster(t *testing.T) {
	t.Parallel()
	for _, cost := range []time.Duration{200 * time.Millisecond, 5 * time.Second} {
		f, ns := fakeFleet(t, 1, func(c *OwnerConfig) { c.OpTimeout = cost })
		n := ns[0]
		hung := func(tag int) bool { return tag%3 == 0 }
		healthy := map[*Tenure]bool{}
		for i := range 1000 {
			if ten := n.own(fmt.Sprint(i)); !hung(ownerTag(ten.id)) {
				healthy[ten] = true
			}
		}
		pass(f, 20*time.Second, n)
		n.hung = hung
		pass(f, time.Minute, n)
		if len(n.gone) != 1000-len(healthy) {
			t.Errorf("calls of %v: %d sessions ended, %d have a master that hangs", cost, len(n.gone), 1000-len(healthy))
		}
		for _, ten := range n.gone {
			if healthy[ten] {
				t.Fatalf("calls of %v: a session ended whose master answers", cost)
			}
		}
		n.hung = nil
		for i := range 1000 {
			if c := n.claim(fmt.Sprint(i)); c.Verdict != Owned {
				t.Fatalf("calls of %v: verdict %d when all masters answer again", cost, c.Verdict)
			}
		}
	}
}
