package relay

import (
	"errors"
	"testing"

	"sluice/loop"
)

// A reset socket takes nothing, and has been read when its input is.
type resetSocket struct {
	taker
	closed bool
}

func (c *resetSocket) Writev(*loop.Vec) (int, error) { return 0, errors.New("connection reset") }
func (c *resetSocket) WasReset() bool                { return true }
func (c *resetSocket) Close()                        { c.closed = true }
func (c *resetSocket) Read(b []byte) (int, loop.ReadResult) {
	if n, r := c.taker.Read(b); n > 0 {
		return n, r
	}
	return 0, loop.ReadReset
}

// A socket that cannot be written to is kept for its own messages only, and goes
// with the turn in which anything else ends it.
func TestBrokenSocketIsOnlyRead(t *testing.T) {
	t.Parallel()
	ends := map[string]func(k *sock){
		"read to its end":             func(k *sock) { k.read(); k.read() },
		"shut":                        func(k *sock) { k.shut(closeReplaced) },
		"finished":                    func(k *sock) { k.finish(closeClientGone) },
		"halted":                      func(k *sock) { k.halt(closeRestart) },
		"waits for a data socket too": func(k *sock) { k.hold(holdWait); k.shard.breakLater(k) },
	}
	for name, end := range ends {
		s := newSource(t, maxMessage)
		sh := s.k.shard
		sh.relay.cfg.SocketMemory = 1 << 30
		c, peer := &resetSocket{}, &taker{open: true}
		c.open = true
		c.head = masked(1)
		k := &sock{c: c, shard: sh, ch: s.k.ch, kind: kindV1Server}
		from := &sock{c: peer, shard: sh, ch: s.k.ch, kind: kindV1Client}
		k.sess = &session{shard: sh, sockets: 2, one: k.ch}
		k.ch.sess, k.ch.data = k.sess, k
		sh.led.TakeSlot(&k.slot, false)
		k.ch.addClient(from)
		for range 3 {
			peer.head = masked(5)
			from.read()
			sh.OnTurn(sh.l)
			if k.state != open || !k.broken || !c.kicked || k.out.head != nil || from.holds != 0 {
				t.Fatalf("%s: state %d, broken %v, queue %v, its source's holds %b", name, k.state, k.broken, k.out.head, from.holds)
			}
		}
		end(k)
		sh.OnTurn(sh.l)
		if k.state != gone || !c.closed || len(sh.brokens) != 0 {
			t.Errorf("%s: state %d, closed %v, %d listed", name, k.state, c.closed, len(sh.brokens))
		}
		if read := name == "read to its end"; read != (peer.took > 0) {
			t.Errorf("%s: %d bytes of its message came", name, peer.took)
		}
		if err := sh.led.Empty(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
