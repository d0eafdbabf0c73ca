package store

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"
)

// TestClaimHasOneOwner: the first gets it and the others learn its target; who
// has it needs no Redis to say so.
func TestClaimHasOneOwner(t *testing.T) {
	f, ns := fakeFleet(t, 3)
	ten := ns[0].own("a")
	for _, n := range ns[1:] {
		if c := n.wantVerdict("a", Elsewhere); c.Target != "target-0" {
			t.Errorf("target %q", c.Target)
		}
	}
	calls := f.calls
	if again := ns[0].wantVerdict("a", Owned).Tenure; again != ten || !again.Attach() {
		t.Error("another tenure for the same claim")
	}
	if f.calls != calls {
		t.Error("Redis was asked for what the node knows")
	}
}

// TestClaimsGather: what is asked for at once goes in few scripts, and claims of
// one serverId in one.
func TestClaimsGather(t *testing.T) {
	f, ns := fakeFleet(t, 1)
	won := 0
	for i := range 200 {
		for range 3 {
			ns[0].Claim(fmt.Sprint(i), false, func(c Claim) {
				if c.Verdict == Owned {
					won++
				}
			})
		}
	}
	ns[0].settle()
	if won != 600 || f.calls > ownerTags {
		t.Errorf("%d claims won in %d scripts", won, f.calls)
	}
	for i := range 200 {
		if ten := ns[0].shardOf(fmt.Sprint(i)).tenures[fmt.Sprint(i)]; ten.lease.pending != 3 {
			t.Fatalf("%d pending", ten.lease.pending)
		}
	}
}

// TestReservationExpires: a claim that nobody attaches to goes after 5 s, and who
// comes later finds it gone.
func TestReservationExpires(t *testing.T) {
	f, ns := fakeFleet(t, 2)
	ten := ns[0].wantVerdict("a", Owned).Tenure
	pass(f, 4900*time.Millisecond, ns...)
	ns[1].wantVerdict("a", Elsewhere)
	wantHeld(t, "before its time", ten, f.now, true)
	pass(f, 200*time.Millisecond, ns...)
	ns[1].wantVerdict("a", Owned)
	wantHeld(t, "after its time", ten, f.now, false)
	if ten.Attach() {
		t.Error("an expired reservation was attached to")
	}
	if len(ns[0].gone) != 0 {
		t.Error("it was reported as lost")
	}
}

// TestClaimOutlivesItsSockets: for 30 s, in which coming back costs nothing.
func TestClaimOutlivesItsSockets(t *testing.T) {
	f, ns := fakeFleet(t, 2)
	ten := ns[0].own("a")
	pass(f, time.Minute, ns...)
	ten.Release()
	pass(f, 29*time.Second, ns...)
	ns[1].wantVerdict("a", Elsewhere)
	if ns[0].own("a") != ten {
		t.Error("another tenure")
	}
	pass(f, time.Minute, ns...)
	wantHeld(t, "attached again", ten, f.now, true)
	ten.Release()
	pass(f, 30100*time.Millisecond, ns...)
	ns[1].wantVerdict("a", Owned)
}

// TestDropEndsOnlyNewClaims: an upgrade that is refused takes its claim with it,
// but not one that others use or have used.
func TestDropEndsOnlyNewClaims(t *testing.T) {
	_, ns := fakeFleet(t, 2)
	ns[0].wantVerdict("a", Owned).Tenure.Drop()
	ns[0].settle()
	ten := ns[1].own("a")
	ns[1].wantVerdict("a", Owned).Tenure.Drop()
	ten.Release()
	ns[1].wantVerdict("a", Owned).Tenure.Drop()
	ns[1].settle()
	ns[0].wantVerdict("a", Elsewhere)

	// Two upgrades at once, of which one is refused.
	first := ns[0].wantVerdict("b", Owned).Tenure
	second := ns[0].wantVerdict("b", Owned).Tenure
	first.Drop()
	ns[0].settle()
	if !second.Attach() {
		t.Error("the claim went with the other upgrade")
	}
}

// TestLeaseIsRenewed: for as long as there are sockets, in one script per part
// and period.
func TestLeaseIsRenewed(t *testing.T) {
	f, ns := fakeFleet(t, 2)
	var all []*Tenure
	for i := range 1000 {
		all = append(all, ns[0].own(fmt.Sprint(i)))
	}
	calls := f.calls
	pass(f, 80*time.Second, ns...)
	for _, ten := range all {
		wantHeld(t, "renewed", ten, f.now, true)
	}
	if n := f.calls - calls; n > 11*ownerTags {
		t.Errorf("%d scripts for ten renewals of %d parts", n, ownerTags)
	}
	for i := range all {
		ns[1].wantVerdict(fmt.Sprint(i), Elsewhere)
	}
}

