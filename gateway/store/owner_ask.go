package store

import (
	"context"
	"sync"
	"time"
)

// leaseOp is one of the things that Redis does to a lease.
type leaseOp uint8

const (
	opClaim   leaseOp = iota // take it if nobody has it
	opLook                   // tell who has it
	opRenew                  // prolong it if it is still ours
	opRelease                // give it up
	leaseOps
)

// answerOurs is the answer for a lease that is the node's now. The others are
// "" for nobody's, and otherwise what the node wrote that has it.
const answerOurs = "="

// A leaseBatch is one script: an operation on leases, of one part unless Redis
// takes parts together. answers has an answer for each of ids, unless err says why
// there is none.
type leaseBatch struct {
	op     leaseOp
	ids    []string
	tokens []uint64

	answers []string
	err     error
}

// leaseCalls are the atomic steps of shared ownership, each the work of one
// script in Redis. They end with their context.
type leaseCalls interface {
	// run has the batches done in one round trip, each by itself atomic.
	run(ctx context.Context, node, target string, lease time.Duration, batches []*leaseBatch)
	// ready reports whether it is of any use to ask.
	ready() bool
	// together reports whether leases of several parts may go in one batch.
	together() bool
	// beat gives a sign of life of the node, or takes it out, and counts those
	// that gave one within dead.
	beat(ctx context.Context, node string, dead time.Duration, alive bool) (nodes int, err error)
}

// An ask is a claim, a look or a release that waits for its turn.
type ask struct {
	t     *Tenure
	op    leaseOp
	token uint64
	since int64
}

// askQueue is the way to the callers, in the order of asking. It holds at most
// one ask of each tenure.
type askQueue struct {
	mu      sync.Mutex
	list    []ask
	working int           // callers with asks of it
	more    chan struct{} // something was added; as many tokens as there are callers
}

func (q *askQueue) add(a ask) {
	q.mu.Lock()
	q.list = append(q.list, a)
	q.mu.Unlock()
	select {
	case q.more <- struct{}{}:
	default: // every caller has reason to look already
	}
}

// take returns what has gathered, at most n.
func (q *askQueue) take(n int) []ask {
	q.mu.Lock()
	defer q.mu.Unlock()
	n = min(n, len(q.list))
	if n == 0 {
		return nil
	}
	q.working++
	asks := append([]ask(nil), q.list[:n]...)
	clear(q.list[:n])
	if q.list = q.list[n:]; len(q.list) == 0 {
		q.list = nil
	}
	return asks
}

// finished says that what take returned has been dealt with.
func (q *askQueue) finished() {
	q.mu.Lock()
	q.working--
	q.mu.Unlock()
}

// busy reports whether anything waits or is under way.
func (q *askQueue) busy() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.list) > 0 || q.working > 0
}

// serve is a caller: it asks Redis for what has gathered, until Close.
func (o *RedisOwnership) serve() {
	for {
		select {
		case <-o.queue.more:
			for o.askSome() {
			}
		case <-o.ctx.Done():
			for o.askSome() { // nobody is left without an answer
			}
			return
		}
	}
}

// askSome deals with what has gathered and reports whether there was anything.
func (o *RedisOwnership) askSome() bool {
	asks := o.queue.take(ownerBatch)
	if asks == nil {
		return false
	}
	defer o.queue.finished()
	now, together := o.cfg.Now(), o.redis.together()
	var batches []*leaseBatch
	var of [][]ask
	var at [leaseOps][ownerTags]int // index of the batch, plus 1
	for _, a := range asks {
		if now-a.since > int64(o.cfg.OpTimeout) {
			o.answered(a, "", context.DeadlineExceeded, now)
			continue
		}
		tag := 0
		if !together {
			tag = ownerTag(a.t.id)
		}
		i := at[a.op][tag] - 1
		if i < 0 {
			i = len(batches)
			at[a.op][tag] = i + 1
			batches, of = append(batches, &leaseBatch{op: a.op}), append(of, nil)
		}
		b := batches[i]
		b.ids, b.tokens = append(b.ids, a.t.id), append(b.tokens, a.token)
		of[i] = append(of[i], a)
	}
	sent := o.call(batches)
	for i, b := range batches {
		for j, a := range of[i] {
			answer := ""
			if b.err == nil {
				answer = b.answers[j]
			}
			o.answered(a, answer, b.err, sent)
		}
	}
	return true
}

// call has the batches done and returns the time before they were sent.
func (o *RedisOwnership) call(batches []*leaseBatch) (sent int64) {
	sent = o.cfg.Now()
	if len(batches) == 0 {
		return sent
	}
	ctx, cancel := context.WithTimeout(o.ctx, o.cfg.OpTimeout)
	defer cancel()
	o.redis.run(ctx, o.node, o.cfg.Target, o.cfg.Times.Lease, batches)
	return sent
}

