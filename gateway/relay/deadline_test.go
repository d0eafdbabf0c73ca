package relay

import (
	"testing"
	"time"
)

// A slow socket is reset at TRANSPORT_SEND_TIMEOUT, counted from the message it
// is slow with, whatever it is and however it was begun: nothing that is queued
// while it closes puts that off.
func TestSlowSocketIsResetInTime(t *testing.T) {
	t.Parallel()
	for kind := kindV1Server; kind <= kindClient; kind++ {
		for _, begun := range []bool{false, true} {
			for _, left := range []time.Duration{time.Second, time.Duration(closingTime), 2 * time.Duration(closingTime)} {
				s := newSource(t, maxMessage)
				k, sh, now := s.k, s.k.shard, s.k.shard.l.Now()
				k.kind = kind
				if kind == kindControl {
					k.ch = nil
				}
				p := sh.controlParcel(sh.ownFrame(1, []byte("not taken")))
				since := now + int64(left) - int64(sh.relay.cfg.Deadlines.Send)
				p.since = since
				k.enqueue(p)
				if begun {
					k.wrote(3)
				}
				if !k.tooSlow(now) || k.state != closingState {
					t.Fatalf("%v: state %d", kind, k.state)
				}
				if want := now + min(int64(left), closingTime); k.closeBy != want {
					t.Errorf("%v, begun %v, %v left: closes within %v", kind, begun, left, time.Duration(k.closeBy-now))
				}
			}
		}
	}
}
