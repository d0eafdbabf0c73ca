package mte

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"sluice/loop"
)

const (
	// resumedSessions is how many TLS sessions a loop keeps for one origin.
	resumedSessions = 16
	// maxFlight bounds what an origin can make us keep during a handshake. The
	// largest message that crypto/tls takes, a certificate chain, fits.
	maxFlight = 256 << 10
	// plainBuffer holds what one read can decrypt to: originRead, and in front
	// of it the part of a record that came before.
	plainBuffer = originRead + 32<<10
)

// originTLSConfig is how we speak TLS to an origin: verified, at least 1.2,
// HTTP/1.1 and nothing else.
func originTLSConfig(up *upstream, roots *x509.CertPool) *tls.Config {
	return &tls.Config{
		ServerName:         up.host,
		RootCAs:            roots,
		MinVersion:         tls.VersionTLS12,
		NextProtos:         []string{"http/1.1"},
		ClientSessionCache: tls.NewLRUClientSessionCache(resumedSessions),
		// Small first records help browsers paint early; here they only cost.
		DynamicRecordSizingDisabled: true,
	}
}

// An originTLS is TLS over an originConn's socket: crypto/tls over a wire that
// never blocks the loop. The handshake, which verifies certificates and computes
// for a long time, runs on a goroutine of its own; there the wire blocks, fed by
// the loop and writing through its door. From its end on everything is the
// loop's: a wire that has run out of bytes says so with a temporary error, after
// which crypto/tls goes on where it was.
type originTLS struct {
	c    *originConn
	conn *tls.Conn

	// During the handshake, shared with its goroutine.
	mu    sync.Mutex
	more  sync.Cond // fed or ended changed
	fed   []byte
	ended error // why no more comes

	// Loop only, once the handshake is over; the goroutine reads handed before.
	handed bool      // the handshake is over
	in     []byte    // received and not yet taken by crypto/tls
	wire   originEnd // the socket's end, once read
	out    []byte    // to be sent: out[sent:], in a buffer of the pool's
	sent   int
}

// errNoBytes says that the wire has nothing more for now. crypto/tls keeps what
// it has of a record when an error is temporary.
type noBytesError struct{}

func (noBytesError) Error() string   { return "no more bytes for now" }
func (noBytesError) Timeout() bool   { return true }
func (noBytesError) Temporary() bool { return true }

var errNoBytes net.Error = noBytesError{}

var (
	errGivenUp    = errors.New("given up")
	errFlight     = errors.New("too many bytes for a TLS handshake")
	errPeerClosed = errors.New("connection closed during the TLS handshake")
)

// startHandshake begins TLS on a connection that was just made.
func startHandshake(c *originConn) *originTLS {
	t := &originTLS{c: c}
	t.more.L = &t.mu
	t.conn = tls.Client((*originWire)(t), c.host.tls)
	// The loop ends the handshake at its deadline; the timer is for a loop that
	// has ended itself.
	timeout := 2 * c.p.cfg.Connect
	go func() {
		stop := time.AfterFunc(timeout, func() { t.end(errGivenUp) })
		defer stop.Stop()
		t.c.p.l.Post(handshaken{t, t.conn.Handshake()})
	}()
	return t
}

// handshaken tells the loop that a handshake is over.
type handshaken struct {
	t   *originTLS
	err error
}

func (m handshaken) Deliver(*loop.Loop) {
	t, c := m.t, m.t.c
	if c.state != originHandshaking {
		return
	}
	t.handed = true
	t.in = t.fed
	if m.err != nil {
		c.connectFailed(m.err)
		return
	}
	if c.broken {
		c.connectFailed(errPeerClosed)
		return
	}
	t.mu.Lock()
	if t.ended != nil {
		t.wire = endBroken
	}
	t.mu.Unlock()
	c.open()
	if c.state != originClosed {
		c.sock.Kick() // what came behind the handshake is still to be looked at
	}
}

// flight carries what the handshake writes to the loop.
type flight struct {
	t *originTLS
	b []byte
}

func (m flight) Deliver(*loop.Loop) {
	if c := m.t.c; c.state == originHandshaking && !c.broken {
		m.t.keep(m.b)
		if !m.t.flush() {
			c.broken = true
			m.t.end(errPeerClosed)
		}
	}
}

// feedHandshake hands what came to the handshake.
func (t *originTLS) feedHandshake() {
	b := t.c.p.l.Buffer()[loop.Headroom:]
	n, r := t.c.sock.Read(b[:originRead])
	switch r {
	case loop.ReadBytes:
		t.mu.Lock()
		t.fed = append(t.fed, b[:n]...)
		if len(t.fed) > maxFlight && t.ended == nil {
			t.ended = errFlight
		}
		t.more.Signal()
		t.mu.Unlock()
	case loop.ReadEOF, loop.ReadReset:
		t.end(errPeerClosed)
	}
}

