package gateway_test

import (
	"bytes"
	"encoding/binary"
	"testing"
)

// rawFrame is a frame with bits and lengths as given: b0, the length field and
// a zero mask key, then what follows.
func rawFrame(b0 byte, length []byte, payload string) []byte {
	return append(append(append([]byte{b0}, length...), 0, 0, 0, 0), payload...)
}

// Every protocol error, on every kind of socket, and what the peer sees of it.
func TestFrameFaults(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	f := func(code uint16, reason string, input ...[]byte) {
		t.Helper()
		for _, kind := range kinds {
			w, peer := n.kind(kind)
			w.raw(input...)
			w.wantClose(code, reason)
			if peer != nil {
				peerEnds(kind, peer)
			}
		}
	}
	zero := []byte{0x80}
	// Protocol errors.
	f(1002, "reserved bit set", rawFrame(0xc1, zero, ""))
	f(1002, "reserved bit set", rawFrame(0xa2, zero, ""))
	f(1002, "reserved bit set", []byte{0x99})
	f(1002, "unknown opcode", rawFrame(0x83, zero, ""))
	f(1002, "unknown opcode", []byte{0x8b})
	f(1002, "frame is not masked", []byte{0x81, 0x01, 'x'})
	f(1002, "frame is not masked", []byte{0x88, 0x02, 0x03, 0xe8})
	f(1002, "control frame is fragmented", rawFrame(0x09, zero, ""))
	f(1002, "control frame is longer than 125 bytes", []byte{0x89, 0xfe})
	f(1002, "control frame is longer than 125 bytes", []byte{0x88, 0xff})
	f(1002, "continuation without a message", rawFrame(0x80, zero, ""))
	f(1002, "new message inside a fragmented one", frame(opText, false, []byte("a")), frame(opText, true, []byte("b")))
	f(1002, "length is not in its shortest form", rawFrame(0x82, []byte{0xfe, 0, 125}, ""))
	f(1002, "length is not in its shortest form", rawFrame(0x82, []byte{0xff, 0, 0, 0, 0, 0, 0, 0xff, 0xff}, ""))
	f(1002, "length has its top bit set", rawFrame(0x82, []byte{0xff, 0x80, 0, 0, 0, 0, 0, 0, 0}, ""))
	f(1002, "length has its top bit set", frame(opBin, false, []byte("a")), rawFrame(0x80, []byte{0xff, 0xff}, ""))
	f(1002, "close payload of one byte", frame(opClose, true, []byte{3}))
	for _, code := range []uint16{0, 999, 1004, 1005, 1006, 1015, 1016, 2999, 5000, 65535} {
		f(1002, "illegal close code", closeFrame(code, ""))
	}
	// Text that cannot be continued.
	f(1007, "text is not valid UTF-8", frame(opText, true, []byte("abc\xff")))
	f(1007, "text is not valid UTF-8", frame(opText, true, []byte("\xe2\x82")))
	f(1007, "text is not valid UTF-8", frame(opText, true, []byte("\xc0\xaf")))
	f(1007, "text is not valid UTF-8", frame(opText, false, []byte("\xed")), frame(opCont, false, []byte("\xa0")))
	f(1007, "text is not valid UTF-8", frame(opText, false, []byte("\xf4\x90")))
	f(1007, "text is not valid UTF-8", frame(opText, false, []byte("ok")), frame(opCont, false, nil), frame(opCont, true, []byte("\xc3")))
	f(1007, "text is not valid UTF-8", frameHead(opText, true, 60000, true), bytes.Repeat([]byte("a"), 50000), []byte{0xff})
	f(1007, "close reason is not valid UTF-8", closeFrame(1000, "\xff"))
	// Sizes, from the header alone.
	for _, size := range []uint64{maxPayload + 1, 32 << 20, 1 << 32, 1<<63 - 1} {
		f(1009, "Message too big", frameHead(opBin, true, size, true))
	}
	f(1009, "Message too big", frame(opBin, false, []byte("a")), frameHead(opCont, true, maxPayload, true))
	f(1009, "Message too big", frame(opText, false, []byte("a")), frame(opCont, false, nil), frameHead(opCont, false, 1<<63-1, true))
}

// A fault is found at its first byte, while the rest of the message is missing.
func TestTextFaultIsFoundEarly(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	for _, size := range []uint64{10, 70000, 1 << 20} {
		_, c := n.v1pair()
		c.raw(frameHead(opText, true, size, true), []byte("abc\xff"))
		c.wantClose(1007, "text is not valid UTF-8")
	}
}

func TestCloseIsEchoed(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	for _, kind := range kinds {
		for _, code := range []uint16{1000, 1001, 1003, 1007, 1011, 1012, 1014, 3000, 4999} {
			w, peer := n.kind(kind)
			w.leave(code)
			if peer != nil {
				peerEnds(kind, peer)
			}
		}
		// Without a code.
		w, _ := n.kind(kind)
		w.raw(frame(opClose, true, nil))
		w.wantCloseFrame(0, "")
		w.wantEOF()
	}
}

