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
