package store

import (
	"strings"
	"sync"
	"testing"
	"time"

	"sluice/codec/frame"
	"sluice/codec/open"
	"sluice/gateway/store/redistest"
)

const testDomain = "a.test"

// redisPairsFor opens a store of its own client on a server, as a node would.
func redisPairsFor(t testing.TB, url string, limits RedisLimits) (*RedisPairs, open.Profile) {
	t.Helper()
	profile, err := open.New(512, frame.SequenceWindow)
	if err != nil {
		t.Fatal(err)
	}
	r, _ := openTestRedis(t, url)
	s := NewRedisPairs(r, limits, open.NewPools(profile, 1))
	s.SetDomains(map[string]string{testDomain: "a secret of the tests, longer than 32 bytes"})
	eventually(t, "ready", r.Ready)
	return s, profile
}

var generous = RedisLimits{PerClient: 100, Timeout: time.Hour}

// nowFor is a clock like a loop's.
func nowFor() int64 { return int64(time.Since(testEpoch)) }

var testEpoch = time.Now()

// answers waits for what a store says later.
type answers struct {
	taken    chan Lease
	reason   chan frame.Reason
	released chan frame.Reason
}

func newAnswers() *answers {
	return &answers{make(chan Lease, 1), make(chan frame.Reason, 1), make(chan frame.Reason, 1)}
}

func (a *answers) OnTaken(l Lease, r frame.Reason) { a.taken <- l; a.reason <- r }
func (a *answers) OnReleased(r frame.Reason)       { a.released <- r }

func takeFrom(s Pairs, c Client, id frame.PairID) (Lease, frame.Reason) {
	a := newAnswers()
	l, r, ok := s.Take(c, id, open.MKE, nowFor(), a)
	if !ok {
		l, r = <-a.taken, <-a.reason
	}
	return l, r
}

func wantTake(t testing.TB, s Pairs, c Client, id frame.PairID, want frame.Reason) Lease {
	t.Helper()
	l, r := takeFrom(s, c, id)
	wantReason(t, "take", r, want)
	if (l != nil) != (want == frame.NoReason) {
		t.Fatalf("a lease: %v", l != nil)
	}
	return l
}

func releaseTo(l Lease, used bool) frame.Reason {
	a := newAnswers()
	r, ok := l.Release(nowFor(), used, a)
	if !ok {
		r = <-a.released
	}
	return r
}

func wantRelease(t testing.TB, l Lease, used bool, want frame.Reason) {
	t.Helper()
	wantReason(t, "release", releaseTo(l, used), want)
}

func wantAdd(t testing.TB, s Pairs, c Client, pairs []NewPair, want frame.Reason) {
	t.Helper()
	later := make(chan frame.Reason, 1)
	r, ok := s.Add(c, pairs, nowFor(), func(r frame.Reason) { later <- r })
	if !ok {
		r = <-later
	}
	wantReason(t, "add", r, want)
}

func wantKeep(t testing.TB, s Pairs, c Client, drop []frame.PairID, touched int, want frame.Reason) {
	t.Helper()
	type answer struct {
		n int
		r frame.Reason
	}
	later := make(chan answer, 1)
	n, r, ok := s.Keepalive(c, drop, nowFor(), func(n int, r frame.Reason) { later <- answer{n, r} })
	if !ok {
		a := <-later
		n, r = a.n, a.r
	}
	wantReason(t, "keepalive", r, want)
	if n != touched {
		t.Fatalf("keepalive touched %d, want %d", n, touched)
	}
}

func newClient() Client { return Client{Domain: testDomain, ID: frame.NewClientID()} }

// say has the lease's encoder say something that its own decoder hears, and
// returns the sequence number.
func say(t testing.TB, l Lease) uint64 {
	t.Helper()
	b, err := l.Encoder().AppendEncode(nil, []byte("said"))
	if err != nil {
		t.Fatal(err)
	}
	state := l.Encoder().AppendState(nil)
	if text, err := l.Decoder().Decode(b); err != nil || string(text) != "said" {
		t.Fatalf("%q %v", text, err)
	}
	return uint64(state[len(state)-9]) // of the next one, below 256
}