func TestMessagesKeepOpcodeAndBytes(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	sizes := []int{0, 1, 125, 126, 127, 4095, 4096, 65535, 65536, 65546, 1<<18 - 1, 1 << 18, 1<<18 + 1, 1 << 20}
	for _, kind := range []string{"v1 server", "v1 client", "data", "client"} {
		w, peer := n.kind(kind)
		for _, op := range []int{opText, opBin} {
			for _, size := range sizes {
				p := bytes.Repeat([]byte("0123456789abcdefg"), size/17+1)[:size]
				go w.write(frame(op, true, p))
				peer.want(op, p)
			}
		}
		w.barrier()
		peer.barrier()
	}
	n.untilIngress(0)
}

// Fragments make one message, with pings between them, however they are cut.
func TestFragmentsAreOneMessage(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	s, c := n.v1pair()
	want := []byte("Grüße, 世界 and 🌍")
	for cut := 1; cut < len(want); cut++ {
		c.raw(frame(opText, false, want[:cut]), frame(opPing, true, []byte("between")), frame(opCont, false, nil), frame(opCont, true, want[cut:]))
		s.want(opText, want)
	}
	c.barrier()
	if len(c.pong) != 1 || string(c.pong[0]) != "between" {
		// Several waiting pings may share one pong; these were answered one by one.
		t.Logf("pongs: %d", len(c.pong))
	}
	// Byte by byte, header and all.
	all := append(frame(opBin, false, []byte("by")), frame(opCont, true, []byte("tes"))...)
	for _, b := range all {
		c.raw([]byte{b})
	}
	s.want(opBin, []byte("bytes"))
	// A thousand empty ones.
	var empty []byte
	for range 1000 {
		empty = append(empty, frame(opCont, false, nil)...)
	}
	c.raw(frame(opText, false, nil), empty, frame(opCont, true, []byte("x")))
	s.wantText("x")
	c.raw(frame(opBin, false, nil), empty, frame(opCont, true, nil))
	s.want(opBin, nil)
	n.untilIngress(0)
}

// Everything in one read, and every cut of it into two.
func TestAnyCutOfTheInput(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	s, c := n.v1pair()
	input := bytes.Join([][]byte{
		frame(opText, true, []byte("one")), frame(opPing, true, []byte("p")), frame(opBin, false, []byte("tw")),
		frame(opCont, true, []byte("o")), frame(opText, true, nil), frame(opBin, true, bytes.Repeat([]byte("3"), 200)),
	}, nil)
	for cut := range input {
		c.raw(input[:cut])
		if cut%8 == 1 {
			c.nc.SetNoDelay(true)
		}
		c.raw(input[cut:])
		s.wantText("one")
		s.want(opBin, []byte("two"))
		s.wantText("")
		s.want(opBin, bytes.Repeat([]byte("3"), 200))
	}
	s.barrier()
}

func TestPingsAreAnsweredHere(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	for _, kind := range kinds {
		w, peer := n.kind(kind)
		for _, p := range [][]byte{nil, []byte("x"), bytes.Repeat([]byte("y"), 125)} {
			w.raw(frame(opPing, true, p))
			if m, err := w.next(patience); err != nil || m.op != opPong || !bytes.Equal(m.data, p) {
				t.Errorf("%s: ping %q: %v %v", kind, p, m, err)
			}
		}
		w.raw(frame(opPong, true, []byte("unsolicited")))
		w.barrier()
		if peer != nil {
			peer.barrier()
			if peer.ping != 0 || len(peer.pong) != 0 {
				t.Errorf("%s: pings or pongs were forwarded", kind)
			}
		}
	}
}

// The largest message passes, from every kind, whole and in fragments.
func TestLargestMessage(t *testing.T) {
	if testing.Short() || raceEnabled {
		t.Skip("moves much and races little")
	}
	n := startNode(t)
	p := make([]byte, maxPayload)
	for i := 0; i+8 <= len(p); i += 4096 {
		binary.BigEndian.PutUint64(p[i:], uint64(i))
	}
	for _, kind := range []string{"v1 client", "data"} {
		w, peer := n.kind(kind)
		go w.write(append(frameHead(opBin, true, maxPayload, true), p...))
		peer.want(opBin, p)
		go w.write(bytes.Join([][]byte{frameHead(opBin, false, 1<<20, true), p[:1<<20], frameHead(opCont, true, maxPayload-1<<20, true), p[1<<20:]}, nil))
		peer.want(opBin, p)
		w.barrier()
		w.raw(frameHead(opBin, true, maxPayload+1, true))
		w.wantClose(1009, "Message too big")
	}
	n.untilIngress(0)
}

// A peer that announces too much and keeps sending still gets the close frame.
func TestCloseFrameSurvivesUnreadInput(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	_, c := n.v1pair()
	c.raw(frameHead(opBin, true, 1<<30, true), make([]byte, 700<<10))
	c.wantClose(1009, "Message too big")
}