// renew prolongs the leases of every part that is due, ownerScripts scripts at a
// time. One that fails may have taken REDIS_OP_TIMEOUT_SECONDS, so the rest is left
// for the next call, which begins with it: of a cluster, masters that hang must not
// keep the parts of the others from their turn.
func (o *RedisOwnership) renew() {
	now := o.cfg.Now()
	var batches []*leaseBatch
	var of [][]*Tenure
	var tags []int
	flush := func() bool {
		ok := o.renewAll(batches, of)
		var failed [ownerTags]bool
		for _, b := range batches {
			if b.err != nil {
				failed[ownerTag(b.ids[0])] = true
			}
		}
		for _, tag := range tags {
			s := &o.shards[tag]
			if failed[tag] {
				s.renewAt = now + int64(o.cfg.Times.Retry)
			} else if s.renewAt += int64(o.cfg.Times.Renew); s.renewAt <= now {
				s.renewAt = now + int64(o.cfg.Times.Renew)
			}
		}
		batches, of, tags = nil, nil, nil
		return ok
	}
	from := o.renewFrom
	for i := range o.shards {
		tag := (from + i) % ownerTags
		s := &o.shards[tag]
		if now < s.renewAt {
			continue
		}
		b, ts := o.due(tag)
		batches, of, tags = append(batches, b...), append(of, ts...), append(tags, tag)
		if len(batches) >= ownerScripts {
			o.renewFrom = tag + 1
			if !flush() {
				return // the rest is still due, and first next time
			}
		}
	}
	flush()
}

// due returns a part's leases, in batches, and marks them as asked about.
func (o *RedisOwnership) due(tag int) (batches []*leaseBatch, of [][]*Tenure) {
	s := &o.shards[tag]
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.tenures {
		l := &t.lease
		if l.state != tenureHeld || l.asked {
			continue
		}
		l.asked = true
		if n := len(batches); n == 0 || len(batches[n-1].ids) == ownerBatch {
			batches, of = append(batches, &leaseBatch{op: opRenew}), append(of, nil)
		}
		b := batches[len(batches)-1]
		b.ids, b.tokens = append(b.ids, t.id), append(b.tokens, l.token)
		of[len(of)-1] = append(of[len(of)-1], t)
	}
	return batches, of
}

// renewAll renews, claims again what Redis has forgotten, and reports whether
// Redis did all of it.
func (o *RedisOwnership) renewAll(batches []*leaseBatch, of [][]*Tenure) (ok bool) {
	ok = true
	sent := o.call(batches)
	var again []*leaseBatch
	var ofAgain [][]*Tenure
	var againOf []*leaseBatch
	for i, b := range batches {
		ok = ok && b.err == nil
		var c *leaseBatch
		for j, t := range of[i] {
			if b.err == nil && b.answers[j] == "" && o.retake(t) {
				if c == nil {
					c = &leaseBatch{op: opClaim}
					again, ofAgain, againOf = append(again, c), append(ofAgain, nil), append(againOf, b)
				}
				c.ids, c.tokens = append(c.ids, t.id), append(c.tokens, t.lease.token)
				ofAgain[len(ofAgain)-1] = append(ofAgain[len(ofAgain)-1], t)
				continue
			}
			o.renewed(t, b, j, sent)
		}
	}
	if len(again) == 0 {
		return ok
	}
	sent = o.call(again)
	for i, b := range again {
		ok = ok && b.err == nil
		if b.err != nil {
			againOf[i].err = b.err
		}
		for j, t := range ofAgain[i] {
			o.renewed(t, b, j, sent)
		}
	}
	return ok
}

// retake gives a lease that Redis has forgotten a new token, to be claimed with.
// It reports false if the tenure is over.
func (o *RedisOwnership) retake(t *Tenure) bool {
	s := o.shardOf(t.id)
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.lease.state != tenureHeld {
		return false
	}
	t.lease.token = o.tokens.Add(1)
	return true
}

// renewed takes the answer to a renewal, or to the claim that followed it.
func (o *RedisOwnership) renewed(t *Tenure, b *leaseBatch, i int, sent int64) {
	s := o.shardOf(t.id)
	var after effects
	s.mu.Lock()
	l := &t.lease
	l.asked = false
	switch {
	case l.state == tenureReleasing:
		o.askFor(t, opRelease)
	case l.state != tenureHeld || b.err != nil: // over, or to be tried again
	case b.answers[i] == answerOurs:
		t.until.Store(max(t.until.Load(), o.heldUntil(sent)))
	default:
		if l.attached || l.pending > 0 {
			o.moved.Add(1)
		}
		after = o.end(s, t, after)
	}
	s.mu.Unlock()
	after.run()
}
