package store

import "testing"

// TestLook: who has no room for a session leaves it to the others, and is told all
// the same whose it is.
func TestLook(t *testing.T) {
	f, ns := fakeFleet(t, 2)
	look := func(n *fakeNode, want Verdict) Claim {
		t.Helper()
		var c Claim
		if _, ok := n.Claim("a", true, func(later Claim) { c = later }); ok {
			t.Fatal("answered without Redis")
		}
		n.settle()
		if _, there := f.get("a"); there != (want == Elsewhere) {
			t.Error("a look took the session")
		}
		if c.Verdict != want || (c.Tenure != nil) != (want == Owned) {
			t.Fatalf("verdict %d, want %d", c.Verdict, want)
		}
		return c
	}
	look(ns[0], Nobody)
	if len(f.keys) != 0 || len(ns[0].shardOf("a").tenures) != 0 {
		t.Error("something is left of a look")
	}
	ten := ns[1].own("a")
	if c := look(ns[0], Elsewhere); c.Target != "target-1" {
		t.Errorf("target %q", c.Target)
	}
	// What is the node's own is found without asking.
	if c, ok := ns[1].Claim("a", true, nil); !ok || c.Verdict != Owned || c.Tenure != ten {
		t.Errorf("its own: %+v %v", c, ok)
	}
	ns[0].Drain(true)
	ns[0].wantVerdict("b", Draining)
	var c Claim
	ns[0].Claim("b", true, func(later Claim) { c = later })
	ns[0].settle()
	if c.Verdict != Draining {
		t.Errorf("while it drains: verdict %d", c.Verdict)
	}
}

// TestLookAndClaim: of two who wait for one answer, one looks and one claims.
func TestLookAndClaim(t *testing.T) {
	_, ns := fakeFleet(t, 1)
	var looked, claimed Claim
	ns[0].Claim("a", true, func(c Claim) { looked = c })
	ns[0].Claim("a", false, func(c Claim) { claimed = c })
	ns[0].settle()
	if looked.Verdict != Owned || claimed.Verdict != Owned || looked.Tenure != claimed.Tenure {
		t.Fatalf("verdicts %d and %d", looked.Verdict, claimed.Verdict)
	}
	looked.Tenure.Drop()
	if !claimed.Tenure.Attach() {
		t.Error("the claim went with the look")
	}
	if n := ns[0].asking.Load(); n != 0 {
		t.Errorf("%d claims wait", n)
	}
}

// TestDrainTakenBack while a claim is under way: it is made then.
func TestDrainTakenBack(t *testing.T) {
	_, ns := fakeFleet(t, 1)
	ns[0].Drain(true)
	ns[0].held = func() { ns[0].Drain(false) }
	ns[0].wantVerdict("a", Owned)
	if n := ns[0].asking.Load(); n != 0 {
		t.Errorf("%d claims wait", n)
	}
}

// TestLookLate: a look that Redis executes once more, behind the claim that followed
// it, leaves the claim alone; one that finds a claim whose answer was lost removes it.
func TestLookLate(t *testing.T) {
	f, ns := fakeFleet(t, 2)
	n := ns[0]
	n.Claim("a", true, func(Claim) {})
	n.settle()
	first := &leaseBatch{op: n.last.op, ids: n.last.ids, tokens: n.last.tokens}
	ten := n.own("a")
	f.do(first, n.node, "target-0", DefaultOwnerTimes.Lease)
	if c := ns[1].wantVerdict("a", Elsewhere); c.Target != "target-0" {
		t.Errorf("target %q", c.Target)
	}
	wantHeld(t, "the claim", ten, f.now, true)
	n.mute = true
	n.wantVerdict("b", Unavailable)
	n.mute = false
	n.Claim("b", true, func(Claim) {})
	n.settle()
	ns[1].wantVerdict("b", Owned)
}
