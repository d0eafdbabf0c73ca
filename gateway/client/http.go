package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"sluice/codec/http1"
)

const (
	linkBuffer = 64 << 10
	// maxControlAnswer bounds the answer of a control call: 900 pairs and room to spare.
	maxControlAnswer = 16 << 20
	// maxRefusalBytes bounds the body of a refusal; more of it is not read.
	maxRefusalBytes = 64 << 10
	// maxIdleLink is how long a connection waits to be used again. Short, because a relay may close
	// it at any time and what was sent into that is lost.
	maxIdleLink = 5 * time.Second
	maxIdle     = 8 // connections
)

// link is one connection to the relay, and HTTP/1.1 on it: one exchange after the other. It belongs
// to one goroutine at a time, but for the write half that an upload uses.
type link struct {
	conn net.Conn
	idle time.Time // since when

	in         []byte
	start, end int // what was read and not used
	res        http1.Response
	body       http1.Body
	out        []byte
}

var longAgo = time.Unix(1, 0)

// link takes an idle connection or opens one.
func (c *Client) link(ctx context.Context) (*link, error) {
	c.mu.Lock()
	for last := len(c.links) - 1; last >= 0; last-- {
		l := c.links[last]
		c.links = c.links[:last]
		if time.Since(l.idle) < maxIdleLink {
			c.mu.Unlock()
			return l, nil
		}
		l.conn.Close()
	}
	c.mu.Unlock()
	conn, err := c.o.Dial(ctx, "tcp", c.address)
	if err != nil {
		return nil, err
	}
	c.trace("connected to %v", conn.RemoteAddr())
	if c.secure {
		config := c.o.TLS.Clone()
		if config == nil {
			config = &tls.Config{}
		}
		if config.ServerName == "" {
			config.ServerName, _, _ = net.SplitHostPort(c.address)
		}
		secure := tls.Client(conn, config)
		if err := secure.HandshakeContext(ctx); err != nil {
			conn.Close()
			return nil, err
		}
		c.trace("TLS %s", tls.VersionName(secure.ConnectionState().Version))
		conn = secure
	}
	return &link{conn: conn, in: make([]byte, linkBuffer)}, nil
}

// putLink keeps a connection whose exchange is complete, or closes it.
func (c *Client) putLink(l *link) {
	if l.res.KeepAlive && l.body.Done() && l.start == l.end {
		l.idle = time.Now()
		c.mu.Lock()
		if !c.isClosed && len(c.links) < maxIdle {
			c.links = append(c.links, l)
			c.mu.Unlock()
			return
		}
		c.mu.Unlock()
	}
	l.conn.Close()
}

// watch lets reads and writes fail when a context ends, until stop is called. stop answers false if
// one has: the connection is then of no more use.
func (l *link) watch(contexts ...context.Context) (stop func() bool) {
	var stops []func() bool
	for _, ctx := range contexts {
		stops = append(stops, context.AfterFunc(ctx, func() { l.conn.SetDeadline(longAgo) }))
	}
	return func() bool {
		ok := true
		for _, stop := range stops {
			ok = stop() && ok
		}
		return ok
	}
}

// Framing of a request's body.
const (
	chunked = -1
	noBody  = -2
)

func appendRequestHead(dst []byte, method, target, host string, header []Header, length int) []byte {
	dst = http1.AppendRequestLine(dst, []byte(method), []byte(target))
	dst = http1.AppendField(dst, "Host", host)
	for _, h := range header {
		dst = http1.AppendField(dst, h.Name, h.Value)
	}
	switch length {
	case chunked:
		dst = http1.AppendField(dst, "Transfer-Encoding", "chunked")
	case noBody:
	default:
		dst = http1.AppendContentLength(dst, uint64(length))
	}
	return append(dst, http1.CRLF...)
}

// roundTrip sends a control call and reads its whole answer.
func (l *link) roundTrip(host string, call *Call) (body []byte, status int, err error) {
	length := len(call.Body)
	if call.Body == nil {
		length = noBody
	}
	l.out = appendRequestHead(l.out[:0], call.Method, call.Target, host, call.Header, length)
	l.out = append(l.out, call.Body...)
	if _, err := l.conn.Write(l.out); err != nil {
		return nil, 0, err
	}
	if status, err = l.readHead(); err != nil {
		return nil, 0, err
	}
	limit := maxControlAnswer
	if status != 200 {
		limit = maxRefusalBytes
	}
	body, err = l.readBody(limit)
	return body, status, err
}

// readHead reads the head of the next final answer; its body follows by next.
func (l *link) readHead() (status int, err error) {
	var mark http1.Mark
	for {
		n, fault := l.res.Parse(l.in[l.start:l.end], &http1.DefaultLimits, &mark, http1.MethodPost)
		if fault != nil {
			return 0, fmt.Errorf("the relay's answer: %s", fault.Reason)
		}
		if n > 0 && l.res.Status >= 200 {
			l.body.Start(&l.res.Head)
			l.detach()
			l.start += n
			return l.res.Status, nil
		}
		l.start += n
		if n > 0 {
			if l.res.Status == 101 {
				return 0, errors.New("the relay's answer: 101 without an upgrade")
			}
			continue
		}
		if err := l.fill(); err != nil {
			if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return 0, err
		}
	}
}

// The headers of an answer that are looked at after its body was read.
func (l *link) detach() {
	for i := range l.res.Fields {
		f := &l.res.Fields[i]
		f.Name, f.Value = append([]byte(nil), f.Name...), append([]byte(nil), f.Value...)
	}
}

func (l *link) header(lower string) string {
	v, _ := l.res.Lookup(lower)
	return string(v)
}

func (l *link) refusal(status int, body []byte) *Refusal {
	return NewRefusal(status, l.header("x-mte-relay-error"), l.header("retry-after"), body)
}

// fill reads more, behind what is there.
func (l *link) fill() error {
	if l.start == l.end {
		l.start, l.end = 0, 0
	}
	if l.end == len(l.in) {
		if l.start == 0 {
			return errors.New("the relay's answer: head too large")
		}
		l.end = copy(l.in, l.in[l.start:l.end])
		l.start = 0
	}
	n, err := l.conn.Read(l.in[l.end:])
	l.end += n
	if n > 0 {
		return nil
	}
	return err
}

// next is the next piece of the answer's body, a part of the buffer, which may be written to until
// the next call. io.EOF is its proper end.
func (l *link) next() ([]byte, error) {
	for {
		data, n, done, fault := l.body.Next(l.in[l.start:l.end], &http1.DefaultLimits)
		l.start += n
		switch {
		case fault != nil:
			return nil, fmt.Errorf("the relay's answer: %s", fault.Reason)
		case len(data) > 0:
			return data, nil
		case done:
			return nil, io.EOF
		}
		if err := l.fill(); err != nil {
			if err == io.EOF && l.body.EOF() == nil {
				return nil, io.EOF
			}
			if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
	}
}

// readBody reads what is left of the body, an error if it is over the limit.
func (l *link) readBody(limit int) (body []byte, err error) {
	for {
		data, err := l.next()
		if err == io.EOF {
			return body, nil
		}
		if err != nil {
			return nil, err
		}
		if len(body)+len(data) > limit {
			return nil, errors.New("the relay's answer: body too large")
		}
		body = append(body, data...)
	}
}
