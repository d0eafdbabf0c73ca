package store

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"sluice/gateway/store/redistest"
)

var ownerEpoch = time.Now()

func ownerNow() int64 { return int64(time.Since(ownerEpoch)) }

// shortTimes are the contract's, in the proportion of a lease of this length.
func shortTimes(lease time.Duration) OwnerTimes {
	t := DefaultOwnerTimes
	factor := float64(lease) / float64(t.Lease)
	for _, d := range []*time.Duration{&t.Lease, &t.Renew, &t.Margin, &t.Reservation, &t.Linger, &t.Beat, &t.Dead, &t.Retry} {
		*d = time.Duration(float64(*d) * factor)
	}
	return t
}

// A testOwner is a node of a fleet: its store, running, and what it lost.
type testOwner struct {
	*RedisOwnership
	redis *Redis
	mu    sync.Mutex
	gone  map[string]int
}

func (n *testOwner) lostTimes(id string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.gone[id]
}

func startOwner(t testing.TB, url, target string, times OwnerTimes) *testOwner {
	t.Helper()
	r, _ := openTestRedis(t, url)
	n := &testOwner{redis: r, gone: map[string]int{}}
	n.RedisOwnership = NewRedisOwnership(OwnerConfig{Target: target, MinNodes: 1, OpTimeout: 2 * time.Second, Times: times,
		Log: slog.New(slog.DiscardHandler), Now: ownerNow}, r)
	n.Start(func(ten *Tenure) {
		n.mu.Lock()
		n.gone[ten.ServerID()]++
		n.mu.Unlock()
	})
	t.Cleanup(n.Close)
	eventually(t, "the store is ready", func() bool { ok, _ := n.Ready(); return ok })
	return n
}

// claimNow claims and waits for the answer.
func (n *testOwner) claimNow(t testing.TB, id string) Claim {
	t.Helper()
	got := make(chan Claim, 2)
	if c, ok := n.Claim(id, false, func(c Claim) { got <- c }); ok {
		return c
	}
	select {
	case c := <-got:
		return c
	case <-time.After(redisPatience):
		t.Fatal("a claim is not answered")
		panic("unreachable")
	}
}

// TestOwnerScripts: what each script does, in every kind of Redis.
func TestOwnerScripts(t *testing.T) {
	t.Parallel()
	f := func(name string, url func(t *testing.T) string) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, _ := openTestRedis(t, url(t))
			eventually(t, "ready", r.Ready)
			leases := redisLeases{r}
			do := func(op leaseOp, node string, token uint64, ids []string, want ...string) {
				t.Helper()
				// One batch per part, as the store makes them.
				var batches []*leaseBatch
				for _, id := range ids {
					batches = append(batches, &leaseBatch{op: op, ids: []string{id}, tokens: []uint64{token}})
				}
				leases.run(t.Context(), node, "at-"+node, time.Minute, batches)
				for i, b := range batches {
					if b.err != nil || b.answers[0] != want[i] {
						t.Errorf("operation %d of %s with token %d on %s: %q %v, want %q", op, node, token, ids[i], b.answers, b.err, want[i])
					}
				}
			}
			ids := []string{"a", "b", "a blank and {braces}", "\x00\r\n"}
			others := func(token int) (want []string) {
				for range ids {
					want = append(want, fmt.Sprintf("n1-%d at-n1", token))
				}
				return want
			}
			all := func(s string) []string { return slices.Repeat([]string{s}, len(ids)) }
			do(opRenew, "n1", 1, ids, all("")...)
			do(opLook, "n1", 0, ids, all("")...)
			do(opClaim, "n1", 1, ids, all("=")...)
			do(opClaim, "n2", 1, ids, others(1)...)
			do(opLook, "n2", 0, ids, others(1)...)
			do(opRenew, "n2", 1, ids, others(1)...)
			do(opRelease, "n2", 1, ids, all("")...)
			do(opRenew, "n1", 1, ids, all("=")...)
			do(opClaim, "n1", 12, ids, all("=")...) // takes its own over
			do(opRenew, "n1", 1, ids, all("")...)   // 1 is not 12
			do(opRelease, "n1", 1, ids, all("")...)
			do(opLook, "n2", 0, ids, others(12)...)
			do(opRelease, "n1", 12, ids, all("")...)
			do(opClaim, "n2", 1, ids, all("=")...)
			do(opLook, "n2", 1, ids, all("")...) // its own, unknown: removed
			do(opClaim, "n1", 13, ids, all("=")...)
			do(opLook, "n1", 9, ids, all("")...) // late: the claim came behind it
			do(opClaim, "n2", 2, ids, others(13)...)

			beat := func(node string, alive bool, want int) {
				t.Helper()
				if n, err := leases.beat(t.Context(), node, time.Minute, alive); n != want || err != nil {
					t.Errorf("%d nodes, %v, want %d", n, err, want)
				}
			}
			beat("n1", true, 1)
			beat("n2", true, 2)
			beat("n1", true, 2)
			beat("n1", false, 1)
			if n, err := leases.beat(t.Context(), "n3", time.Millisecond, true); n > 2 || err != nil {
				t.Errorf("%d nodes, %v", n, err)
			}
		})
	}
	f("single", func(t *testing.T) string { return redistest.Start(t).URL() })
	f("cluster", func(t *testing.T) string { return redistest.StartCluster(t, 3).URL() })
}