// TestLeaseLapses: without Redis a session goes on until 2 s before the end of
// its lease, counted from before it was asked for, and another node can take it
// only behind that.
func TestLeaseLapses(t *testing.T) {
	f, ns := fakeFleet(t, 2)
	asked := f.now
	ns[0].held = func() { f.now += int64(time.Second) } // the call takes its time
	ten := ns[0].own("a")
	ns[0].cut = true
	end := asked + int64(28*time.Second)
	for f.now < end-int64(200*time.Millisecond) {
		pass(f, 100*time.Millisecond, ns...)
		wantHeld(t, "before its end", ten, f.now, true)
		ns[1].wantVerdict("a", Elsewhere)
		if ns[0].wantVerdict("a", Owned).Tenure != ten {
			t.Fatal("another tenure")
		}
	}
	f.now = end
	wantHeld(t, "at its end", ten, f.now, false)
	ns[1].wantVerdict("a", Elsewhere)
	ns[0].sweep(f.now)
	if len(ns[0].gone) != 1 || ns[0].gone[0] != ten || !ten.Lost(f.now) {
		t.Fatalf("%d lost", len(ns[0].gone))
	}
	pass(f, 3100*time.Millisecond, ns...) // the call took 1 s, the margin is 2 s
	ns[1].own("a")
	ns[0].wantVerdict("a", Unavailable)
	ns[0].cut = false
	ns[0].RedisOwnership.beat()
	ns[0].wantVerdict("a", Elsewhere)
	if len(ns[0].gone) != 1 {
		t.Error("lost twice")
	}
}

// TestClaimFindsLapsedLease: a node that wakes up late does not answer from a lease that
// has ended meanwhile.
func TestClaimFindsLapsedLease(t *testing.T) {
	f, ns := fakeFleet(t, 2)
	ten := ns[0].own("a")
	f.now += int64(time.Minute)
	other := ns[1].own("a")
	if ten.Attach() {
		t.Error("attached to a lease that has ended")
	}
	ns[0].wantVerdict("a", Elsewhere)
	if len(ns[0].gone) != 1 {
		t.Error("its sockets are not told")
	}
	wantHeld(t, "the other's", other, f.now, true)
}

// TestLostAnswer: a claim that was executed and not answered is no claim, and is
// taken over by the node that it names.
func TestLostAnswer(t *testing.T) {
	f, ns := fakeFleet(t, 2)
	ns[0].mute = true
	ns[0].wantVerdict("a", Unavailable)
	ns[0].mute = false
	if c := ns[1].wantVerdict("a", Elsewhere); c.Target != "target-0" {
		t.Error(c.Target)
	}
	ten := ns[0].own("a")
	pass(f, time.Minute, ns...)
	wantHeld(t, "taken over", ten, f.now, true)

	// The same while the node takes nothing new.
	ns[0].mute = true
	ns[0].wantVerdict("b", Unavailable)
	ns[0].mute = false
	ns[0].Drain(true)
	ns[0].wantVerdict("b", Draining)
	ns[1].own("b")
}

// TestEmptiedRedis: who renews first keeps the session, under another token; the
// other node learns of it, or the first one loses its sockets. No token comes twice.
func TestEmptiedRedis(t *testing.T) {
	f, ns := fakeFleet(t, 2)
	a, b := ns[0].own("a"), ns[0].own("b")
	before := f.keys["a"].value
	clear(f.keys)
	ns[1].own("b") // two have it now
	pass(f, 8100*time.Millisecond, ns...)
	wantHeld(t, "what nobody took", a, f.now, true)
	wantHeld(t, "what the other took", b, f.now, false)
	if len(ns[0].gone) != 1 || ns[0].gone[0] != b || len(ns[1].gone) != 0 {
		t.Errorf("lost: %d and %d", len(ns[0].gone), len(ns[1].gone))
	}
	if c := ns[0].wantVerdict("b", Elsewhere); c.Target != "target-1" {
		t.Error(c.Target)
	}
	if v := f.keys["a"].value; v == before || v == "" {
		t.Errorf("the token is %q, it was %q", v, before)
	}
	ns[1].wantVerdict("a", Elsewhere)
}

// TestRenewalLost: the answers to renewals are lost, and then they are not.
func TestRenewalLost(t *testing.T) {
	f, ns := fakeFleet(t, 1)
	ten := ns[0].own("a")
	clear(f.keys) // so that it is claimed again, unheard
	ns[0].mute = true
	pass(f, 20*time.Second, ns...)
	ns[0].mute = false
	pass(f, 20*time.Second, ns...)
	wantHeld(t, "renewed in the end", ten, f.now, true)
	if len(ns[0].gone) != 0 {
		t.Error("lost to itself")
	}
}

