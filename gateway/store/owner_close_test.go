package store

import "testing"

// TestCloseReleasesBehindRenewals: a renewal that is under way, with a part whose
// master hangs, leaves no lease of another part behind a node that closes.
func TestCloseReleasesBehindRenewals(t *testing.T) {
	t.Parallel()
	f, ns := fakeFleet(t, 2)
	n := ns[0]
	n.own("x")
	n.own("y")
	if ownerTag("x") == ownerTag("y") {
		t.Fatal("the two are of one part")
	}
	n.hung = func(tag int) bool { return tag == ownerTag("x") }
	closed := false
	n.held = func() { closed = true; n.Close() }
	f.now += int64(n.cfg.Times.Renew)
	n.renew()
	if !closed {
		t.Fatal("nothing was renewed")
	}
	if v, there := f.get("y"); there {
		t.Errorf("the node has left %q", v)
	}
	ns[1].wantVerdict("y", Owned)
	ns[1].wantVerdict("x", Elsewhere) // its master could not be told
}
