package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os/exec"
	"slices"
	"sync"
	"time"

	"sluice/gateway/store"
	"sluice/loop"
)

const (
	// claimsBar is how long a claim may take at the 99th percentile, milliseconds.
	claimsBar = 5

	// heldLeases is how many leases one node holds while their renewal is measured.
	heldLeases = 50000

	// claimsReady is how long the nodes may take to reach Redis.
	claimsReady = 10 * time.Second
)

// A claimCell is a load of claims: so many nodes, each with at most so many under
// way, each of these with a pause between two claims.
type claimCell struct {
	name   string
	nodes  int
	flight int
	pause  time.Duration
	bar    bool
}

var claimCells = []claimCell{
	{"one node, one after the other", 1, 1, 0, true},
	{"three nodes, 1000/s each", 3, 16, 16 * time.Millisecond, true},
	{"three nodes, as many as go", 3, 64, 0, false},
}

// runClaims measures claims of serverIds in a real Redis on loopback: the store
// that the relay uses, three nodes of it in this process, Redis on the server's
// core. Every node claims the same serverIds, so that one claim in as many as
// there are nodes is won, and every answer is compared.
func runClaims(l *lab, r *report) error {
	if _, err := exec.LookPath("redis-server"); err != nil {
		r.note("claims: not run, redis-server is not installed (scripts/deps does that)")
		return nil
	}
	port, err := freePort()
	if err != nil {
		return err
	}
	redis, err := l.startProcess("redis-server", port, l.cores.server, []string{"redis-server", "--port", fmt.Sprint(port),
		"--bind", "127.0.0.1", "--save", "", "--appendonly", "no"}, nil)
	if err != nil {
		return err
	}
	defer redis.stop()
	t := newTable("claims of serverIds, Redis on loopback", "p50 ms", "p99 ms", "claims/s", "Redis CPU µs each")
	for i, c := range claimCells {
		got, err := l.measureClaims(redis, i, c)
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		for n, m := range got {
			r.raw("claims", "%s, round %d: p50_ms=%.3f p99_ms=%.3f claims_s=%.0f redis_cpu_us=%.2f", c.name, n+1, m.p50, m.p99, m.rate, m.cpu)
		}
		p99 := medianOf(got, func(m claimed) float64 { return m.p99 })
		t.add(c.name, number(medianOf(got, func(m claimed) float64 { return m.p50 })), number(p99),
			number(medianOf(got, func(m claimed) float64 { return m.rate })), number(medianOf(got, func(m claimed) float64 { return m.cpu })))
		if c.bar {
			r.check("claim p99, ms, "+c.name, p99, claimsBar)
		}
	}
	r.section("Claims", t.String())
	return l.measureRenewals(redis, r)
}

// measureRenewals looks at what it costs Redis that many leases are held.
func (l *lab) measureRenewals(redis *server, r *report) error {
	n, err := startClaimNode(redis.port, "node")
	if err != nil {
		return err
	}
	defer n.close()
	var answered sync.WaitGroup
	for i := range heldLeases {
		answered.Add(1)
		attach := func(c store.Claim) {
			if c.Tenure != nil {
				c.Tenure.Attach()
			}
			answered.Done()
		}
		if c, ok := n.owner.Claim(fmt.Sprintf("held-%032d", i), false, attach); ok {
			attach(c)
		}
	}
	answered.Wait()
	span := 2 * store.DefaultOwnerTimes.Renew
	before, err := cpuSeconds(redis.pid())
	if err != nil {
		return err
	}
	time.Sleep(span)
	after, err := cpuSeconds(redis.pid())
	if err != nil {
		return err
	}
	share := (after - before) / span.Seconds() * 100
	r.raw("claims", "%d leases: redis_cpu_percent=%.2f", heldLeases, share)
	t := newTable(fmt.Sprintf("%d leases held by one node", heldLeases), "Redis CPU, % of a core")
	t.add("renewed every "+store.DefaultOwnerTimes.Renew.String(), number(share))
	r.section("Renewals", t.String())
	return nil
}

// claimed is what one round came to.
type claimed struct{ p50, p99, rate, cpu float64 }

func medianOf(list []claimed, of func(claimed) float64) float64 {
	var values []float64
	for _, c := range list {
		values = append(values, of(c))
	}
	return median(values)
}

