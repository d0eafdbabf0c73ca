package open

import (
	"bytes"
	"encoding/hex"
	"math/rand/v2"
	"testing"
)

func TestWindowVectors(t *testing.T) {
	v := load(t)
	for _, row := range v.Windows {
		w := window{size: row.Window}
		for i, seq := range row.Order {
			got := "ok"
			if err := w.accept(seq); err != nil {
				got = err.Error()
			}
			if got != row.Result[i] {
				t.Errorf("window %d, order %v: number %d: %s, want %s", row.Window, row.Order, seq, got, row.Result[i])
			}
		}
		d := direction{window: w, keyed: true}
		copy(d.root[:], unhex(t, v.Direction.Root))
		if got := hex.EncodeToString(d.appendState(nil)); got != row.State {
			t.Errorf("window %d, order %v: state %s, want %s", row.Window, row.Order, got, row.State)
		}
	}
}

// model is the window in the contract's words, with a set instead of a bitmap.
type model struct {
	next int64
	seen map[int64]bool
	size int64
}

func (m *model) accept(seq int64) error {
	span := max(m.size, -m.size)
	switch {
	case seq >= m.next && seq-m.next <= span:
		m.next = seq + 1
	case seq >= m.next:
		return DecodeFailed
	case m.size < 0 && m.next-1-seq < span && !m.seen[seq]:
	default:
		return ReplayRejected
	}
	m.seen[seq] = true
	return nil
}

func TestWindowModel(t *testing.T) {
	sizes := []int{0, 1, 2, 5, 63, 64, 65, 1000, MaxWindow, -1, -2, -7, -32, -62, MinWindow}
	for seed := range uint64(40) {
		for _, size := range sizes {
			r := rand.New(rand.NewPCG(seed, uint64(size)))
			w, m := window{size: size}, model{seen: map[int64]bool{}, size: int64(size)}
			for range 300 {
				spread := []int64{3, 70, 200, 70000}[r.IntN(4)]
				seq := max(0, m.next+r.Int64N(2*spread)-spread)
				got, want := w.accept(uint64(seq)), m.accept(seq)
				if got != want {
					t.Fatalf("seed %d window %d: number %d after %d: %v, want %v", seed, size, seq, m.next, got, want)
				}
				if w.next != uint64(m.next) || !w.possible() {
					t.Fatalf("seed %d window %d: next %d seen %x, want next %d", seed, size, w.next, w.seen, m.next)
				}
				for i := range int64(64) {
					if seen := m.seen[m.next-1-i]; seen != (w.seen>>i&1 == 1) {
						t.Fatalf("seed %d window %d: bit %d of %x", seed, size, i, w.seen)
					}
				}
			}
		}
	}
}

func TestWindowEnd(t *testing.T) {
	w := window{next: endSeq - 1, seen: 1, size: MinWindow}
	if err := w.accept(endSeq); err != DecodeFailed {
		t.Errorf("the first number that no encoder uses: %v", err)
	}
	if err := w.accept(endSeq - 1); err != nil {
		t.Errorf("the last number: %v", err)
	}
	for _, seq := range []uint64{endSeq, 1<<64 - 1} {
		if err := w.accept(seq); err != DecodeFailed {
			t.Errorf("number %d: %v", seq, err)
		}
	}
}

// The window of a profile reaches its decoders.
func TestWindowOfProfile(t *testing.T) {
	for _, size := range []int{0, 3, -3} {
		s := newEnds(t, size)
		var sent [][]byte
		for range 5 {
			out, err := s.encode(MKE, []byte("x"))
			if err != nil {
				t.Fatal(err)
			}
			sent = append(sent, out)
		}
		_, ahead := s.decode(MKE, sent[3])
		if (ahead == nil) != (size != 0) {
			t.Errorf("window %d: three ahead: %v", size, ahead)
		}
		_, late := s.decode(MKE, sent[1])
		want := map[int]error{0: DecodeFailed, 3: ReplayRejected, -3: nil}[size]
		if late != want {
			t.Errorf("window %d: two late: %v, want %v", size, late, want)
		}
		if size == 0 && !bytes.Equal(s.dec[33:], make([]byte, 16)) {
			t.Errorf("window 0: refusals changed the state: %x", s.dec)
		}
	}
}
