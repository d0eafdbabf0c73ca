package gateway

import (
	"sluice/codec/open"
	"sluice/gateway/store"
)

// sharedPairs makes the store of pairs in Redis, nil without REDIS_URL.
func (g *Gateway) sharedPairs() func(*open.Pools) store.Pairs {
	if g.redis == nil {
		return nil
	}
	c := &g.cfg.MTE
	limits := store.RedisLimits{PerClient: c.MaxPairsPerClient, Timeout: c.SessionTimeout}
	return func(codec *open.Pools) store.Pairs {
		if c.LocalStateCache {
			return store.NewCachedPairs(g.redis, limits, codec)
		}
		return store.NewRedisPairs(g.redis, limits, codec)
	}
}

// allReady is readiness of both roles: what the admin listener says.
func (g *Gateway) allReady() (ok bool, why string) {
	if ok, why = g.readiness(); ok && g.encrypting != nil && g.redis != nil && !g.redis.Ready() {
		return false, "the store of pairs is unavailable (REDIS_URL)"
	}
	return ok, why
}
