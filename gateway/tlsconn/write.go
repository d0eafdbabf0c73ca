package tlsconn

import "sluice/loop"

// Writable reports whether everything so far is with the kernel, and it takes more.
func (t *Conn) Writable() bool {
	return t.broken || t.state == open && len(t.out) == 0 && t.raw.Writable()
}

// Flushed reports whether the kernel has everything that Write took. When it
// has not, OnWrite tells of the change.
func (t *Conn) Flushed() bool { return len(t.out) == 0 }

// Write encrypts b and offers it to the kernel, chunk by chunk until the kernel
// refuses something, and returns how many bytes it took. What the kernel did not
// take of the last chunk is kept and counts as taken.
func (t *Conn) Write(b []byte) (n int, err error) {
	for n < len(b) && t.Writable() {
		m := min(len(b)-n, t.shard.chunk())
		if err := t.encrypt(b[n : n+m]); err != nil {
			return n, err
		}
		n += m
		if err := t.push(); err != nil {
			return n, err
		}
	}
	return n, nil
}

// Writev is Write for the buffers of v, in order. Small ones are joined, so that
// they share records; large ones are encrypted where they lie.
func (t *Conn) Writev(v *loop.Vec) (n int, err error) {
	i, off := 0, 0
	for n < v.Size() && t.Writable() {
		for room := t.shard.chunk(); room > 0 && i < v.Len(); {
			var p []byte
			p, i, off = t.shard.gather(v, i, off, room)
			if err := t.encrypt(p); err != nil {
				return n, err
			}
			n += len(p)
			room -= len(p)
		}
		if err := t.push(); err != nil {
			return n, err
		}
	}
	return n, nil
}

// joinBelow is the size below which a buffer is copied to share a record with its
// neighbours: a record of its own costs about as much as copying that much.
const joinBelow = 8 << 10

// gather returns the next piece of v, of at most room bytes, which begins in buffer
// i at off, and where the one after it begins. It is copied if it lies in several
// small buffers.
func (s *shard) gather(v *loop.Vec, i, off, room int) (p []byte, nextI, nextOff int) {
	p = v.Bytes(i)[off:]
	if len(p) > room {
		return p[:room], i, off + room
	}
	if i++; len(p) >= joinBelow || i == v.Len() {
		return p, i, 0
	}
	s.join = append(s.join[:0], p...)
	for room = min(room, maxPlaintext); i < v.Len(); i++ {
		p := v.Bytes(i)
		if len(p) >= joinBelow || len(p) > room-len(s.join) {
			break
		}
		s.join = append(s.join, p...)
	}
	return s.join, i, 0
}

// encrypt makes records of p, of even size: a rest of some bytes would cost a
// record of its own.
func (t *Conn) encrypt(p []byte) error {
	if t.broken {
		return errBroken
	}
	for left := (len(p) + maxPlaintext - 1) / maxPlaintext; left > 0; left-- {
		m := (len(p) + left - 1) / left
		if _, err := t.tls.Write(p[:m]); err != nil {
			t.breakDown()
			return err
		}
		p = p[m:]
	}
	return nil
}

// push offers what crypto/tls wrote to the kernel, behind what waits, and keeps
// the rest.
func (t *Conn) push() error {
	s := t.shard
	b := s.out
	s.out = b[:0]
	if t.broken {
		return errBroken
	}
	if len(t.out) == 0 {
		n, err := t.raw.Write(b)
		if err != nil {
			t.breakDown()
			return err
		}
		b = b[n:]
	}
	if len(b) == 0 {
		return nil
	}
	if len(t.out)-t.sent+len(b) > keptOutput {
		t.breakDown()
		return errBroken
	}
	if t.sent > 0 {
		t.out = t.out[:copy(t.out, t.out[t.sent:])]
		t.sent = 0
	}
	s.kept -= cap(t.out)
	t.out = s.bufs.Grow(t.out, b)
	s.kept += cap(t.out)
	return nil
}

// flush offers what waits to the kernel again.
func (t *Conn) flush() {
	if len(t.out) == 0 || t.broken {
		return
	}
	n, err := t.raw.Write(t.out[t.sent:])
	if err != nil {
		t.breakDown()
		return
	}
	if t.sent += n; t.sent == len(t.out) {
		t.dropOutput()
	}
}

func (t *Conn) dropOutput() {
	if t.out != nil {
		t.shard.kept -= cap(t.out)
		t.shard.bufs.Put(t.out)
	}
	t.out, t.sent = nil, 0
}

// breakDown notes that nothing written reaches the peer any more. The next write
// says so; reading goes on until its own end.
func (t *Conn) breakDown() {
	t.broken = true
	t.shard.out = t.shard.out[:0] // what was on its way there
	t.dropOutput()
}
