package store

import (
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"sluice/codec/frame"
	"sluice/codec/open"
	"sluice/gateway/store/redistest"
)

func cachedPairsFor(t testing.TB, url string, limits RedisLimits) (*CachedPairs, open.Profile) {
	t.Helper()
	plain, p := redisPairsFor(t, url, limits)
	s := NewCachedPairs(plain.redis, limits, plain.codec)
	s.vaults.Store(plain.vaults.Load())
	return s, p
}

// calls is how many scripts a server has run, signs of life included.
func calls(s *redistest.Server) int {
	_, rest, _ := strings.Cut(s.Do("INFO", "commandstats"), "cmdstat_evalsha:calls=")
	text, _, _ := strings.Cut(rest, ",")
	n, _ := strconv.Atoi(text)
	return n
}

// use takes a pair, says something, and gives it back.
func use(t testing.TB, s Pairs, c Client, id frame.PairID) uint64 {
	t.Helper()
	l := wantTake(t, s, c, id, frame.NoReason)
	n := say(t, l)
	wantRelease(t, l, true, frame.NoReason)
	return n
}

// expireLease ends the lease on a client in Redis, as its node's end does.
func expireLease(s *redistest.Server, store *CachedPairs, c Client) {
	s.Do("EVAL", `local o = redis.call('HGET', KEYS[1], 'o')
		return redis.call('HSET', KEYS[1], 'o', string.sub(o, 1, 48) .. struct.pack('>d', 1))`, "1", store.vault(c.Domain).key(c.ID))
}

// outlast ends an outage once the client has seen it: what it sees late would have it
// refuse calls behind the end.
func outlast(t testing.TB, r *Redis, p *redistest.Proxy) {
	t.Helper()
	eventually(t, "down", func() bool { return !r.Ready() })
	p.Heal()
	eventually(t, "ready", r.Ready)
}

// tidyIn has a store look after its clients as if d had passed.
func tidyIn(s *CachedPairs, d time.Duration) { s.Tidy(nowFor() + int64(d)) }

// TestCachedPairsLife: the node that leases a client serves it from memory, others
// refuse it, and go on with it once it is given back.
func TestCachedPairsLife(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	a, p := cachedPairsFor(t, s.URL(), generous)
	b, _ := cachedPairsFor(t, s.URL(), generous)
	plain, _ := redisPairsFor(t, s.URL(), generous)
	c, pairs := newClient(), newPairs(p, 3)
	wantTake(t, a, c, pairs[0].ID, frame.InvalidClientID)
	if a.clients.Load() != 0 {
		t.Error("a client without pairs is kept")
	}
	wantAdd(t, b, c, pairs, frame.NoReason)
	if n := use(t, a, c, pairs[0].ID); n != 1 {
		t.Errorf("at %d", n)
	}
	for i := range 3 {
		l, r, ok := a.Take(c, pairs[0].ID, open.Type(i%2), nowFor(), nil)
		if !ok || r != frame.NoReason {
			t.Fatalf("a take asked Redis: %v", r)
		}
		wantTake(t, a, c, pairs[0].ID, frame.PairBusy)
		if n := say(t, l); n != uint64(i+2) {
			t.Errorf("at %d", n)
		}
		wantRelease(t, l, true, frame.NoReason)
	}
	wantTake(t, a, c, frame.NewPairID(), frame.PairNotFound)
	for _, other := range []Pairs{b, plain} {
		wantTake(t, other, c, pairs[0].ID, frame.NotOwner)
		wantTake(t, other, c, pairs[1].ID, frame.NotOwner)
		wantKeep(t, other, c, nil, 0, frame.NotOwner)
	}
	more := newPairs(p, 1)
	wantAdd(t, b, c, more, frame.NoReason) // pairing needs no lease
	use(t, a, c, more[0].ID)
	wantKeep(t, a, c, []frame.PairID{more[0].ID, pairs[2].ID}, 2, frame.NoReason)
	wantTake(t, a, c, more[0].ID, frame.PairNotFound)
	// In use it is renewed, not in use it is given back.
	l := wantTake(t, a, c, pairs[1].ID, frame.NoReason)
	before := a.shard(&c).clients[c].leased.Load()
	tidyIn(a, ownIdle+time.Second)
	eventually(t, "renewed", func() bool { return a.shard(&c).clients[c].leased.Load() > before })
	wantRelease(t, l, false, frame.NoReason)
	wantTake(t, b, c, pairs[0].ID, frame.NotOwner)
	tidyIn(a, 3*ownIdle)
	eventually(t, "the other node goes on", func() bool {
		l, r := takeFrom(b, c, pairs[0].ID)
		if r == frame.NotOwner {
			return false
		}
		wantReason(t, "take", r, frame.NoReason)
		if n := say(t, l); n != 5 {
			t.Errorf("at %d, want 5", n)
		}
		wantRelease(t, l, true, frame.NoReason)
		return true
	})
	if a.Count() != 0 || a.clients.Load() != 0 {
		t.Errorf("%d pairs of %d clients are kept", a.Count(), a.clients.Load())
	}
	b.Close()
	if n := use(t, a, c, pairs[0].ID); n != 6 {
		t.Errorf("at %d, want 6", n)
	}
	l = wantTake(t, a, c, pairs[0].ID, frame.NoReason)
	l.Retire()
	eventually(t, "a retired pair is gone", func() bool {
		_, r := takeFrom(a, c, pairs[0].ID)
		return r == frame.PairNotFound && s.Do("HEXISTS", a.vault(c.Domain).key(c.ID), hexID(pairs[0].ID)) == "0"
	})
}

