package relay

import (
	"sluice/codec/ws"
	"sluice/ledger"
)

const (
	// maxMessage is the largest payload of a data message: 32 MiB less the
	// 14 bytes of the longest masked header. Contract, relay §3.
	maxMessage = 32<<20 - 14

	// idleSlow is what a message may hold before it must gain idleGain bytes
	// within the idle time, instead of one.
	idleSlow = 64 << 10
	idleGain = 16 << 10
)

// inbound is a socket's input between two reads: the message under way, an
// incomplete header, bytes that could not be parsed yet.
type inbound struct {
	active bool // the header of a data message was seen, its last byte was not
	fin    bool // of the frame under way
	hello  helloState
	utf    ws.UTF8
	op     ws.Opcode
	mask   uint32        // for the next byte of the frame
	want   uint32        // bytes of the step that the budget refused
	left   int64         // payload bytes of the frame still to come
	size   int64         // payload bytes of the message so far; 0 between messages
	ahead  int64         // bytes charged beyond size: room in the last block
	body   *body         // nil until a byte is kept
	scan   *helloScanner // while hello is helloMaybe

	// rest is an incomplete header, or an incomplete control frame. It goes in
	// front of the next read.
	rest []byte

	// stash is input that was read and may not be parsed yet. It is counted,
	// never refused. Contract, relay §5.
	stash       []byte
	stashCharge ledger.Charge

	wait ledger.Wait // for budget

	lastGain int64 // when the message gained its last byte
	winStart int64 // a window of the idle time, and size at its start
	winSize  int64
}

// helloState is what is known about the first bytes of a client's message.
type helloState uint8

const (
	helloUnseen helloState = iota // nothing of the payload yet
	helloNo                       // not a JSON object
	helloMaybe                    // scanned
)

// held returns the payload bytes that the input keeps.
func (in *inbound) held() int64 {
	if in.body == nil {
		return in.stashCharge.Bytes()
	}
	return in.body.charge.Bytes() + in.stashCharge.Bytes()
}

// begin starts a message, or its next frame.
func (in *inbound) begin(h *ws.Header, now int64) {
	if h.Op != ws.OpContinuation {
		in.active, in.op, in.size, in.ahead = true, h.Op, 0, 0
		in.utf.Reset()
		in.hello = helloUnseen
		in.lastGain, in.winStart, in.winSize = now, now, 0
	}
	in.fin, in.mask, in.left = h.Fin, h.Mask, int64(h.Length)
}

// begun reports whether a message is under way, or the first bytes of one.
func (in *inbound) begun() bool { return in.active || len(in.rest) > 0 }

// gained notes progress of the message.
func (in *inbound) gained(now int64) {
	in.lastGain = now
}

// resumed starts the idle time again: a message is judged while it is read.
func (in *inbound) resumed(now int64) {
	in.lastGain, in.winStart, in.winSize = now, now, in.size
}

// idle judges the message under way.
func (in *inbound) idle(now, timeout int64) (dead bool) {
	if now-in.lastGain >= timeout {
		return true
	}
	if now-in.winStart < timeout {
		return false
	}
	if in.size > idleSlow && in.size-in.winSize < idleGain {
		return true
	}
	in.winStart, in.winSize = now, in.size
	return false
}

// judgeAt returns when to look at the message under way.
func (in *inbound) judgeAt(timeout int64) int64 {
	when := in.lastGain + timeout
	if in.size > idleSlow {
		when = min(when, in.winStart+timeout)
	}
	return when
}

