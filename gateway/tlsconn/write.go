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
		m := min(len(b)-n, chunkBytes)
		if err := t.seal(b[n : n+m]); err != nil {
			return n, err
		}
		n += m
	}
	return n, nil
}

// Writev is Write for the buffers of v, in order. Small ones are joined, so that
// they share records.
func (t *Conn) Writev(v *loop.Vec) (n int, err error) {
	i, off := 0, 0
	for n < v.Size() && t.Writable() {
		var p []byte
		p, i, off = t.shard.gather(v, i, off)
		if err := t.seal(p); err != nil {
			return n, err
		}
		n += len(p)
	}
	return n, nil
}

// gather returns the next chunk of v, which begins in buffer i at off, and where
// the one after it begins. It is copied only if it lies in pieces.
func (s *shard) gather(v *loop.Vec, i, off int) (p []byte, nextI, nextOff int) {
	p = v.Bytes(i)[off:]
	if len(p) >= chunkBytes {
		return p[:chunkBytes], i, off + chunkBytes
	}
	if i+1 == v.Len() {
		return p, i + 1, 0
	}
	s.join = append(s.join[:0], p...)
	for i++; i < v.Len(); i++ {
		p := v.Bytes(i)
		room := chunkBytes - len(s.join)
		if len(p) > room {
			s.join = append(s.join, p[:room]...)
			return s.join, i, room
		}
		s.join = append(s.join, p...)
	}
	return s.join, i, 0
}

// seal encrypts one chunk and offers it to the kernel.
func (t *Conn) seal(p []byte) error {
	if t.broken {
		return errBroken
	}
	if _, err := t.tls.Write(p); err != nil {
		t.breakDown()
		return err
	}
	return t.push()
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
	t.out = s.bufs.grow(t.out, b)
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
		t.shard.bufs.put(t.out)
	}
	t.out, t.sent = nil, 0
}

// breakDown notes that nothing written reaches the peer any more. The next write
// says so; reading goes on until its own end.
func (t *Conn) breakDown() {
	t.broken = true
	t.dropOutput()
}
