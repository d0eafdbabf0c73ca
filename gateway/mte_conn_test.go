package gateway_test

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"

	wire "sluice/codec/frame"
	"sluice/codec/open"
)

// An mteConn is a connection to the relay that tests write bytes to.
type mteConn struct {
	net.Conn
	r *bufio.Reader
}

func (n *mteNode) dial() (*mteConn, error) {
	conn, err := dialAny(n.addr, wsDial{})
	if err != nil {
		return nil, err
	}
	return &mteConn{conn, bufio.NewReaderSize(conn, 32<<10)}, nil
}

// frameHead is the head of a POST that carries frames; length < 0 is chunked.
func (c *mteClient) frameHead(length int) []byte {
	b := fmt.Appendf(nil, "POST / HTTP/1.1\r\nHost: %s\r\nContent-Type: application/octet-stream\r\n", c.host)
	if length < 0 {
		return append(b, "Transfer-Encoding: chunked\r\n\r\n"...)
	}
	return fmt.Appendf(b, "Content-Length: %d\r\n\r\n", length)
}

// A chopper writes a byte stream as HTTP chunks of random sizes that have nothing
// to do with the frames in it, in writes that have nothing to do with the chunks.
type chopper struct {
	w    io.Writer
	rng  *rand.Rand
	most int // bytes of a chunk
	out  []byte
}

func (c *chopper) write(b []byte) error {
	for len(b) > 0 {
		n := min(1+c.rng.IntN(c.most), len(b))
		c.out = strconv.AppendInt(c.out, int64(n), 16)
		c.out = append(append(append(c.out, "\r\n"...), b[:n]...), "\r\n"...)
		b = b[n:]
		if c.rng.IntN(4) == 0 || len(c.out) > 64<<10 {
			if err := c.flush(); err != nil {
				return err
			}
		}
	}
	return nil
}