// TestRedisPairsLife: what one node does with pairs, another sees.
func TestRedisPairsLife(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	a, p := redisPairsFor(t, s.URL(), generous)
	b, _ := redisPairsFor(t, s.URL(), generous)
	c, pairs := newClient(), newPairs(p, 3)
	wantTake(t, a, c, pairs[0].ID, frame.InvalidClientID)
	wantKeep(t, a, c, nil, 0, frame.NoReason)
	if n := s.Do("DBSIZE"); n != "0" && !strings.Contains(s.Do("KEYS", "*"), "probe") {
		t.Errorf("%s keys of a client without pairs", n)
	}
	wantAdd(t, a, c, pairs, frame.NoReason)
	for i := range pairs {
		if strings.Trim(string(pairs[i].Encoder)+string(pairs[i].Decoder), "\x00") != "" {
			t.Error("a state is left with the caller")
		}
	}
	wantAdd(t, b, c, newPairsOf(p, pairs[2].ID), frame.PairExists)
	wantTake(t, b, c, frame.NewPairID(), frame.PairNotFound)
	wantTake(t, b, Client{Domain: "other.test", ID: c.ID}, pairs[0].ID, frame.InvalidClientID)
	for i := range 5 {
		node, other := a, b
		if i%2 == 1 {
			node, other = b, a
		}
		l := wantTake(t, node, c, pairs[0].ID, frame.NoReason)
		wantTake(t, other, c, pairs[0].ID, frame.PairBusy)
		if n := say(t, l); n != uint64(i+1) {
			t.Errorf("the encoder is at %d, want %d", n, i+1)
		}
		if node.InUse() != 1 || !l.Held(nowFor()) {
			t.Error("the pair is not in use")
		}
		wantRelease(t, l, true, frame.NoReason)
	}
	// A pair that was not used is as it was.
	wantRelease(t, wantTake(t, a, c, pairs[0].ID, frame.NoReason), false, frame.NoReason)
	l := wantTake(t, b, c, pairs[0].ID, frame.NoReason)
	if n := say(t, l); n != 6 {
		t.Errorf("the encoder is at %d, want 6", n)
	}
	// A dropped one in use goes when its request ends.
	wantKeep(t, a, c, []frame.PairID{pairs[0].ID, pairs[1].ID, frame.NewPairID()}, 1, frame.NoReason)
	wantTake(t, a, c, pairs[1].ID, frame.PairNotFound)
	wantTake(t, a, c, pairs[0].ID, frame.PairBusy)
	wantRelease(t, l, true, frame.NoReason)
	wantTake(t, a, c, pairs[0].ID, frame.PairNotFound)
	l = wantTake(t, a, c, pairs[2].ID, frame.NoReason)
	l.Retire()
	eventually(t, "a retired pair is gone", func() bool {
		_, r := takeFrom(b, c, pairs[2].ID)
		return r == frame.InvalidClientID
	})
	if a.InUse() != 0 || b.InUse() != 0 {
		t.Error("pairs are in use")
	}
}

func newPairsOf(p open.Profile, ids ...frame.PairID) []NewPair {
	list := newPairs(p, len(ids))
	for i := range ids {
		list[i].ID = ids[i]
	}
	return list
}

// TestRedisPairsLimit: of nodes that add to one client at once none exceeds its
// limit, and expired pairs make room.
func TestRedisPairsLimit(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	limits := RedisLimits{PerClient: 10, Timeout: time.Hour}
	a, p := redisPairsFor(t, s.URL(), limits)
	b, _ := redisPairsFor(t, s.URL(), limits)
	c := newClient()
	var wg sync.WaitGroup
	var mu sync.Mutex
	count := map[frame.Reason]int{}
	for i := range 20 {
		node, pairs := []*RedisPairs{a, b}[i%2], newPairs(p, 3)
		wg.Add(1)
		r, ok := node.Add(c, pairs, 0, func(r frame.Reason) {
			mu.Lock()
			defer mu.Unlock()
			count[r]++
			wg.Done()
		})
		if ok {
			t.Fatalf("add: %v", r)
		}
	}
	wg.Wait()
	if count[frame.NoReason] != 3 || count[frame.PairLimit] != 17 {
		t.Errorf("%v", count)
	}
	wantKeep(t, a, c, nil, 9, frame.NoReason)
}

