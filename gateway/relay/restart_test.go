package relay

import (
	"fmt"
	"testing"

	"sluice/gateway/store"
)

// Sessions are closed evenly, each once. What closes already costs nothing: the
// sockets here are on no list but their sessions'.
func TestCloseEvenlyGoesBySessions(t *testing.T) {
	t.Parallel()
	const sessions, clients = 400, 3
	s := newSource(t, maxMessage)
	sh := s.k.shard
	var all []*sock
	for i := range sessions {
		sess := sh.session(fmt.Sprint(i), true, new(store.Tenure))
		ch := sess.channelOf("c")
		for range clients {
			k := &sock{c: &taker{}, shard: sh, kind: kindClient}
			sess.attach(k, ch)
			all = append(all, k)
		}
	}
	left := func() (n int) {
		for _, k := range all {
			if k.state == open {
				n++
			} else if k.state != closingState || k.end.code != closeRestart.Code || k.out.parcels != 1 {
				t.Fatalf("a socket is in state %d with %+v and %d parcels", k.state, k.end, k.out.parcels)
			}
		}
		if n != sh.attached {
			t.Fatalf("%d sockets are open, %d are counted", n, sh.attached)
		}
		return n
	}
	x := &restart{s: sh, from: 0, to: 100, end: 1000}
	for now := range int64(x.to) + 1 {
		x.OnTimer(now)
		x.timer.Stop()
		may := len(all) * int(x.to-now) / int(x.to)
		if n := left(); n > may || n <= may-clients {
			t.Fatalf("at %d of %d %d sockets are open, not %d", now, x.to, n, may)
		}
	}
	if len(sh.meetings) != 0 || sh.relay.Sessions() != 0 {
		t.Errorf("%d sessions are left", len(sh.meetings))
	}
}
