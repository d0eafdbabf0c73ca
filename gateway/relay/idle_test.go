package relay

import (
	"fmt"
	"testing"
	"time"

	"sluice/codec/ws"
)

const hour = int64(time.Hour)

// aged makes whatever the source did so far an hour old.
func (s *source) aged() {
	s.k.in.lastGain -= hour
	s.k.in.winStart -= hour
}

// part reads the beginning of a frame.
func (s *source) part(op ws.Opcode, length, bytes int) {
	s.t.Helper()
	h := ws.AppendHeader(nil, true, op, length)
	h[1] |= 0x80
	h = append(h, make([]byte, 4+length)...)
	s.c.head = h[:bytes]
	s.k.read()
	s.look()
}

// What a socket sent before is no reason to judge what it has now begun: the
// first byte of it has the whole idle time, whatever it is of.
func TestIdleTimeBeginsWithTheMessage(t *testing.T) {
	t.Parallel()
	const timeout = int64(30 * time.Second)
	for _, kind := range []kind{kindV1Server, kindControl} {
		for _, size := range []int{0, 1000, controlCeiling, idleSlow + 1, 200000} {
			for _, op := range []ws.Opcode{ws.OpBinary, ws.OpPing, ws.OpClose} {
				if kind == kindControl && size > controlCeiling {
					continue
				}
				s := newSource(t, maxMessage)
				s.k.kind = kind
				s.name = fmt.Sprintf("%v, opcode %d behind %d bytes", kind, op, size)
				s.frame(size/2, false)
				s.end(size - size/2)
				if s.k.in.begun() {
					t.Fatalf("%s: a message is under way behind the last", s.name)
				}
				s.aged()
				s.part(op, 100, 1)
				in, now := &s.k.in, s.k.shard.l.Now()
				if !in.begun() || in.judgeAt(timeout) != now+timeout {
					t.Errorf("%s: begun %v, judged after %v", s.name, in.begun(), time.Duration(in.judgeAt(timeout)-now))
				}
				if in.idle(now+timeout-1, timeout) {
					t.Errorf("%s: ended before its time", s.name)
				}
				if !in.idle(now+timeout, timeout) {
					t.Errorf("%s: not ended in time", s.name)
				}
			}
		}
	}
}

// Only payload gains a message time: neither control frames between its frames,
// in any cut, nor the header of its next.
func TestOnlyPayloadGains(t *testing.T) {
	t.Parallel()
	const timeout = int64(30 * time.Second)
	whole := 2 + 4 + 100
	f := func(sentence string, op ws.Opcode, length, bytes int, gains bool) {
		t.Helper()
		s := newSource(t, maxMessage)
		s.name = sentence
		s.frame(10, false)
		s.aged()
		s.part(op, length, bytes)
		if now := s.k.shard.l.Now(); s.k.in.idle(now, timeout) == gains {
			t.Errorf("%s: gained time %v, want %v", sentence, !gains, gains)
		}
	}
	f("a ping", ws.OpPing, 100, whole, false)
	f("a ping's first byte", ws.OpPing, 100, 1, false)
	f("a ping but for its last byte", ws.OpPing, 100, whole-1, false)
	f("a pong's header", ws.OpPong, 100, 6, false)
	f("a close frame's first byte", ws.OpClose, 100, 1, false)
	f("the next frame's first byte", ws.OpContinuation, 100, 1, false)
	f("its header but for the mask", ws.OpContinuation, 100, 2, false)
	f("its header", ws.OpContinuation, 100, 6, false)
	f("a byte of its payload", ws.OpContinuation, 100, 7, true)
}
