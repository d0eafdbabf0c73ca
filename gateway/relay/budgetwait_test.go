package relay

import (
	"bytes"
	"testing"
	"time"

	"sluice/codec/ws"
	"sluice/ledger"
	"sluice/loop"
)

// A taker is a scripted socket that takes everything, or nothing.
type taker struct {
	scripted
	open   bool
	took   int // bytes
	kicked bool
}

func (c *taker) Writable() bool { return c.open }
func (c *taker) Kick()          { c.kicked = true }
func (c *taker) Writev(v *loop.Vec) (int, error) {
	c.took += v.Size()
	return v.Size(), nil
}

// masked is a frame of n zeros as a peer sends it.
func masked(n int) []byte {
	h := ws.AppendHeader(nil, true, ws.OpBinary, n)
	h[1] |= 0x80
	return append(h, make([]byte, 4+n)...)
}

// One read ends a message that its destination refuses and begins one that the
// budget refuses. The destination's drain is all that lets the source go on.
func TestStarvedAndGatedInOneRead(t *testing.T) {
	t.Parallel()
	const large, small = 20000, 300
	s := newSource(t, large+small/2)
	k, sh := s.k, s.k.shard
	sh.relay.cfg.IngressWait, sh.relay.cfg.SocketMemory = time.Second, 1<<30
	from, to := &taker{}, &taker{}
	d := &sock{c: to, shard: sh, ch: k.ch, kind: kindV1Server}
	k.c, k.kind, k.ch.data = from, kindV1Client, d

	whole := append(masked(large), bytes.Repeat(masked(1), small)...)
	for _, part := range [][]byte{whole[:large/2], whole[large/2:]} {
		from.head = part
		for k.holds == 0 && len(from.head) > 0 {
			k.read()
		}
	}
	if !d.out.over || k.holds&holdGate == 0 || len(k.in.stash) == 0 {
		t.Fatalf("not held for both: over %v, holds %b, %d bytes kept", d.out.over, k.holds, len(k.in.stash))
	}
	if n := sh.led.Snapshot().Waiting; n != 0 || k.waits || len(sh.waiters) != 0 {
		t.Errorf("it waits for budget too: %d, %v", n, k.waits)
	}
	sh.OnTurn(sh.l) // it is still full
	to.open = true
	for range small { // each turn the destination takes what there is
		d.pump()
		sh.OnTurn(sh.l)
		if k.holds != 0 {
			t.Fatalf("the destination took all, and the source is held: %b", k.holds)
		}
		if len(k.in.stash) == 0 && len(from.head) == 0 {
			break
		}
		if len(k.in.stash) > 0 && !from.kicked {
			t.Fatal("what was kept is not looked at again")
		}
		from.kicked = false
		k.read()
	}
	if want := 4 + large + small*3; to.took != want {
		t.Errorf("%d bytes came, not %d", to.took, want)
	}
	if err := sh.led.Empty(); err != nil {
		t.Error(err)
	}
}

// A source that waits for budget, and tries in vain now and then, is told of its
// pause as if it had not tried. What it gets ends the pause.
func TestVainTryKeepsThePause(t *testing.T) {
	t.Parallel()
	for _, direct := range []bool{true, false} {
		size := 1000 // kept, and parsed again
		if direct {
			size = directRead
		}
		s := newSource(t, size)
		k, sh := s.k, s.k.shard
		sh.relay.cfg.IngressWait = time.Minute
		from := &taker{}
		k.c = from
		var others ledger.Charge
		sh.led.Reserve(&others, int64(size))

		in := masked(size)
		from.head = in[:len(in)-size] // the header
		if !direct {
			from.head = in
		}
		for range 2 {
			k.read()
		}
		from.payload = size
		if k.holds != holdBudget || !k.in.wait.Active() {
			t.Fatalf("direct %v: it does not wait: holds %b", direct, k.holds)
		}
		now := sh.l.Now()
		k.heldSince, k.lastPong = now-8e9, now-3e9
		for range 3 {
			sh.unlistWaiter(k)
			k.unhold(holdBudget)
			k.read()
			if k.holds != holdBudget || k.heldSince != now-8e9 || k.lastPong != now-3e9 {
				t.Fatalf("direct %v: a vain try: holds %b, held for %d, last pong %d ago", direct, k.holds, now-k.heldSince, now-k.lastPong)
			}
		}
		sh.led.Return(&others, others.Bytes())
		sh.unlistWaiter(k)
		k.unhold(holdBudget)
		k.read()
		if k.holds != 0 || k.in.wait.Active() || k.heldSince != 0 {
			t.Errorf("direct %v: it got what it waited for: holds %b, held since %d", direct, k.holds, k.heldSince)
		}
	}
}
