package ledger

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// small are limits whose ends are easy to reach: ten sockets, 1000 payload bytes.
var small = Limits{Sockets: 10, Budget: 4000, Weight: 4, IngressWait: time.Second}

// want asserts that what the sentence says holds.
func want(t *testing.T, sentence string, holds bool) {
	t.Helper()
	if !holds {
		t.Errorf("not so: %s", sentence)
	}
}

// wantBug asserts that do panics as a programmer's fault does.
func wantBug(t *testing.T, sentence string, do func()) {
	t.Helper()
	defer func() {
		t.Helper()
		if r := recover(); r == nil || !strings.HasPrefix(fmt.Sprint(r), "BUG: ") {
			t.Errorf("%s: panicked with %v, want BUG: …", sentence, r)
		}
	}()
	do()
}

func wantEmpty(t *testing.T, l *Ledger) {
	t.Helper()
	if err := l.Empty(); err != nil {
		t.Error(err)
	}
}

func TestNewSuccess(t *testing.T) {
	f := func(lim Limits) {
		t.Helper()
		l := New(lim)
		want(t, "a new ledger has nothing on it", l.Snapshot() == Snapshot{})
		wantEmpty(t, l)
	}
	f(small)
	// the smallest: one socket, one byte
	f(Limits{Sockets: 1, Budget: 1, Weight: 1})
	// the defaults of the contract
	f(Limits{Sockets: 20000, Budget: 512 << 20, Weight: 4, IngressWait: time.Second})
}

func TestNewFailure(t *testing.T) {
	f := func(sentence string, lim Limits) {
		t.Helper()
		wantBug(t, sentence, func() { New(lim) })
	}
	f("the zero limits", Limits{})
	f("no sockets", Limits{Budget: 4, Weight: 4})
	f("no weight", Limits{Sockets: 1, Budget: 4})
	f("a budget that admits no byte", Limits{Sockets: 1, Budget: 3, Weight: 4})
}

// TestSnapshot fills every account and sees each figure, and each again in what
// Empty says.
func TestSnapshot(t *testing.T) {
	l := New(small)
	var slot Slot
	var c Charge
	var w Wait
	var d Delivery
	l.TakeSlot(&slot, false)
	l.Reserve(&c, 25)
	l.StartWait(&w, 7, 25, 0)
	l.Refuse(&d, 3)

	got := l.Snapshot()
	if exp := (Snapshot{Sockets: 1, Ingress: 100, Blocked: 1, Waiting: 1}); got != exp {
		t.Errorf("snapshot %+v, want %+v", got, exp)
	}

	f := func(undo func(), text string) {
		t.Helper()
		got := "nothing"
		if err := l.Empty(); err != nil {
			got = err.Error()
		}
		if exp := "ledger not empty: " + text; got != exp {
			t.Errorf("Empty says %q, want %q", got, exp)
		}
		undo()
	}
	f(func() { l.ReturnSlot(&slot) }, "1 sockets, 100 weighted ingress bytes, 1 blocked deliveries, 1 sources waiting")
	f(func() { l.Return(&c, 25) }, "0 sockets, 100 weighted ingress bytes, 1 blocked deliveries, 1 sources waiting")
	f(func() { l.Accept(&d, 3) }, "0 sockets, 0 weighted ingress bytes, 1 blocked deliveries, 1 sources waiting")
	f(func() { l.EndWait(&w) }, "0 sockets, 0 weighted ingress bytes, 0 blocked deliveries, 1 sources waiting")
	wantEmpty(t, l)
}
