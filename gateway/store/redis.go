package store

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"
)

const (
	// maxCalls bounds the calls under way, each of which has a goroutine. Past it
	// a call is refused at once: a Redis that is slower than its users must not
	// pile them up here.
	maxCalls = 2048
	// reservedCalls of them are for what must not starve behind the load of
	// others: the renewal of leases, and signs of life.
	reservedCalls = 256
	// workerIdle is how long a goroutine waits for its next call.
	workerIdle = 5 * time.Second
	// firstPause is before the first retry of a call; it doubles with each.
	firstPause = 25 * time.Millisecond
)

// RedisMode is how the addresses of a RedisConfig are meant.
type RedisMode uint8

const (
	RedisSingle   RedisMode = iota // one server
	RedisSentinel                  // sentinels, to be asked for the master Master
	RedisCluster                   // any nodes of a cluster
)

// RedisConfig says where Redis is and how long it may take (contract, settings).
type RedisConfig struct {
	Mode     RedisMode
	Addrs    []string // host:port
	Master   string   // RedisSentinel only
	TLS      bool
	Username string // of the servers; sentinels are asked without
	Password string
	DB       int

	Connections  int           // per server; see RedisConnections
	DialTimeout  time.Duration // REDIS_DIAL_TIMEOUT_SECONDS
	ReadTimeout  time.Duration // one answer
	WriteTimeout time.Duration // one write; ReadTimeout if that is longer
	Retries      int           // attempts after the first
	OpTimeout    time.Duration // one call with its retries

	// Seconds is told how long each call took, Failed of each attempt that
	// failed. Nil: nobody counts. They are called from any goroutine.
	Seconds func(float64)
	Failed  func()
	Log     *slog.Logger
}

// A Redis is the client that everything in Redis shares: bounded calls that never
// hold up the caller, and a circuit that refuses them at once while Redis cannot
// be used (redis_circuit.go). Its methods may be called from anywhere.
//
// The process does not need Redis to start: until it is reached calls are refused
// like in any other outage.
type Redis struct {
	cfg    RedisConfig
	ctx    context.Context // ends with Close
	cancel context.CancelFunc

	client  atomic.Pointer[redisClient] // nil while there is none
	circuit circuit
	tried   chan struct{} // closed after the first attempt to reach it
	lines   oddLines
	damaged oddLines // about keys

	inFlight atomic.Int64
	work     chan Task // to a goroutine that waits for a call; unbuffered
	closing  sync.RWMutex
	closed   bool           // guarded by closing: no goroutine may begin any more
	busy     sync.WaitGroup // goroutines of ours
}

// redisClient is boxed, since an atomic.Pointer takes no interface.
type redisClient struct{ rueidis.Client }

// OpenRedis makes the client and begins to connect. It never fails: what is wrong
// with Redis is for Ready and the log.
func OpenRedis(cfg RedisConfig) *Redis {
	if cfg.Seconds == nil {
		cfg.Seconds = func(float64) {}
	}
	if cfg.Failed == nil {
		cfg.Failed = func() {}
	}
	r := &Redis{cfg: cfg, work: make(chan Task), tried: make(chan struct{})}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	r.circuit.init()
	r.busy.Add(1)
	go r.watch()
	return r
}

// Close ends the client. Calls under way are answered with Unknown; later ones are
// refused.
func (r *Redis) Close() {
	r.closing.Lock()
	r.closed = true
	r.closing.Unlock()
	r.cancel()
	r.busy.Wait()
}

// Tried is closed once it was tried to reach Redis, with or without success.
func (r *Redis) Tried() <-chan struct{} { return r.tried }

// Ready reports whether Redis can be used.
func (r *Redis) Ready() bool { return r.circuit.up() }

// InFlight is how many calls are under way, MaxCalls the most there may be.
func (r *Redis) InFlight() int64 { return r.inFlight.Load() }

// MaxCalls is the most calls that may be under way.
func (r *Redis) MaxCalls() int64 { return maxCalls }

// An Outcome says what is known of a call.
type Outcome uint8

const (
	// Answered: the script has run and this is its answer.
	Answered Outcome = iota
	// NotExecuted: it surely has not run and will not.
	NotExecuted
	// Unknown: it may have run, or may yet, since the answer was lost.
	Unknown
)

// A Task is one call of a script. Both methods run on a goroutine of the client's,
// the second once, behind the first.
type Task interface {
	// Prepare returns the call. All keys lie in one cluster slot.
	Prepare() (s *Script, keys, args []string)
	// Answer takes what came of it. The message is a zero value unless o is
	// Answered; one that makes no sense is to be passed to Redis.Odd.
	Answer(m rueidis.RedisMessage, o Outcome)
}

// Start begins a call and returns at once. It returns false, and does nothing, if
// Redis cannot be used or too many calls are under way.
func (r *Redis) Start(t Task) bool {
	if !r.circuit.up() {
		return false
	}
	return r.start(t, maxCalls-reservedCalls)
}

