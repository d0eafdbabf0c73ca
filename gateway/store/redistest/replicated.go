package redistest

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// MasterName is what the sentinels of a Replicated call its master.
const MasterName = "fleet"

// A Replicated is a master, a replica of it, and three sentinels that watch them.
type Replicated struct {
	Master, Replica *Server // as they were at the start
	Sentinels       []*Server
}

// StartReplicated starts all of them and waits until they know each other. The
// sentinels find a dead master after half a second.
func StartReplicated(t testing.TB, options ...string) *Replicated {
	t.Helper()
	r := &Replicated{Master: Start(t, options...)}
	host, port, _ := strings.Cut(r.Master.Addr, ":")
	r.Replica = Start(t, append(options, "--replicaof", host+" "+port)...)
	r.Replica.Await("it is in step", func() bool { return r.Replica.Info("replication", "master_link_status") == "up" })
	for range 3 {
		s := newServer(t, "redis-sentinel", func(int) []string { return nil })
		file := filepath.Join(s.Dir, "sentinel.conf")
		conf := fmt.Sprintf("port %d\nbind 127.0.0.1\nsentinel monitor %s %s %s 2\nsentinel down-after-milliseconds %[2]s 500\n"+
			"sentinel failover-timeout %[2]s 3000\nsentinel parallel-syncs %[2]s 1\n", s.port, MasterName, host, port)
		if err := os.WriteFile(file, []byte(conf), 0o600); err != nil {
			t.Fatal(err)
		}
		s.args = []string{file}
		s.start()
		r.Sentinels = append(r.Sentinels, s)
	}
	for _, s := range r.Sentinels {
		s.Await("it knows the others", func() bool {
			about := fields(s.Do("SENTINEL", "master", MasterName))
			return about["num-slaves"] == "1" && about["num-other-sentinels"] == strconv.Itoa(len(r.Sentinels)-1)
		})
	}
	return r
}

// fields are the names and values of a flat answer.
func fields(answer string) map[string]string {
	m := map[string]string{}
	lines := strings.Split(answer, "\n")
	for i := 0; i+1 < len(lines); i += 2 {
		m[lines[i]] = lines[i+1]
	}
	return m
}

// URL is the REDIS_URL that names the sentinels.
func (r *Replicated) URL() string {
	var addrs []string
	for _, s := range r.Sentinels {
		addrs = append(addrs, s.Addr)
	}
	return "redis+sentinel://" + strings.Join(addrs, ",") + "/" + MasterName
}

// AwaitPromotion waits until the replica is the master.
func (r *Replicated) AwaitPromotion() {
	r.Replica.Await("it is promoted", func() bool {
		info, _ := r.Replica.Try("INFO", "replication") // it ends connections as it changes
		return strings.Contains(info, "role:master")
	})
}
