package relay

import (
	"time"

	"sluice/loop"
)

// ageAnswer is how long OldestBlocked waits for the loops; what one that does not
// answer holds is left out.
const ageAnswer = time.Second

// OldestBlocked returns how long the oldest delivery that is blocked now has been
// under way, 0 if none is. It looks at every socket, so it is for a sampler and
// not for each scrape, and does nothing while the ledger counts none. It waits for
// the loops and must not be called on one.
func (r *Relay) OldestBlocked() time.Duration {
	if r.led.Snapshot().Blocked == 0 {
		return 0
	}
	ages := make(chan int64, len(r.shards))
	for _, s := range r.shards {
		s.l.Post(loop.Func(func(l *loop.Loop) { ages <- s.oldestBlocked(l.Now()) }))
	}
	limit := time.After(ageAnswer)
	oldest := int64(0)
	for range r.shards {
		select {
		case age := <-ages:
			oldest = max(oldest, age)
		case <-limit:
			return time.Duration(oldest)
		}
	}
	return time.Duration(oldest)
}

func (s *shard) oldestBlocked(now int64) (age int64) {
	for k := s.all; k != nil; k = k.nextAll {
		if !k.out.d.Blocked() {
			continue
		}
		if p := k.oldest(); p != nil {
			age = max(age, now-p.since)
		}
	}
	return age
}
