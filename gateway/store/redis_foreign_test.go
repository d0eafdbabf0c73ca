package store

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"sluice/codec/frame"
	"sluice/codec/open"
	"sluice/gateway/store/redistest"
)

// A watchedRedis is a client whose log and failures are counted.
type watchedRedis struct {
	*Redis
	log    *logLines
	failed atomic.Int64
}

func watchRedis(t testing.TB, url string) *watchedRedis {
	t.Helper()
	w := new(watchedRedis)
	w.Redis, w.log = openTestRedis(t, url, func(c *RedisConfig) { c.Failed = func() { w.failed.Add(1) } })
	eventually(t, "ready", w.Ready)
	return w
}

// wantFound wants what was found to be counted and told, without an id, and Redis
// to be usable all the time.
func (w *watchedRedis) wantFound(t testing.TB, line, kind, id string) {
	t.Helper()
	text := w.log.String()
	if w.failed.Load() == 0 || strings.Count(text, line) == 0 || !strings.Contains(text, "keys="+kind) {
		t.Errorf("%d failures; want one at least and a line about %s:\n%s", w.failed.Load(), kind, text)
	}
	if id != "" && strings.Contains(text, id) {
		t.Errorf("the log has an id:\n%s", text)
	}
	if !w.Ready() || strings.Contains(text, "cannot be used") {
		t.Errorf("a key was taken for an outage:\n%s", text)
	}
}

const foundLine = "what was found in Redis is not what nodes write"

// A keyDamage is something that nobody of ours wrote under a key.
type keyDamage struct {
	name string
	do   func(s *redistest.Server, key string)
}

// setAll sets every field of a hash to a value.
func setAll(value string) func(*redistest.Server, string) {
	return func(s *redistest.Server, key string) {
		s.Do("EVAL", `for _, f in ipairs(redis.call('HKEYS', KEYS[1])) do redis.call('HSET', KEYS[1], f, ARGV[1]) end return 1`, "1", key, value)
	}
}

// cut has every record cut behind so many bytes, that is also in every number.
func cut(n int) func(*redistest.Server, string) {
	return func(s *redistest.Server, key string) {
		s.Do("EVAL", `for _, f in ipairs(redis.call('HKEYS', KEYS[1])) do
			redis.call('HSET', KEYS[1], f, string.sub(redis.call('HGET', KEYS[1], f), 1, ARGV[1])) end return 1`, "1", key, fmt.Sprint(n))
	}
}

// another replaces a key by one of another type.
func another(command ...string) func(*redistest.Server, string) {
	return func(s *redistest.Server, key string) {
		s.Do("DEL", key)
		s.Do(slices.Insert(slices.Clone(command), 1, key)...)
	}
}

// pairDamages leave nothing of a client's pairs.
func pairDamages() []keyDamage {
	all := []keyDamage{
		{"garbage", setAll("garbage")}, {"empty", setAll("")}, {"of a lease's length", setAll(strings.Repeat("x", 56))},
		{"of a record's length", setAll("F" + strings.Repeat("\xff", 200))}, {"long", setAll("F" + strings.Repeat("x", 1<<18))},
		{"string", another("SET", "junk")}, {"empty string", another("SET", "")}, {"list", another("RPUSH", "junk")},
		{"set", another("SADD", "junk")}, {"sorted set", another("ZADD", "1", "junk")}, {"stream", another("XADD", "*", "a", "b")},
	}
	for _, n := range []int{1, 33, 49, 57, 65, 73} {
		all = append(all, keyDamage{fmt.Sprintf("cut at %d", n), cut(n)})
	}
	return all
}

