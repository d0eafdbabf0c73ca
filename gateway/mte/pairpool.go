package mte

import (
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"sluice/codec/frame"
	"sluice/gateway/client"
)

const (
	// retiredEvery is the least time between two pairing calls that only make up
	// for retired pairs, while free pairs exceed the threshold (contract,
	// mte-relay §9).
	retiredEvery = int64(time.Second)

	// dropEarly is how many retired pairs the other relay may hold before it is
	// told of them out of turn; until then they count against its
	// maxPairsPerClient.
	dropEarly = 64

	// rareRetry bounds the pauses between refills that nobody waits for, which grow
	// while the other relay fails: in nanoseconds.
	rareRetry = int64(30 * time.Second)

	// repairEvery is the least time between two full repairs.
	repairEvery = int64(time.Second)

	never = math.MaxInt64
)

// poolRules are the settings of a pool.
type poolRules struct {
	initial   int // CLIENT_INITIAL_PAIRS
	min       int // CLIENT_MIN_PAIRS
	max       int // CLIENT_MAX_PAIRS
	threshold int // CLIENT_REFILL_THRESHOLD
}

// An identity is what we are to the other relay for as long as it accepts our
// client id. It is constant but for relay, which may be read from anywhere.
type identity struct {
	client frame.ClientID
	relay  atomic.Pointer[client.Relay] // as the last authentication has it
	lines  []byte                       // the field lines of a request that holds frames
}

// A pooledPair is a pair and what the pool needs to know of it. While it is in
// use it is its user's.
type pooledPair struct {
	key  *client.Pair // nil in tests of the pool
	of   *identity
	id   frame.PairID
	used int64 // when its last request ended
}

func (p *pooledPair) wipe() {
	if p.key != nil {
		p.key.Wipe()
	}
}

// A pairFate is what becomes of a pair that is given back.
type pairFate uint8

const (
	// pairKept: it is in step, the next request may have it.
	pairKept pairFate = iota
	// pairCooling: as pairKept, but the other relay may not have seen yet that
	// its request was given up. It is used after all others.
	pairCooling
	// pairRetired: of no more use, and the other relay may still hold it.
	pairRetired
	// pairGone: of no more use, and the other relay does not know it.
	pairGone
)

// A poolWaiter is a request's place in the line for a pair. It is part of the
// request.
type poolWaiter struct {
	user       poolUser
	next, prev *poolWaiter
	queued     bool

	// What came of it, once Awake was called: a pair, or why there is none.
	pair *pooledPair
	no   *refusal
}

// A poolUser is told that its wait is over. Awake must not call the pool.
type poolUser interface{ Awake() }

// A pairPool decides about the pairs of one outbound host: who gets one, who
// waits, when how many are made and which are given up (contract, mte-relay §9).
// It is a state machine without a clock and without I/O: who drives it makes the
// pairing calls that Refill asks for.
//
// Nothing in it is locked.
type pairPool struct {
	rules   poolRules
	current *identity // nil before the first auth and after Forget

	// What the other relay allows, 0 while it is not known.
	batch     int // pairs in one call
	perClient int // pairs in all
	fits      int // pairs in one call that its bound of a body lets through; found out by a refusal

	begun  bool // a request has come
	filled int  // pairs made of any identity, up to the initial ones

	free     []*pooledPair // the one used last at the end
	inUse    int
	old      int // in use, of identities that were given up
	retiring []frame.PairID

	first, last *poolWaiter
	waiting     int

	asked       int // pairs of the refill that is under way, 0 without one
	debt        int // pairs that were retired and have not been replaced
	lastRefill  int64
	pausedUntil int64    // no refill before
	retryAt     int64    // no refill before, unless there is no pair at all
	idleRetryAt int64    // no refill before if nobody waits
	failed      *refusal // the last refill, nil if it did not
	failures    int      // refills that failed since one landed
	forgotten   int64    // when an identity was given up last

	// Of the current identity.
	made, gone int
}

func newPairPool(rules poolRules) pairPool {
	return pairPool{rules: rules, lastRefill: math.MinInt64 / 2}
}

// Acquire takes a pair, or puts w into the line.
func (p *pairPool) Acquire(w *poolWaiter) *pooledPair {
	p.begun = true
	if n := len(p.free); n > 0 {
		pair := p.free[n-1]
		p.free[n-1] = nil
		p.free = p.free[:n-1]
		p.inUse++
		return pair
	}
	w.pair, w.no = nil, nil
	w.queued, w.next, w.prev = true, nil, p.last
	if p.last != nil {
		p.last.next = w
	} else {
		p.first = w
	}
	p.last = w
	p.waiting++
	return nil
}