// room returns charged memory for the next bytes of the frame under way, at
// most want of them; nil when the budget refuses. pre is budget taken for this
// read already; it is used first.
func (k *sock) room(want int64, pre *ledger.Charge) []byte {
	in, s := &k.in, k.shard
	if in.body == nil {
		in.body = s.newBody()
	}
	b, head, size := in.body, 0, int64(0) // size: of a new block
	space := int64(0)
	if b.tail != nil {
		space = int64(len(b.tail.space()))
	}
	if space == 0 {
		// The next block is as large as what came so far, so that memory
		// follows the bytes and not the promise.
		size = max(want, min(in.size, int64(blockSizes[len(blockSizes)-1])))
		if in.fin {
			size = min(size, in.left)
		}
		if b.tail == nil {
			head = headerRoom
		}
		size += int64(head)
		space = int64(blockSizes[classFor(int(size))] - head)
	}
	if in.ahead == 0 {
		n := min(space, in.left)
		if need := n - pre.Bytes(); need > 0 && !s.reserve(k, pre, need) {
			in.want = uint32(need)
			return nil
		}
		ledger.Move(&b.charge, pre, n)
		in.ahead = n
	}
	if size > 0 {
		x := s.blocks.get(int(size))
		x.off, x.end = head, head
		b.push(x)
	}
	return b.tail.space()[:min(in.ahead, want, space)]
}

// took notes that n bytes of the last room were filled and unmasks and checks
// them. It reports false when the message turned out invalid, and closes then.
func (k *sock) took(p []byte) bool {
	in, n := &k.in, int64(len(p))
	in.mask = ws.Mask(p, in.mask)
	in.body.tail.end += len(p)
	in.ahead -= n
	in.left -= n
	in.size += n
	in.gained(k.shard.l.Now())
	return k.inspect(p)
}

// inspect looks at unmasked payload, in order: text must be UTF-8, a client's
// JSON object may be a hello.
func (k *sock) inspect(p []byte) bool {
	in := &k.in
	if in.op == ws.OpText && !in.utf.Write(p) {
		k.fail(ws.ErrText)
		return false
	}
	if k.kind.fromClient() && len(p) > 0 {
		if in.hello == helloUnseen {
			if decided, candidate := helloCandidate(p); decided && !candidate {
				in.hello = helloNo
			} else {
				in.hello = helloMaybe
				in.scan = k.shard.takeScanner()
			}
		}
		if in.hello == helloMaybe {
			before := in.scan.StackBytes()
			in.scan.Write(p)
			if d := in.scan.StackBytes() - before; d > 0 && in.body != nil {
				k.shard.led.Count(&in.body.charge, int64(d))
			}
		}
	}
	return true
}

// passes decides about a whole message: its text ends where a rune ends and it
// is no hello with a bad key. It closes the socket otherwise.
func (k *sock) passes() bool {
	in := &k.in
	if in.op == ws.OpText && !in.utf.Complete() {
		k.fail(ws.ErrText)
		return false
	}
	if in.hello == helloMaybe {
		reject := in.scan.End()
		k.shard.putScanner(in.scan)
		in.scan, in.hello = nil, helloNo
		if reject {
			k.shard.count.HandshakeKeyRejections++
			k.shut(closeBadKey)
			return false
		}
	}
	return true
}

// finishBody ends the message under way and returns it as one frame with its
// header in front; nil for a message without a byte.
func (k *sock) finishBody() (b *body, payload int) {
	in, s := &k.in, k.shard
	b, payload = in.body, int(in.size)
	in.body, in.active, in.size = nil, false, 0
	if b == nil {
		return nil, 0
	}
	if extra := b.charge.Bytes() - int64(payload); extra > 0 {
		s.giveBack(&b.charge, extra)
	}
	in.ahead = 0
	h := b.head
	h.off -= ws.HeaderLen(payload)
	ws.PutHeader(h.buf[h.off:], in.op, payload)
	return b, payload
}

// dropInput gives up what the socket has sent incompletely.
func (k *sock) dropInput() {
	in, s := &k.in, k.shard
	if in.body != nil {
		s.free(in.body)
		in.body = nil
	}
	if in.scan != nil {
		s.putScanner(in.scan)
		in.scan = nil
	}
	in.active, in.left, in.ahead, in.hello = false, 0, 0, helloUnseen
	in.rest = nil
	k.unstash()
}

// keep stores input that was read and may not be parsed yet.
func (k *sock) keep(p []byte) {
	if len(p) == 0 {
		return
	}
	k.in.stash = append([]byte(nil), p...)
	k.shard.led.Count(&k.in.stashCharge, int64(len(p)))
}

// unstash forgets the kept input.
func (k *sock) unstash() {
	k.in.stash = nil
	k.shard.giveBack(&k.in.stashCharge, k.in.stashCharge.Bytes())
}