// TestRedisPairsExpire: a pair lives from its last use or keepalive.
func TestRedisPairsExpire(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	// As the script sees it, time passes in whole: the timeout is that of the call.
	a, p := redisPairsFor(t, s.URL(), generous)
	b, _ := redisPairsFor(t, s.URL(), RedisLimits{PerClient: 2, Timeout: time.Millisecond})
	c, pairs := newClient(), newPairs(p, 2)
	wantAdd(t, a, c, pairs, frame.NoReason)
	wantRelease(t, wantTake(t, a, c, pairs[0].ID, frame.NoReason), true, frame.NoReason)
	l := wantTake(t, a, c, pairs[1].ID, frame.NoReason)
	wantExpiry(t, b, c, pairs[0].ID, frame.PairNotFound) // beside one in use
	wantRelease(t, l, true, frame.NoReason)
	wantExpiry(t, b, c, pairs[1].ID, frame.InvalidClientID) // the last one
	wantAdd(t, a, c, newPairs(p, 2), frame.NoReason)
	eventually(t, "expired ones make room", func() bool {
		later := make(chan frame.Reason, 1)
		b.Add(c, newPairs(p, 2), 0, func(r frame.Reason) { later <- r })
		return <-later == frame.NoReason
	})
	eventually(t, "they expire", func() bool {
		_, r := takeFrom(b, c, frame.NewPairID())
		return r == frame.InvalidClientID
	})
}

// wantExpiry waits until a pair is refused in this way.
func wantExpiry(t testing.TB, s Pairs, c Client, id frame.PairID, want frame.Reason) {
	t.Helper()
	eventually(t, "it expires: "+want.String(), func() bool {
		l, r := takeFrom(s, c, id)
		if l != nil { // still in time
			wantRelease(t, l, true, frame.NoReason)
		}
		return r == want
	})
}

// TestRedisPairsCrash: what a node held when it ended is gone with the lock.
func TestRedisPairsCrash(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	a, p := redisPairsFor(t, s.URL(), generous)
	c, pairs := newClient(), newPairs(p, 2)
	wantAdd(t, a, c, pairs, frame.NoReason)
	l := wantTake(t, a, c, pairs[0].ID, frame.NoReason)
	wantTake(t, a, c, pairs[0].ID, frame.PairBusy)
	ageLock(t, s, a, c, pairs[0].ID)
	wantTake(t, a, c, pairs[0].ID, frame.PairNotFound)
	wantRelease(t, l, true, frame.StateStoreWriteFailed)
	wantTake(t, a, c, pairs[0].ID, frame.PairNotFound)
	wantRelease(t, wantTake(t, a, c, pairs[1].ID, frame.NoReason), true, frame.NoReason)
}

// ageLock ends the lock of a pair in Redis.
func ageLock(t testing.TB, s *redistest.Server, store *RedisPairs, c Client, id frame.PairID) {
	t.Helper()
	s.Do("EVAL", `local r = redis.call('HGET', KEYS[1], ARGV[1])
		return redis.call('HSET', KEYS[1], ARGV[1], string.sub(r, 1, 57) .. struct.pack('>d', 1) .. string.sub(r, 66))`,
		"1", store.vault(c.Domain).key(c.ID), hexID(id))
}

// TestRedisPairsRenew: locks of long requests are renewed, and a holder that
// cannot stops in time.
func TestRedisPairsRenew(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	a, p := redisPairsFor(t, s.URL(), generous)
	c, pairs := newClient(), newPairs(p, 1)
	wantAdd(t, a, c, pairs, frame.NoReason)
	l := wantTake(t, a, c, pairs[0].ID, frame.NoReason).(*takenPair)
	begin := l.locked.Load()
	if !l.Held(begin+int64(lockTime-lockMargin)-1) || l.Held(begin+int64(lockTime-lockMargin)) {
		t.Error("a lock holds to another time than 5 s before its end")
	}
	a.Tidy(begin + int64(lockRenew) - 1)
	if l.renewing.Load() {
		t.Error("renewed too early")
	}
	later := begin + int64(lockRenew)
	a.Tidy(later)
	eventually(t, "renewed", func() bool { return l.locked.Load() == later && !l.renewing.Load() })
	if !l.Held(later + int64(lockTime-lockMargin) - 1) {
		t.Error("a renewed lock does not hold")
	}
	ageLock(t, s, a, c, pairs[0].ID)
	a.Tidy(later + int64(lockRenew))
	eventually(t, "lost", func() bool { return !l.Held(later + 1) })
	l.Retire()
}

