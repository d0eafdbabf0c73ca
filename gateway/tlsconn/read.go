package tlsconn

import (
	"io"

	"sluice/loop"
)

// leastRead is how much ciphertext is read at least, however little is wanted.
const leastRead = 4 << 10

// Read reads the socket once and decrypts into b, which must not be empty. What
// comes of the ciphertext beyond b waits for the next turn's read. An end
// without close_notify between two records is an end like another, since every
// protocol above marks its own: see CloseNotified. In the middle of a record it
// is a break.
func (t *Conn) Read(b []byte) (n int, r loop.ReadResult) {
	if t.end == loop.ReadBytes {
		t.shard.records = 0
		if t.holds() {
			n = t.decrypt(b)
		}
		if n == 0 && t.end == loop.ReadBytes && t.fetch(len(b)) {
			n = t.decrypt(b)
		}
	}
	return t.didRead(n)
}

// Readv is Read into the buffers of v.
func (t *Conn) Readv(v *loop.Vec) (n int, r loop.ReadResult) {
	if t.end == loop.ReadBytes {
		t.shard.records = 0
		if t.holds() {
			n = t.decryptv(v)
		}
		if n == 0 && t.end == loop.ReadBytes && t.fetch(v.Size()) {
			n = t.decryptv(v)
		}
	}
	return t.didRead(n)
}

// holds reports whether there may be plaintext without a read of the socket.
func (t *Conn) holds() bool { return t.full || len(t.in) > 0 }

// fetch reads ciphertext once and reports whether some came.
func (t *Conn) fetch(want int) bool {
	if t.wire != loop.ReadBytes || t.holds() {
		return false
	}
	t.drop() // an empty buffer: what comes now lies in the loop's
	b := t.shard.in
	n, r := t.raw.Read(b[:min(len(b), max(want, leastRead))])
	switch r {
	case loop.ReadBytes:
		t.in = b[:n]
		return true
	case loop.ReadEOF, loop.ReadReset:
		t.wire = r
	}
	return false
}

// decrypt fills b as far as there is plaintext.
func (t *Conn) decrypt(b []byte) (n int) {
	t.full = false
	for {
		k, err := t.tls.Read(b[n:])
		n += k
		switch {
		case err == nil:
		case err == errNoBytes:
			return n
		case err == io.EOF:
			t.notify = true // the wire itself never says EOF
			t.end = loop.ReadEOF
			return n
		default:
			t.end = loop.ReadReset
			return n
		}
		if n == len(b) {
			t.full = true
			return n
		}
		if len(t.in) == 0 {
			return n // less than there was room for: crypto/tls has no more either
		}
	}
}

func (t *Conn) decryptv(v *loop.Vec) (n int) {
	for i := range v.Len() {
		b := v.Bytes(i)
		k := t.decrypt(b)
		if n += k; k < len(b) {
			break
		}
	}
	return n
}

// didRead ends a read that brought n bytes: what is left for later is kept, and
// the loop asked to come back for it.
func (t *Conn) didRead(n int) (int, loop.ReadResult) {
	t.keep()
	if len(t.shard.out) > 0 && t.push() != nil {
		t.end = loop.ReadReset // it makes us answer and takes nothing
	}
	if t.end == loop.ReadBytes && t.wire != loop.ReadBytes && !t.holds() {
		if t.end = t.wire; t.within() {
			t.end = loop.ReadReset
		}
	}
	switch {
	case n > 0:
		if t.holds() || t.end != loop.ReadBytes {
			t.Kick()
		}
		return n, loop.ReadBytes
	case t.end != loop.ReadBytes:
		t.told = true
		t.drop()
		return 0, t.end
	case t.holds():
		t.Kick() // records without data, and more of them
	}
	return 0, loop.ReadAgain
}

// keep moves what is left of the input out of the loop's buffer.
func (t *Conn) keep() {
	switch {
	case len(t.in) == 0:
		t.drop()
	case t.kept == nil:
		t.kept = append(t.shard.bufs.Get(len(t.in)), t.in...)
		t.in = t.kept
	}
}

func (t *Conn) drop() {
	t.in = nil
	if t.kept != nil {
		t.shard.bufs.Put(t.kept)
		t.kept = nil
	}
}

// discard reads what comes behind the end of the plain bytes: nothing that
// counts, but a reset is still told.
func (t *Conn) discard() {
	if _, r := t.raw.Read(t.shard.in); r == loop.ReadReset && t.end != loop.ReadReset {
		t.end = loop.ReadReset
		t.h.OnRead(t.raw)
	}
}
