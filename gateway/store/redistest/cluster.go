package redistest

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
)

const slots = 16384

// A Cluster is masters that share the slots evenly, without replicas.
type Cluster struct {
	Servers []*Server
	ids     []string
	t       testing.TB
}

// StartCluster starts a cluster of n masters.
func StartCluster(t testing.TB, n int, options ...string) *Cluster {
	t.Helper()
	c := &Cluster{t: t}
	for i := range n {
		s := Start(t, append(options, "--cluster-enabled", "yes", "--cluster-node-timeout", "2000")...)
		s.Do("CLUSTER", "ADDSLOTSRANGE", strconv.Itoa(i*slots/n), strconv.Itoa((i+1)*slots/n-1))
		s.Do("CLUSTER", "SET-CONFIG-EPOCH", strconv.Itoa(i+1))
		c.Servers = append(c.Servers, s)
		c.ids = append(c.ids, s.Do("CLUSTER", "MYID"))
	}
	for _, s := range c.Servers[1:] {
		host, port, _ := strings.Cut(s.Addr, ":")
		c.Servers[0].Do("CLUSTER", "MEET", host, port)
	}
	for _, s := range c.Servers {
		s.Await("the cluster is whole", func() bool {
			info := s.Do("CLUSTER", "INFO")
			return strings.Contains(info, "cluster_state:ok") && strings.Contains(info, fmt.Sprintf("cluster_known_nodes:%d\r", n))
		})
	}
	return c
}

// URL is the REDIS_URL that names the servers.
func (c *Cluster) URL() string {
	var addrs []string
	for _, s := range c.Servers {
		addrs = append(addrs, s.Addr)
	}
	return "redis+cluster://" + strings.Join(addrs, ",")
}

// Slot is the slot of a key.
func (c *Cluster) Slot(key string) int {
	n, _ := strconv.Atoi(c.Servers[0].Do("CLUSTER", "KEYSLOT", key))
	return n
}

// BeginMove lets a slot be moved: from then on both servers take a part in it.
func (c *Cluster) BeginMove(slot, from, to int) {
	n := strconv.Itoa(slot)
	c.Servers[to].Do("CLUSTER", "SETSLOT", n, "IMPORTING", c.ids[from])
	c.Servers[from].Do("CLUSTER", "SETSLOT", n, "MIGRATING", c.ids[to])
}

// MoveKey moves a key of a slot whose move has begun.
func (c *Cluster) MoveKey(key string, from, to int) {
	host, port, _ := strings.Cut(c.Servers[to].Addr, ":")
	c.Servers[from].Do("MIGRATE", host, port, key, "0", "10000")
}

// EndMove moves the rest of a slot and makes its new server the owner.
func (c *Cluster) EndMove(slot, from, to int) {
	n := strconv.Itoa(slot)
	for {
		keys := c.Servers[from].Do("CLUSTER", "GETKEYSINSLOT", n, "100")
		if keys == "" {
			break
		}
		for key := range strings.SplitSeq(keys, "\n") {
			c.MoveKey(key, from, to)
		}
	}
	for _, i := range []int{to, from} {
		c.Servers[i].Do("CLUSTER", "SETSLOT", n, "NODE", c.ids[to])
	}
	for i, s := range c.Servers {
		if i != to && i != from {
			s.Do("CLUSTER", "SETSLOT", n, "NODE", c.ids[to])
		}
	}
}

// Move moves a whole slot.
func (c *Cluster) Move(slot, from, to int) {
	c.BeginMove(slot, from, to)
	c.EndMove(slot, from, to)
}
