package relay

import (
	"encoding/binary"
	"math"

	"sluice/codec/ws"
	"sluice/ledger"
	"sluice/loop"
)

const (
	// leastRead is how much is read even if the budget can take nothing.
	leastRead = 4 << 10
	// directRead is what must be missing of a frame for it to be read straight
	// into its own memory, without a copy.
	directRead = 32 << 10
	// directSpan bounds one such read, and what is reserved ahead for it.
	directSpan = 1 << 20
)

// read reads k once and parses what came, or first what was kept.
func (k *sock) read() {
	s, in := k.shard, &k.in
	if !in.wait.Active() { // it is not known yet whether one that waits for budget gets some
		k.heldSince = 0
	}
	buf := s.l.Buffer()
	if n := len(in.stash); n > 0 {
		// A whole buffer may have been kept, and a split header in front of it.
		at := min(loop.Headroom, len(buf)-n)
		copy(buf[at:], in.stash)
		k.unstash()
		k.parse(buf[at : at+n])
		return
	}
	if in.left >= directRead {
		k.readDirect()
		return
	}
	limit := len(buf) - loop.Headroom
	if room := s.led.Room(); room < int64(limit) {
		limit = int(max(room, leastRead))
	}
	n, r := k.c.Read(buf[loop.Headroom : loop.Headroom+limit])
	if r != loop.ReadBytes {
		k.noBytes(r)
		return
	}
	k.pings = 0
	at := loop.Headroom
	if m := len(in.rest); m > 0 {
		at -= m
		copy(buf[at:], in.rest)
		in.rest = in.rest[:0]
	}
	k.parse(buf[at : loop.Headroom+n])
}

// noBytes handles a read that brought none.
func (k *sock) noBytes(r loop.ReadResult) {
	switch r {
	case loop.ReadEOF:
		k.drop(byPeerNone)
	case loop.ReadReset:
		k.drop(byPeerReset)
	}
}

// readDirect reads payload of the frame under way straight into its memory,
// which is charged before. Behind a message that has grown large several blocks
// are offered at once; what the read did not reach is given back.
func (k *sock) readDirect() {
	s, in := k.shard, &k.in
	var none, spare ledger.Charge
	first := k.room(in.left, &none)
	if first == nil {
		k.starve()
		return
	}
	const step = 64 << 10
	var blocks [directSpan / step]*block
	var sizes [directSpan / step]int
	v := s.l.Vec()
	v.Add(first)
	more := 0
	for in.size >= step && more < len(blocks) && int64(v.Size()) < in.left {
		n := min(in.left-int64(v.Size()), step)
		if !s.led.Reserve(&spare, n) {
			break
		}
		room := n
		if !in.fin {
			room = step // more of the message will follow: small blocks would add up
		}
		blocks[more], sizes[more] = s.blocks.get(int(room)), int(n)
		v.Add(blocks[more].buf[:n])
		more++
	}
	n, r := k.c.Readv(v)
	m := min(n, len(first))
	ok := m == 0 || k.took(first[:m])
	n -= m
	used := 0
	for ; ok && n > 0; used++ {
		x, size := blocks[used], sizes[used]
		in.body.push(x)
		ledger.Move(&in.body.charge, &spare, int64(size))
		in.ahead += int64(size)
		m := min(n, size)
		ok = k.took(x.buf[:m])
		n -= m
	}
	for ; used < more; used++ {
		s.blocks.put(blocks[used])
	}
	s.giveBack(&spare, spare.Bytes())
	switch {
	case !ok: // closed
	case r != loop.ReadBytes:
		if in.size == 0 { // declared only: that costs nothing
			s.free(in.body)
			in.body, in.ahead = nil, 0
		}
		k.noBytes(r)
	default:
		k.pings = 0
		if in.left == 0 && in.fin {
			k.completeAlone()
		}
	}
}

// starve leaves k unread until the budget has room, for a time.
func (k *sock) starve() {
	s := k.shard
	if s.relay.cfg.IngressWait == 0 {
		s.count.IngressRejections++
		k.shut(closeBudget)
		return
	}
	if !k.in.wait.Active() { // one that goes on keeps its end
		s.led.StartWait(&k.in.wait, k.c.ID(), k.in.held(), s.l.Now())
		s.wake = true // what another loop returned before it knew of the wait woke nobody
	}
	s.listWaiter(k)
	k.hold(holdBudget)
	k.arm()
}

// reserve takes budget for k. A source that waited and got some waits no more.
func (s *shard) reserve(k *sock, c *ledger.Charge, n int64) bool {
	if k.kind == kindControl {
		s.led.Count(c, n) // counted, never refused
		return true
	}
	if !s.led.Reserve(c, n) {
		return false
	}
	k.served()
	return true
}