// TestForeignPairs: what lies under a client's key and is not ours costs this
// client its pairs, and nobody else anything.
func TestForeignPairs(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	f := func(name string, cached bool) {
		t.Run(name, func(t *testing.T) {
			profile, err := open.New(512, frame.SequenceWindow)
			if err != nil {
				t.Fatal(err)
			}
			for _, damage := range pairDamages() {
				t.Run(damage.name, func(t *testing.T) {
					r := watchRedis(t, s.URL())
					pools := open.NewPools(profile, 1)
					var p Pairs
					plain := NewRedisPairs(r.Redis, generous, pools)
					if p = plain; cached {
						c := NewCachedPairs(r.Redis, generous, pools)
						p, plain = c, c.RedisPairs
					}
					plain.SetDomains(map[string]string{testDomain: "a secret of the tests, longer than 32 bytes"})
					other, others := newClient(), newPairs(profile, 1)
					wantAdd(t, p, other, others, frame.NoReason)

					// Whatever is asked next finds it, and does without.
					next := func(what func(c Client, pairs []NewPair, breakIt func())) {
						t.Helper()
						c, pairs := newClient(), newPairs(profile, 2)
						key := plain.vault(c.Domain).key(c.ID)
						wantAdd(t, p, c, pairs, frame.NoReason)
						wantKeep(t, p, c, nil, 2, frame.NoReason)
						what(c, pairs, func() { damage.do(s, key) })
						use(t, p, other, others[0].ID)
						wantTake(t, p, c, pairs[1].ID, frame.InvalidClientID)
						fresh := newPairs(profile, 1)
						wantAdd(t, p, c, fresh, frame.NoReason)
						use(t, p, c, fresh[0].ID)
					}
					next(func(c Client, pairs []NewPair, breakIt func()) { // a take
						breakIt()
						wantTake(t, p, c, pairs[0].ID, frame.InvalidClientID)
					})
					next(func(c Client, pairs []NewPair, breakIt func()) { // a save
						use(t, p, c, pairs[0].ID)
						l := wantTake(t, p, c, pairs[0].ID, frame.NoReason)
						say(t, l)
						breakIt()
						wantRelease(t, l, true, frame.StateStoreWriteFailed)
					})
					next(func(c Client, pairs []NewPair, breakIt func()) { // a deletion
						l := wantTake(t, p, c, pairs[0].ID, frame.NoReason)
						breakIt()
						l.Retire()
						eventually(t, "it is deleted", func() bool {
							_, reason := takeFrom(p, c, pairs[0].ID)
							return reason == frame.InvalidClientID
						})
					})
					next(func(c Client, pairs []NewPair, breakIt func()) { // a keepalive
						breakIt()
						wantKeep(t, p, c, []frame.PairID{pairs[0].ID}, 0, frame.NoReason)
					})
					next(func(c Client, pairs []NewPair, breakIt func()) { // pairing
						breakIt()
						more := newPairs(profile, 1)
						wantAdd(t, p, c, more, frame.NoReason)
						wantTake(t, p, c, pairs[0].ID, frame.PairNotFound)
						wantKeep(t, p, c, []frame.PairID{more[0].ID}, 0, frame.NoReason)
					})
					next(func(c Client, pairs []NewPair, breakIt func()) { // a renewal
						l := wantTake(t, p, c, pairs[0].ID, frame.NoReason)
						breakIt()
						p.Tidy(nowFor() + int64(lockRenew))
						if !cached { // else the lease on the client may be whole
							eventually(t, "it is lost", func() bool { return !l.Held(nowFor()) })
						}
						say(t, l)
						wantRelease(t, l, true, frame.StateStoreWriteFailed)
					})
					r.wantFound(t, foundLine, "sluice:pairs:…", "{")
				})
			}
		})
	}
	f("plain", false)
	f("cached", true)
}

// TestForeignFields: what lies beside a client's pairs goes, and they stay.
func TestForeignFields(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	p, profile := redisPairsFor(t, s.URL(), RedisLimits{PerClient: 4, Timeout: time.Hour})
	c, pairs := newClient(), newPairs(profile, 2)
	key := p.vault(c.Domain).key(c.ID)
	wantAdd(t, p, c, pairs, frame.NoReason)
	s.Do("HSET", key, "", "a", "short", "b", strings.Repeat("0", 32), "c", strings.Repeat("long", 9), "d")
	for _, k := range []string{"garbage", "", "nan", "inf", "-1", "1e300"} {
		s.Do("HSET", key, "k", k)
		use(t, p, c, pairs[0].ID)
	}
	wantAdd(t, p, c, newPairs(profile, 2), frame.NoReason) // up to the limit
	if n := s.Do("HLEN", key); n != "4" {
		t.Errorf("%s fields, want 4:\n%q", n, s.Do("HKEYS", key))
	}
}

// ownerDamages leave no claim under a key.
func ownerDamages() []keyDamage {
	all := []keyDamage{
		{"list", another("RPUSH", "junk")}, {"set", another("SADD", "junk")}, {"hash", another("HSET", "a", "b")},
		{"sorted set", another("ZADD", "1", "junk")}, {"a claim without an end", another("SET", "other-1 target")},
	}
	for _, v := range []string{"", "garbage", "node1", "1", "a-1 ", "a-1", "-1 b", "a-b c", "a-1 b c", "a-1 b\r\nSet-Cookie: x", "a-1 b\x00",
		"a-1 " + strings.Repeat("y", 257), strings.Repeat("y", 100_000)} {
		name := v[:min(len(v), 20)]
		all = append(all, keyDamage{fmt.Sprintf("%q", name), another("SET", v)},
			keyDamage{fmt.Sprintf("%q with an end", name), another("SET", v, "EX", "1000")})
	}
	return all
}