// Leave takes w out of the line. False means that it is no longer there: Awake
// was called.
func (p *pairPool) Leave(w *poolWaiter) bool {
	if !w.queued {
		return false
	}
	if w.prev != nil {
		w.prev.next = w.next
	} else {
		p.first = w.next
	}
	if w.next != nil {
		w.next.prev = w.prev
	} else {
		p.last = w.prev
	}
	w.next, w.prev, w.queued = nil, nil, false
	p.waiting--
	return true
}

// Release takes a pair back from its user.
func (p *pairPool) Release(pair *pooledPair, fate pairFate, now int64) {
	if pair.of != p.current {
		p.old--
		pair.wipe()
		return
	}
	p.inUse--
	switch fate {
	case pairRetired:
		p.retire(pair)
		p.debt++
	case pairGone:
		pair.wipe()
		p.gone++
		p.debt++
	default:
		pair.used = now
		p.put(pair, fate == pairCooling)
	}
}

// put gives a pair to who has waited longest, or to the free ones.
func (p *pairPool) put(pair *pooledPair, last bool) {
	if w := p.first; w != nil {
		p.Leave(w)
		p.inUse++
		w.pair = pair
		w.user.Awake()
		return
	}
	p.free = append(p.free, pair)
	if last {
		copy(p.free[1:], p.free)
		p.free[0] = pair
	}
}

// retire gives up a pair that the other relay may hold.
func (p *pairPool) retire(pair *pooledPair) {
	pair.wipe()
	p.retiring = append(p.retiring, pair.id)
}

// total is how many pairs can carry a request, now or once theirs has ended.
func (p *pairPool) total() int { return len(p.free) + p.inUse }

// size is how many pairs there may be: CLIENT_MAX_PAIRS, or the other relay's
// bound if that is lower.
func (p *pairPool) size() int {
	if p.perClient > 0 {
		return min(p.rules.max, p.perClient)
	}
	return p.rules.max
}

// Refill says how many pairs are to be made now. If it is none, at says when to
// ask again even if nothing happens.
func (p *pairPool) Refill(now int64) (n int, at int64) {
	if !p.begun || p.asked > 0 {
		return 0, never
	}
	total := p.total()
	room := p.size() - total - p.old
	if p.perClient > 0 {
		room = min(room, p.perClient-total-len(p.retiring))
	}
	if room <= 0 {
		return 0, never
	}
	debt := min(p.debt, room)
	toMin := min(p.rules.min, p.size()) - total
	start := max(p.pausedUntil, p.retryAt)
	switch {
	case p.waiting == 0:
		start = max(start, p.idleRetryAt)
	case total+p.old == 0:
		start = p.pausedUntil
	}
	switch {
	case p.filled < p.rules.initial && total == 0:
		n = p.rules.initial
	case p.waiting > 0 || p.inUse > 0 && len(p.free) <= p.rules.threshold:
		// Retired pairs come on top: where callers keep abandoning streams the pool
		// must grow until it has enough free ones for the time between two calls.
		n = max(debt+max(p.waiting+p.rules.threshold, (p.inUse+p.old)/2), toMin)
	case toMin > debt:
		n = toMin
	case debt > 0:
		n = debt
		start = max(start, p.lastRefill+retiredEvery)
	default:
		return 0, never
	}
	if now < start {
		return 0, start
	}
	n = min(n, room)
	if p.batch > 0 {
		n = min(n, p.batch)
	}
	if p.fits > 0 {
		n = min(n, p.fits)
	}
	return n, now
}

// Begin notes that a refill of n pairs is under way, or what must come before it.
// It ends with Landed or Failed.
func (p *pairPool) Begin(now int64, n int) {
	if p.asked > 0 {
		panic("BUG: mte: two refills at once")
	}
	p.asked = n
	p.lastRefill = now
}

// Know takes what the other relay allows, once it is known, and who we are.
func (p *pairPool) Know(id *identity, batch, perClient int) {
	p.current, p.batch, p.perClient = id, batch, perClient
}

// Landed ends a refill with its pairs; none says that it has only come to be
// possible.
func (p *pairPool) Landed(pairs []*pooledPair, now int64) {
	p.asked = 0
	p.failed, p.failures = nil, 0
	p.retryAt, p.idleRetryAt = 0, 0
	p.filled += len(pairs)
	p.debt = max(0, p.debt-len(pairs))
	for _, pair := range pairs {
		if pair.of != p.current {
			pair.wipe() // given up while they were made
			continue
		}
		p.made++
		pair.used = now
		p.put(pair, false)
	}
}