// TestRedisPairsSealed: nothing in Redis tells a state or an id, and no state can
// be put in the place of another.
func TestRedisPairsSealed(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	a, p := redisPairsFor(t, s.URL(), generous)
	c, pairs := newClient(), newPairs(p, 2)
	states := []string{string(pairs[0].Encoder[1:33]), string(pairs[1].Decoder[1:33]), string(c.ID[:]), hexID(frame.PairID(c.ID))}
	wantAdd(t, a, c, pairs, frame.NoReason)
	key := a.vault(c.Domain).key(c.ID)
	all := key + s.Do("HGETALL", key)
	for _, secret := range states {
		if strings.Contains(all, secret) {
			t.Error("a secret lies open in Redis")
		}
	}
	swap := func(change string) {
		s.Do("EVAL", `local a, b = redis.call('HGET', KEYS[1], ARGV[1]), redis.call('HGET', KEYS[1], ARGV[2]) `+change, "1", key, hexID(pairs[0].ID), hexID(pairs[1].ID))
	}
	// Another pair's state; the version of another.
	swap(`redis.call('HSET', KEYS[1], ARGV[1], string.sub(a, 1, 65) .. string.sub(b, 66))`)
	wantTake(t, a, c, pairs[0].ID, frame.DecoderRestoreFailed)
	eventually(t, "it is deleted", func() bool { _, r := takeFrom(a, c, pairs[0].ID); return r == frame.PairNotFound })
	swap(`redis.call('HSET', KEYS[1], ARGV[2], string.sub(b, 1, 72) .. 'x' .. string.sub(b, 74))`)
	wantTake(t, a, c, pairs[1].ID, frame.DecoderRestoreFailed)
}

// TestRedisPairsLateCalls: a call that comes once more, behind others, changes
// nothing.
func TestRedisPairsLateCalls(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	a, p := redisPairsFor(t, s.URL(), generous)
	c, pairs := newClient(), newPairs(p, 1)
	wantAdd(t, a, c, pairs, frame.NoReason)
	key, id := a.vault(c.Domain).key(c.ID), hexID(pairs[0].ID)
	run := func(s *Script, args ...string) string {
		t.Helper()
		m, o, _ := call(t, a.redis, s, []string{key}, args)
		if o != Answered {
			t.Fatalf("outcome %d", o)
		}
		first, _ := word(m)
		return first
	}
	want := func(what, got, want string) {
		t.Helper()
		if got != want {
			t.Fatalf("%s: %q, want %q", what, got, want)
		}
	}
	l := wantTake(t, a, c, pairs[0].ID, frame.NoReason).(*takenPair)
	token, version := l.token, l.version
	take := func() string { return run(takeScript, token, id, "30000", "3600000") }
	want("the same take again", take(), "taken")
	say(t, l)
	old := l.v.seal(c.ID, pairs[0].ID, version+1, l.encoder.AppendState(nil), l.decoder.AppendState(nil))
	save := func() string { return run(saveScript, token, id, "3600000", versionText(version), old) }
	want("the save", save(), "saved")
	want("the same save again", save(), "saved")
	l2 := wantTake(t, a, c, pairs[0].ID, frame.NoReason)
	want("a late save during the next request", save(), "gone")
	want("a late take during it", take(), "busy")
	say(t, l2)
	wantRelease(t, l2, true, frame.NoReason)
	want("a late save", save(), "gone")
	want("a late take", take(), "taken")
	want("a late save behind a late take", save(), "gone")
	wantTake(t, a, c, pairs[0].ID, frame.InvalidClientID) // it was the only one, and is of no use now
	l.store.leave(l)
	l.putInstances()
}