// TestForeignOwner: what lies under a serverId's key and is no claim is nobody's,
// and the others of its batch are dealt with.
func TestForeignOwner(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	for _, damage := range ownerDamages() {
		t.Run(damage.name, func(t *testing.T) {
			for _, op := range []leaseOp{opClaim, opLook, opRenew, opRelease} {
				r := watchRedis(t, s.URL())
				damage.do(s, ownerKey("gb"))
				b := &leaseBatch{op: op, ids: []string{"gb", "fine"}, tokens: []uint64{1, 2}}
				redisLeases{r.Redis}.run(t.Context(), "n", "t", time.Minute, []*leaseBatch{b})
				want := ""
				if op == opClaim {
					want = answerOurs
				}
				if b.err != nil || !slices.Equal(b.answers, []string{want, want}) {
					t.Errorf("operation %d: %q %v", op, b.answers, b.err)
				}
				r.wantFound(t, foundLine, "sluice:owner:…", "gb")
				if v := s.Do("EXISTS", ownerKey("gb")); (v == "1") != (op == opClaim) {
					t.Errorf("operation %d left %s key", op, v)
				}
				s.Do("DEL", ownerKey("gb"), ownerKey("fine"))
			}
		})
	}
}

// TestForeignRenewal: a session goes on when something else comes to lie under
// its key.
func TestForeignRenewal(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	r := watchRedis(t, s.URL())
	n := &testOwner{redis: r.Redis, gone: map[string]int{}}
	log := new(logLines)
	n.RedisOwnership = NewRedisOwnership(OwnerConfig{Target: "t", MinNodes: 1, OpTimeout: 2 * time.Second, Times: DefaultOwnerTimes,
		Log: slog.New(slog.NewTextHandler(log, nil)), Now: ownerNow}, r.Redis)
	n.lost = func(*Tenure) { t.Error("it is lost") }
	// Without its goroutines: the test says when it renews.
	renew := func() {
		for i := range n.shards {
			n.shards[i].renewAt = 0
		}
		n.renew()
	}
	n.RedisOwnership.beat()
	got := make(chan Claim, 1)
	if _, ok := n.Claim("gb", false, func(c Claim) { got <- c }); ok {
		t.Fatal("answered without Redis")
	}
	n.askSome()
	c := <-got
	if c.Verdict != Owned || !c.Tenure.Attach() {
		t.Fatalf("verdict %d", c.Verdict)
	}
	before := n.token(c.Tenure)
	for _, damage := range append(ownerDamages(), keyDamage{"ours, damaged behind its token", func(s *redistest.Server, key string) {
		s.Do("SET", key, n.token(c.Tenure)+" a b")
	}}) {
		damage.do(s, ownerKey("gb"))
		if damage.name == "a claim without an end" && s.Do("PTTL", ownerKey("gb")) != "-1" {
			t.Fatal("not set up")
		}
		renew()
		if v := s.Do("GET", ownerKey("gb")); v != n.token(c.Tenure)+" t" || v == before+" t" {
			t.Errorf("%s: %q lies there", damage.name, v)
		}
		if s.Do("PTTL", ownerKey("gb")) == "-1" || !c.Tenure.Held(ownerNow()) {
			t.Errorf("%s: it is not held", damage.name)
		}
		before = n.token(c.Tenure)
	}
	r.wantFound(t, foundLine, "sluice:owner:…", "gb")
	n.sweep(ownerNow())
	if log.String() != "" {
		t.Errorf("the log says:\n%s", log)
	}
}

// TestForeignNodes: what lies in the place of the list of nodes is replaced by it.
func TestForeignNodes(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	for _, damage := range []keyDamage{{"string", another("SET", "junk")}, {"list", another("RPUSH", "junk")}, {"hash", another("HSET", "a", "b")}} {
		for _, alive := range []bool{true, false} {
			r := watchRedis(t, s.URL())
			damage.do(s, ownerNodesKey)
			want := 0
			if alive {
				want = 1
			}
			if n, err := (redisLeases{r.Redis}).beat(t.Context(), "n", time.Minute, alive); n != want || err != nil {
				t.Errorf("%s: %d nodes, %v", damage.name, n, err)
			}
			r.wantFound(t, foundLine, ownerNodesKey, "")
		}
	}
}

// TestScriptErrorIsItsCalls: a script that fails of its key fails alone.
func TestScriptErrorIsItsCalls(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	r := watchRedis(t, s.URL())
	s.Do("RPUSH", "kind:{an-id}", "x")
	for _, lua := range []string{"return redis.call('INCR', KEYS[1])", "return redis.pcall('INCR', KEYS[1])", "return 1 + nil",
		"return struct.unpack('>d', '')", "return unpack(nil)"} {
		for _, repeatable := range []bool{true, false} {
			script := &Script{name: "failing", lua: rueidis.NewLuaScript(lua), Repeatable: repeatable}
			if _, o, started := call(t, r.Redis, script, []string{"kind:{an-id}"}, nil); !started || o != Unknown {
				t.Errorf("%s: outcome %d, started %v", lua, o, started)
			}
			if f := r.circuit.complaint(); f != nil {
				t.Errorf("%s: the circuit hears of %s", lua, f.detail)
			}
		}
	}
	r.wantFound(t, "a script failed in Redis", "kind:…", "an-id")
	wantCount(t, r.Redis, "{x}", 1)
	if f := classify(errors.New("EOF")); f.kind != failBroken {
		t.Errorf("an ended connection is %s", f.kind)
	}
}
