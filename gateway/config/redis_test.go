package config

import (
	"reflect"
	"testing"
)

func TestParseRedisURLSuccess(t *testing.T) {
	f := func(s string, want RedisServer) {
		t.Helper()
		got, err := parseRedisURL(s)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %#v %v", s, got, err)
		}
	}
	one := func(addr string) RedisServer { return RedisServer{Mode: RedisSingle, Addrs: []string{addr}} }
	f("redis://127.0.0.1:1/0", one("127.0.0.1:1"))
	f("redis://h", one("h:6379"))
	f("redis://h/", one("h:6379"))
	f("redis://[::1]", one("[::1]:6379"))
	f("redis://[::1]:7/3", RedisServer{Mode: RedisSingle, Addrs: []string{"[::1]:7"}, DB: 3})
	f("rediss://u:p%40w@h:6380/2", RedisServer{Mode: RedisSingle, Addrs: []string{"h:6380"}, TLS: true, Username: "u", Password: "p@w", DB: 2})
	f("redis://:pw@h", RedisServer{Mode: RedisSingle, Addrs: []string{"h:6379"}, Password: "pw"})
	f("redis://pw@h", RedisServer{Mode: RedisSingle, Addrs: []string{"h:6379"}, Password: "pw"})
	f("redis+sentinel://:pw@h1,h2:7/NAME", RedisServer{Mode: RedisSentinel, Addrs: []string{"h1:26379", "h2:7"}, Master: "NAME", Password: "pw"})
	f("redis+cluster://h1,h2", RedisServer{Mode: RedisCluster, Addrs: []string{"h1:6379", "h2:6379"}})
	f("redis+cluster://h1/", RedisServer{Mode: RedisCluster, Addrs: []string{"h1:6379"}})
}

func TestParseRedisURLFailure(t *testing.T) {
	for _, s := range []string{
		"", " ", "h", "h:6379", "http://h", "REDIS://h", "redis:/h", "redis://", "redis:///0", "redis://h:0", "redis://h:70000",
		"redis://h:x", "redis://h:", "redis://h1,h2", "redis://h/x", "redis://h/-1", "redis://h/0/1", "redis://h?db=1", "redis://h#x",
		"redis://u:@h", "redis://@h", "redis://u:%zz@h", "redis://h,", "redis://[::1", "redis://[1.2.3.4]", "redis://[::1]x", "redis://h h",
		"redis+sentinel://h1,h2", "redis+sentinel://h1/", "redis+sentinel://h1/a/b", "redis+sentinel:///NAME",
		"redis+cluster://h1/0", "redis+cluster://", "rediss+cluster://h", "tcp://h:6379",
	} {
		if got, err := parseRedisURL(s); err == nil {
			t.Errorf("%q: %#v", s, got)
		}
	}
}
