package config

import (
	"errors"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Redis is the shared store. Without a Server nothing here applies.
type Redis struct {
	Server RedisServer

	PoolSize     int
	DialTimeout  time.Duration
	ReadTimeout  time.Duration
	WriteTimeout time.Duration
	MaxRetries   int
	OpTimeout    time.Duration
}

// On reports whether there is a shared store.
func (r Redis) On() bool { return r.Server.Mode != RedisOff }

// A RedisMode is how the addresses of a RedisServer are meant.
type RedisMode uint8

const (
	RedisOff      RedisMode = iota // REDIS_URL is unset
	RedisSingle                    // one server
	RedisSentinel                  // sentinels, to be asked for the master Master
	RedisCluster                   // any nodes of a cluster
)

// A RedisServer is REDIS_URL taken apart.
type RedisServer struct {
	Mode     RedisMode
	Addrs    []string // host:port, at least one
	Master   string   // RedisSentinel only
	TLS      bool     // rediss
	Username string
	Password Secret
	DB       int // RedisSingle only
}

const legalRedis = "redis://, rediss://[[user:]password@]host[:port][/db], redis+sentinel://h1,h2/NAME or redis+cluster://h1,h2"

var errRedisURL = errors.New("no Redis URL")

// parseRedisURL reads REDIS_URL. The error never repeats any part of it.
//
// net/url is of no use here: it refuses a list of hosts with ports.
func parseRedisURL(s string) (RedisServer, error) {
	var r RedisServer
	scheme, rest, ok := strings.Cut(s, "://")
	if !ok {
		return r, errRedisURL
	}
	port := "6379"
	switch scheme {
	case "redis":
		r.Mode = RedisSingle
	case "rediss":
		r.Mode, r.TLS = RedisSingle, true
	case "redis+sentinel":
		r.Mode, port = RedisSentinel, "26379"
	case "redis+cluster":
		r.Mode = RedisCluster
	default:
		return r, errRedisURL
	}
	if strings.ContainsAny(rest, "?#") {
		return r, errRedisURL // options have settings of their own
	}
	authority, path, hasPath := strings.Cut(rest, "/")
	if at := strings.LastIndexByte(authority, '@'); at >= 0 {
		user, password, both := strings.Cut(authority[:at], ":")
		authority = authority[at+1:]
		if !both {
			user, password = "", user // redis://password@host, as the CLI reads it
		}
		var err1, err2 error
		r.Username, err1 = url.PathUnescape(user)
		password, err2 = url.PathUnescape(password)
		r.Password = Secret(password)
		if err1 != nil || err2 != nil || password == "" {
			return r, errRedisURL
		}
	}
	for host := range strings.SplitSeq(authority, ",") {
		addr, ok := hostPort(host, port)
		if !ok {
			return r, errRedisURL
		}
		r.Addrs = append(r.Addrs, addr)
	}
	switch r.Mode {
	case RedisSingle:
		if len(r.Addrs) > 1 {
			return r, errRedisURL
		}
		if path != "" {
			n, err := strconv.ParseUint(path, 10, 16)
			if err != nil {
				return r, errRedisURL
			}
			r.DB = int(n)
		}
	case RedisSentinel:
		if path == "" || strings.ContainsAny(path, "/ ") {
			return r, errRedisURL
		}
		r.Master = path
	case RedisCluster:
		if hasPath && path != "" {
			return r, errRedisURL // a cluster has one database
		}
	}
	return r, nil
}