// end makes the handshake's reads fail once they have had what was fed. It may
// be called from anywhere.
func (t *originTLS) end(err error) {
	t.mu.Lock()
	if t.ended == nil {
		t.ended = err
	}
	t.more.Signal()
	t.mu.Unlock()
}

// receive reads the socket once and decrypts what came.
func (t *originTLS) receive() ([]byte, originEnd) {
	c := t.c
	if t.wire == endNone {
		b := c.p.l.Buffer()[loop.Headroom:]
		n, r := c.sock.Read(b[:min(len(b), originRead)])
		if len(t.in) == 0 {
			t.in = b[:n]
		} else {
			t.in = append(t.in, b[:n]...) // of the handshake's time
		}
		t.wire = c.endOf(r)
	}
	if c.p.plain == nil {
		c.p.plain = make([]byte, plainBuffer)
	}
	n, end := t.decrypt(c.p.plain)
	switch {
	case len(t.in) > 0 && end == endNone:
		// Only what came during a handshake can be too much for one round.
		t.in = append([]byte(nil), t.in...)
		c.sock.Kick()
	case end == endNone && t.wire != endNone:
		t.in, end = nil, endBroken // without close_notify anybody may have ended it
	default:
		t.in = nil
	}
	if t.pending() && !t.flush() {
		c.broken = true // a key update's answer; reading tells soon
	}
	return c.p.plain[:n], end
}

// decrypt fills dst with plain text as far as there is any.
func (t *originTLS) decrypt(dst []byte) (n int, end originEnd) {
	for n < len(dst) {
		k, err := t.conn.Read(dst[n:])
		n += k
		switch {
		case err == nil:
		case err == errNoBytes:
			return n, endNone
		case err == io.EOF:
			return n, endClean // close_notify: the wire itself never says EOF
		default:
			return n, endBroken
		}
	}
	return n, endNone
}

// write encrypts what it is given and sends it as far as the kernel takes it.
// All of it counts as taken; pending tells whether some waits.
func (t *originTLS) write(out []byte, parts *[3][]byte) (n int, err error) {
	b := out
	total := len(out) + len(parts[0]) + len(parts[1]) + len(parts[2])
	if total > len(out) {
		// One record for a head and what goes with it.
		joined := t.c.p.bufs.grow(nil, out)
		for _, p := range parts {
			joined = t.c.p.bufs.grow(joined, p)
		}
		b = joined
		defer t.c.p.bufs.put(joined)
	}
	if len(b) == 0 {
		return 0, nil
	}
	if _, err := t.conn.Write(b); err != nil {
		return 0, err
	}
	if !t.flush() {
		return 0, errBroken
	}
	return total, nil
}

var errBroken = errors.New("connection broken")

// keep queues ciphertext.
func (t *originTLS) keep(b []byte) { t.out = t.c.p.bufs.grow(t.out, b) }

func (t *originTLS) pending() bool { return len(t.out) > 0 }

// flush offers queued ciphertext to the kernel. It reports false if the
// connection is broken.
func (t *originTLS) flush() bool {
	if len(t.out) == 0 {
		return true
	}
	n, err := t.c.sock.Write(t.out[t.sent:])
	if err != nil {
		t.drop()
		return false
	}
	if t.sent += n; t.sent == len(t.out) {
		t.drop()
	}
	return true
}

func (t *originTLS) drop() {
	if t.out != nil {
		t.c.p.bufs.put(t.out)
	}
	t.out, t.sent = nil, 0
}

// close ends TLS: with a close_notify if that is possible, or by stopping the
// handshake.
func (t *originTLS) close(state originConnState) {
	if state == originHandshaking {
		t.end(errGivenUp)
		t.drop()
		return
	}
	if !t.c.broken && !t.pending() {
		t.conn.Close()
		t.flush()
	}
	t.drop()
}

// An originWire is the net.Conn that crypto/tls runs on.
type originWire originTLS

func (w *originWire) Read(b []byte) (int, error) {
	t := (*originTLS)(w)
	if t.handed {
		if len(t.in) == 0 {
			return 0, errNoBytes
		}
		n := copy(b, t.in)
		t.in = t.in[n:]
		return n, nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(t.fed) == 0 {
		if t.ended != nil {
			return 0, t.ended
		}
		t.more.Wait()
	}
	n := copy(b, t.fed)
	t.fed = t.fed[n:]
	return n, nil
}

func (w *originWire) Write(b []byte) (int, error) {
	t := (*originTLS)(w)
	if t.handed {
		t.keep(b)
		return len(b), nil
	}
	t.c.p.l.Post(flight{t, append([]byte(nil), b...)})
	return len(b), nil
}

func (w *originWire) Close() error                     { return nil }
func (w *originWire) LocalAddr() net.Addr              { return nil }
func (w *originWire) RemoteAddr() net.Addr             { return nil }
func (w *originWire) SetDeadline(time.Time) error      { return nil }
func (w *originWire) SetReadDeadline(time.Time) error  { return nil }
func (w *originWire) SetWriteDeadline(time.Time) error { return nil }
