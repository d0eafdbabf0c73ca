package ledger

import (
	"testing"
	"time"
)

func TestDelivery(t *testing.T) {
	l := New(small)
	var d Delivery
	want(t, "a new destination keeps up", !d.Blocked() && d.Queued() == 0)
	l.Refuse(&d, 0)
	want(t, "nothing refused is no pressure", !d.Blocked() && l.Snapshot().Blocked == 0)
	l.Refuse(&d, 100)
	want(t, "refused bytes block it", d.Blocked() && d.Queued() == 100 && l.Snapshot().Blocked == 1)
	l.Refuse(&d, 50)
	want(t, "more of them add up, and it is blocked once", d.Queued() == 150 && l.Snapshot().Blocked == 1)
	l.Accept(&d, 149)
	want(t, "one waiting byte keeps it blocked", d.Blocked() && l.Snapshot().Blocked == 1)
	l.Accept(&d, 0)
	want(t, "accepting nothing changes nothing", d.Blocked() && d.Queued() == 1)
	l.Accept(&d, 1)
	want(t, "the last one sets it free", !d.Blocked() && l.Snapshot().Blocked == 0)

	wantBug(t, "accepting what does not wait", func() { l.Accept(&d, 1) })
	wantBug(t, "accepting a negative amount", func() { l.Accept(&d, -1) })

	// two destinations are two in the gauge
	var e Delivery
	l.Refuse(&d, 1)
	l.Refuse(&e, 1)
	want(t, "two blocked destinations are counted", l.Snapshot().Blocked == 2)
	l.Accept(&e, e.Queued()) // dropped with its socket
	l.Accept(&d, d.Queued())
	wantEmpty(t, l)
}

// TestOver drives a destination and asks after each step whether its sources
// stop, and whether that is news.
func TestOver(t *testing.T) {
	l := New(small)
	var d Delivery
	f := func(sentence string, siblings, over, changed bool) {
		t.Helper()
		if o, c := d.Over(siblings); o != over || c != changed {
			t.Errorf("%s: over %v changed %v, want %v %v", sentence, o, c, over, changed)
		}
	}
	f("a destination that keeps up holds nobody", false, false, false)
	f("nor with siblings", true, false, false)

	l.Refuse(&d, 1)
	f("alone, one waiting byte stops the source", false, true, true)
	f("which is news once", false, true, false)
	l.Accept(&d, 1)
	f("drained, the source goes on", false, false, true)
	f("which is news once too", false, false, false)

	l.Refuse(&d, SiblingLag)
	f("with siblings it may lag up to 1 MiB", true, false, false)
	l.Refuse(&d, 1)
	f("one byte more stops the source", true, true, true)
	l.Accept(&d, 1)
	f("one byte less lets it go on", true, false, true)
	f("when the siblings leave it counts as alone", false, true, true)
	f("and when they come back not any more", true, false, true)
	l.Accept(&d, SiblingLag)
	f("in the end nothing is held", false, false, false)
	wantEmpty(t, l)
}

func TestJudge(t *testing.T) {
	dl := Deadlines{Delivery: 30 * time.Second, Send: 35 * time.Second}
	const since = int64(7e9)
	sec := func(s float64) int64 { return since + int64(s*1e9) }
	f := func(sentence string, now int64, v Verdict, next int64) {
		t.Helper()
		if gv, gn := dl.Judge(since, now); gv != v || gn != next {
			t.Errorf("%s: verdict %d, again at %d; want %d, %d", sentence, gv, gn, v, next)
		}
	}
	f("a fresh message stays", since, KeepIt, sec(30))
	f("a clock behind it does no harm", since-5, KeepIt, sec(30))
	f("one nanosecond before the deadline it stays", sec(30)-1, KeepIt, sec(30))
	f("at the deadline its destination is shed", sec(30), ShedIt, sec(35))
	f("until the last resort", sec(35)-1, ShedIt, sec(35))
	f("then it is reset", sec(35), ResetIt, 0)
	f("however late", sec(3600), ResetIt, 0)

	// the smallest legal deadlines
	dl = Deadlines{Delivery: time.Millisecond, Send: 2 * time.Millisecond}
	f("one millisecond is kept", since+999_999, KeepIt, since+1e6)
	f("and over after it", since+1e6, ShedIt, since+2e6)
}
