package relay

import (
	"slices"
	"testing"
)

// Sources that a destination holds up are let go in the order in which they
// were. One that was let go and not read keeps its turn, and what it is told of
// its pause; one that was read, or had nothing to be read, goes to the end.
func TestGatedSourcesKeepTheirTurns(t *testing.T) {
	t.Parallel()
	s := newSource(t, maxMessage)
	sh := s.k.shard
	ch := &channel{data: &sock{out: outbound{over: true}}}
	now := sh.l.Now()
	var all []*sock
	order := func() (names []int) {
		for k := ch.gated.head; k != nil; k = k.nextGate {
			names = append(names, slices.Index(all, k))
		}
		return names
	}
	want := func(sentence string, names ...int) {
		t.Helper()
		if got := order(); !slices.Equal(got, names) {
			t.Errorf("%s: %v, want %v", sentence, got, names)
		}
	}
	for range 6 {
		k := &sock{c: &scripted{}, shard: sh, ch: ch, kind: kindClient}
		all = append(all, k)
		k.gate()
		k.heldSince, k.lastPong = now-8e9, now-3e9 // it has been so for a while
	}
	release := func(n int) {
		for range n {
			ch.gated.pop().unhold(holdGate)
		}
	}
	want("in the order in which they came", 0, 1, 2, 3, 4, 5)
	release(4)
	want("some are let go", 4, 5)
	all[0].read()
	all[0].gate()
	for _, i := range []int{3, 1, 2} { // whoever the loop comes by first
		all[i].gate()
	}
	want("the one that was read goes behind the others, these stay in front", 1, 2, 3, 4, 5, 0)
	for i, k := range all {
		if fresh := i == 0; fresh != (k.heldSince == now) || fresh != (k.lastPong == 0) {
			t.Errorf("source %d: held since %d, last pong %d", i, k.heldSince, k.lastPong)
		}
	}
	for round := range 12 {
		first := order()[0]
		release(4)
		all[first].read()
		for i := range all {
			if !all[i].listed {
				all[(i+round)%len(all)].gate()
				all[i].gate()
			}
		}
	}
	want("after twice as many rounds as sources each has been read twice", 1, 2, 3, 4, 5, 0)
	release(6)
	for _, k := range all {
		k.letGo = now - 2*futile // it had nothing to be read
	}
	for _, i := range []int{5, 3, 1, 0, 2, 4} {
		all[i].gate()
	}
	want("turns that were not used end", 5, 3, 1, 0, 2, 4)
	if all[5].heldSince != now {
		t.Error("and with them the time that they were held")
	}
	ch.gated.remove(all[4])
	ch.gated.remove(all[5])
	ch.gated.remove(all[0])
	all[0].gate()
	want("one that left its list comes in again", 3, 1, 0, 2)
}
