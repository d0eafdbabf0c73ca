package relay

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"sluice/codec/ws"
	"sluice/gateway/edge"
	"sluice/gateway/metric"
	"sluice/ledger"
	"sluice/loop"
)

// A scripted socket has what the test puts into it and takes nothing. What it
// does not have a method for is not called.
type scripted struct {
	edge.Socket
	head    []byte // read first
	payload int    // then so many bytes, whose values nobody cares for
}

func (c *scripted) take(room int) (n int, r loop.ReadResult) {
	if room == 0 || c.payload == 0 {
		return 0, loop.ReadAgain
	}
	n = min(room, c.payload)
	c.payload -= n
	return n, loop.ReadBytes
}

func (c *scripted) Read(b []byte) (n int, r loop.ReadResult) {
	if h := copy(b, c.head); h > 0 {
		c.head = c.head[h:]
		n, _ = c.take(len(b) - h)
		return h + n, loop.ReadBytes
	}
	return c.take(len(b))
}

func (c *scripted) Readv(v *loop.Vec) (n int, r loop.ReadResult) { return c.take(v.Size()) }

func (c *scripted) ID() uint64             { return 1 }
func (c *scripted) Remote() netip.AddrPort { return netip.AddrPort{} }
func (c *scripted) Accepted() int64        { return 0 }
func (c *scripted) SetDeadline(int64)      {}
func (c *scripted) Deadline() int64        { return 0 }
func (c *scripted) Pause()                 {}
func (c *scripted) Resume()                {}
func (c *scripted) Writable() bool         { return false }
func (c *scripted) Reset()                 {}

// A source is a socket whose input is scripted and whose messages go nowhere,
// looked into behind every read.
type source struct {
	t    *testing.T
	name string // of what is being tried
	k    *sock
	c    *scripted
	seen int // bytes of whole messages
}

// newSource makes one with a budget for a message of so many bytes.
func newSource(t *testing.T, budget int) *source {
	l, err := loop.New(0, loop.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Discard)
	led := ledger.New(ledger.Limits{Sockets: 10, Budget: 4 * int64(budget), Weight: 4})
	cfg := Config{
		Deadlines: ledger.Deadlines{Delivery: time.Minute, Send: 2 * time.Minute},
		Log:       slog.New(slog.DiscardHandler),
	}
	r := New(cfg, led, nil, metric.NewRelay(metric.RelayGauges{}), []*loop.Loop{l})
	c := &scripted{}
	return &source{t: t, c: c, k: &sock{c: c, shard: r.shards[0], ch: new(channel), kind: kindV1Server}}
}

// frame sends a frame of n bytes, of which reads are cut as told: the header
// comes with the first of the cuts, which are repeated until all is there.
func (s *source) frame(n int, fin bool, cuts ...int) {
	s.t.Helper()
	op := ws.OpContinuation
	if !s.k.in.active {
		op = ws.OpBinary
	}
	h := ws.AppendHeader(nil, fin, op, n)
	h[1] |= 0x80
	s.c.head = append(h, 0, 0, 0, 0)
	for i := 0; len(s.c.head) > 0 || n > 0; i++ {
		m := n
		if len(cuts) > 0 {
			m = min(n, cuts[i%len(cuts)])
		}
		s.c.payload += m
		n -= m
		for len(s.c.head) > 0 || s.c.payload > 0 {
			before := s.c.payload + len(s.c.head)
			s.k.read()
			s.look()
			if s.c.payload+len(s.c.head) == before {
				s.t.Fatalf("%s: not read, %d bytes left", s.name, before)
			}
		}
	}
}

// look proves that the message cannot grow beyond mostBlocks: every block but
// the last is full, and only the few at its beginning, and one at its end, are
// not of the largest class. A message that is ever longer, in small blocks, is
// seen here long before it is too long.
func (s *source) look() {
	s.t.Helper()
	in, largest := &s.k.in, blockSizes[len(blockSizes)-1]
	if s.k.state != open {
		s.t.Fatalf("%s: closed, %+v", s.name, s.k.end)
	}
	if in.body == nil {
		return
	}
	small, blocks := 0, 0
	for x := in.body.head; x != nil; x = x.next {
		blocks++
		if len(x.buf) < largest {
			small++
		}
		if x.next != nil && len(x.space()) > 0 {
			s.t.Fatalf("%s: %d bytes free in block %d of a message of %d bytes", s.name, len(x.space()), blocks, in.size)
		}
	}
	if few := 2*len(blockSizes) + 1; small > few || blocks > few+int(in.size)/largest+1 {
		s.t.Fatalf("%s: %d blocks, %d of them small, for %d bytes", s.name, blocks, small, in.size)
	}
	if got, want := in.body.charge.Bytes(), in.size+in.ahead; got != want {
		s.t.Fatalf("%s: %d bytes charged for %d and %d ahead", s.name, got, in.size, in.ahead)
	}
}

// size is what the message under way holds.
func (s *source) size() int {
	if !s.k.in.active {
		return 0
	}
	return int(s.k.in.size)
}

// space is what is free in the message's last block: a peer that has counted
// along knows it.
func (s *source) space() int {
	if b := s.k.in.body; b != nil {
		return len(b.tail.space())
	}
	return 0
}