// TestDrain: nothing new, what has no socket goes at once, what has goes with it.
func TestDrain(t *testing.T) {
	f, ns := fakeFleet(t, 2)
	idle, used, reserved := ns[0].own("idle"), ns[0].own("used"), ns[0].wantVerdict("reserved", Owned).Tenure
	idle.Release()
	ns[0].Drain(true)
	ns[0].settle()
	ns[1].own("idle")
	ns[0].wantVerdict("new", Draining)
	if c := ns[0].wantVerdict("idle", Elsewhere); c.Target != "target-1" {
		t.Error(c.Target)
	}
	ns[1].own("new")
	if ns[0].own("used") != used {
		t.Error("its own sockets cannot come back")
	}
	pass(f, time.Second, ns...)
	used.Release()
	ns[0].settle()
	ns[1].own("used")
	if !reserved.Attach() {
		t.Error("what was admitted before the drain is not served")
	}
	reserved.Release()
	ns[0].settle()
	ns[1].own("reserved")
	ns[0].Drain(false)
	ns[0].own("once more")
}

// TestGiveUp: the sockets are told when another node can have the session, also
// when a renewal is under way, and when the store does not answer.
func TestGiveUp(t *testing.T) {
	f, ns := fakeFleet(t, 2)
	told := 0
	tell := func() { told++ }
	ten := ns[0].own("a")
	if ten.GiveUp(tell) || told != 0 {
		t.Fatal("told before Redis was")
	}
	wantHeld(t, "given up", ten, f.now, false)
	if ten.Lost(f.now) {
		t.Error("given up is not lost")
	}
	ns[0].settle()
	if told != 1 {
		t.Fatalf("told %d times", told)
	}
	if !ten.GiveUp(tell) {
		t.Error("what is over needs no wait")
	}
	ns[1].own("a")

	ten = ns[0].own("b")
	ns[0].held = func() {
		if ten.GiveUp(tell) {
			t.Error("told in the middle of a renewal")
		}
		ns[1].wantVerdict("b", Elsewhere)
	}
	pass(f, 8100*time.Millisecond, ns[0])
	if told != 2 {
		t.Fatalf("told %d times", told)
	}
	ns[1].own("b")

	ten = ns[0].own("c")
	ns[0].cut = true
	ten.GiveUp(tell)
	ns[0].settle()
	if told != 3 || len(ns[0].gone) != 0 {
		t.Errorf("told %d times, %d lost", told, len(ns[0].gone))
	}
}

// TestClaimDuringRelease: who comes while a claim is being given up waits, and
// gets a new one.
func TestClaimDuringRelease(t *testing.T) {
	_, ns := fakeFleet(t, 2)
	ten := ns[0].own("a")
	var next Claim
	ns[0].held = func() { // in front of the release
		if _, ok := ns[0].Claim("a", false, func(c Claim) { next = c }); ok {
			t.Error("answered at once")
		}
	}
	ten.GiveUp(func() {})
	ns[0].settle()
	if next.Verdict != Owned || next.Tenure == ten || !next.Tenure.Attach() {
		t.Fatalf("%+v", next)
	}
	ten.Release() // what is over stays over
	ns[0].settle()
	ns[1].wantVerdict("a", Elsewhere)
}

// TestAbandon: everything is given up and nothing is taken any more.
func TestAbandon(t *testing.T) {
	f, ns := fakeFleet(t, 2)
	a, b := ns[0].own("a"), ns[0].wantVerdict("b", Owned).Tenure
	var c Claim
	ns[0].Claim("c", false, func(later Claim) { c = later })
	ns[0].Abandon()
	wantHeld(t, "abandoned", a, f.now, false)
	ns[0].settle()
	if b.Attach() || c.Verdict != Unavailable {
		t.Error("claimed although abandoned")
	}
	ns[0].wantVerdict("d", Unavailable)
	if ok, _ := ns[0].Ready(); ok {
		t.Error("ready")
	}
	for _, id := range []string{"a", "b", "c", "d"} {
		ns[1].own(id)
	}
}

// TestClusterFloor: below it nothing new is taken, what is owned goes on.
func TestClusterFloor(t *testing.T) {
	f, ns := fakeFleet(t, 2, func(c *OwnerConfig) { c.MinNodes = 2 })
	ten := ns[0].own("a")
	ns[1].cut = true
	pass(f, 9*time.Second, ns...)
	if n := ns[0].Nodes(); n != 2 {
		t.Fatalf("%d nodes", n)
	}
	pass(f, 5*time.Second, ns...)
	if n, m := ns[0].Nodes(), ns[1].Nodes(); n != 1 || m != 1 {
		t.Fatalf("%d nodes, and %d as the other sees it", n, m)
	}
	if ok, why := ns[0].Ready(); ok || why != BelowFloor {
		t.Error("ready")
	}
	if ok, why := ns[1].Ready(); ok || why != Unavailable {
		t.Error("the one that is cut off is ready")
	}
	ns[0].wantVerdict("b", BelowFloor)
	ns[0].wantVerdict("a", Owned)
	wantHeld(t, "what is owned", ten, f.now, true)
	ns[1].cut = false
	pass(f, 7*time.Second, ns...)
	ns[0].own("b")
	ns[1].wantVerdict("a", Elsewhere)
}

