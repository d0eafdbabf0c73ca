package ledger

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

func TestShed(t *testing.T) {
	const least = 64 << 10
	f := func(sentence string, all []Holder, need int64, ids string) {
		t.Helper()
		got := ""
		for _, h := range Shed(all, need) {
			got += fmt.Sprint(h.ID, " ")
		}
		if got != ids {
			t.Errorf("%s: closes %q, want %q", sentence, got, ids)
		}
	}
	f("nobody is there", nil, 1, "")
	f("nothing is needed", []Holder{{ID: 1, Bytes: 1 << 20}}, 0, "")
	f("less than nothing is needed", []Holder{{ID: 1, Bytes: 1 << 20}}, -1, "")
	f("one byte needs one socket, the largest",
		[]Holder{{ID: 1, Bytes: 1 << 20}, {ID: 2, Bytes: 2 << 20}, {ID: 3, Bytes: least}}, 1, "2 ")
	f("exactly what the first holds needs no second",
		[]Holder{{ID: 1, Bytes: 1 << 20}, {ID: 2, Bytes: 2 << 20}}, 2<<20, "2 ")
	f("a byte more needs the next",
		[]Holder{{ID: 1, Bytes: 1 << 20}, {ID: 2, Bytes: 2 << 20}}, 2<<20+1, "2 1 ")
	f("more than everybody holds closes everybody that helps",
		[]Holder{{ID: 1, Bytes: 1 << 20}, {ID: 2, Bytes: least}, {ID: 3, Bytes: least - 1}}, 1<<40, "1 2 ")
	f("blocked deliveries go before larger holders",
		[]Holder{{ID: 1, Bytes: 9 << 20}, {ID: 2, Bytes: least, Blocked: true}, {ID: 3, Bytes: 1 << 20, Blocked: true}},
		1<<20+least+1, "3 2 1 ")
	f("one that holds less than 64 KiB is spared, blocked or not",
		[]Holder{{ID: 1, Bytes: least - 1, Blocked: true}, {ID: 2, Bytes: least - 1}}, 1, "")
	f("a spared one does not end the search",
		[]Holder{{ID: 1, Bytes: least - 1, Blocked: true}, {ID: 2, Bytes: least}}, 1, "2 ")
	f("of equal holders the youngest goes",
		[]Holder{{ID: 4, Bytes: least}, {ID: 9, Bytes: least}, {ID: 7, Bytes: least}}, least+1, "9 7 ")
}

// TestShedRandom compares with the rule said slowly: take the best candidate
// until enough is free.
func TestShedRandom(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		all := make([]Holder, r.IntN(12))
		for i := range all {
			all[i] = Holder{ID: uint64(i + 1), Bytes: r.Int64N(6) * 32 << 10, Blocked: r.IntN(3) == 0}
		}
		need := r.Int64N(600 << 10)

		var exp []Holder
		for left, pool := need, append([]Holder(nil), all...); left > 0; {
			best := -1
			for i, h := range pool {
				if h.Bytes < 64<<10 {
					continue
				}
				b := Holder{}
				if best >= 0 {
					b = pool[best]
				}
				if best < 0 || h.Blocked && !b.Blocked ||
					h.Blocked == b.Blocked && (h.Bytes > b.Bytes || h.Bytes == b.Bytes && h.ID > b.ID) {
					best = i
				}
			}
			if best < 0 {
				break
			}
			exp = append(exp, pool[best])
			left -= pool[best].Bytes
			pool = append(pool[:best], pool[best+1:]...)
		}
		if got := Shed(all, need); fmt.Sprint(got) != fmt.Sprint(exp) {
			t.Fatalf("need %d: closes %v, want %v", need, got, exp)
		}
	}
}