// end ends the message with a last frame of n bytes at most, and looks whether
// it went on whole.
func (s *source) end(n int, cuts ...int) {
	s.t.Helper()
	n = min(n, maxMessage-s.size())
	whole := s.size() + n
	s.frame(n, true, cuts...)
	s.seen += whole
	if s.k.in.active || int(s.k.recv) != s.seen {
		s.t.Fatalf("%s: %d bytes of whole messages, not %d", s.name, s.k.recv, s.seen)
	}
	if err := s.k.shard.led.Empty(); err != nil {
		s.t.Fatalf("%s: %v", s.name, err)
	}
}

// The memory of a message is bounded by its bytes, however its sender cuts it
// into frames and the network into reads: no cut reaches what one write carries.
func TestNoCutMakesTooManyBlocks(t *testing.T) {
	t.Parallel()
	edges := []int{0, 1, 2, 125, 126, 501, 502, 503, 511, 512, 513, 4095, 4096, 4097, 20<<10 - 1, 20 << 10, 20<<10 + 1,
		directRead - 1, directRead, directRead + 1, 33279, 33280, 64<<10 - 10, 64<<10 - 1, 64 << 10, 64<<10 + 1, directSpan - 1, directSpan, directSpan + 1}

	s := newSource(t, maxMessage)
	const most = 1 << 20 // enough to tell

	// A sender that has counted along: each frame, read by itself, is a little
	// longer than what is free in the last block. What is little differs.
	for _, over := range edges[1:] {
		s.name = fmt.Sprintf("%d over", over)
		s.frame(20000, false)
		for s.size() < most {
			n := s.space() + over
			for n < directRead {
				n += 64 << 10
			}
			s.frame(n, false, 0, n)
		}
		s.end(200000, 40000)
	}
	// The two sizes in turn that once made a block of 512 bytes of every other frame.
	s.name = "two in turn"
	for _, n := range []int{20000, 20000, 30000, 61062 - 33279} {
		s.frame(n, false)
	}
	for s.size()+33280+32768 <= maxMessage {
		s.frame(33280, false, 0, 33280)
		s.frame(32768, false, 0, 32768)
	}
	s.end(0)
	// Frames of one size, and one frame in reads of one size.
	for _, n := range edges[1:] {
		s.name = fmt.Sprintf("%d each", n)
		upto := min(most, 200*n)
		for s.size()+n <= upto {
			s.frame(n, false)
		}
		s.end(n)
		s.end(upto, n)
		s.end(upto, 0, n)
		s.frame(upto-1, false, n)
		s.end(1)
	}
	// Anything goes.
	for seed := range uint64(8) {
		s.name = fmt.Sprintf("seed %d", seed)
		r := rand.New(rand.NewPCG(8, seed))
		some := func() int {
			switch r.IntN(4) {
			case 0:
				return r.IntN(4 << 10)
			case 1:
				return r.IntN(128 << 10)
			case 2:
				return s.space() + edges[r.IntN(len(edges))]
			}
			return edges[r.IntN(len(edges))]
		}
		for s.size() < most {
			s.frame(some(), false, some(), 1+some(), 1+some())
		}
		s.end(some(), some(), 1+some())
	}
}

// A budget of a message's size admits that message, alone, in any cuts: what its
// reads have taken already is part of what its blocks need.
func TestExactBudgetTakesAnyCuts(t *testing.T) {
	t.Parallel()
	for _, whole := range []int{600, 5000, 70000} {
		s := newSource(t, whole)
		parts := []int{1, whole / 20, whole / 7, whole / 3, whole / 2, whole - 501, whole - 1}
		for _, tail := range parts {
			for _, cut := range parts[1:] {
				s.name = fmt.Sprintf("%d bytes, the last %d read by %d", whole, tail, cut)
				s.frame(whole-tail, false)
				s.end(tail, cut)
				s.frame(whole-tail, false, cut)
				s.end(tail, 0, cut)
			}
			s.end(whole, tail)
		}
	}
}

// A message in more blocks than one write carries would be a fault of ours. Its
// sender is closed; nobody else notices.
func TestTooManyBlocksEndTheirSocketOnly(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		blocks int
		state  sockState
	}{{mostBlocks, open}, {mostBlocks + 1, closingState}, {4 * loop.MaxVec, closingState}} {
		s := newSource(t, maxMessage)
		s.name = fmt.Sprint(c.blocks, " blocks")
		k, sh := s.k, s.k.shard
		in := &k.in
		in.begin(&ws.Header{Fin: true, Op: ws.OpBinary}, 0)
		in.body = sh.newBody()
		for i := range c.blocks {
			x := sh.blocks.get(1)
			if i == 0 {
				x.off, x.end = headerRoom, headerRoom
			}
			x.end++
			in.body.push(x)
			sh.led.Reserve(&in.body.charge, 1)
			in.size++
		}
		k.completeAlone()
		if k.state != c.state || k.state != open && k.end != (ending{closeMemory.Reason, closeMemory.Code, byUs}) {
			t.Errorf("%s: state %d, %+v", s.name, k.state, k.end)
		}
		if got := sh.led.Snapshot().Ingress; got != 0 {
			t.Errorf("%s: %d weighted bytes stay", s.name, got)
		}
		// The loop's batch serves the next.
		next := &source{t: t, name: s.name + ", the next", c: &scripted{}}
		next.k = &sock{c: next.c, shard: sh, ch: new(channel), kind: kindV1Server}
		next.frame(1000, false)
		next.frame(100000, true, 0, 100000)
		if next.k.recv != 101000 {
			t.Errorf("%s: %d bytes", next.name, next.k.recv)
		}
	}
}
