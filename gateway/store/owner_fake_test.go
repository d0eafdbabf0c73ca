package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"time"
)

// A fakeLeases does what the scripts do, by a clock that the test moves.
type fakeLeases struct {
	now   int64
	keys  map[string]fakeKey
	beats map[string]int64
	calls int // batches done
}

type fakeKey struct {
	value   string
	expires int64
}

func (f *fakeLeases) get(id string) (string, bool) {
	k, ok := f.keys[id]
	if ok && f.now >= k.expires {
		delete(f.keys, id)
		return "", false
	}
	return k.value, ok
}

func (f *fakeLeases) do(b *leaseBatch, node, target string, lease time.Duration) {
	f.calls++
	for i, id := range b.ids {
		v, there := f.get(id)
		mine := strings.HasPrefix(v, node+"-")
		exact := there && strings.HasPrefix(v, node+"-"+strconv.FormatUint(b.tokens[i], 10)+" ")
		answer := v
		switch b.op {
		case opClaim:
			if !there || mine {
				f.keys[id] = fakeKey{fmt.Sprintf("%s-%d %s", node, b.tokens[i], target), f.now + int64(lease)}
				answer = answerOurs
			}
		case opLook:
			if mine {
				number, _, _ := strings.Cut(strings.TrimPrefix(v, node+"-"), " ")
				if token, err := strconv.ParseUint(number, 10, 64); err == nil && token <= b.tokens[i] {
					delete(f.keys, id)
				}
				answer = ""
			}
		case opRenew:
			if exact {
				f.keys[id] = fakeKey{v, f.now + int64(lease)}
				answer = answerOurs
			} else if mine {
				answer = ""
			}
		case opRelease:
			if exact {
				delete(f.keys, id)
			}
			answer = ""
		}
		b.answers = append(b.answers, answer)
	}
}

// A fakeNode is a node without goroutines, and its way to the fake Redis.
type fakeNode struct {
	*RedisOwnership
	t     testing.TB
	redis *fakeLeases
	cut   bool               // nothing arrives there
	mute  bool               // what arrives is done, but not answered
	hung  func(tag int) bool // parts whose master of a cluster answers nothing
	held  func()             // called in front of the next batch, once
	last  *leaseBatch        // what was sent last
	gone  []*Tenure
}

var errFake = errors.New("no answer")

func (n *fakeNode) ready() bool    { return true }
func (n *fakeNode) together() bool { return false }

func (n *fakeNode) run(_ context.Context, node, target string, lease time.Duration, batches []*leaseBatch) {
	waited := false
	for _, b := range batches {
		n.last = b
		if f := n.held; f != nil {
			n.held = nil
			f()
		}
		if n.hung != nil && n.hung(ownerTag(b.ids[0])) {
			b.err, waited = errFake, true
			continue
		}
		if !n.cut {
			n.redis.do(b, node, target, lease)
		}
		if n.cut || n.mute {
			b.answers, b.err = nil, errFake
		}
	}
	if waited {
		n.redis.now += int64(n.cfg.OpTimeout)
	}
}

func (n *fakeNode) beat(_ context.Context, node string, dead time.Duration, alive bool) (int, error) {
	if n.cut {
		return 0, errFake
	}
	n.redis.beats[node] = n.redis.now
	if !alive {
		delete(n.redis.beats, node)
	}
	for id, at := range n.redis.beats {
		if n.redis.now-at >= int64(dead) {
			delete(n.redis.beats, id)
		}
	}
	return len(n.redis.beats), nil
}

func fakeFleet(t testing.TB, nodes int, change ...func(*OwnerConfig)) (*fakeLeases, []*fakeNode) {
	f := &fakeLeases{now: 1e9, keys: map[string]fakeKey{}, beats: map[string]int64{}}
	var all []*fakeNode
	for i := range nodes {
		n := &fakeNode{t: t, redis: f}
		cfg := OwnerConfig{Target: fmt.Sprintf("target-%d", i), MinNodes: 1, OpTimeout: 5 * time.Second, Times: DefaultOwnerTimes,
			Log: slog.New(slog.DiscardHandler), Now: func() int64 { return f.now }}
		for _, c := range change {
			c(&cfg)
		}
		n.RedisOwnership = newOwnership(cfg, n)
		n.lost = func(t *Tenure) { n.gone = append(n.gone, t) }
		n.RedisOwnership.beat()
		all = append(all, n)
	}
	for _, n := range all {
		n.RedisOwnership.beat()
	}
	return f, all
}

// settle lets the callers do all they have to.
func (n *fakeNode) settle() {
	for n.askSome() {
	}
}

// pass moves the clock in small steps, at each of which the nodes do what is due.
func pass(f *fakeLeases, d time.Duration, nodes ...*fakeNode) {
	for end := f.now + int64(d); f.now < end; {
		f.now += int64(100 * time.Millisecond)
		for _, n := range nodes {
			n.renew()
			n.sweep(f.now)
			n.settle()
			if f.now/1e8%30 == 0 {
				n.RedisOwnership.beat()
			}
		}
	}
}

// claim claims and waits for the answer.
func (n *fakeNode) claim(id string) (c Claim) {
	n.t.Helper()
	answers := 0
	c, ok := n.Claim(id, false, func(later Claim) { c = later; answers++ })
	if ok {
		answers++
	}
	n.settle()
	if answers != 1 {
		n.t.Fatalf("%d answers to a claim", answers)
	}
	return c
}

func (n *fakeNode) wantVerdict(id string, want Verdict) Claim {
	n.t.Helper()
	c := n.claim(id)
	if c.Verdict != want {
		n.t.Fatalf("claim of %s: verdict %d (target %q), want %d", id, c.Verdict, c.Target, want)
	}
	if (c.Tenure != nil) != (want == Owned) {
		n.t.Fatalf("verdict %d with tenure %v", want, c.Tenure)
	}
	return c
}

// own claims and attaches.
func (n *fakeNode) own(id string) *Tenure {
	n.t.Helper()
	t := n.wantVerdict(id, Owned).Tenure
	if !t.Attach() {
		n.t.Fatal("a fresh claim cannot be attached to")
	}
	return t
}

func wantHeld(t testing.TB, what string, ten *Tenure, now int64, want bool) {
	t.Helper()
	if ten.Held(now) != want {
		t.Fatalf("%s: held is %v", what, !want)
	}
}
