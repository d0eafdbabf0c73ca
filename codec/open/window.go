package open

import "math/bits"

// Bounds of a sequence window (contract, open codec profile).
const (
	MinWindow = -63
	MaxWindow = 65535
)

// endSeq is the first sequence number that is never used: an encoder stops before it, so a decoder
// has no reason to accept it.
const endSeq = 1 << 32

// window decides which sequence numbers a decoder accepts. It is the part of a direction's state
// that changes.
//
// A size w ≥ 0 accepts up to w numbers ahead and nothing twice or late. A size w < 0 accepts -w
// ahead and, once each, the last -w behind.
type window struct {
	next uint64 // the number after the highest that was accepted
	seen uint64 // bit i: next-1-i was accepted; only what a window of 63 can ask for matters
	size int
}

// accept decides about an authenticated message and, if it is taken, remembers it.
func (w *window) accept(seq uint64) error {
	span := uint64(max(w.size, -w.size))
	if seq >= w.next {
		if seq-w.next > span || seq >= endSeq {
			return DecodeFailed
		}
		w.seen = w.seen<<(seq-w.next+1) | 1 // a shift of 64 and more leaves 0
		w.next = seq + 1
		return nil
	}
	back := w.next - 1 - seq
	if w.size >= 0 || back >= span || w.seen>>back&1 != 0 {
		return ReplayRejected
	}
	w.seen |= 1 << back
	return nil
}

// possible tells whether accept can have led here: the highest number is marked as seen, and none
// below zero is.
func (w *window) possible() bool {
	if w.next == 0 {
		return w.seen == 0
	}
	return w.next <= endSeq && w.seen&1 != 0 && uint64(bits.Len64(w.seen)) <= w.next
}