// Failed ends a refill without pairs. Who waits is told why if there is no pair
// that could come free; while nobody waits, the next refill is tried ever more
// rarely. pause says for how long there is to be none; hard, that this holds
// although somebody waits.
func (p *pairPool) Failed(no *refusal, pause int64, hard bool, now int64) {
	p.asked = 0
	p.failed = no
	if hard {
		p.Pause(now + pause)
		return // who waits does so as long as any other
	}
	p.retryAt = now + pause
	p.idleRetryAt = now + max(pause, min(pause<<min(p.failures, 8), rareRetry))
	p.failures++
	if p.total()+p.old > 0 {
		return
	}
	p.turnAway(no)
}

// Pause lets no refill begin before until, whoever waits.
func (p *pairPool) Pause(until int64) { p.pausedUntil = max(p.pausedUntil, until) }

// turnAway ends all waits.
func (p *pairPool) turnAway(no *refusal) {
	for w := p.first; w != nil; w = p.first {
		p.Leave(w)
		w.no = no
		w.user.Awake()
	}
}

// Smaller bounds the batch after the other relay said that n pairs make a body
// too large.
func (p *pairPool) Smaller(n int) { p.fits = max(1, n/2) }

// Paused says how long refills are to wait still, 0 if they need not.
func (p *pairPool) Paused(now int64) time.Duration { return time.Duration(max(0, p.pausedUntil-now)) }

// Forget gives up the identity and with it all pairs: the other relay accepts it
// no longer. It answers false if that was done before. A relay that accepts none,
// or several that do not know each other's, are not asked all the time.
func (p *pairPool) Forget(id *identity, now int64) bool {
	if id == nil || p.current != id {
		return false
	}
	if p.forgotten > 0 {
		p.pausedUntil = max(p.pausedUntil, p.forgotten+repairEvery)
	}
	p.forgotten = max(now, p.pausedUntil)
	for i, pair := range p.free {
		pair.wipe()
		p.free[i] = nil
	}
	p.free = p.free[:0]
	p.old += p.inUse
	p.inUse = 0
	p.retiring = nil
	p.debt = 0
	p.made, p.gone = 0, 0
	p.current = nil
	p.batch, p.perClient, p.fits = 0, 0, 0
	return true
}

// Expire gives up pairs that nobody has used for as long as timeout, down to
// CLIENT_MIN_PAIRS. The relay keeps those alive that are left.
func (p *pairPool) Expire(timeout, now int64) {
	excess := p.total() - p.rules.min
	kept := p.free[:0]
	for _, pair := range p.free {
		if excess > 0 && now-pair.used >= timeout {
			excess--
			p.retire(pair)
			p.debt = 0
			continue
		}
		kept = append(kept, pair)
	}
	clear(p.free[len(kept):])
	p.free = kept
}

// Part retires every free pair: there will be no requests for them.
func (p *pairPool) Part() {
	for _, pair := range p.free {
		p.retire(pair)
	}
	clear(p.free)
	p.free = p.free[:0]
	p.debt = 0
}

// Drops are the retired pairs to be named in the next keepalive call. Those that
// were told are passed to Dropped.
func (p *pairPool) Drops() []frame.PairID {
	n := len(p.retiring)
	if p.perClient > 0 {
		n = min(n, p.perClient)
	}
	return p.retiring[:n:n]
}

// Dropped forgets the first n retired pairs: the other relay does not hold them
// any more.
func (p *pairPool) Dropped(n int) {
	p.gone += n
	p.retiring = append([]frame.PairID(nil), p.retiring[n:]...)
}

// DropsDue says that the other relay should be told of retired pairs out of turn:
// there are many, or they take the room of new ones.
func (p *pairPool) DropsDue() bool {
	n := len(p.retiring)
	return n >= dropEarly || n > 0 && p.perClient > 0 && p.total()+n >= p.perClient
}

// check finds a pair that was lost or counted twice.
func (p *pairPool) check() error {
	switch {
	case p.made != len(p.free)+p.inUse+len(p.retiring)+p.gone:
		return fmt.Errorf("%d pairs made, %d free, %d in use, %d retiring, %d gone", p.made, len(p.free), p.inUse, len(p.retiring), p.gone)
	case p.inUse < 0 || p.old < 0:
		return fmt.Errorf("%d in use, %d of former identities", p.inUse, p.old)
	case p.total()+p.old > p.rules.max:
		return fmt.Errorf("%d pairs and %d of former identities, over %d", p.total(), p.old, p.rules.max)
	case p.perClient > 0 && p.total()+len(p.retiring) > p.perClient:
		return fmt.Errorf("%d pairs and %d retiring, the other relay allows %d", p.total(), len(p.retiring), p.perClient)
	case p.waiting > 0 && len(p.free) > 0:
		return fmt.Errorf("%d wait with %d free pairs", p.waiting, len(p.free))
	case (p.waiting > 0) != (p.first != nil) || (p.first != nil) != (p.last != nil):
		return fmt.Errorf("%d wait in a line from %p to %p", p.waiting, p.first, p.last)
	}
	return nil
}
