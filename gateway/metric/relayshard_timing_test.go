package metric

import (
	"testing"
	"time"
)

func TestShardAllocates(t *testing.T) {
	s := NewRelay(relayGauges()).NewShard()
	n := testing.AllocsPerRun(100, func() {
		s.FramesForwarded++
		s.Frame(64)
		s.Delivered(time.Millisecond)
		s.DeliveredAtOnce(3)
		s.Publish()
	})
	if n != 0 {
		t.Errorf("%v allocations a turn", n)
	}
}

// A turn that forwards 32 key strokes, one that forwards one, one that does nothing.
func BenchmarkShardTurn(b *testing.B) {
	f := func(name string, frames int) {
		b.Run(name, func(b *testing.B) {
			s := NewRelay(relayGauges()).NewShard()
			for b.Loop() {
				for range frames {
					s.FramesForwarded++
					s.BytesForwarded += 64
					s.Frame(64)
				}
				if frames > 0 {
					s.DeliveredAtOnce(frames)
				}
				s.Publish()
			}
		})
	}
	f("batch", 32)
	f("one", 1)
	f("idle", 0)
}