// TestRedisPairsEpochs: whatever makes a server's data older than what was used
// makes it another epoch, and its pairs are gone.
func TestRedisPairsEpochs(t *testing.T) {
	t.Parallel()
	setup := func(t *testing.T, url string) (*RedisPairs, Client, []NewPair) {
		a, p := redisPairsFor(t, url, generous)
		c, pairs := newClient(), newPairs(p, 2)
		wantAdd(t, a, c, pairs, frame.NoReason)
		wantRelease(t, wantTake(t, a, c, pairs[0].ID, frame.NoReason), true, frame.NoReason)
		return a, c, pairs
	}
	gone := func(t *testing.T, a *RedisPairs, c Client, pairs []NewPair) {
		t.Helper()
		eventually(t, "Redis is back", func() bool {
			_, r := takeFrom(a, c, pairs[0].ID)
			if r == frame.NoReason || r == frame.PairBusy {
				t.Fatalf("a state of another epoch: %q", r)
			}
			return r == frame.PairNotFound
		})
		wantTake(t, a, c, pairs[1].ID, frame.PairNotFound)
		profile, _ := open.New(512, frame.SequenceWindow)
		fresh := newPairs(profile, 1)
		wantAdd(t, a, c, fresh, frame.NoReason)
		wantRelease(t, wantTake(t, a, c, fresh[0].ID, frame.NoReason), true, frame.NoReason)
	}
	t.Run("restart with a snapshot", func(t *testing.T) {
		t.Parallel()
		s := redistest.Start(t)
		a, c, pairs := setup(t, s.URL())
		s.Do("SAVE")
		wantRelease(t, wantTake(t, a, c, pairs[0].ID, frame.NoReason), true, frame.NoReason)
		s.Restart()
		if s.Do("EXISTS", a.vault(c.Domain).key(c.ID)) != "1" {
			t.Fatal("the snapshot was not read")
		}
		gone(t, a, c, pairs)
	})
	t.Run("promoted replica", func(t *testing.T) {
		t.Parallel()
		both := redistest.StartReplicated(t)
		a, c, pairs := setup(t, both.URL())
		key := a.vault(c.Domain).key(c.ID)
		both.Replica.Await("it has the pairs", func() bool { return both.Replica.Do("EXISTS", key) == "1" })
		both.Master.Kill()
		both.AwaitPromotion()
		gone(t, a, c, pairs)
	})
	t.Run("demoted and promoted again", func(t *testing.T) {
		t.Parallel()
		one, two := redistest.Start(t), redistest.Start(t)
		a, c, pairs := setup(t, one.URL())
		key := a.vault(c.Domain).key(c.ID)
		follow := func(s, master *redistest.Server) {
			host, port, _ := strings.Cut(master.Addr, ":")
			s.Do("REPLICAOF", host, port)
			s.Await("it is in step", func() bool { return s.Info("replication", "master_link_status") == "up" })
		}
		follow(two, one)
		two.Await("it has the pairs", func() bool { return two.Do("EXISTS", key) == "1" })
		two.Do("REPLICAOF", "NO", "ONE")
		// Not seen by two: that state is used from here on.
		l := wantTakeEventually(t, a, c, pairs[0].ID)
		if l != nil {
			say(t, l)
			wantRelease(t, l, true, frame.NoReason)
		}
		follow(one, two)
		one.Do("REPLICAOF", "NO", "ONE")
		gone(t, a, c, pairs)
	})
	t.Run("moved slot", func(t *testing.T) {
		t.Parallel()
		cluster := redistest.StartCluster(t, 3)
		a, c, pairs := setup(t, cluster.URL())
		slot := cluster.Slot(a.vault(c.Domain).key(c.ID))
		from := slot * 3 / 16384
		cluster.Move(slot, from, (from+1)%3)
		gone(t, a, c, pairs)
	})
}

// wantTakeEventually takes a pair, nil if its epoch ended: that a first replica
// came may have been the reason.
func wantTakeEventually(t *testing.T, s Pairs, c Client, id frame.PairID) (l Lease) {
	t.Helper()
	eventually(t, "an answer", func() bool {
		var r frame.Reason
		l, r = takeFrom(s, c, id)
		return r == frame.NoReason || r == frame.PairNotFound
	})
	return l
}

// TestRedisPairsLostTake: a take whose answer was lost leaves the pair to nobody
// for a while and then to the next.
func TestRedisPairsLostTake(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	proxy := redistest.StartProxy(t, s.Addr)
	a, p := redisPairsFor(t, proxy.URL(), generous)
	b, _ := redisPairsFor(t, s.URL(), generous)
	c, pairs := newClient(), newPairs(p, 1)
	wantAdd(t, a, c, pairs, frame.NoReason)
	wantRelease(t, wantTake(t, a, c, pairs[0].ID, frame.NoReason), true, frame.NoReason) // the scripts are known
	proxy.Pause(redistest.ToClient)
	wantTake(t, a, c, pairs[0].ID, frame.StateStoreUnavailable)
	wantTake(t, b, c, pairs[0].ID, frame.PairBusy)
	outlast(t, a.redis, proxy)
	ageLock(t, s, b, c, pairs[0].ID)
	wantTake(t, b, c, pairs[0].ID, frame.PairNotFound)
	// One whose save was lost is not used again by who does not know.
	pairs = newPairs(p, 1)
	wantAdd(t, a, c, pairs, frame.NoReason)
	l := wantTake(t, a, c, pairs[0].ID, frame.NoReason)
	say(t, l)
	proxy.Cut()
	wantRelease(t, l, true, frame.StateStoreWriteFailed)
	wantTake(t, b, c, pairs[0].ID, frame.PairBusy)
	proxy.Heal()
}
