package metric

import (
	"math/bits"
	"sync/atomic"
	"time"
)

// A RelayShard is one loop's part of the relay's hot counters. It belongs to that loop's
// goroutine, which bumps the plain fields as it works and calls Publish once a turn; what was
// published is read when a page is written. An addition costs what an increment costs.
type RelayShard struct {
	RelayCounts
	frames   shardHistogram
	delivery shardHistogram

	last RelayCounts // as published
	pub  *relayPublished
}

// RelayCounts are the plain counters of a RelayShard.
type RelayCounts struct {
	FramesForwarded        uint64 // messages whose last byte a destination's kernel took, per destination
	BytesForwarded         uint64 // their payloads
	IngressRejections      uint64 // sources closed for want of ingress budget
	SlowConsumerCloses     uint64 // destinations closed for their slowness
	ReplacementFights      uint64
	HandshakeKeyRejections uint64
}

// relayPublished is apart from the shard: readers must not share cache lines with the loop.
type relayPublished struct {
	framesForwarded        atomic.Uint64
	bytesForwarded         atomic.Uint64
	ingressRejections      atomic.Uint64
	slowConsumerCloses     atomic.Uint64
	replacementFights      atomic.Uint64
	handshakeKeyRejections atomic.Uint64
	frames                 publishedHistogram
	delivery               publishedHistogram
}

// Upper bounds of paseo_relay_frame_bytes (payload bytes) and paseo_relay_delivery_seconds.
var (
	frameBounds    = [...]float64{64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 33554432}
	deliveryBounds = [...]time.Duration{
		500 * time.Microsecond, time.Millisecond, 2500 * time.Microsecond, 5 * time.Millisecond,
		10 * time.Millisecond, 25 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond,
		250 * time.Millisecond, 500 * time.Millisecond, time.Second, 2500 * time.Millisecond,
		5 * time.Second, 10 * time.Second, 30 * time.Second, 60 * time.Second,
	}
)

// frameBucket maps bits.Len(size − 1), the logarithm rounded up, to the bucket: frameBounds are
// powers of two.
var frameBucket = func() (t [bits.UintSize + 1]uint8) {
	for log := range t {
		b := 0
		for b < len(frameBounds) && (log >= 63 || float64(uint64(1)<<log) > frameBounds[b]) {
			b++
		}
		t[log] = uint8(b)
	}
	return t
}()

// maxBuckets holds the larger of the two histograms.
const maxBuckets = len(deliveryBounds) + 1

type shardHistogram struct {
	buckets [maxBuckets]uint64
	sum     uint64
	dirty   uint32 // bit i: buckets[i] changed since the last Publish
	pubSum  uint64 // as published
}

type publishedHistogram struct {
	buckets [maxBuckets]atomic.Uint64
	sum     atomic.Uint64
}

func (h *shardHistogram) add(bucket uint8, n, sum uint64) {
	h.buckets[bucket] += n
	h.sum += sum
	h.dirty |= 1 << bucket
}

func (h *shardHistogram) publish(p *publishedHistogram) {
	for d := h.dirty; d != 0; d &= d - 1 {
		i := bits.TrailingZeros32(d)
		p.buckets[i].Store(h.buckets[i])
	}
	store(&p.sum, h.sum, h.pubSum)
	h.pubSum, h.dirty = h.sum, 0
}

// Frame counts an admitted message of size payload bytes.
func (s *RelayShard) Frame(size int) {
	// −1 of an empty message has all bits set, so it is taken out first.
	log := bits.Len(uint(max(size, 1) - 1))
	s.frames.add(frameBucket[log], 1, uint64(size))
}

// Delivered counts one message by the time from its completion to its last byte written.
func (s *RelayShard) Delivered(took time.Duration) {
	b := 0
	for b < len(deliveryBounds) && took > deliveryBounds[b] {
		b++
	}
	s.delivery.add(uint8(b), 1, uint64(max(took, 0)))
}

// DeliveredAtOnce counts n messages that were written in the turn in which they were complete.
func (s *RelayShard) DeliveredAtOnce(n int) {
	s.delivery.add(0, uint64(n), 0)
}

// Publish makes visible what the turn counted. It stores only what changed: a store that others
// may see costs twenty times an addition.
func (s *RelayShard) Publish() {
	p := s.pub
	if s.RelayCounts != s.last {
		store(&p.framesForwarded, s.FramesForwarded, s.last.FramesForwarded)
		store(&p.bytesForwarded, s.BytesForwarded, s.last.BytesForwarded)
		store(&p.ingressRejections, s.IngressRejections, s.last.IngressRejections)
		store(&p.slowConsumerCloses, s.SlowConsumerCloses, s.last.SlowConsumerCloses)
		store(&p.replacementFights, s.ReplacementFights, s.last.ReplacementFights)
		store(&p.handshakeKeyRejections, s.HandshakeKeyRejections, s.last.HandshakeKeyRejections)
		s.last = s.RelayCounts
	}
	if s.frames.dirty|s.delivery.dirty != 0 {
		s.frames.publish(&p.frames)
		s.delivery.publish(&p.delivery)
	}
}

func store(p *atomic.Uint64, now, last uint64) {
	if now != last {
		p.Store(now)
	}
}
