package store

import (
	"testing"
	"time"

	"sluice/codec/frame"
	"sluice/codec/open"
)

func memoryFor(t testing.TB, limits MemoryLimits) (*MemoryPairs, open.Profile) {
	t.Helper()
	profile, err := open.New(512, frame.SequenceWindow)
	if err != nil {
		t.Fatal(err)
	}
	return NewMemoryPairs(limits, open.NewPools(profile, 1)), profile
}

// newPairs makes n pairs whose two directions are the same, so that a pair can
// talk to itself.
func newPairs(p open.Profile, n int) []NewPair {
	var list []NewPair
	for range n {
		var entropy [32]byte
		list = append(list, NewPair{ID: frame.NewPairID(),
			Encoder: p.AppendInitialState(nil, &entropy, 1, []byte("person")),
			Decoder: p.AppendInitialState(nil, &entropy, 1, []byte("person"))})
	}
	return list
}

func wantReason(t testing.TB, what string, got, want frame.Reason) {
	t.Helper()
	if got != want {
		t.Fatalf("%s: %q, want %q", what, got, want)
	}
}

// TestMemoryPairsLife: a pair lives from its last use or keepalive, one in use
// beyond its time, and a dropped one in use to the end of its request.
func TestMemoryPairsLife(t *testing.T) {
	m, p := memoryFor(t, MemoryLimits{Pairs: 10, PerClient: 5, Timeout: 10})
	c := Client{Domain: "a.test", ID: frame.NewClientID()}
	pairs := newPairs(p, 3)
	add, _ := m.Add(c, pairs, 0, nil)
	wantReason(t, "add", add, frame.NoReason)
	take := func(i int, now int64, want frame.Reason) Lease {
		t.Helper()
		l, r, _ := m.Take(c, pairs[i].ID, open.MKE, now, nil)
		wantReason(t, "take", r, want)
		return l
	}
	l := take(0, 9, frame.NoReason)
	take(0, 9, frame.PairBusy)
	if n := m.InUse(); n != 1 {
		t.Fatalf("%d in use", n)
	}
	m.Tidy(30)
	if n := m.Count(); n != 1 {
		t.Fatalf("%d pairs are left, want the one in use", n)
	}
	take(1, 30, frame.PairNotFound)
	l.Release(31, true, nil)
	take(0, 40, frame.NoReason).Release(40, false, nil)
	take(0, 41, frame.InvalidClientID) // an unused lease prolongs nothing

	pairs = newPairs(p, 2)
	m.Add(c, pairs, 50, nil)
	l = take(0, 51, frame.NoReason)
	n, _, _ := m.Keepalive(c, []frame.PairID{pairs[0].ID}, 55, nil)
	if n != 1 {
		t.Fatalf("%d touched", n)
	}
	take(0, 56, frame.PairBusy)
	l.Release(56, true, nil)
	take(0, 57, frame.PairNotFound)
	take(1, 64, frame.NoReason).Retire()
	take(1, 64, frame.InvalidClientID)
	if n := m.Count(); n != 0 {
		t.Fatalf("%d pairs are left", n)
	}
}

// TestMemoryPairsLimits: all or nothing, and expired ones make room.
func TestMemoryPairsLimits(t *testing.T) {
	m, p := memoryFor(t, MemoryLimits{Pairs: 4, PerClient: 3, Timeout: 10})
	a, b := Client{Domain: "a.test", ID: frame.NewClientID()}, Client{Domain: "a.test", ID: frame.NewClientID()}
	add := func(c Client, pairs []NewPair, now int64, want frame.Reason) {
		t.Helper()
		before := m.Count()
		r, _ := m.Add(c, pairs, now, nil)
		wantReason(t, "add", r, want)
		if r != frame.NoReason && m.Count() != before {
			t.Fatalf("a refused call left %d pairs, before it there were %d", m.Count(), before)
		}
	}
	first := newPairs(p, 2)
	add(a, first, 0, frame.NoReason)
	add(a, append(newPairs(p, 1), NewPair{ID: first[0].ID}), 0, frame.PairExists)
	add(a, newPairs(p, 2), 0, frame.PairLimit)
	add(b, newPairs(p, 3), 5, frame.PoolExhausted)
	add(b, newPairs(p, 2), 5, frame.NoReason)
	add(b, newPairs(p, 1), 9, frame.PoolExhausted)
	add(b, newPairs(p, 1), 10, frame.NoReason) // a's have expired
	other := a
	other.Domain = "b.test"
	_, r, _ := m.Take(other, first[0].ID, open.MKE, 1, nil)
	wantReason(t, "another domain", r, frame.InvalidClientID)
}

// TestMemoryPairsTypes: the type can change with every request, and the sequence
// goes on over it.
func TestMemoryPairsTypes(t *testing.T) {
	m, p := memoryFor(t, MemoryLimits{Pairs: 4, PerClient: 3, Timeout: time.Hour})
	c := Client{ID: frame.NewClientID()}
	pairs := newPairs(p, 1)
	m.Add(c, pairs, 0, nil)
	for i := range 20 {
		l, r, _ := m.Take(c, pairs[0].ID, open.Type(i/2%2), 0, nil)
		wantReason(t, "take", r, frame.NoReason)
		b, err := l.Encoder().AppendEncode(nil, []byte("x"))
		if err != nil {
			t.Fatal(err)
		}
		if text, err := l.Decoder().Decode(b); err != nil || string(text) != "x" {
			t.Fatalf("round %d: %q %v", i, text, err)
		}
		l.Release(0, true, nil)
	}
	l, _, _ := m.Take(c, pairs[0].ID, open.MKE, 0, nil)
	l.Retire()
	defer func() {
		if recover() == nil {
			t.Error("a pair was given back twice")
		}
	}()
	l.Retire()
}
