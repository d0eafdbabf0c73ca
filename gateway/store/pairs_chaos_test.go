package store

import (
	"encoding/binary"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sluice/codec/frame"
	"sluice/codec/open"
	"sluice/gateway/store/redistest"
)

// A chaos is a fleet whose nodes use pairs while Redis and nodes fail. It records
// every number that is encoded and every message that is decoded: none may be
// there twice, whatever happens.
type chaos struct {
	chaosKind
	t       *testing.T
	profile open.Profile
	redis   []*Redis
	limits  RedisLimits

	mu      sync.Mutex
	nodes   []Pairs
	pairs   []*chaosPair // the last ones are in use, older ones are tried, too
	encoded map[chaosNumber]bool
	decoded map[chaosNumber]bool
	served  atomic.Int64
	refused map[frame.Reason]int
}

type chaosKind struct {
	cached bool // LOCAL_STATE_CACHE, with routing that is not sticky
	full   bool // at full size
}

type chaosNumber struct {
	pair   frame.PairID
	number uint64
}

// A chaosPair is the client's end of a pair: what it has said, by number.
type chaosPair struct {
	client  Client
	id      frame.PairID
	mu      sync.Mutex
	encoder open.Encoder
	said    [][]byte
}

const chaosPairs = 24 // of 8 clients

func newChaos(t *testing.T, url string, how chaosKind) *chaos {
	c := &chaos{t: t, chaosKind: how, limits: generous, encoded: map[chaosNumber]bool{}, decoded: map[chaosNumber]bool{},
		refused: map[frame.Reason]int{}}
	c.profile, _ = open.New(512, frame.SequenceWindow)
	for range 3 {
		r, _ := openTestRedis(t, url, func(cfg *RedisConfig) { cfg.ReadTimeout, cfg.OpTimeout = 300*time.Millisecond, 600*time.Millisecond })
		eventually(t, "ready", r.Ready)
		c.redis = append(c.redis, r)
		c.nodes = append(c.nodes, c.node(r))
	}
	for range chaosPairs / 3 {
		c.pair(3)
	}
	return c
}

func (c *chaos) node(r *Redis) Pairs {
	var s Pairs = NewRedisPairs(r, c.limits, open.NewPools(c.profile, 1))
	if c.cached {
		s = NewCachedPairs(r, c.limits, open.NewPools(c.profile, 1))
	}
	s.SetDomains(map[string]string{testDomain: "a secret of the tests, longer than 32 bytes"})
	return s
}

func (c *chaos) any() Pairs {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.nodes[rand.IntN(len(c.nodes))]
}

// pair adds n pairs of a new client, if Redis takes them.
func (c *chaos) pair(n int) {
	client, pairs := newClient(), newPairs(c.profile, n)
	var list []*chaosPair
	for i := range pairs {
		e := c.profile.NewEncoder(open.MKE)
		if err := e.Restore(pairs[i].Decoder); err != nil {
			panic(err)
		}
		list = append(list, &chaosPair{client: client, id: pairs[i].ID, encoder: e})
	}
	later := make(chan frame.Reason, 1)
	r, ok := c.any().Add(client, pairs, nowFor(), func(r frame.Reason) { later <- r })
	if !ok {
		r = <-later
	}
	if r == frame.NoReason {
		c.mu.Lock()
		c.pairs = append(c.pairs, list...)
		c.mu.Unlock()
	}
}

// message is a new one, or now and then one that was said before.
func (p *chaosPair) message() (number uint64, b []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.said); n > 0 && rand.IntN(4) == 0 {
		i := n - 1 - rand.IntN(min(n, 8))
		return uint64(i), append([]byte(nil), p.said[i]...)
	}
	b, err := p.encoder.AppendEncode(nil, []byte("request"))
	if err != nil {
		panic(err)
	}
	p.said = append(p.said, append([]byte(nil), b...))
	return uint64(len(p.said) - 1), b
}

