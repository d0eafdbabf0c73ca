package store

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"

	"github.com/redis/rueidis"
)

// A failKind is why an attempt failed, for logs.
type failKind uint8

const (
	// failUnreachable: no connection, so nothing was sent.
	failUnreachable failKind = iota
	// failTimeout: no answer in time. Redis is paused, overloaded, or cut off.
	failTimeout
	// failBroken: the connection ended while the answer was awaited.
	failBroken
	// failReadOnly: a replica. A failover is under way or has gone by unseen.
	failReadOnly
	// failLoading: Redis has started and reads its snapshot, or a script is
	// stuck.
	failLoading
	// failMemory: maxmemory is reached and nothing may be evicted.
	failMemory
	// failDisk: Redis refuses writes because it cannot save.
	failDisk
	// failCluster: slots have no master, or are being moved.
	failCluster
	// failRefused: credentials or an ACL.
	failRefused
	// failKey: a script met something under its keys that it can do nothing with.
	// Redis itself is well.
	failKey
	// failOdd: an answer that makes no sense.
	failOdd

	failKinds
)

var failNames = [failKinds]string{"unreachable", "timeout", "connection_lost", "read_only", "loading", "out_of_memory",
	"cannot_save", "cluster", "access_refused", "damaged_key", "nonsense"}

func (k failKind) String() string { return failNames[k] }

// A failure is what became of an attempt without an answer.
type failure struct {
	kind    failKind
	outcome Outcome // NotExecuted or Unknown
	detail  string  // for the log; holds no secret
}

// lasting reports that trying again within a call makes no sense.
func (f *failure) lasting() bool {
	switch f.kind {
	case failMemory, failDisk, failRefused, failKey, failOdd:
		return true
	}
	return false
}

// refusals are the words by which Redis says that it executes nothing. Redis
// before 7 puts them behind a dash in the middle of a script's error.
var refusals = []struct {
	word string
	kind failKind
}{
	{"READONLY", failReadOnly}, {"MASTERDOWN", failReadOnly}, {"NOREPLICAS", failReadOnly},
	{"LOADING", failLoading}, {"BUSY", failLoading},
	{"OOM", failMemory}, {"MISCONF", failDisk},
	{"CLUSTERDOWN", failCluster}, {"TRYAGAIN", failCluster}, {"MOVED", failCluster}, {"ASK", failCluster}, {"CROSSSLOT", failCluster},
	{"NOAUTH", failRefused}, {"WRONGPASS", failRefused}, {"NOPERM", failRefused},
}

// classify judges the error of a call. A script of ours writes first what may be
// refused, so that a refusal means that nothing was done.
func classify(err error) *failure {
	if e, ok := rueidis.IsRedisErr(err); ok {
		text := e.Error()
		for _, w := range refusals {
			if strings.HasPrefix(text, w.word+" ") || text == w.word || strings.Contains(text, " -"+w.word+" ") {
				return &failure{w.kind, NotExecuted, short(text)}
			}
		}
		if strings.Contains(text, "WRONGTYPE") || strings.Contains(text, "user_script") {
			return &failure{failKey, Unknown, short(text)} // the second is Redis's name for what it was running
		}
		return &failure{failOdd, Unknown, short(text)}
	}
	var op *net.OpError
	var dns *net.DNSError
	switch {
	case errors.As(err, &op) && op.Op == "dial", errors.As(err, &dns):
		return &failure{failUnreachable, NotExecuted, short(err.Error())}
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return &failure{failTimeout, Unknown, "no answer in time (REDIS_READ_TIMEOUT_SECONDS, REDIS_OP_TIMEOUT_SECONDS)"}
	case rueidis.IsParseErr(err), errors.Is(err, errNonsense):
		return &failure{failOdd, Unknown, short(err.Error())}
	}
	return &failure{failBroken, Unknown, short(err.Error())}
}

// short keeps a peer's text from filling the log.
func short(s string) string {
	const most = 120
	if len(s) > most {
		s = s[:most] + "…"
	}
	return strings.ToValidUTF8(strings.Map(func(c rune) rune {
		if c < ' ' || c == 0x7f {
			return ' '
		}
		return c
	}, s), "?")
}
