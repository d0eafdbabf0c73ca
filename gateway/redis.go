package gateway

import (
	"fmt"
	"log/slog"
	"math"
	"time"

	"sluice/gateway/config"
	"sluice/gateway/store"
	"sluice/loop"
)

// firstContact is how long a start waits for Redis, so that it does not refuse
// what comes first only because a connection is being made. It goes on without.
const firstContact = time.Second

// redisNotices tells which tuning of Redis is not taken as it is given.
func redisNotices(c *config.Redis) (notices config.Notices) {
	if !c.On() {
		return nil
	}
	if made := store.RedisConnections(c.PoolSize); made != c.PoolSize {
		notices = append(notices, config.Notice{Level: slog.LevelWarn,
			Text: fmt.Sprintf("REDIS_POOL_SIZE: %d; %d connections are made to each server: their number is a power of two, at most %d", c.PoolSize, made, store.RedisConnections(math.MaxInt))})
	}
	return notices
}

// openRedis connects to REDIS_URL, if it is set.
func (g *Gateway) openRedis() {
	c := &g.cfg.Redis
	if !c.On() {
		return
	}
	r := store.RedisConfig{
		Addrs:        c.Server.Addrs,
		Master:       c.Server.Master,
		TLS:          c.Server.TLS,
		Username:     c.Server.Username,
		Password:     string(c.Server.Password),
		DB:           c.Server.DB,
		Connections:  c.PoolSize,
		DialTimeout:  c.DialTimeout,
		ReadTimeout:  c.ReadTimeout,
		WriteTimeout: c.WriteTimeout,
		Retries:      c.MaxRetries,
		OpTimeout:    c.OpTimeout,
		Seconds:      g.process.RedisSeconds.Update,
		Failed:       g.process.RedisErrors.Inc,
		Log:          g.log,
	}
	switch c.Server.Mode {
	case config.RedisSentinel:
		r.Mode = store.RedisSentinel
	case config.RedisCluster:
		r.Mode = store.RedisCluster
	default:
		r.Mode = store.RedisSingle
	}
	g.redis = store.OpenRedis(r)
	select {
	case <-g.redis.Tried():
	case <-time.After(firstContact):
	}
}

func (g *Gateway) closeRedis() {
	if g.redis != nil {
		g.redis.Close()
	}
}

// ownership returns who decides which sessions this node serves.
func (g *Gateway) ownership() store.Ownership {
	c := &g.cfg.Relay
	if g.redis == nil || c.Ownership == config.OwnershipLocal {
		return store.Local{}
	}
	return store.NewRedisOwnership(store.OwnerConfig{
		Target:    c.OwnershipTarget,
		MinNodes:  c.MinClusterSize,
		OpTimeout: g.cfg.Redis.OpTimeout,
		Times:     g.tuning.owner,
		Log:       g.log,
		Now:       loop.Now,
	}, g.redis)
}