// TestNonsense: what no node of ours wrote owns nothing and is passed on to nobody.
func TestNonsense(t *testing.T) {
	f, ns := fakeFleet(t, 1)
	for _, v := range []string{"?", "x", "x ", "x a\r\nSet-Cookie: b", "x " + strings.Repeat("y", 300)} {
		f.keys["a"] = fakeKey{v, f.now + 1e9}
		ns[0].wantVerdict("a", Unavailable)
	}
}

// TestIdleClaimsAreBounded: a flood of short sessions leaves no more behind.
func TestIdleClaimsAreBounded(t *testing.T) {
	_, ns := fakeFleet(t, 2)
	ns[0].idle.Store(ownerIdle)
	ns[0].own("a").Release()
	ns[0].settle()
	ns[1].own("a")
	ns[0].asking.Store(ownerAsking)
	ns[0].wantVerdict("b", Unavailable)
}

// TestFleetAtRandom: whatever fails, at no time do two nodes hold a session, and
// every claim is answered. Redis itself is reliable here.
func TestFleetAtRandom(t *testing.T) {
	rounds := 5
	if os.Getenv("SLUICE_SCALE") == "full" {
		rounds = 200
	}
	for seed := range uint64(rounds) {
		r := rand.New(rand.NewPCG(seed, 1))
		f, ns := fakeFleet(t, 3)
		asked, answered := 0, 0
		var live []*Tenure // attached
		var pending []*Tenure
		for range 3000 {
			n := ns[r.IntN(len(ns))]
			id := fmt.Sprint(r.IntN(5))
			switch r.IntN(16) {
			case 0, 1, 2, 3:
				asked++
				take := func(c Claim) {
					answered++
					if c.Verdict == Owned {
						pending = append(pending, c.Tenure)
					}
				}
				if c, ok := n.Claim(id, false, take); ok {
					take(c)
				}
			case 4, 5, 6:
				for _, ten := range pending {
					if r.IntN(4) == 0 {
						ten.Drop()
					} else if ten.Attach() {
						live = append(live, ten)
					}
				}
				pending = nil
			case 7:
				if len(live) > 0 {
					i := r.IntN(len(live))
					live[i].Release()
					live = append(live[:i], live[i+1:]...)
				}
			case 8:
				if len(live) > 0 {
					live[r.IntN(len(live))].GiveUp(func() {})
				}
			case 9:
				n.cut = r.IntN(3) == 0
			case 10:
				n.mute = r.IntN(3) == 0
			case 11:
				n.Drain(r.IntN(2) == 0)
			case 12:
				n.held = func() {
					f.now += int64(r.IntN(4000)) * 1e6
					n.askSome() // another caller
				}
				n.renew()
			case 13, 14:
				n.settle()
			case 15:
				pass(f, time.Duration(r.IntN(9000))*time.Millisecond, ns...)
			}
			for k := range 5 {
				holders := 0
				for _, n := range ns {
					if ten := n.shardOf(fmt.Sprint(k)).tenures[fmt.Sprint(k)]; ten != nil && ten.lease.state == tenureHeld && ten.Held(f.now) {
						holders++
					}
				}
				if holders > 1 {
					t.Fatalf("seed %d: %d nodes hold %d", seed, holders, k)
				}
			}
		}
		for _, n := range ns {
			n.held = nil
			n.settle()
		}
		if asked != answered {
			t.Fatalf("seed %d: %d claims, %d answers", seed, asked, answered)
		}
		for _, ten := range pending {
			ten.Drop()
		}
		for _, n := range ns {
			n.Drain(false)
			n.cut, n.mute = false, false
		}
		for _, ten := range live {
			ten.Release()
		}
		pass(f, 2*time.Minute, ns...)
		for i, n := range ns {
			left := 0
			for j := range n.shards {
				left += len(n.shards[j].tenures)
			}
			if left != 0 || n.idle.Load() != 0 || n.asking.Load() != 0 {
				t.Fatalf("seed %d: node %d keeps %d tenures, counts %d idle, %d asking", seed, i, left, n.idle.Load(), n.asking.Load())
			}
		}
		if len(f.keys) != 0 {
			for id := range f.keys {
				if _, there := f.get(id); there {
					t.Fatalf("seed %d: Redis keeps %s", seed, id)
				}
			}
		}
	}
}