// TestOwnerBeatClockWentBack: signs of life from before a failover to a server
// whose clock is behind do not keep dead nodes alive.
func TestOwnerBeatClockWentBack(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	r, _ := openTestRedis(t, s.URL())
	eventually(t, "ready", r.Ready)
	s.Do("ZADD", ownerNodesKey, fmt.Sprint(time.Now().Add(time.Hour).UnixMilli()), "old")
	if n, err := (redisLeases{r}).beat(t.Context(), "n", time.Minute, true); n != 1 || err != nil {
		t.Errorf("%d nodes, %v", n, err)
	}
}

// ownerClaims is how many serverIds three nodes claim at once: a tenth of the
// acceptance's in everyday tests.
func ownerClaims() int {
	if os.Getenv("SLUICE_SCALE") == "full" {
		return 50000
	}
	return 5000
}

// TestAcceptClaimsOfThreeNodes: of all that claim a serverId at once exactly one
// gets it and the others learn its target; all leases are then renewed.
func TestAcceptClaimsOfThreeNodes(t *testing.T) {
	t.Parallel()
	f := func(name string, url func(t *testing.T) string) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const lease = 9 * time.Second
			u := url(t)
			var nodes []*testOwner
			for i := range 3 {
				nodes = append(nodes, startOwner(t, u, fmt.Sprintf("target-%d", i), shortTimes(lease)))
			}
			n := ownerClaims()
			verdicts := make([][3]Claim, n)
			var answered atomic.Int64
			took := make([]time.Duration, 3*n)
			var wg sync.WaitGroup
			for i, node := range nodes {
				wg.Go(func() {
					room := make(chan struct{}, 64) // claims under way, as of an event loop's upgrades
					for k := range n {
						room <- struct{}{}
						began := time.Now()
						got := func(c Claim) {
							took[3*k+i] = time.Since(began)
							if c.Tenure != nil && !c.Tenure.Attach() {
								t.Error("a fresh claim cannot be attached to")
							}
							verdicts[k][i] = c
							answered.Add(1)
							<-room
						}
						if c, ok := node.Claim(fmt.Sprintf("server-%d", k), false, got); ok {
							got(c)
						}
					}
					for range cap(room) {
						room <- struct{}{}
					}
				})
			}
			wg.Wait()
			owned := [3]int{}
			for k, v := range verdicts {
				owner := slices.IndexFunc(v[:], func(c Claim) bool { return c.Verdict == Owned })
				if owner < 0 {
					t.Fatalf("server-%d: nobody owns it: %+v", k, v)
				}
				owned[owner]++
				for i, c := range v {
					if i != owner && (c.Verdict != Elsewhere || c.Target != fmt.Sprintf("target-%d", owner)) {
						t.Fatalf("server-%d: %d owns it, and %d was told %d %q", k, owner, i, c.Verdict, c.Target)
					}
				}
			}
			slices.Sort(took)
			t.Logf("%d claims: p50 %v, p99 %v; owned %v", len(took), took[len(took)/2], took[len(took)*99/100], owned)
			// Beyond the first lease everything stands only if it was renewed.
			end := ownerNow() + int64(lease) + int64(lease)/2
			eventually(t, "a lease and a half have passed", func() bool { return ownerNow() > end })
			for k, v := range verdicts {
				for i, c := range v {
					if c.Tenure != nil && !c.Tenure.Held(ownerNow()) {
						t.Fatalf("server-%d: the lease of node %d was not renewed", k, i)
					}
				}
			}
			if nodes[0].Nodes() != 3 {
				t.Errorf("%d nodes", nodes[0].Nodes())
			}
		})
	}
	f("single", func(t *testing.T) string { return redistest.Start(t).URL() })
	f("cluster", func(t *testing.T) string { return redistest.StartCluster(t, 3).URL() })
}

