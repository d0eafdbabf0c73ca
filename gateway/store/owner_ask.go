package store

import (
	"context"
	"math"
	"slices"
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

// renew prolongs the leases of every part that is due. One script of each goes
// ahead, of all parts at once: of a cluster, that tells the parts whose masters hang,
// which are left for the next call, and costs REDIS_OP_TIMEOUT_SECONDS once. The rest
// of the others follows, ownerScripts scripts at a time. Should one of those fail, the
// parts behind it are left for the next call, which begins with them.
func (o *RedisOwnership) renew() {
	now := o.cfg.Now()
	var parts []int
	var batches []*leaseBatch
	var of [][]*Tenure
	for i := range o.shards {
		tag := (o.renewFrom + i) % ownerTags
		if now < o.shards[tag].renewAt {
			continue
		}
		b, ts := o.due(tag, now, 1)
		parts, batches, of = append(parts, tag), append(batches, b...), append(of, ts...)
	}
	failed, _ := o.renewAll(batches, of)
	parts = slices.DeleteFunc(parts, func(tag int) bool {
		if failed[tag] {
			o.shards[tag].renewAt = now + int64(o.cfg.Times.Retry)
		}
		return failed[tag]
	})
	batches, of = nil, nil
	from := 0 // the first part of the batches
	for i, tag := range parts {
		b, ts := o.due(tag, now, math.MaxInt)
		batches, of = append(batches, b...), append(of, ts...)
		if len(batches) < ownerScripts && i+1 < len(parts) {
			continue
		}
		failed, ok := o.renewAll(batches, of)
		for _, tag := range parts[from : i+1] {
			s := &o.shards[tag]
			if failed[tag] {
				s.renewAt = now + int64(o.cfg.Times.Retry)
			} else if s.renewAt += int64(o.cfg.Times.Renew); s.renewAt <= now {
				s.renewAt = now + int64(o.cfg.Times.Renew)
			}
		}
		if !ok {
			o.renewFrom = tag + 1
			return
		}
		batches, of, from = nil, nil, i+1
	}
}

// due returns those leases of a part that were not granted at now or later, in at
// most so many batches, and marks them as asked about.
func (o *RedisOwnership) due(tag int, now int64, most int) (batches []*leaseBatch, of [][]*Tenure) {
	fresh := o.heldUntil(now)
	s := &o.shards[tag]
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.tenures {
		l := &t.lease
		if l.state != tenureHeld || l.asked || t.until.Load() >= fresh {
			continue
		}
		if n := len(batches); n == 0 || len(batches[n-1].ids) == ownerBatch {
			if n == most {
				break
			}
			batches, of = append(batches, &leaseBatch{op: opRenew}), append(of, nil)
		}
		l.asked = true
		b := batches[len(batches)-1]
		b.ids, b.tokens = append(b.ids, t.id), append(b.tokens, l.token)
		of[len(of)-1] = append(of[len(of)-1], t)
	}
	return batches, of
}

// renewAll renews, claims again what Redis has forgotten, and reports the parts of
// which Redis did not do all, and whether there are none.
func (o *RedisOwnership) renewAll(batches []*leaseBatch, of [][]*Tenure) (failed [ownerTags]bool, ok bool) {
	ok = true
	fail := func(b *leaseBatch) {
		if b.err != nil {
			failed[ownerTag(b.ids[0])], ok = true, false
		}
	}
	sent := o.call(batches)
	var again []*leaseBatch
	var ofAgain [][]*Tenure
	for i, b := range batches {
		fail(b)
		var c *leaseBatch
		for j, t := range of[i] {
			if b.err == nil && b.answers[j] == "" && o.retake(t) {
				if c == nil {
					c = &leaseBatch{op: opClaim}
					again, ofAgain = append(again, c), append(ofAgain, nil)
				}
				c.ids, c.tokens = append(c.ids, t.id), append(c.tokens, t.lease.token)
				ofAgain[len(ofAgain)-1] = append(ofAgain[len(ofAgain)-1], t)
				continue
			}
			o.renewed(t, b, j, sent)
		}
	}
	sent = o.call(again)
	for i, b := range again {
		fail(b)
		for j, t := range ofAgain[i] {
			o.renewed(t, b, j, sent)
		}
	}
	return failed, ok
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
		l.putOff = false
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