// TestCachedPairsCommands: a request of a client that is leased is one write.
func TestCachedPairsCommands(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	a, p := cachedPairsFor(t, s.URL(), generous)
	c, pairs := newClient(), newPairs(p, 1)
	wantAdd(t, a, c, pairs, frame.NoReason)
	use(t, a, c, pairs[0].ID)
	before, began := calls(s), time.Now()
	const requests = 200
	for range requests {
		use(t, a, c, pairs[0].ID)
	}
	probes := 2 + int(time.Since(began)/beatEvery)
	if n := calls(s) - before; n < requests || n > requests+probes {
		t.Errorf("%d requests are %d calls, of which at most %d are signs of life", requests, n, probes)
	}
}

// TestCachedPairsCrash: pairs of a client whose lease was not given back are
// gone, whoever comes next.
func TestCachedPairsCrash(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	for _, next := range []string{"cached", "plain"} {
		a, p := cachedPairsFor(t, s.URL(), generous)
		var b Pairs
		if b, _ = cachedPairsFor(t, s.URL(), generous); next == "plain" {
			b, _ = redisPairsFor(t, s.URL(), generous)
		}
		c, pairs := newClient(), newPairs(p, 2)
		wantAdd(t, a, c, pairs, frame.NoReason)
		use(t, a, c, pairs[0].ID)
		l := wantTake(t, a, c, pairs[0].ID, frame.NoReason)
		say(t, l)
		wantTake(t, b, c, pairs[0].ID, frame.NotOwner)
		expireLease(s, a, c)
		wantTake(t, b, c, pairs[0].ID, frame.InvalidClientID)
		wantTake(t, b, c, pairs[1].ID, frame.InvalidClientID)
		// The first node lives after all: it uses nothing of what it kept.
		fresh := newPairs(p, 1)
		wantAdd(t, b, c, fresh, frame.NoReason)
		use(t, b, c, fresh[0].ID)
		wantRelease(t, l, true, frame.StateStoreWriteFailed)
		want := frame.NotOwner
		if next == "plain" {
			want = frame.PairNotFound
		}
		wantTake(t, a, c, pairs[0].ID, want)
	}
}

// TestCachedPairsLapse: a lease that could not be renewed in time is not used, and
// goes on if nobody else has come.
func TestCachedPairsLapse(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	a, p := cachedPairsFor(t, s.URL(), generous)
	c, pairs := newClient(), newPairs(p, 1)
	wantAdd(t, a, c, pairs, frame.NoReason)
	use(t, a, c, pairs[0].ID)
	l := wantTake(t, a, c, pairs[0].ID, frame.NoReason)
	if now := nowFor(); !l.Held(now) || l.Held(now+int64(ownTime-ownMargin)) {
		t.Error("a lease holds to another time than 2 s before its end")
	}
	wantRelease(t, l, false, frame.NoReason)
	expireLease(s, a, c)
	w := newAnswers()
	if _, _, ok := a.Take(c, pairs[0].ID, open.MKE, nowFor()+int64(ownTime), w); ok {
		t.Fatal("a lapsed lease was used")
	}
	l = <-w.taken
	wantReason(t, "take", <-w.reason, frame.NoReason)
	if n := say(t, l); n != 2 {
		t.Errorf("at %d, want 2", n)
	}
	wantRelease(t, l, true, frame.NoReason)
}

