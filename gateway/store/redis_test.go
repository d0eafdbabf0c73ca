package store

import (
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"sluice/gateway/store/redistest"
)

// redisPatience is how long tests wait for what must come. Machines differ.
const redisPatience = 60 * time.Second

// logLines keeps a log.
type logLines struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *logLines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logLines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func (l *logLines) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.b.String(), text)
}

// redisConfigOf reads the URLs of package redistest.
func redisConfigOf(url string) RedisConfig {
	cfg := RedisConfig{Connections: 2, DialTimeout: 5 * time.Second, ReadTimeout: 3 * time.Second, WriteTimeout: 3 * time.Second,
		Retries: 3, OpTimeout: 5 * time.Second}
	scheme, rest, _ := strings.Cut(url, "://")
	switch scheme {
	case "redis+sentinel":
		cfg.Mode = RedisSentinel
		rest, cfg.Master, _ = strings.Cut(rest, "/")
	case "redis+cluster":
		cfg.Mode = RedisCluster
	}
	cfg.Addrs = strings.Split(rest, ",")
	return cfg
}

// openTestRedis opens a client with short timeouts.
func openTestRedis(t testing.TB, url string, change ...func(*RedisConfig)) (*Redis, *logLines) {
	t.Helper()
	cfg, log := redisConfigOf(url), new(logLines)
	cfg.ReadTimeout, cfg.WriteTimeout, cfg.OpTimeout = time.Second, time.Second, 2*time.Second
	cfg.Log = slog.New(slog.NewTextHandler(log, nil))
	for _, f := range change {
		f(&cfg)
	}
	r := OpenRedis(cfg)
	t.Cleanup(r.Close)
	return r, log
}

func eventually(t testing.TB, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(redisPatience); !f(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not in time: %s", what)
		}
	}
}

// countScript adds one to a key.
var countScript = &Script{name: "count", lua: rueidis.NewLuaScript("return redis.call('INCR', KEYS[1])")}

// call makes one call and waits for it.
func call(t testing.TB, r *Redis, s *Script, keys, args []string) (m rueidis.RedisMessage, o Outcome, started bool) {
	t.Helper()
	done := make(chan struct{})
	if !r.Call(s, keys, args, func(gm rueidis.RedisMessage, g Outcome) { m, o = gm, g; close(done) }) {
		return m, NotExecuted, false
	}
	select {
	case <-done:
	case <-time.After(redisPatience):
		t.Fatal("a call is not answered")
	}
	return m, o, true
}

func wantCount(t testing.TB, r *Redis, key string, want int64) {
	t.Helper()
	m, o, _ := call(t, r, countScript, []string{key}, nil)
	if n, err := m.ToInt64(); o != Answered || err != nil || n != want {
		t.Fatalf("%s is %d (%v, outcome %d), want %d", key, n, err, o, want)
	}
}

// TestRedisTried: the first attempt decides, when the server is there.
func TestRedisTried(t *testing.T) {
	t.Parallel()
	r, _ := openTestRedis(t, redistest.Start(t).URL())
	if <-r.Tried(); !r.Ready() {
		t.Error("not ready")
	}
}

// TestRedisModes: calls reach the right server of each kind of Redis.
func TestRedisModes(t *testing.T) {
	t.Parallel()
	f := func(name string, url func(t *testing.T) string) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, log := openTestRedis(t, url(t))
			eventually(t, "ready", r.Ready)
			for _, key := range []string{"a", "b", "{c}d", "e", "f"} {
				wantCount(t, r, key, 1)
				wantCount(t, r, key, 2)
			}
			if n := log.count("Redis is reached"); n != 1 {
				t.Errorf("%d lines say that it is reached", n)
			}
		})
	}
	f("single", func(t *testing.T) string { return redistest.Start(t).URL() })
	f("sentinel", func(t *testing.T) string { return redistest.StartReplicated(t).URL() })
	f("cluster", func(t *testing.T) string { return redistest.StartCluster(t, 3).URL() })
}

// TestRedisStartsBeforeTheServer: the client waits for its server, refusing calls
// meanwhile.
func TestRedisStartsBeforeTheServer(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	s.Kill()
	r, log := openTestRedis(t, s.URL())
	<-r.Tried()
	if n := log.count("cannot be used yet"); n != 1 {
		t.Errorf("%d lines about it", n)
	}
	if _, _, started := call(t, r, countScript, []string{"a"}, nil); started || r.Ready() {
		t.Fatal("a call was made without a server")
	}
	s.Restart()
	eventually(t, "ready", r.Ready)
	wantCount(t, r, "a", 1)
	if n := log.count("cannot be used yet"); n != 1 {
		t.Errorf("%d lines about the wait", n)
	}
}