// flush writes what has gathered, cut in two somewhere.
func (c *chopper) flush() error {
	b := c.out
	c.out = c.out[:0]
	for len(b) > 0 {
		n := len(b)
		if n > 1 && c.rng.IntN(2) == 0 {
			n = 1 + c.rng.IntN(n-1)
		}
		if _, err := c.w.Write(b[:n]); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

func (c *chopper) end() error {
	c.out = append(c.out, "0\r\n\r\n"...)
	return c.flush()
}

// An mteRefusal is an answer that is an ERROR frame, or ends in one.
type mteRefusal struct {
	wire.ErrorPayload
	behind bool // RESPONSE
}

func (r *mteRefusal) Error() string {
	return fmt.Sprintf("refused: %d %s (behind RESPONSE: %t) %q, cause %d %s", r.Code, r.Reason, r.behind, r.Message, r.Cause.Code, r.Cause.Reason)
}

// refusedFor reports whether the error is a refusal with a reason.
func refusedFor(err error, reason wire.Reason) bool {
	var r *mteRefusal
	return errors.As(err, &r) && r.Reason == reason.String() && r.Code == reason.Code()
}

// An mteAnswer reads the frames of one HTTP answer.
type mteAnswer struct {
	p      *mtePair
	http   *http.Response
	status int
	ended  bool
	buf    []byte
	app    []byte // not read yet
}

// answer reads the head of an HTTP answer and the RESPONSE. A refusal is an
// *mteRefusal whose header was compared with its frame.
func (c *mteConn) answer(p *mtePair) (*mteAnswer, error) {
	res, err := http.ReadResponse(c.r, &http.Request{Method: "POST"})
	if err != nil {
		return nil, err
	}
	a := &mteAnswer{p: p, http: res}
	e, payload, err := a.frame()
	if err != nil {
		return nil, fmt.Errorf("status %d, %q: %w", res.StatusCode, res.Header.Get(wire.ErrorHeader), err)
	}
	if res.StatusCode != 200 {
		r, err := refusalOf(e, payload)
		if err != nil {
			return nil, err
		}
		if h := res.Header.Get(wire.ErrorHeader); r.Code != res.StatusCode || h != fmt.Sprintf("%d %s", r.Code, r.Reason) {
			return nil, fmt.Errorf("status %d, header %q, ERROR %v", res.StatusCode, h, r)
		}
		_, err = io.Copy(io.Discard, res.Body)
		return nil, errors.Join(err, r)
	}
	if e.Kind != wire.KindResponse {
		return nil, fmt.Errorf("the answer begins with %v", e.Kind)
	}
	r, err := wire.ParseResponse(payload)
	if err != nil {
		return nil, err
	}
	text, err := p.decode(r.Metadata)
	if err != nil {
		return nil, err
	}
	var m wire.Metadata
	if err := errors.Join(m.Parse(text), m.CheckResponse(r.Status)); err != nil {
		return nil, err
	}
	a.status, a.ended = r.Status, e.Flags&wire.FlagEnd != 0
	return a, nil
}

func refusalOf(e wire.Envelope, payload []byte) (*mteRefusal, error) {
	if e.Kind != wire.KindError {
		return nil, fmt.Errorf("a %v where an ERROR belongs", e.Kind)
	}
	p, err := wire.ParseError(payload)
	return &mteRefusal{ErrorPayload: p}, err
}

// frame reads one frame.
func (a *mteAnswer) frame() (e wire.Envelope, payload []byte, err error) {
	var head [wire.EnvelopeBytes]byte
	if _, err := io.ReadFull(a.http.Body, head[:]); err != nil {
		return e, nil, err
	}
	if e, _, err = wire.ParseEnvelope(head[:]); err != nil {
		return e, nil, err
	}
	if int(e.Length) > a.p.c.about.MaxFrameBytes || !wire.LegalFlags(wire.HTTP, e.Kind, e.Flags, e.Length) {
		return e, nil, fmt.Errorf("%v with flags %x and %d bytes", e.Kind, e.Flags, e.Length)
	}
	if cap(a.buf) < int(e.Length) {
		a.buf = make([]byte, e.Length)
	}
	a.buf = a.buf[:e.Length]
	_, err = io.ReadFull(a.http.Body, a.buf)
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return e, a.buf, err
}

// decode decodes an operation of the relay, whose numbers have no gap.
func (p *mtePair) decode(b []byte) ([]byte, error) {
	var number uint64
	if p.dec.Type() == open.MKE && len(b) >= 8 {
		number = binary.BigEndian.Uint64(b)
	} else if len(b) >= 4 {
		number = uint64(binary.BigEndian.Uint32(b))
	}
	if number != p.next {
		return nil, fmt.Errorf("operation %d of the relay, expected %d", number, p.next)
	}
	text, err := p.dec.Decode(b)
	if err == nil {
		p.next++
	}
	return text, err
}

// Read reads the answer's body. An ERROR frame is an *mteRefusal.
func (a *mteAnswer) Read(b []byte) (int, error) {
	for len(a.app) == 0 {
		if a.ended {
			// The HTTP body must end where END stands.
			if n, err := io.Copy(io.Discard, a.http.Body); n != 0 || err != nil {
				return 0, fmt.Errorf("%d bytes behind END, %v", n, err)
			}
			return 0, io.EOF
		}
		e, payload, err := a.frame()
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return 0, err
		}
		if e.Kind != wire.KindData {
			r, err := refusalOf(e, payload)
			if err != nil {
				return 0, err
			}
			r.behind = true
			n, err := io.Copy(io.Discard, a.http.Body)
			if n != 0 {
				err = fmt.Errorf("%d bytes behind an ERROR", n)
			}
			return 0, errors.Join(err, r)
		}
		if e.Length == 0 {
			continue
		}
		text, err := a.p.decode(payload)
		if err != nil {
			return 0, err
		}
		if a.app, err = wire.SplitData(text, e.Flags); err != nil {
			return 0, err
		}
		a.ended = e.Flags&wire.FlagEnd != 0
	}
	n := copy(b, a.app)
	a.app = a.app[n:]
	return n, nil
}