// served ends k's wait for budget, if there is one, and with it the time for
// which k was held.
func (k *sock) served() {
	if k.in.wait.Active() {
		k.shard.led.EndWait(&k.in.wait)
		k.heldSince = 0
	}
}

// parse takes b, which follows what was parsed before, apart into messages and
// forwards them. b lies in the loop's buffer.
//
// Whole messages are not copied: their frames are rewritten in place, headers
// without the mask in front of unmasked payload, and leave in one write. b's
// whole size is taken from the budget first and what was not needed returned
// behind the write, so that the shared account is touched twice a read.
func (k *sock) parse(b []byte) {
	s := k.shard
	var pre ledger.Charge
	if k.kind == kindControl {
		s.led.Count(&pre, int64(len(b)))
	} else if s.led.Reserve(&pre, int64(len(b))) {
		k.served()
	}
	t := &s.batch
	t.begin(k, b)
	for i := 0; i < len(b); {
		n, more := k.step(b, i, t, &pre)
		i += n
		if !more {
			break
		}
		// Behind a message that waits for a data socket nothing is parsed.
		if k.kind == kindClient && k.ch.data == nil && t.frames > 0 {
			t.flush()
			if k.state == open {
				k.keep(b[i:])
			}
			break
		}
		if i < len(b) && k.pauses(t) {
			t.flush()
			if k.state == open {
				k.keep(b[i:])
				k.c.Kick()
			}
			break
		}
	}
	t.flush()
	s.giveBack(&pre, pre.Bytes())
	k.sendPongs() // also of one that was closed: they must not stay for the next socket
	if k.state == open && k.mustGate() {
		k.gate()
	}
}

// pauses reports whether the rest of the read waits: for the next turn, or, if it
// is control's, until the answers so far are out.
func (k *sock) pauses(t *batch) bool {
	return t.writes >= mostWrites || k.kind == kindControl && k.out.head != nil
}

// step parses what begins at b[i]: a piece of payload or a frame. It returns
// the bytes used and whether to go on.
func (k *sock) step(b []byte, i int, t *batch, pre *ledger.Charge) (n int, more bool) {
	in, s := &k.in, k.shard
	if in.left > 0 {
		p := b[i:min(len(b), i+int(min(in.left, int64(len(b)))))]
		return k.gather(p, b[i:], t, pre)
	}
	var h ws.Header
	head, err := ws.ParseHeader(b[i:], in.active, &h)
	if err != nil {
		if k.settled(t) {
			k.fail(err)
		}
		return 0, false
	}
	if head == 0 {
		if in.declared(b[i:]) > k.ceiling() {
			t.flush()
			if k.state == open {
				k.shut(closeTooBig)
			}
			return 0, false
		}
		k.keepRest(b[i:])
		return 0, false
	}
	if h.Op.IsControl() {
		end := i + head + int(h.Length)
		if end > len(b) {
			k.keepRest(b[i:])
			return 0, false
		}
		p := b[i+head : end]
		ws.Mask(p, h.Mask)
		return end - i, k.onControlFrame(h.Op, p, t)
	}
	if max, size := k.ceiling(), in.messageSize(&h); h.Length > uint64(max) || size > max {
		if k.settled(t) {
			k.shut(closeTooBig)
		}
		return 0, false
	}
	whole := i + head + int(h.Length)
	if !in.active && h.Fin && whole <= len(b) && k.kind != kindControl {
		in.begin(&h, s.l.Now())
		return whole - i, k.forwardInPlace(b, i, head, int(h.Length), t, pre)
	}
	in.begin(&h, s.l.Now())
	if h.Length == 0 && h.Fin {
		return head, k.complete(t)
	}
	return head, true
}

// settled sends what stands in front of the frame that ends k. It reports
// whether k is still there to be ended.
func (k *sock) settled(t *batch) bool {
	t.flush()
	if k.state == open {
		k.sendPongs()
	}
	return k.state == open
}

// keepRest keeps an incomplete header or control frame. Its bytes are the
// beginning of a message, and are waited for as long as for the rest of one. To
// a message under way they add nothing.
func (k *sock) keepRest(b []byte) {
	k.in.rest = append(k.in.rest[:0], b...)
	if !k.in.active {
		k.in.gained(k.shard.l.Now())
	}
}

// declared is the message size that an incomplete header has stated already: its
// length stands in front of the mask. 0 if it has not.
func (in *inbound) declared(h []byte) int64 {
	if len(h) < 10 || h[1]&0x7f != 127 {
		return 0
	}
	n := int64(binary.BigEndian.Uint64(h[2:10]) & math.MaxInt64)
	if in.active {
		n = min(n, math.MaxInt64-in.size) + in.size
	}
	return n
}

// ceiling is the largest message of the socket, payload bytes.
func (k *sock) ceiling() int64 {
	if k.kind == kindControl {
		return controlCeiling
	}
	return maxMessage
}

