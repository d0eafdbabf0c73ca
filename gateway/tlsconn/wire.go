package tlsconn

import (
	"encoding/binary"
	"net"
	"time"
)

// noBytesError says that the wire has nothing more for now. crypto/tls keeps what
// it has of a record when an error is temporary.
type noBytesError struct{}

func (noBytesError) Error() string   { return "no more bytes for now" }
func (noBytesError) Timeout() bool   { return true }
func (noBytesError) Temporary() bool { return true }

var errNoBytes net.Error = noBytesError{}

// A wire is the net.Conn that crypto/tls runs on: the handshake's goroutine uses
// it until the handshake is over, the loop from then on.
type wire Conn

func (w *wire) Read(b []byte) (int, error) {
	t := (*Conn)(w)
	if t.hs != nil {
		return t.hs.read(t, b)
	}
	n, in := t.take(b, t.in, &t.shard.records)
	t.in = in
	if n == 0 {
		return 0, errNoBytes
	}
	return n, nil
}

func (w *wire) Write(b []byte) (int, error) {
	t := (*Conn)(w)
	if t.hs != nil {
		t.shard.l.Post(flight{t, append([]byte(nil), b...)})
		return len(b), nil
	}
	t.shard.out = append(t.shard.out, b...)
	return len(b), nil
}

// take hands bytes of in to crypto/tls and returns what is left of in. It never
// gives the bytes of two records at once, so that the buffer of crypto/tls grows
// no larger than a record. With records it counts them and stops in front of the
// one that would be too many for a turn.
func (t *Conn) take(b, in []byte, records *int) (n int, rest []byte) {
	if t.left == 0 {
		k := copy(t.head[t.headN:], in)
		in = in[k:]
		if t.headN += uint8(k); t.headN < headerBytes {
			return 0, in
		}
		t.left = headerBytes + int(binary.BigEndian.Uint16(t.head[3:]))
	}
	if records != nil && t.headN == headerBytes {
		if *records == maxRecords {
			return 0, in
		}
		*records++
	}
	if t.headN > 0 {
		n = copy(b, t.head[headerBytes-t.headN:])
		t.headN -= uint8(n)
	}
	k := copy(b[n:min(len(b), n+max(0, t.left-n-int(t.headN)))], in)
	n += k
	t.left -= n
	return n, in[k:]
}

// within reports whether the input stands inside of a record.
func (t *Conn) within() bool { return t.left > 0 || t.headN > 0 }

func (w *wire) Close() error                     { return nil }
func (w *wire) LocalAddr() net.Addr              { return nil }
func (w *wire) RemoteAddr() net.Addr             { return nil }
func (w *wire) SetDeadline(time.Time) error      { return nil }
func (w *wire) SetReadDeadline(time.Time) error  { return nil }
func (w *wire) SetWriteDeadline(time.Time) error { return nil }