// TestOwnershipOfFailedOverRedis: sessions go on over a failover, a dead master and a
// restart that lost everything; new ones are taken again soon.
func TestOwnershipOfFailedOverRedis(t *testing.T) {
	t.Parallel()
	// trouble does something to Redis and heals it.
	f := func(name string, set func(t *testing.T) (url string, trouble func())) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, trouble := set(t)
			a, b := startOwner(t, url, "a", DefaultOwnerTimes), startOwner(t, url, "b", DefaultOwnerTimes)
			var held []*Tenure
			for i := range 100 {
				c := a.claimNow(t, fmt.Sprint(i))
				if c.Verdict != Owned || !c.Tenure.Attach() {
					t.Fatalf("%+v", c)
				}
				held = append(held, c.Tenure)
			}
			trouble()
			for i, ten := range held {
				if !ten.Held(ownerNow()) {
					t.Fatalf("the session %d ended", i)
				}
			}
			for i, n := range []*testOwner{a, b} {
				eventually(t, "new sessions", func() bool { return n.claimNow(t, fmt.Sprint("new", i)).Verdict == Owned })
			}
			a.renewNow()
			for i := range held {
				if c := b.claimNow(t, fmt.Sprint(i)); c.Verdict != Elsewhere || c.Target != "a" {
					t.Fatalf("the other node is told %+v", c)
				}
			}
		})
	}
	f("sentinel failover", func(t *testing.T) (string, func()) {
		r := redistest.StartReplicated(t)
		return r.URL(), func() { r.Master.Kill() }
	})
	f("restarted empty", func(t *testing.T) (string, func()) {
		s := redistest.Start(t)
		return s.URL(), func() { s.Kill(); s.Restart() }
	})
	f("cluster slot moved", func(t *testing.T) (string, func()) {
		c := redistest.StartCluster(t, 3)
		return c.URL(), func() {
			for id := range 20 {
				key := ownerKey(fmt.Sprint(id))
				slot := c.Slot(key)
				if from := slot * 3 / 16384; slot == from*16384/3 || slot > from*16384/3 {
					c.Move(slot, from, (from+1)%3)
					return
				}
			}
		}
	})
}

// renewNow has every lease renewed until Redis has done it once, by us or by the
// node itself, which may be at it.
func (n *testOwner) renewNow() {
	for done := false; !done; {
		done = true
		for tag := range n.shards {
			_, ok := n.renewAll(n.due(tag, ownerNow(), math.MaxInt))
			done = ok && !n.renewing(tag) && done
		}
		runtime.Gosched()
	}
}

// renewing reports whether the node has asked for a lease of a part and not heard yet.
func (n *testOwner) renewing(tag int) bool {
	s := &n.shards[tag]
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.tenures {
		if t.lease.state == tenureHeld && t.lease.asked {
			return true
		}
	}
	return false
}

// TestOwnershipCloses: what is left is given up, the node is counted no more,
// and a Redis that hangs holds nobody up.
func TestOwnershipCloses(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	p := redistest.StartProxy(t, s.Addr)
	a, b := startOwner(t, p.URL(), "a", DefaultOwnerTimes), startOwner(t, s.URL(), "b", DefaultOwnerTimes)
	for i := range 1000 {
		a.claimNow(t, fmt.Sprint(i))
	}
	a.Close()
	for i := range 1000 {
		if c := b.claimNow(t, fmt.Sprint(i)); c.Verdict != Owned {
			t.Fatalf("%d: %+v", i, c)
		}
	}
	if n, err := (redisLeases{b.redis}).beat(context.Background(), b.node, time.Minute, true); n != 1 || err != nil {
		t.Errorf("%d nodes, %v", n, err)
	}
	c := startOwner(t, p.URL(), "c", DefaultOwnerTimes)
	c.claimNow(t, "x")
	p.Pause(redistest.ToServer)
	c.Close()
	if got := c.claimNow(t, "y"); got.Verdict != Unavailable {
		t.Errorf("%+v", got)
	}
}

// TestReservedCalls: renewals find room behind the load of others.
func TestReservedCalls(t *testing.T) {
	t.Parallel()
	p := redistest.StartProxy(t, redistest.Start(t).Addr)
	r, _ := openTestRedis(t, p.URL(), func(c *RedisConfig) { c.ReadTimeout, c.OpTimeout = redisPatience, redisPatience })
	eventually(t, "ready", r.Ready)
	p.Pause(redistest.ToClient)
	done := func(rueidis.RedisMessage, Outcome) {}
	begun := 0
	for r.Call(countScript, []string{"a"}, nil, done) {
		begun++
	}
	if begun != maxCalls-reservedCalls || !r.Ready() {
		t.Fatalf("%d calls begun", begun)
	}
	for i := range reservedCalls {
		if !r.CallReserved(countScript, []string{"a"}, nil, done) {
			t.Fatalf("%d of %d found room", i, reservedCalls)
		}
	}
	if r.CallReserved(countScript, []string{"a"}, nil, done) {
		t.Error("no bound")
	}
}