// TestCachedPairsLostSave: a pair whose save is in doubt is not used again, and
// the older state in Redis neither.
func TestCachedPairsLostSave(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	proxy := redistest.StartProxy(t, s.Addr)
	a, p := cachedPairsFor(t, proxy.URL(), generous)
	c, pairs := newClient(), newPairs(p, 2)
	wantAdd(t, a, c, pairs, frame.NoReason)
	use(t, a, c, pairs[0].ID)
	use(t, a, c, pairs[1].ID)
	l := wantTake(t, a, c, pairs[0].ID, frame.NoReason)
	say(t, l)
	proxy.Cut()
	wantRelease(t, l, true, frame.StateStoreWriteFailed)
	_, r := takeFrom(a, c, pairs[0].ID)
	wantReason(t, "take meanwhile", r, frame.PairNotFound)
	outlast(t, a.redis, proxy)
	wantTake(t, a, c, pairs[0].ID, frame.PairNotFound)
	tidyIn(a, time.Second)
	eventually(t, "it is deleted", func() bool {
		return s.Do("HEXISTS", a.vault(c.Domain).key(c.ID), hexID(pairs[0].ID)) == "0"
	})
	wantTake(t, a, c, pairs[0].ID, frame.PairNotFound)
	if n := use(t, a, c, pairs[1].ID); n != 2 {
		t.Errorf("the other pair is at %d, want 2", n)
	}
}

// TestCachedPairsTogether: of nodes that are asked for one client at once one gets
// it, and the requests that waited for that get their pairs.
func TestCachedPairsTogether(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	var nodes []*CachedPairs
	var p open.Profile
	for range 3 {
		var n *CachedPairs
		n, p = cachedPairsFor(t, s.URL(), generous)
		nodes = append(nodes, n)
	}
	for range 20 {
		c, pairs := newClient(), newPairs(p, 8)
		wantAdd(t, nodes[0], c, pairs, frame.NoReason)
		var wg sync.WaitGroup
		var mu sync.Mutex
		got := map[int]int{}
		for i, n := range nodes {
			for _, pair := range pairs {
				wg.Go(func() {
					l, r := takeFrom(n, c, pair.ID)
					if r == frame.NoReason {
						mu.Lock()
						got[i]++
						mu.Unlock()
						if r := releaseTo(l, true); r != frame.NoReason {
							t.Errorf("release: %v", r)
						}
					} else if r != frame.NotOwner {
						t.Errorf("take: %v", r)
					}
				})
			}
		}
		wg.Wait()
		if len(got) != 1 {
			t.Errorf("pairs by node: %v", got)
		}
		for _, n := range got {
			if n != len(pairs) {
				t.Errorf("the owner got %d of %d", n, len(pairs))
			}
		}
	}
}

// TestCachedPairsExpire: with the last pair the client expires, whoever asks.
func TestCachedPairsExpire(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	a, p := cachedPairsFor(t, s.URL(), generous)
	b, _ := cachedPairsFor(t, s.URL(), RedisLimits{PerClient: 2, Timeout: time.Millisecond})
	for range 3 {
		c, pairs := newClient(), newPairs(p, 1)
		wantAdd(t, a, c, pairs, frame.NoReason)
		a.Tidy(nowFor() + int64(time.Minute)) // gives the client back
		wantExpiry(t, b, c, pairs[0].ID, frame.InvalidClientID)
	}
}

// TestCachedPairsDropFails: a pair in use that a keepalive drops is not used again
// even if Redis never heard of that.
func TestCachedPairsDropFails(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	proxy := redistest.StartProxy(t, s.Addr)
	a, p := cachedPairsFor(t, proxy.URL(), generous)
	c, pairs := newClient(), newPairs(p, 1)
	wantAdd(t, a, c, pairs, frame.NoReason)
	use(t, a, c, pairs[0].ID)
	l := wantTake(t, a, c, pairs[0].ID, frame.NoReason)
	say(t, l)
	proxy.Cut()
	wantKeep(t, a, c, []frame.PairID{pairs[0].ID}, 0, frame.StateStoreUnavailable)
	outlast(t, a.redis, proxy)
	wantRelease(t, l, true, frame.NoReason)
	if _, r := takeFrom(a, c, pairs[0].ID); r == frame.NoReason {
		t.Error("a dropped pair was taken")
	}
	eventually(t, "it is deleted", func() bool {
		tidyIn(a, time.Second)
		return s.Do("HEXISTS", a.vault(c.Domain).key(c.ID), hexID(pairs[0].ID)) == "0"
	})
}

