package edge

import (
	"sync"
	"time"
)

const (
	// maxBuckets is how many keys one RateLimit tells apart. Further keys share
	// one bucket, so that a flood of new keys can neither take the memory nor
	// lift the limit.
	maxBuckets = 65536

	// A call looks at a few buckets for one that is full again, at more of them
	// when it needs room: so the table is always being swept, and no call pays
	// for all of it.
	sweepSome = 2
	sweepMany = 256
)

// A RateLimit holds one token bucket per key (contract, mte-relay §8). A bucket
// begins full, holds at most its rate per minute (burst = rate) and vanishes
// once it is full again, since it then differs in nothing from a new one. It may
// be used from anywhere; the lock is held for a fraction of a microsecond.
type RateLimit[K comparable] struct {
	perMinute int64
	interval  int64 // nanoseconds in which one token comes back

	mu       sync.Mutex
	index    map[K]int32
	buckets  []bucket[K]
	hand     int   // the next bucket to be swept
	overflow int64 // as bucket.full, of the bucket that further keys share
}

// bucket is kept as the time at which it will be full: taking a token moves that
// by an interval, and the bucket is empty when it lies a whole minute ahead.
type bucket[K comparable] struct {
	key  K
	full int64 // nanoseconds
}

// NewRateLimit makes a limit of perMinute operations, which must be positive.
func NewRateLimit[K comparable](perMinute int) *RateLimit[K] {
	if perMinute <= 0 {
		panic("BUG: edge: rate limit without a rate")
	}
	return &RateLimit[K]{
		perMinute: int64(perMinute),
		interval:  int64(time.Minute) / int64(perMinute),
		index:     make(map[K]int32),
	}
}

// Allow takes a token of the key's bucket at the time now, in nanoseconds of any
// clock that does not go back. If there is none it returns false and how long
// it takes until there is one; asking spends nothing then.
func (l *RateLimit[K]) Allow(key K, now int64) (wait time.Duration, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sweep(now, sweepSome)
	full := &l.overflow
	i, known := l.index[key]
	if !known && len(l.buckets) >= maxBuckets {
		l.sweep(now, sweepMany)
	}
	if !known && len(l.buckets) < maxBuckets {
		i, known = int32(len(l.buckets)), true
		l.index[key] = i
		l.buckets = append(l.buckets, bucket[K]{key, now})
	}
	if known {
		full = &l.buckets[i].full
	}
	next := max(*full, now) + l.interval
	if over := next - now - l.interval*l.perMinute; over > 0 {
		return time.Duration(over), false
	}
	*full = next
	return 0, true
}

// sweep looks at up to n buckets and forgets those that are full again.
func (l *RateLimit[K]) sweep(now int64, n int) {
	for range min(n, len(l.buckets)) {
		last := len(l.buckets) - 1
		if l.hand > last {
			l.hand = 0
		}
		if l.buckets[l.hand].full > now {
			l.hand++
			continue
		}
		delete(l.index, l.buckets[l.hand].key)
		if l.hand < last {
			l.buckets[l.hand] = l.buckets[last]
			l.index[l.buckets[l.hand].key] = int32(l.hand)
		}
		clear(l.buckets[last:])
		l.buckets = l.buckets[:last]
	}
}

// Len returns how many buckets exist, the shared one not counted.
func (l *RateLimit[K]) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.buckets)
}
