package relay

import (
	"bytes"
	"testing"

	"sluice/codec/ws"
	"sluice/loop"
)

// A recorder is a taker that keeps what it took.
type recorder struct {
	taker
	writes int
	got    []byte
}

func (c *recorder) Writev(v *loop.Vec) (int, error) {
	c.writes++
	for i := range v.Len() {
		c.got = append(c.got, v.Bytes(i)...)
	}
	return c.taker.Writev(v)
}

// inTwo is a message of one byte that has to be gathered.
func inTwo(payload byte) []byte {
	return []byte{byte(ws.OpBinary), 0x80, 0, 0, 0, 0, 0x80, 0x81, 0, 0, 0, 0, payload}
}

// newFan makes a data socket with clients, the sockets of which are returned.
func newFan(t *testing.T, clients int) (k *sock, from *taker, to []*recorder, all []*sock) {
	s := newSource(t, maxMessage)
	k, from = s.k, &taker{}
	k.shard.relay.cfg.SocketMemory = 1 << 30
	k.c, k.kind = from, kindData
	k.ch.sess, k.ch.data = &session{v2: true, shard: k.shard}, k
	for range clients {
		c := &recorder{taker: taker{open: true}}
		d := &sock{c: c, shard: k.shard, ch: k.ch, kind: kindClient}
		k.ch.addClient(d)
		to, all = append(to, c), append(all, d)
	}
	return k, from, to, all
}

// One read may hold thousands of messages that each go out alone. Its turn ends
// after some writes, and the rest is parsed in further ones.
func TestWritesOfOneReadAreBounded(t *testing.T) {
	t.Parallel()
	const clients, messages = 200, 500
	k, from, to, _ := newFan(t, clients)
	var want []byte
	for i := range messages {
		from.head = append(from.head, inTwo(byte(i))...)
		want = append(want, 0x82, 1, byte(i))
	}
	before := 0
	for turn := 0; turn == 0 || from.kicked; turn++ {
		from.kicked = false
		k.read()
		sum := 0
		for _, c := range to {
			sum += c.writes
		}
		if n := sum - before; n > mostWrites+2*clients || n == 0 {
			t.Fatalf("turn %d: %d writes", turn, n)
		}
		before = sum
	}
	for i, c := range to {
		if !bytes.Equal(c.got, want) {
			t.Fatalf("client %d got %d bytes of %d, or in another order", i, len(c.got), len(want))
		}
	}
	if err := k.shard.led.Empty(); err != nil {
		t.Error(err)
	}
}

// A client that lags keeps a parcel of each such message. The source is held up
// in the middle of what it has sent in one go.
func TestLagWithinOneReadIsBounded(t *testing.T) {
	t.Parallel()
	k, from, to, all := newFan(t, 2)
	to[1].open = false
	var want []byte
	for i := range mostLag + 4*mostWrites {
		from.head = append(from.head, inTwo(byte(i))...)
		want = append(want, 0x82, 1, byte(i))
	}
	for k.holds == 0 && (len(from.head) > 0 || from.kicked) {
		from.kicked = false
		k.read()
	}
	if n := all[1].out.parcels; k.holds != holdGate || n > mostLag+mostWrites {
		t.Fatalf("%d parcels wait, holds %b", n, k.holds)
	}
	to[1].open = true
	all[1].pump()
	for k.holds == 0 && (len(from.head) > 0 || from.kicked) {
		from.kicked = false
		k.read()
	}
	for i, c := range to {
		if !bytes.Equal(c.got, want) {
			t.Errorf("client %d got %d bytes of %d, or in another order", i, len(c.got), len(want))
		}
	}
	if err := k.shard.led.Empty(); err != nil {
		t.Error(err)
	}
}

// A control socket that asks and does not read keeps one answer, and is asked on
// when it has taken that.
func TestControlPingsWithinOneReadAreBounded(t *testing.T) {
	t.Parallel()
	s := newSource(t, maxMessage)
	k, c := s.k, &recorder{}
	k.shard.relay.cfg.ControlQueue, k.shard.relay.cfg.SocketMemory = 1<<20, 1<<30
	k.c, k.kind, k.ch = c, kindControl, nil
	const ask = `{"type":"ping"}`
	question := append([]byte{0x80 | byte(ws.OpText), 0x80 | byte(len(ask)), 0, 0, 0, 0}, ask...)
	const questions = 256 << 10 / 21
	c.head = bytes.Repeat(question, questions)

	k.read()
	if k.holds != holdGate || k.out.parcels != 1 || len(k.in.stash) == 0 {
		t.Fatalf("%d answers wait, holds %b, %d bytes kept", k.out.parcels, k.holds, len(k.in.stash))
	}
	c.open = true
	k.pump()
	for k.holds == 0 && (len(c.head) > 0 || c.kicked) {
		c.kicked = false
		before := c.writes
		k.read()
		if n := c.writes - before; n > mostWrites {
			t.Fatalf("%d writes in one turn", n)
		}
	}
	if n := bytes.Count(c.got, []byte(`{"type":"pong","ts":`)); n != questions || k.state != open {
		t.Errorf("%d answers to %d questions, state %d", n, questions, k.state)
	}
	if err := k.shard.led.Empty(); err != nil {
		t.Error(err)
	}
}