// TestCachedPairsCloseRetires: a node that stops gives no client back before its
// retired pairs are gone from Redis, which has older states of them.
func TestCachedPairsCloseRetires(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	proxy := redistest.StartProxy(t, s.Addr)
	a, p := cachedPairsFor(t, proxy.URL(), generous)
	b, _ := cachedPairsFor(t, s.URL(), generous)
	prepare := func() (c Client, id frame.PairID, l Lease) {
		t.Helper()
		c, pairs := newClient(), newPairs(p, 2)
		wantAdd(t, b, c, pairs, frame.NoReason)
		use(t, a, c, pairs[0].ID)
		l = wantTake(t, a, c, pairs[0].ID, frame.NoReason)
		say(t, l)
		return c, pairs[0].ID, l
	}
	// Redis has been told of them, and has not answered yet.
	for range 10 {
		c, id, l := prepare()
		l.Retire()
		a.Close()
		wantTake(t, b, c, id, frame.PairNotFound)
	}
	// Redis could not be told of it.
	c, id, l := prepare()
	proxy.Cut()
	eventually(t, "down", func() bool { return !a.redis.Ready() })
	l.Retire()
	proxy.Heal()
	eventually(t, "ready", a.redis.Ready)
	eventually(t, "the other node's", func() bool { // a call may still meet a connection that was cut
		a.Close()
		_, r := takeFrom(b, c, id)
		if r != frame.PairNotFound && r != frame.NotOwner {
			t.Fatalf("take of a retired pair: %q", r)
		}
		return r == frame.PairNotFound
	})
}

// TestCachedPairsGiveBackUnanswered: a node that does not know whether it has given a
// client back asks before it serves it again.
func TestCachedPairsGiveBackUnanswered(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	proxy := redistest.StartProxy(t, s.Addr)
	a, p := cachedPairsFor(t, proxy.URL(), generous)
	b, _ := cachedPairsFor(t, s.URL(), generous)
	c, pairs := newClient(), newPairs(p, 1)
	wantAdd(t, a, c, pairs, frame.NoReason)
	use(t, a, c, pairs[0].ID)
	// Redis gets to know the script, without which the first attempt does nothing.
	tidyIn(a, 3*ownIdle)
	eventually(t, "given back", func() bool { return a.clients.Load() == 0 })
	use(t, a, c, pairs[0].ID)
	proxy.Pause(redistest.ToClient)
	tidyIn(a, ownIdle+10*time.Millisecond)
	eventually(t, "given back", func() bool { return s.Do("HEXISTS", a.vault(c.Domain).key(c.ID), "o") == "0" })
	proxy.Cut()
	eventually(t, "in doubt", func() bool {
		sh := a.shard(&c)
		sh.mu.Lock()
		defer sh.mu.Unlock()
		return sh.clients[c].state == ownDoubtful
	})
	l := wantTake(t, b, c, pairs[0].ID, frame.NoReason)
	_, r := takeFrom(a, c, pairs[0].ID)
	wantReason(t, "take by the first node", r, frame.StateStoreUnavailable)
	proxy.Heal()
	eventually(t, "ready", a.redis.Ready)
	eventually(t, "the other's", func() bool {
		_, r := takeFrom(a, c, pairs[0].ID)
		if r != frame.NotOwner && r != frame.StateStoreUnavailable {
			t.Fatalf("take by the first node: %q", r)
		}
		return r == frame.NotOwner
	})
	wantRelease(t, l, true, frame.NoReason)
}

// TestCachedPairsGiveBackLate: a give-back whose answer was lost may reach Redis behind
// whatever follows it. It ends no lease that is in use.
func TestCachedPairsGiveBackLate(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	a, p := cachedPairsFor(t, s.URL(), generous)
	b, _ := cachedPairsFor(t, s.URL(), generous)
	c, pairs := newClient(), newPairs(p, 1)
	wantAdd(t, a, c, pairs, frame.NoReason)
	use(t, a, c, pairs[0].ID)
	doubt := func() (token string) {
		sh := a.shard(&c)
		sh.mu.Lock()
		held := sh.clients[c]
		held.state = ownLeaving // and the call is stuck on its way
		sh.mu.Unlock()
		a.left(held, Unknown)
		return held.token
	}
	token := doubt()
	l := wantTake(t, a, c, pairs[0].ID, frame.NoReason)
	m, o, _ := call(t, a.redis, disownScript, []string{a.vault(c.Domain).key(c.ID)}, []string{token})
	if first, _ := word(m); o != Answered || first != "lost" {
		t.Errorf("the late give-back: outcome %d, %q", o, first)
	}
	wantTake(t, b, c, pairs[0].ID, frame.NotOwner)
	if n := say(t, l); n != 2 {
		t.Errorf("at %d, want 2", n)
	}
	wantRelease(t, l, true, frame.NoReason)
	// Nobody asks for it again: it is given back all the same.
	doubt()
	tidyIn(a, 0)
	eventually(t, "given back", func() bool { return a.clients.Load() == 0 })
	// Nor does a node that stops keep it.
	use(t, a, c, pairs[0].ID)
	doubt()
	a.Close()
	if n := use(t, b, c, pairs[0].ID); n != 4 {
		t.Errorf("at %d, want 4", n)
	}
}