func (c *chaos) record(in map[chaosNumber]bool, what string, n chaosNumber) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if in[n] {
		c.t.Errorf("number %d of pair %s was %s twice", n.number, n.pair, what)
	}
	in[n] = true
}

// request is what the relay does with one.
func (c *chaos) request() {
	c.mu.Lock()
	last := len(c.pairs)
	recent := min(last, chaosPairs)
	p := c.pairs[last-1-rand.IntN(recent)]
	if rand.IntN(10) == 0 {
		p = c.pairs[rand.IntN(last)]
	}
	c.mu.Unlock()
	l, r := takeFrom(c.any(), p.client, p.id)
	if r != frame.NoReason {
		c.mu.Lock()
		c.refused[r]++
		c.mu.Unlock()
		if (r == frame.PairNotFound || r == frame.InvalidClientID) && rand.IntN(3) == 0 {
			c.pair(3)
		}
		return
	}
	number, b := p.message()
	if !l.Held(nowFor()) {
		l.Retire()
		return
	}
	if _, err := l.Decoder().Decode(b); err != nil {
		releaseTo(l, false)
		return
	}
	c.record(c.decoded, "decoded", chaosNumber{p.id, number})
	for range 1 + rand.IntN(3) {
		if rand.IntN(8) == 0 {
			time.Sleep(time.Duration(rand.IntN(20)) * time.Millisecond) // the origin takes its time
		}
		if !l.Held(nowFor()) {
			l.Retire()
			return
		}
		state := l.Encoder().AppendState(nil)
		c.record(c.encoded, "encoded", chaosNumber{p.id, binary.BigEndian.Uint64(state[33:])})
		if _, err := l.Encoder().AppendEncode(nil, []byte("answer")); err != nil {
			panic(err)
		}
	}
	switch rand.IntN(50) {
	case 0:
		l.Retire()
	default:
		if releaseTo(l, true) == frame.NoReason {
			c.served.Add(1)
		}
	}
}

// crash replaces a node by an empty one and ends the locks and leases of all, as
// if their time had gone by. What the old one has under way goes on.
func (c *chaos) crash(servers ...*redistest.Server) {
	c.mu.Lock()
	i := rand.IntN(len(c.nodes))
	c.nodes[i] = c.node(c.redis[i])
	c.mu.Unlock()
	for _, s := range servers {
		keys, _ := s.Try("KEYS", "sluice:pairs:*")
		for key := range strings.SplitSeq(keys, "\n") {
			if key != "" {
				s.Try("EVAL", `local all = redis.call('HGETALL', KEYS[1])
					for i = 1, #all, 2 do
						local f, r = all[i], all[i + 1]
						if f == 'o' then redis.call('HSET', KEYS[1], f, string.sub(r, 1, 48) .. struct.pack('>d', 1)) end
						if #f == 32 and string.byte(r) ~= 70 then
							redis.call('HSET', KEYS[1], f, string.sub(r, 1, 57) .. struct.pack('>d', 1) .. string.sub(r, 66))
						end
					end`, "1", key)
			}
		}
	}
}

// run has workers make requests while acts happen one after the other, with some
// requests served between them.
func (c *chaos) run(acts ...func()) {
	c.t.Helper()
	rounds, between := 2, int64(60)
	if c.full {
		rounds, between = 10, 400
	}
	var stop atomic.Bool
	var workers sync.WaitGroup
	for range 12 {
		workers.Go(func() {
			for !stop.Load() {
				c.request()
			}
		})
	}
	tidy := func() {
		c.mu.Lock()
		nodes := append([]Pairs(nil), c.nodes...)
		c.mu.Unlock()
		for _, n := range nodes {
			n.Tidy(nowFor())
		}
	}
	served := func() bool {
		for from, end := c.served.Load(), time.Now().Add(redisPatience); c.served.Load() < from+between; time.Sleep(5 * time.Millisecond) {
			tidy()
			if time.Now().After(end) {
				c.mu.Lock()
				defer c.mu.Unlock()
				c.t.Errorf("no service: %v", c.refused)
				return false
			}
		}
		return true
	}
	for range rounds {
		for _, act := range acts {
			if !served() {
				break
			}
			act()
		}
	}
	served()
	stop.Store(true)
	workers.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.t.Logf("%d requests served, %d numbers encoded, %d messages decoded, refused: %v", c.served.Load(), len(c.encoded), len(c.decoded), c.refused)
}