// A claimNode is one node's store.
type claimNode struct {
	redis *store.Redis
	owner *store.RedisOwnership
}

func startClaimNode(port int, target string) (*claimNode, error) {
	log := slog.New(slog.DiscardHandler)
	n := &claimNode{redis: store.OpenRedis(store.RedisConfig{
		Addrs: []string{fmt.Sprintf("127.0.0.1:%d", port)}, Connections: 2, Retries: 3, Log: log,
		DialTimeout: 5 * time.Second, ReadTimeout: 3 * time.Second, WriteTimeout: 3 * time.Second, OpTimeout: 5 * time.Second,
	})}
	n.owner = store.NewRedisOwnership(store.OwnerConfig{Target: target, MinNodes: 1, OpTimeout: 5 * time.Second,
		Times: store.DefaultOwnerTimes, Log: log, Now: loop.Now}, n.redis)
	n.owner.Start(func(*store.Tenure) {})
	for end := time.Now().Add(claimsReady); ; time.Sleep(time.Millisecond) {
		if ok, _ := n.owner.Ready(); ok {
			return n, nil
		}
		if time.Now().After(end) {
			n.close()
			return nil, errors.New("redis-server is not reached")
		}
	}
}

func (n *claimNode) close() {
	n.owner.Close()
	n.redis.Close()
}

func (l *lab) measureClaims(redis *server, cell int, c claimCell) (got []claimed, err error) {
	var nodes []*claimNode
	defer func() {
		for _, n := range nodes {
			n.close()
		}
	}()
	for i := range c.nodes {
		n, err := startClaimNode(redis.port, fmt.Sprint("node-", i))
		if err != nil {
			return nil, err
		}
		nodes = append(nodes, n)
	}
	for round := range l.plan.rounds + 1 {
		seconds := l.plan.seconds
		if round == 0 {
			seconds = l.plan.warmUp
		}
		before, err := cpuSeconds(redis.pid())
		if err != nil {
			return nil, err
		}
		began := time.Now()
		took, err := claimLoad(nodes, c, fmt.Sprintf("%d-%d-", cell, round), time.Duration(seconds*float64(time.Second)))
		if err != nil {
			return nil, err
		}
		span := time.Since(began).Seconds()
		after, err := cpuSeconds(redis.pid())
		if err != nil {
			return nil, err
		}
		if round == 0 || len(took) == 0 {
			continue
		}
		slices.Sort(took)
		n := len(took)
		got = append(got, claimed{took[n/2].Seconds() * 1e3, took[n*99/100].Seconds() * 1e3, float64(n) / span, (after - before) / float64(n) * 1e6})
	}
	if len(got) == 0 {
		return nil, errors.New("no claim was answered")
	}
	return got, nil
}

// claimLoad has every node claim the same serverIds for a time and returns how
// long each claim took.
func claimLoad(nodes []*claimNode, c claimCell, prefix string, length time.Duration) (took []time.Duration, err error) {
	var mu sync.Mutex
	owners := make(map[string]string)
	var wg sync.WaitGroup
	end := time.Now().Add(length)
	for i, n := range nodes {
		for f := range c.flight {
			wg.Go(func() {
				var mine []time.Duration
				var wrong error
				answer := make(chan store.Claim, 1)
				for k := 0; time.Now().Before(end) && wrong == nil; k++ {
					time.Sleep(c.pause)
					id := fmt.Sprint(prefix, f, "-", k)
					began := time.Now()
					claim, ok := n.owner.Claim(id, false, func(c store.Claim) { answer <- c })
					if !ok {
						claim = <-answer
					}
					mine = append(mine, time.Since(began))
					owner := claim.Target
					switch claim.Verdict {
					case store.Owned:
						claim.Tenure.Attach()
						owner = fmt.Sprint("node-", i)
					case store.Elsewhere:
					default:
						wrong = fmt.Errorf("a claim was answered %d", claim.Verdict)
					}
					mu.Lock()
					if first, ok := owners[id]; ok && first != owner && wrong == nil {
						wrong = fmt.Errorf("%s and %s own one serverId", first, owner)
					}
					owners[id] = owner
					mu.Unlock()
				}
				mu.Lock()
				defer mu.Unlock()
				took = append(took, mine...)
				if wrong != nil {
					err = wrong
				}
			})
		}
	}
	wg.Wait()
	return took, err
}
