package store

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/rueidis"
)

// Each script may be executed twice, or late: what it does depends on the token,
// and at worst a claim is left behind that ends by itself, or is taken over by
// the node that it names.
var (
	ownerScriptOf = [leaseOps]*Script{
		opClaim:   NewScript("owner_claim", true),
		opLook:    NewScript("owner_look", true),
		opRenew:   NewScript("owner_renew", true),
		opRelease: NewScript("owner_release", true),
	}
	ownerBeat = NewScript("owner_beat", true)
)

// Keys of shared ownership. What is in braces decides the hash slot.
const ownerNodesKey = "sluice:{nodes}"

func ownerKey(serverID string) string {
	return fmt.Sprintf("sluice:owner:{%02x}:", ownerTag(serverID)) + serverID
}

var (
	errRedisRefused = errors.New("Redis cannot be asked")
	errRedisAnswer  = errors.New("Redis gave no answer, or one that makes no sense")
)

// redisLeases are the steps of shared ownership in Redis.
type redisLeases struct{ redis *Redis }

// NewRedisOwnership makes the store of a node in a fleet. Start begins its work.
func NewRedisOwnership(cfg OwnerConfig, redis *Redis) *RedisOwnership {
	return newOwnership(cfg, redisLeases{redis})
}

func (r redisLeases) ready() bool { return r.redis.Ready() }

func (r redisLeases) together() bool { return r.redis.cfg.Mode != RedisCluster }

// scriptArgs are the arguments of a batch's script, as its file says.
func (b *leaseBatch) scriptArgs(node, target string, lease time.Duration) []string {
	args := make([]string, 0, 3+len(b.tokens))
	ms := strconv.FormatInt(lease.Milliseconds(), 10)
	switch b.op {
	case opClaim:
		args = append(args, ms, node, target)
	case opRenew:
		args = append(args, ms, node)
	case opRelease, opLook:
		args = append(args, node)
	default:
		panic(fmt.Sprintf("BUG: no such operation on a lease %d", b.op))
	}
	for _, token := range b.tokens {
		args = append(args, strconv.FormatUint(token, 10))
	}
	return args
}

// run implements leaseCalls.
func (r redisLeases) run(ctx context.Context, node, target string, lease time.Duration, batches []*leaseBatch) {
	type answer struct {
		b       *leaseBatch
		answers []string
		err     error
	}
	done := make(chan answer, len(batches))
	left := 0
	for _, b := range batches {
		keys := make([]string, len(b.ids))
		for i, id := range b.ids {
			keys[i] = ownerKey(id)
		}
		script := ownerScriptOf[b.op]
		b.err = errRedisAnswer
		if !r.redis.CallReserved(script, keys, b.scriptArgs(node, target, lease), func(m rueidis.RedisMessage, o Outcome) {
			a := answer{b: b, err: errRedisAnswer}
			if o == Answered {
				if a.answers, a.err = m.AsStrSlice(); a.err != nil || len(a.answers) != len(keys) {
					r.redis.Odd(script)
					a.err = errRedisAnswer
				}
			}
			done <- a
		}) {
			b.err = errRedisRefused
			continue
		}
		left++
	}
	for ; left > 0; left-- {
		select {
		case a := <-done:
			a.b.answers, a.b.err = a.answers, a.err
		case <-ctx.Done():
			return
		}
	}
}

// beat implements leaseCalls.
func (r redisLeases) beat(ctx context.Context, node string, dead time.Duration, alive bool) (int, error) {
	type answer struct {
		nodes int64
		err   error
	}
	done := make(chan answer, 1)
	say := "beat"
	if !alive {
		say = "leave"
	}
	args := []string{node, strconv.FormatInt(dead.Milliseconds(), 10), say}
	if !r.redis.CallReserved(ownerBeat, []string{ownerNodesKey}, args, func(m rueidis.RedisMessage, o Outcome) {
		a := answer{err: errRedisAnswer}
		if o == Answered {
			if a.nodes, a.err = m.AsInt64(); a.err != nil || a.nodes < 0 || a.nodes > 1<<20 {
				r.redis.Odd(ownerBeat)
				a.err = errRedisAnswer
			}
		}
		done <- a
	}) {
		return 0, errRedisRefused
	}
	select {
	case a := <-done:
		return int(a.nodes), a.err
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}
