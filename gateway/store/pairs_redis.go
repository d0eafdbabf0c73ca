package store

import (
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"sluice/codec/frame"
	"sluice/codec/open"
)

// Contract, mte-relay §8.
const (
	lockTime   = 30 * time.Second // of a pair in Redis
	lockMargin = 5 * time.Second  // how long before its end a holder stops
	lockRenew  = 10 * time.Second // age at which a lock is renewed
)

var (
	takeScript   = NewScript("pair_take", true)
	saveScript   = NewScript("pair_save", true)
	renewScript  = NewScript("pair_renew", true)
	forgetScript = NewScript("pair_forget", true)
	addScript    = NewScript("pair_add", true)
	keepScript   = NewScript("pair_keep", true)
)

// RedisLimits bound a store in Redis.
type RedisLimits struct {
	PerClient int           // MAX_PAIRS_PER_CLIENT
	Timeout   time.Duration // SESSION_TIMEOUT_SECONDS
}

// RedisPairs is the store that nodes share. It may be used from anywhere.
//
// Taking a pair locks it, saving it unlocks it, each in one round trip (scripts).
// Only who took a pair has its state: a lock that ends takes the pair with it, so
// that no clock, no lost answer and no failure lets two use one state. A state of
// another epoch, that is of a server that may have lost the last writes, is
// deleted where it is met.
type RedisPairs struct {
	redis  *Redis
	limits RedisLimits
	codec  *open.Pools
	vaults atomic.Pointer[map[string]*vault]

	mu    sync.Mutex
	taken takenPair // head of the list of pairs in use
	inUse atomic.Int64
}

// NewRedisPairs makes a store whose instances come from codec.
func NewRedisPairs(r *Redis, limits RedisLimits, codec *open.Pools) *RedisPairs {
	s := &RedisPairs{redis: r, limits: limits, codec: codec}
	s.taken.next, s.taken.prev = &s.taken, &s.taken
	s.SetDomains(nil)
	return s
}

// SetDomains implements Pairs.
func (s *RedisPairs) SetDomains(secrets map[string]string) {
	m := make(map[string]*vault, len(secrets))
	for domain, secret := range secrets {
		m[domain] = newVault(domain, secret)
	}
	s.vaults.Store(&m)
}

// vault is that of a domain, nil if the domain has just gone.
func (s *RedisPairs) vault(domain string) *vault { return (*s.vaults.Load())[domain] }

// Shared implements Pairs.
func (s *RedisPairs) Shared() bool { return true }

// Count implements Pairs: those of others cannot be counted.
func (s *RedisPairs) Count() int64 { return s.inUse.Load() }

// InUse implements Pairs.
func (s *RedisPairs) InUse() int64 { return s.inUse.Load() }

func millis(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

// word is the first element of a script's answer, and the second as text.
func word(m rueidis.RedisMessage) (first, second string) {
	if s, err := m.ToString(); err == nil {
		return s, ""
	}
	list, err := m.ToArray()
	if err != nil || len(list) == 0 {
		return "", ""
	}
	first, _ = list[0].ToString()
	if len(list) > 1 {
		second, _ = list[1].ToString()
	}
	return first, second
}

// Add implements Pairs.
func (s *RedisPairs) Add(c Client, pairs []NewPair, _ int64, later func(frame.Reason)) (frame.Reason, bool) {
	v := s.vault(c.Domain)
	if v == nil || !s.redis.Start(&addTask{s: s, v: v, client: c.ID, pairs: pairs, later: later}) {
		return frame.StateStoreUnavailable, true
	}
	return frame.NoReason, false
}

// An addTask is one call of Add.
type addTask struct {
	s      *RedisPairs
	v      *vault
	client frame.ClientID
	pairs  []NewPair
	token  string
	later  func(frame.Reason)
}

func (t *addTask) Prepare() (*Script, []string, []string) {
	t.token = newToken()
	args := make([]string, 0, 3+2*len(t.pairs))
	args = append(args, t.token, millis(t.s.limits.Timeout), strconv.Itoa(t.s.limits.PerClient))
	for i := range t.pairs {
		p := &t.pairs[i]
		args = append(args, hexID(p.ID), t.v.seal(t.client, p.ID, firstVersion(), p.Encoder, p.Decoder))
	}
	return addScript, []string{t.v.key(t.client)}, args
}

func (t *addTask) Answer(m rueidis.RedisMessage, o Outcome) {
	if o == Unknown { // none of a refused call may exist
		ids := make([]frame.PairID, len(t.pairs))
		for i := range t.pairs {
			ids[i] = t.pairs[i].ID
		}
		t.s.forget(t.v, t.client, t.token, ids...)
	}
	if o != Answered {
		t.later(frame.StateStoreUnavailable)
		return
	}
	switch first, _ := word(m); first {
	case "added":
		t.later(frame.NoReason)
	case "exists":
		t.later(frame.PairExists)
	case "limit":
		t.later(frame.PairLimit)
	default:
		t.s.redis.Odd(addScript)
		t.later(frame.StateStoreUnavailable)
	}
}

// forget deletes pairs whose last token is this one. If that fails they end with
// their lock, or the session timeout.
func (s *RedisPairs) forget(v *vault, c frame.ClientID, token string, ids ...frame.PairID) {
	args := make([]string, 0, 1+len(ids))
	args = append(args, token)
	for _, id := range ids {
		args = append(args, hexID(id))
	}
	s.redis.Call(forgetScript, []string{v.key(c)}, args, func(rueidis.RedisMessage, Outcome) {})
}

// Keepalive implements Pairs.
func (s *RedisPairs) Keepalive(c Client, drop []frame.PairID, _ int64, later func(int, frame.Reason)) (int, frame.Reason, bool) {
	return s.keepalive(c, "", drop, later)
}

// keepalive is Keepalive with the token of the lease we have on the client.
func (s *RedisPairs) keepalive(c Client, lease string, drop []frame.PairID, later func(int, frame.Reason)) (int, frame.Reason, bool) {
	v := s.vault(c.Domain)
	if v == nil {
		return 0, frame.StateStoreUnavailable, true
	}
	args := make([]string, 0, 2+len(drop))
	args = append(args, lease, millis(s.limits.Timeout))
	for _, id := range drop {
		args = append(args, hexID(id))
	}
	begun := s.redis.Call(keepScript, []string{v.key(c.ID)}, args, func(m rueidis.RedisMessage, o Outcome) {
		if o != Answered {
			later(0, frame.StateStoreUnavailable)
			return
		}
		if first, _ := word(m); first == "owned" {
			later(0, frame.NotOwner)
			return
		}
		list, _ := m.ToArray()
		if len(list) == 2 {
			if n, err := list[1].ToInt64(); err == nil {
				later(int(n), frame.NoReason)
				return
			}
		}
		s.redis.Odd(keepScript)
		later(0, frame.StateStoreUnavailable)
	})
	if !begun {
		return 0, frame.StateStoreUnavailable, true
	}
	return 0, frame.NoReason, false
}

// Close implements Pairs: what is not in use is free.
func (s *RedisPairs) Close() {}

// Tidy implements Pairs: it renews the locks of long requests.
func (s *RedisPairs) Tidy(now int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for l := s.taken.next; l != &s.taken; l = l.next {
		if now-l.locked.Load() >= int64(lockRenew) && l.renewing.CompareAndSwap(false, true) {
			l.renew(now)
		}
	}
}