func (r *Redis) start(t Task, most int64) bool {
	if r.inFlight.Add(1) > most {
		r.inFlight.Add(-1)
		return false
	}
	select {
	case r.work <- t:
		return true
	default:
	}
	r.closing.RLock()
	defer r.closing.RUnlock()
	if r.closed {
		r.inFlight.Add(-1)
		return false
	}
	r.busy.Add(1)
	go r.worker(t)
	return true
}

// Call is Start for a function. done runs on a goroutine of the client's.
func (r *Redis) Call(s *Script, keys, args []string, done func(rueidis.RedisMessage, Outcome)) bool {
	return r.Start(&funcTask{s, keys, args, done})
}

// CallReserved is Call for what goes on although others have as many calls under
// way as they may.
func (r *Redis) CallReserved(s *Script, keys, args []string, done func(rueidis.RedisMessage, Outcome)) bool {
	return r.circuit.up() && r.start(&funcTask{s, keys, args, done}, maxCalls)
}

type funcTask struct {
	s          *Script
	keys, args []string
	done       func(rueidis.RedisMessage, Outcome)
}

func (t *funcTask) Prepare() (*Script, []string, []string) { return t.s, t.keys, t.args }

func (t *funcTask) Answer(m rueidis.RedisMessage, o Outcome) { t.done(m, o) }

// worker runs calls, one after the other, until none came for a while.
func (r *Redis) worker(t Task) {
	defer r.busy.Done()
	idle := time.NewTimer(workerIdle)
	defer idle.Stop()
	for {
		r.run(t)
		r.inFlight.Add(-1)
		idle.Reset(workerIdle)
		select {
		case t = <-r.work:
		case <-idle.C:
			return
		case <-r.ctx.Done():
			return
		}
	}
}

// run makes the attempts of a call within REDIS_OP_TIMEOUT_SECONDS.
func (r *Redis) run(t Task) {
	began := time.Now()
	s, keys, args := t.Prepare()
	var m rueidis.RedisMessage
	worst, pause := NotExecuted, firstPause
	for left := r.cfg.Retries; ; left-- {
		var f *failure
		m, f = r.attempt(s, keys, args, min(r.cfg.ReadTimeout, r.cfg.OpTimeout-time.Since(began)))
		if f == nil {
			worst = Answered
			break
		}
		if f.outcome == Unknown {
			worst = Unknown
		}
		again := left > 0 && (s.Repeatable || f.outcome == NotExecuted) && !f.lasting()
		wait := pause/2 + rand.N(pause)
		if f.kind == failKey {
			r.keyFailed(s, keys, f)
			break // this key's business, not everybody's
		}
		if again = again && r.ctx.Err() == nil && time.Since(began)+wait < r.cfg.OpTimeout; !again || time.Since(began) > patience {
			r.circuit.failed(f, began)
		}
		if !again || !r.circuit.up() {
			break
		}
		select {
		case <-time.After(wait):
		case <-r.ctx.Done():
		}
		pause *= 2
	}
	r.cfg.Seconds(time.Since(began).Seconds())
	t.Answer(m, worst)
}

// attempt calls the script once.
func (r *Redis) attempt(s *Script, keys, args []string, limit time.Duration) (rueidis.RedisMessage, *failure) {
	c := r.client.Load()
	if c == nil {
		return rueidis.RedisMessage{}, r.fault(&failure{kind: failUnreachable, outcome: NotExecuted})
	}
	ctx, cancel := context.WithTimeout(r.ctx, limit)
	defer cancel()
	m, err := s.lua.Exec(ctx, c, keys, args).ToMessage()
	if err == nil || rueidis.IsRedisNil(err) {
		r.circuit.succeeded()
		return r.found(s, keys, m), nil
	}
	return m, r.fault(classify(err))
}

// fault counts a failed attempt.
func (r *Redis) fault(f *failure) *failure {
	r.cfg.Failed()
	return f
}

// Odd reports an answer that no script of ours gives: whatever speaks there is no
// Redis, or scripts of another version have its keys.
func (r *Redis) Odd(s *Script) {
	r.cfg.Failed()
	if skipped, ok := r.lines.line(time.Now()); ok {
		r.cfg.Log.Error("Redis gave an answer that makes no sense", "script", s.name, "setting", "REDIS_URL", "suppressed", skipped)
	}
}

// oddLines lets one line a second through.
type oddLines struct {
	mu      sync.Mutex
	last    time.Time
	skipped int
}

func (l *oddLines) line(now time.Time) (skipped int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Sub(l.last) < time.Second {
		l.skipped++
		return 0, false
	}
	skipped, l.last, l.skipped = l.skipped, now, 0
	return skipped, true
}

func (m RedisMode) String() string {
	switch m {
	case RedisSingle:
		return "single"
	case RedisSentinel:
		return "sentinel"
	case RedisCluster:
		return "cluster"
	}
	panic(fmt.Sprintf("BUG: no such Redis mode %d", uint8(m)))
}
