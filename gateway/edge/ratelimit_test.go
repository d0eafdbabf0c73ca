package edge

import (
	"sync"
	"testing"
	"time"
)

const second = int64(time.Second)

func TestRateLimitBurstAndRefill(t *testing.T) {
	l := NewRateLimit[string](60)
	now := int64(1234)
	for i := range 60 {
		if _, ok := l.Allow("a", now); !ok {
			t.Fatalf("refused at %d of the burst", i)
		}
	}
	if wait, ok := l.Allow("a", now); ok || wait != time.Second {
		t.Fatalf("after the burst: %v, wait %v", ok, wait)
	}
	if _, ok := l.Allow("b", now); !ok {
		t.Fatal("another key is refused")
	}
	if wait, ok := l.Allow("a", now+second/2); ok || wait != time.Second/2 {
		t.Fatalf("after half a second: %v, wait %v", ok, wait)
	}
	if _, ok := l.Allow("a", now+second); !ok {
		t.Fatal("refused after a token came back")
	}
	if _, ok := l.Allow("a", now+second); ok {
		t.Fatal("one token was taken twice")
	}
	// A refused call spends nothing.
	for range 100 {
		l.Allow("a", now+second)
	}
	if _, ok := l.Allow("a", now+2*second); !ok {
		t.Fatal("refusals were charged")
	}
	// After a long silence the burst is the rate again, not more.
	later := now + 3600*second
	for i := range 61 {
		if _, ok := l.Allow("a", later); ok != (i < 60) {
			t.Fatalf("call %d after an hour: %v", i, ok)
		}
	}
}

func TestRateLimitIdleBucketsVanish(t *testing.T) {
	l := NewRateLimit[int](600)
	for i := range 1000 {
		l.Allow(i, 0)
	}
	if n := l.Len(); n != 1000 {
		t.Fatalf("%d buckets", n)
	}
	for range 1000 {
		l.Allow(-1, second)
	}
	if n := l.Len(); n != 1 {
		t.Fatalf("%d buckets left", n)
	}
	// What is not full again stays.
	l = NewRateLimit[int](600)
	for i := range 10 {
		for range 100 {
			l.Allow(i, 0)
		}
	}
	for range 50 {
		l.Allow(-1, 9*second)
	}
	if n := l.Len(); n != 11 {
		t.Fatalf("%d buckets, want 11", n)
	}
}

func TestRateLimitOverflow(t *testing.T) {
	l := NewRateLimit[int](60)
	for i := range maxBuckets {
		if _, ok := l.Allow(i, 0); !ok {
			t.Fatalf("key %d refused", i)
		}
	}
	if n := l.Len(); n != maxBuckets {
		t.Fatalf("%d buckets", n)
	}
	// Keys beyond the table share one bucket.
	for i := range 60 {
		if _, ok := l.Allow(-1-i, 0); !ok {
			t.Fatalf("shared bucket refused at %d", i)
		}
	}
	if _, ok := l.Allow(-1000, 0); ok {
		t.Fatal("the shared bucket has no end")
	}
	if n := l.Len(); n != maxBuckets {
		t.Fatalf("%d buckets", n)
	}
	// Keys in the table are not touched by that.
	if _, ok := l.Allow(5, 0); !ok {
		t.Fatal("a key of its own is refused")
	}
	// When idle ones have vanished there is room again.
	for i := range 60 {
		if _, ok := l.Allow(-1000, 10*second); !ok {
			t.Fatalf("own bucket refused at %d", i)
		}
	}
}

func TestRateLimitFromSeveralGoroutines(t *testing.T) {
	l := NewRateLimit[int](1000)
	var wg sync.WaitGroup
	var mu sync.Mutex
	allowed := 0
	for range 4 {
		wg.Go(func() {
			n := 0
			for range 1000 {
				if _, ok := l.Allow(7, 0); ok {
					n++
				}
			}
			mu.Lock()
			allowed += n
			mu.Unlock()
		})
	}
	wg.Wait()
	if allowed != 1000 {
		t.Fatalf("%d allowed", allowed)
	}
}

func BenchmarkRateLimitFlood(b *testing.B) {
	l := NewRateLimit[int](60)
	for i := range maxBuckets {
		for range 60 {
			l.Allow(i, 0)
		}
	}
	i := 0
	for b.Loop() {
		i--
		l.Allow(i, 1)
	}
}