// messageSize is what the message will hold with the frame h.
func (in *inbound) messageSize(h *ws.Header) int64 {
	if !in.active {
		return int64(h.Length)
	}
	return in.size + int64(h.Length)
}

// forwardInPlace adds the whole message at b[i] to the batch.
func (k *sock) forwardInPlace(b []byte, i, head, size int, t *batch, pre *ledger.Charge) (more bool) {
	in, s := &k.in, k.shard
	in.active, in.left = false, 0
	src := b[i+head : i+head+size]
	if need := int64(size) - pre.Bytes(); need > 0 && !s.reserve(k, pre, need) {
		in.want = uint32(need)
		t.flush()
		if k.state == open {
			k.keep(b[i:])
			k.starve()
		}
		return false
	}
	p := t.place(i+head, size, src, in.mask, in.op)
	if in.op == ws.OpText && !ws.ValidText(p) {
		if k.settled(t) {
			k.fail(ws.ErrText)
		}
		return false
	}
	if k.kind.fromClient() && size > 0 && (p[0] == '{' || p[0] <= ' ' || p[0] == 0xEF) && s.badHello(p) {
		if k.settled(t) {
			s.count.HandshakeKeyRejections++
			k.shut(closeBadKey)
		}
		return false
	}
	t.commit(size, pre)
	k.recv += int64(size)
	return true
}

// badHello checks a whole message.
func (s *shard) badHello(p []byte) bool {
	if decided, candidate := helloCandidate(p); decided && !candidate {
		return false
	}
	x := s.takeScanner()
	x.Write(p)
	bad := x.End()
	s.putScanner(x)
	return bad
}

// gather keeps p, the next bytes of the frame under way, in the message's own
// memory. rest is p and what follows it.
func (k *sock) gather(p, rest []byte, t *batch, pre *ledger.Charge) (n int, more bool) {
	in := &k.in
	for len(p) > 0 {
		space := k.room(int64(len(p)), pre)
		if space == nil {
			t.flush()
			if k.state == open {
				k.keep(rest[n:])
				k.starve()
			}
			return n, false
		}
		m := copy(space, p)
		if !k.tookFor(space[:m], t) {
			return n, false
		}
		p = p[m:]
		n += m
	}
	if in.left == 0 && in.fin {
		return n, k.complete(t)
	}
	return n, true
}

// tookFor is took in the middle of a batch, which goes out before a fault of
// what follows it is acted on.
func (k *sock) tookFor(p []byte, t *batch) bool {
	if t.frames == 0 {
		return k.took(p)
	}
	if k.in.op == ws.OpText || k.in.hello == helloMaybe {
		t.flush()
		if k.state != open {
			return false
		}
	}
	return k.took(p)
}

// complete forwards the message under way, or hands it to control.
func (k *sock) complete(t *batch) (more bool) {
	if k.kind == kindControl {
		k.controlMessage()
		return k.state == open
	}
	if (k.in.op == ws.OpText || k.in.hello == helloMaybe) && t.frames > 0 {
		t.flush()
		if k.state != open {
			return false
		}
	}
	if !k.passes() {
		return false
	}
	b, payload := k.finishBody()
	if b == nil {
		b = k.shard.emptyFrame(k.in.op)
	}
	if !t.addBody(b, payload) {
		k.shut(closeMemory)
		return false
	}
	k.recv += int64(payload)
	return k.state == open
}

// completeAlone is complete for a message that was read by itself.
func (k *sock) completeAlone() {
	t := &k.shard.batch
	t.begin(k, nil)
	if k.complete(t) {
		t.flush()
	}
	if k.state == open && k.mustGate() {
		k.gate()
	}
}

// emptyFrame makes a message of no bytes.
func (s *shard) emptyFrame(op ws.Opcode) *body { return s.ownFrame(op, nil) }

// controlMessage hands a control socket's message over.
func (k *sock) controlMessage() {
	if !k.passes() {
		return
	}
	in, s := &k.in, k.shard
	in.active, in.ahead = false, 0
	b := in.body
	in.body = nil
	k.recv += in.size
	in.size = 0
	if b == nil {
		return
	}
	p := b.head.bytes()
	if b.head.next != nil {
		g := s.gathered[:0]
		for x := b.head; x != nil; x = x.next {
			g = append(g, x.bytes()...)
		}
		s.gathered, p = g, g
	}
	k.onControl(in.op, p)
	s.free(b)
}

// onControlFrame handles a ping, pong or close.
func (k *sock) onControlFrame(op ws.Opcode, p []byte, t *batch) (more bool) {
	switch op {
	case ws.OpPing:
		k.queuePong(p)
	case ws.OpClose:
		if !k.settled(t) {
			return false
		}
		code, reason, err := ws.ParseClose(p)
		if err != nil {
			k.fail(err)
			return false
		}
		k.echo(code, string(reason))
		return false
	}
	return true
}
