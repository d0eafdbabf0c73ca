package store

import (
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"sluice/gateway/store/redistest"
)

// sleepScript holds Redis up.
var sleepScript = &Script{name: "sleep", lua: rueidis.NewLuaScript("return redis.call('INCR', KEYS[1])"), Repeatable: true}

// outage breaks Redis, wants the circuit to open with a reason in its one line,
// calls to be refused at once, and after repair all to be well again.
func outage(t *testing.T, r *Redis, log *logLines, reason string, breakIt, repair func()) {
	t.Helper()
	eventually(t, "ready", r.Ready)
	breakIt()
	eventually(t, "not ready", func() bool { return !r.Ready() })
	if _, _, started := call(t, r, countScript, []string{"{x}"}, nil); started {
		t.Error("a call was begun while the circuit is open")
	}
	if log.count("what needs it is refused") != 1 || !strings.Contains(log.String(), "reason="+reason) {
		t.Errorf("want one line that says %s:\n%s", reason, log)
	}
	repair()
	healed := time.Now()
	eventually(t, "ready again", r.Ready)
	if took := time.Since(healed); took > 50*time.Second { // the aim is 5 s
		t.Errorf("it took %v to come back", took)
	}
	if _, o, _ := call(t, r, countScript, []string{"{x}"}, nil); o != Answered {
		t.Errorf("a call afterwards: outcome %d\n%s", o, log)
	}
	if n := log.count("can be used again"); n != 1 {
		t.Errorf("%d lines say that it is back", n)
	}
}

// TestRedisOutages: every way in which Redis can be of no use opens the circuit,
// and its end closes it.
func TestRedisOutages(t *testing.T) {
	t.Parallel()
	f := func(name, reason string, breakIt, repair func(s *redistest.Server, p *redistest.Proxy)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t)
			p := redistest.StartProxy(t, s.Addr)
			r, log := openTestRedis(t, p.URL())
			outage(t, r, log, reason, func() { breakIt(s, p) }, func() { repair(s, p) })
		})
	}
	type (
		server = *redistest.Server
		proxy  = *redistest.Proxy
	)
	// The proxy takes the connection before it finds nobody behind it.
	f("killed", "connection_lost", func(s server, _ proxy) { s.Kill() }, func(s server, _ proxy) { s.Restart() })
	f("cut", "connection_lost", func(_ server, p proxy) { p.Cut() }, func(_ server, p proxy) { p.Heal() })
	f("paused", "timeout", func(s server, _ proxy) { s.Pause() }, func(s server, _ proxy) { s.Resume() })
	f("answers lost", "timeout", func(_ server, p proxy) { p.Pause(redistest.ToClient) }, func(_ server, p proxy) { p.Heal() })
	f("read-only", "read_only",
		func(s server, _ proxy) {
			s.Do("REPLICAOF", "127.0.0.1", "1")
			s.Do("CONFIG", "SET", "replica-serve-stale-data", "yes")
		},
		func(s server, _ proxy) { s.Do("REPLICAOF", "NO", "ONE") })
	f("out of memory", "out_of_memory", func(s server, _ proxy) { s.Do("CONFIG", "SET", "maxmemory", "1") },
		func(s server, _ proxy) { s.Do("CONFIG", "SET", "maxmemory", "0") })
	f("no access", "access_refused", func(s server, _ proxy) { s.Do("ACL", "SETUSER", "default", "-eval", "-evalsha") },
		func(s server, _ proxy) { s.Do("ACL", "SETUSER", "default", "+@all") })
}

// TestRedisFailover: the sentinels' new master is found.
func TestRedisFailover(t *testing.T) {
	t.Parallel()
	both := redistest.StartReplicated(t)
	r, log := openTestRedis(t, both.URL())
	eventually(t, "ready", r.Ready)
	wantCount(t, r, "{x}", 1)
	both.Replica.Await("it has the write", func() bool { return both.Replica.Do("GET", "{x}") == "1" })
	both.Master.Kill()
	both.AwaitPromotion()
	eventually(t, "the new master is used", func() bool {
		m, o, _ := call(t, r, countScript, []string{"{x}"}, nil)
		n, _ := m.ToInt64()
		return o == Answered && n >= 2
	})
	if n := log.count("Redis is reached"); n != 1 {
		t.Errorf("%d first lines\n%s", n, log)
	}
}

