package relay

import "sluice/loop"

// SetDraining says whether sessions that nobody has here are refused. Existing
// ones go on, and their own sockets may come back.
func (r *Relay) SetDraining(on bool) { r.draining.Store(on) }

// Sockets returns how many upgraded sockets there are, closing ones included.
func (r *Relay) Sockets() int64 { return r.led.Snapshot().Sockets }

// CloseEvenly closes every session with 1012 Service restart, spread evenly
// between from and to (loop.Now's nanoseconds). No socket is given longer than
// end to take its close frame.
func (r *Relay) CloseEvenly(from, to, end int64) {
	for _, s := range r.shards {
		s.l.Post(&restart{s: s, from: from, to: to, end: end})
	}
}

// restart is one shard's part of CloseEvenly.
type restart struct {
	s             *shard
	from, to, end int64
	sockets       int // at from
	timer         loop.Timer
}

func (x *restart) Deliver(l *loop.Loop) {
	x.s.drainEnd = x.end
	l.StartTimer(&x.timer, x.from, x)
}

func (x *restart) OnTimer(now int64) {
	s := x.s
	n := s.attached
	x.sockets = max(x.sockets, n)
	may := 0
	if now < x.to {
		may = int(int64(x.sockets) * (x.to - now) / (x.to - x.from))
	}
	// By sessions and not by sockets, of which those that close already stay for
	// seconds: nothing is looked at twice.
	for _, m := range s.meetings {
		if n <= may {
			break
		}
		n -= m.sockets()
		s.part(m)
	}
	if now < x.to || n > 0 {
		s.l.StartTimer(&x.timer, now+1, x)
	}
}