// TestPairsNeverGoBack: no number is encoded twice and no message decoded twice,
// whatever becomes of Redis and of nodes.
func TestPairsNeverGoBack(t *testing.T) {
	t.Parallel()
	neverGoBack(t, false)
}

func TestAcceptPairsNeverGoBack(t *testing.T) {
	if os.Getenv("SLUICE_ACCEPT") != "1" {
		t.Skip("part of make accept: SLUICE_ACCEPT=1")
	}
	neverGoBack(t, true)
}

func neverGoBack(t *testing.T, full bool) {
	both := func(name string, f func(t *testing.T, how chaosKind)) {
		t.Run(name, func(t *testing.T) { t.Parallel(); f(t, chaosKind{false, full}) })
		t.Run(name+" with the cache", func(t *testing.T) { t.Parallel(); f(t, chaosKind{true, full}) })
	}
	both("snapshot", func(t *testing.T, how chaosKind) {
		s := redistest.Start(t)
		c := newChaos(t, s.URL(), how)
		c.run(func() { s.Do("SAVE") }, s.Restart, func() { c.crash(s) })
	})
	both("pause", func(t *testing.T, how chaosKind) {
		s := redistest.Start(t)
		p := redistest.StartProxy(t, s.Addr)
		c := newChaos(t, p.URL(), how)
		c.run(
			func() { s.Pause(); awaitDown(t, c); s.Resume() },
			func() { p.Pause(redistest.ToClient); awaitDown(t, c); p.Heal() },
			func() { p.Pause(redistest.ToServer); awaitDown(t, c); p.Heal() },
			func() { p.Break() },
			func() { c.crash(s) })
	})
	both("promotion", func(t *testing.T, how chaosKind) {
		one, two := redistest.Start(t), redistest.Start(t)
		link, vip := redistest.StartProxy(t, one.Addr), redistest.StartProxy(t, one.Addr)
		c := newChaos(t, vip.URL(), how)
		host, port, _ := strings.Cut(link.Addr, ":")
		master, replica := one, two
		c.run(func() {
			link.Heal()
			link.Turn(master.Addr)
			replica.Do("REPLICAOF", host, port)
			replica.Await("it is in step", func() bool { return replica.Info("replication", "master_link_status") == "up" })
		}, func() {
			link.Pause(redistest.ToClient)
		}, func() {
			// It has not seen what came since. The old master lives on, and comes
			// back one day.
			replica.Do("REPLICAOF", "NO", "ONE")
			vip.Turn(replica.Addr)
			master, replica = replica, master
		}, func() { c.crash(one, two) })
	})
	both("slots", func(t *testing.T, how chaosKind) {
		cluster := redistest.StartCluster(t, 3)
		c := newChaos(t, cluster.URL(), how)
		at := map[int]int{}
		c.run(func() {
			c.mu.Lock()
			list := c.pairs[max(0, len(c.pairs)-chaosPairs):]
			c.mu.Unlock()
			for i := 0; i < len(list); i += 3 {
				slot := cluster.Slot(newVault(testDomain, "a secret of the tests, longer than 32 bytes").key(list[i].client.ID))
				from, moved := at[slot]
				if !moved {
					for from = 0; (from+1)*16384/3 <= slot; from++ {
					}
				}
				at[slot] = (from + 1) % 3
				cluster.Move(slot, from, at[slot])
			}
		}, func() { c.crash(cluster.Servers...) })
	})
}

// awaitDown waits until every node has seen that Redis is of no use.
func awaitDown(t *testing.T, c *chaos) {
	for _, r := range c.redis {
		eventually(t, "an outage is seen", func() bool { return !r.Ready() })
	}
}