// TestRedisNonsense: whatever speaks on the port, nothing is believed of it.
func TestRedisNonsense(t *testing.T) {
	t.Parallel()
	for name, says := range map[string]string{
		"http":     "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n",
		"silence":  "",
		"bytes":    "\x00\x01\x02\xff\xfe\r\n\r\n",
		"lengths":  "$999999999999999999\r\n",
		"array":    "*-7\r\n",
		"too many": strings.Repeat("+OK\r\n", 50),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			var asked atomic.Int64
			var serving sync.WaitGroup
			serving.Go(func() {
				for {
					c, err := ln.Accept()
					if err != nil {
						return
					}
					serving.Go(func() {
						defer c.Close()
						b := make([]byte, 4096)
						for {
							if _, err := c.Read(b); err != nil {
								return
							}
							asked.Add(1)
							if _, err := c.Write([]byte(says)); err != nil {
								return
							}
						}
					})
				}
			})
			t.Cleanup(func() { ln.Close(); serving.Wait() })
			r, log := openTestRedis(t, "redis://"+ln.Addr().String())
			eventually(t, "it was asked", func() bool { return asked.Load() >= 2 })
			eventually(t, "the line", func() bool { return log.count("cannot be used yet") == 1 })
			if r.Ready() {
				t.Error("it is ready")
			}
			r.Close() // before the server, which waits for its connections
		})
	}
}

// TestRedisBoundsCalls: of more calls than may be under way the rest is refused
// at once, and each one begun is answered once, in time.
func TestRedisBoundsCalls(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	r, _ := openTestRedis(t, s.URL())
	eventually(t, "ready", r.Ready)
	s.Pause()
	var begun, answered, refused atomic.Int64
	for range 3 * maxCalls {
		if r.Call(sleepScript, []string{"a"}, nil, func(_ rueidis.RedisMessage, o Outcome) { answered.Add(1) }) {
			begun.Add(1)
		} else {
			refused.Add(1)
		}
	}
	if n := r.InFlight(); n > maxCalls {
		t.Errorf("%d calls under way", n)
	}
	if begun.Load() > maxCalls || refused.Load() < 2*maxCalls {
		t.Errorf("%d begun, %d refused", begun.Load(), refused.Load())
	}
	eventually(t, "all are answered", func() bool { return answered.Load() == begun.Load() })
	eventually(t, "none is under way", func() bool { return r.InFlight() == 0 })
	s.Resume()
	eventually(t, "ready again", r.Ready)
	if _, o, _ := call(t, r, sleepScript, []string{"a"}, nil); o != Answered {
		t.Errorf("outcome %d", o)
	}
}

// TestRedisLostAnswer: a call that is not repeatable is made once, and its
// outcome is unknown, not refused.
func TestRedisLostAnswer(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	p := redistest.StartProxy(t, s.Addr)
	r, log := openTestRedis(t, p.URL())
	eventually(t, "ready", r.Ready)
	wantCount(t, r, "warm", 1) // from here on Redis knows the script by its hash
	p.Pause(redistest.ToClient)
	_, o, started := call(t, r, countScript, []string{"once"}, nil)
	if !started || o != Unknown {
		t.Errorf("outcome %d, want unknown", o)
	}
	eventually(t, "not ready", func() bool { return !r.Ready() })
	p.Heal()
	eventually(t, "ready again", r.Ready)
	wantCount(t, r, "once", 2)
	// A repeatable one is made again while there is time for it.
	p.Pause(redistest.ToClient)
	done := make(chan Outcome, 1)
	if !r.Call(sleepScript, []string{"often"}, nil, func(_ rueidis.RedisMessage, o Outcome) { done <- o }) {
		t.Fatalf("not begun\n%s", log)
	}
	s.Await("it has run", func() bool { return s.Do("EXISTS", "often") == "1" })
	p.Heal()
	if o := <-done; o != Answered {
		t.Errorf("outcome %d, want an answer", o)
	}
}

// TestRedisStaleComplaint: a failure opens no circuit if a call has got through before
// the goroutine that opens it came to look.
func TestRedisStaleComplaint(t *testing.T) {
	var c circuit
	c.init()
	c.failed(&failure{kind: failBroken}, time.Now())
	if c.complaint() == nil {
		t.Error("a failure is not complained of")
	}
	c.failed(&failure{kind: failBroken}, time.Now())
	c.succeeded()
	if f := c.complaint(); f != nil {
		t.Errorf("%v is complained of behind a success", f.kind)
	}
}
