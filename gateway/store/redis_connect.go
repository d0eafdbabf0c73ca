package store

import (
	"context"
	"crypto/tls"
	"math/bits"
	"math/rand/v2"
	"net"
	"strconv"
	"time"

	"github.com/redis/rueidis"
)

const (
	// ringScale is the binary logarithm of how many calls one connection keeps in
	// order: no less than maxCalls, for one that finds no place waits without end.
	ringScale = 11
	// maxMultiplex is the most connections to one server, as a power of two.
	maxMultiplex = 6
	// beatTCP is after how much silence a connection is asked for a sign of life.
	beatTCP = time.Second
)

// multiplexOf is the binary logarithm of how many connections are made.
func multiplexOf(connections int) int {
	return min(bits.Len(uint(max(connections, 1)))-1, maxMultiplex)
}

// RedisConnections is how many connections are made to a server of those that
// RedisConfig asks for: a power of two, at most 64.
func RedisConnections(asked int) int { return 1 << multiplexOf(asked) }

// options are those of the library.
func (r *Redis) options() rueidis.ClientOption {
	c := &r.cfg
	multiplex := multiplexOf(c.Connections)
	if multiplex == 0 && c.Mode != RedisCluster {
		multiplex = -1 // 0 is a default there
	}
	o := rueidis.ClientOption{
		InitAddress:       c.Addrs,
		Username:          c.Username,
		Password:          c.Password,
		SelectDB:          c.DB,
		ClientName:        "sluice",
		Dialer:            net.Dialer{Timeout: c.DialTimeout, KeepAlive: beatTCP},
		ConnWriteTimeout:  max(c.WriteTimeout, c.ReadTimeout), // the library has one for both
		RingScaleEachConn: ringScale,
		PipelineMultiplex: multiplex,
		// An answer that is late must not cost the connection, and calls of many
		// goroutines share writes.
		AlwaysPipelining:  true,
		DisableCache:      true,
		DisableRetry:      true, // run does that, and knows what may be repeated
		ForceSingleClient: c.Mode == RedisSingle,
		DialCtxFn:         r.dial,
	}
	if c.TLS {
		o.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	if c.Mode == RedisSentinel {
		o.Sentinel = rueidis.SentinelOption{MasterSet: c.Master, ClientName: "sluice", TopologyRefreshInterval: beatEvery}
	}
	if c.Mode == RedisCluster {
		o.ShuffleInit = true
		o.ClusterOption = rueidis.ClusterOption{ShardsRefreshInterval: 5 * time.Second}
	}
	return o
}

// dial connects to one server, unless the client is closed meanwhile.
func (r *Redis) dial(_ context.Context, addr string, d *net.Dialer, secure *tls.Config) (c net.Conn, err error) {
	if secure != nil {
		c, err = (&tls.Dialer{NetDialer: d, Config: secure}).DialContext(r.ctx, "tcp", addr)
	} else {
		c, err = d.DialContext(r.ctx, "tcp", addr)
	}
	if err != nil {
		return nil, err
	}
	return &guard{Conn: c}, nil
}

// probe has Redis execute a script that writes, and connects if need be. It is of
// the goroutine of watch.
func (r *Redis) probe() *failure {
	c := r.client.Load()
	if c == nil {
		made, err := rueidis.NewClient(r.options())
		if err != nil {
			f := classify(err)
			if f.kind == failBroken {
				f.kind = failUnreachable
			}
			return r.fault(f)
		}
		c = &redisClient{made}
		r.client.Store(c)
	}
	ctx, cancel := context.WithTimeout(r.ctx, min(probeTimeout, r.cfg.ReadTimeout))
	defer cancel()
	key := "sluice:probe:{" + strconv.FormatUint(rand.Uint64(), 36) + "}" // of any node of a cluster
	answer, err := probeScript.lua.Exec(ctx, c, []string{key}, []string{"1000"}).ToString()
	switch {
	case err != nil:
		return r.fault(classify(err))
	case answer != "sluice":
		return r.fault(&failure{failOdd, Unknown, "not the answer of the script"})
	}
	r.circuit.succeeded()
	return nil
}

// dropClient lets the client go. Closing it waits for its connections, for about
// a second at most.
func (r *Redis) dropClient() {
	c := r.client.Swap(nil)
	if c == nil {
		return
	}
	r.busy.Add(1)
	go func() {
		defer r.busy.Done()
		c.Close()
	}()
}
