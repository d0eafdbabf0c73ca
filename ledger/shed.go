package ledger

import (
	"cmp"
	"slices"
)

// leastShed is what a socket must hold for its end to be of any use.
const leastShed = 64 << 10

// A Holder is a socket as memory pressure sees it.
type Holder struct {
	ID      uint64
	Bytes   int64 // it accounts for: queue, message in progress, unparsed input
	Blocked bool  // bytes wait for it
}

// Shed picks who is closed so that at least need bytes come free: blocked
// deliveries first, then the largest holders, never one that holds less than
// 64 KiB. It sorts all in place and returns its head.
func Shed(all []Holder, need int64) []Holder {
	slices.SortFunc(all, func(a, b Holder) int {
		if a.Blocked != b.Blocked {
			if a.Blocked {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(b.ID, a.ID))
	})
	n := 0
	for _, h := range all {
		if need <= 0 {
			break
		}
		if h.Bytes < leastShed {
			continue
		}
		all[n] = h
		n++
		need -= h.Bytes
	}
	return all[:n]
}
