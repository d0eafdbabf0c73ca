package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"sluice/codec/frame"
	"sluice/codec/open"
)

// A Request is what Do sends through the relay to its origin.
type Request struct {
	Head
	// Body is read until io.EOF, in pieces that are sent as they come; nil for none. Do does not close
	// it, and may be reading from it when it returns: with an error, or with an answer that came before
	// the body had ended, of which no more is sent.
	Body io.Reader
	// Length is how many bytes Body has, 0 if that is not known. A Body of another length is an
	// error. One that is over the relay's cap is refused before anything is sent; where it is not
	// known, as soon as it shows.
	Length int64
}

// A Response is the origin's answer. Its Body must be closed.
type Response struct {
	Status int
	Header []Header // names in lower case
	// Body yields the answer as it comes. Closing it before its end gives the pair up. An error may be
	// a *Refusal: the relay could not go on.
	Body io.ReadCloser
}

// heldBytes is how many bytes of a request are kept to be sent again where nothing was executed.
const heldBytes = 64 << 10

// endTimeout is how long the end of an HTTP body may take after the END in it.
const endTimeout = 5 * time.Second

// resendWait is the wait before the same bytes are sent again, if the relay names none.
const resendWait = 200 * time.Millisecond

// Do sends a request and returns when the head of the answer is there. The context ends both the
// request and the reading of its answer.
//
// A request is executed at most once. Errors are *Refusal (what a relay said), *RequestTooLarge,
// *HeadTooLarge, *ProfileMismatch, ErrFrameVersion, ErrClosed, the context's, and those of the
// connection.
func (c *Client) Do(ctx context.Context, r *Request) (*Response, error) {
	if err := c.ready(ctx); err != nil {
		return nil, err
	}
	if limit := c.Relay().MaxRequestBodyBytes; limit > 0 && r.Length > limit {
		return nil, &RequestTooLarge{r.Length, limit}
	}
	pair, err := c.acquire(ctx)
	if err != nil {
		return nil, err
	}
	a := &answer{c: c, ctx: ctx, pair: pair}
	a.x.Begin(pair, c.typ)
	return a.send(r)
}

// answer is a request and its answer on their way. Only the upload runs beside it, see upload.go.
type answer struct {
	c      *Client
	ctx    context.Context
	pair   *Pair
	x      Exchange
	up     *upload
	link   *link
	stop   func() bool // of link.watch
	rest   []byte      // of the link's buffer, not fed yet
	data   []byte      // fed, not read yet
	closed bool
	err    error // what Read answers once data is read
}

func (a *answer) send(r *Request) (*Response, error) {
	c := a.c
	head := r.Head
	if head.Method == "" {
		head.Method = "GET"
	}
	up := &upload{a: a, body: r.Body, size: r.Length}
	a.up = up
	if err := up.begin(&head); err != nil {
		a.pair.undecoded += a.x.operations // the relay misses them, no more
		c.release(a.pair, err == open.EncodeFailed || a.pair.worn(), false)
		return nil, err
	}
	for resent := 0; ; resent++ {
		var err error
		if a.link, err = c.link(a.ctx); err != nil {
			return nil, a.fail(err, false)
		}
		a.stop = a.link.watch(a.ctx, c.closing)
		status, err := up.exchange(resent)
		if err != nil {
			return nil, a.fail(err, a.x.ended && up.stopped)
		}
		if status == 200 {
			return a.begin()
		}
		refusal, err := a.refused(status, up.stopped)
		if err != nil {
			return nil, a.fail(err, false)
		}
		v := a.x.Refused(refusal, resent, up.held())
		c.trace("%v; %s", refusal, describe(v))
		if !v.Resend {
			gone := refusal.Code == frame.PairNotFound.Code()
			if v.Repair {
				c.repair(a.pair.token.Client())
			}
			c.release(a.pair, v.Replace, gone)
			return nil, refusal
		}
		if err := wait(a.ctx, max(refusal.RetryAfter, resendWait)); err != nil {
			c.release(a.pair, a.x.GivenUp(), false)
			return nil, err
		}
	}
}

func describe(v Verdict) string {
	switch {
	case v.Resend:
		return "the same bytes are sent again"
	case v.Repair:
		return "the client authenticates anew"
	case v.Replace:
		return "the pair is replaced"
	}
	return "the pair is kept"
}

func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// refused reads the rest of an answer that is not 200. The connection is kept if it may be, and all
// of the request was sent.
func (a *answer) refused(status int, sent bool) (*Refusal, error) {
	body, err := a.link.readBody(maxRefusalBytes)
	if err != nil {
		body = nil // the header says enough
		a.link.res.KeepAlive = false
	}
	refusal := a.link.refusal(status, body)
	if !a.stop() {
		a.link.conn.Close()
		return nil, a.c.cause(a.ctx, nil)
	}
	if a.x.ended && sent {
		a.c.putLink(a.link)
	} else {
		a.link.conn.Close()
	}
	return refusal, nil
}

// fail ends an exchange that did not get as far as an answer. complete tells that all of the request
// was sent.
func (a *answer) fail(err error, complete bool) error {
	replace := true
	switch {
	case complete && (a.ctx.Err() != nil || a.c.closing.Err() != nil):
		// The caller left before the RESPONSE: the relay only releases the pair.
		replace = a.x.GivenUp()
	case a.link == nil:
		// Nothing of it was sent.
		a.pair.undecoded += a.x.operations
		replace = a.pair.worn()
	}
	if a.link != nil {
		a.stop()
		a.link.conn.Close()
	}
	a.c.release(a.pair, replace, false)
	var fault frame.Fault
	if errors.As(err, &fault) {
		err = fmt.Errorf("the relay's answer: %w", err)
	}
	return a.c.cause(a.ctx, err)
}

// begin reads the RESPONSE.
func (a *answer) begin() (*Response, error) {
	ev, err := a.feed()
	if err == nil && ev != GotHead {
		err = frame.BadKind
	}
	if err != nil {
		return nil, a.fail(err, false)
	}
	res := &Response{Status: a.x.Status(), Body: a}
	for _, f := range a.x.Header() {
		res.Header = append(res.Header, Header{string(f.Name), string(f.Value)})
	}
	a.c.trace("RESPONSE %d, %d headers", res.Status, len(res.Header))
	if a.x.Over() {
		a.finish()
	}
	return res, nil
}

// feed reads until something comes. The end of the HTTP body before END is an error.
func (a *answer) feed() (Event, error) {
	for {
		if len(a.rest) == 0 {
			var err error
			if a.rest, err = a.link.next(); err != nil {
				if err == io.EOF {
					err = io.ErrUnexpectedEOF
				}
				return NeedMore, err
			}
		}
		ev, data, n, err := a.x.Feed(a.rest)
		a.rest, a.data = a.rest[n:], data
		if err != nil || ev != NeedMore {
			return ev, err
		}
	}
}

// finish ends an answer whose END was read: the HTTP body must end there too.
func (a *answer) finish() {
	a.err = io.EOF
	a.c.release(a.pair, !a.x.InStep() || len(a.rest) > 0, false)
	l := a.link
	a.link = nil
	if !a.stop() || len(a.rest) > 0 {
		l.conn.Close()
		return
	}
	l.conn.SetDeadline(time.Now().Add(endTimeout))
	if _, err := l.next(); err != io.EOF || !a.up.settle() {
		l.conn.Close()
		return
	}
	l.conn.SetDeadline(time.Time{})
	a.c.putLink(l)
}

// Read reads the answer's body.
func (a *answer) Read(p []byte) (int, error) {
	for len(a.data) == 0 {
		if a.closed {
			return 0, errors.New("the body is closed")
		}
		if a.err != nil {
			return 0, a.err
		}
		ev, err := a.feed()
		switch {
		case err != nil:
			a.err = a.fail(err, false)
			a.link = nil
		case ev == GotEnd:
			a.copyData()
			a.finish()
		}
	}
	n := copy(p, a.data)
	a.data = a.data[n:]
	return n, nil
}

// copyData takes the last bytes out of the buffer, which goes on to another request.
func (a *answer) copyData() { a.data = append([]byte(nil), a.data...) }

// Close ends the reading. Before the end it gives the pair up.
func (a *answer) Close() error {
	if a.closed {
		return nil
	}
	a.closed, a.data = true, nil
	if a.link != nil {
		a.stop()
		a.link.conn.Close()
		a.c.release(a.pair, a.x.GivenUp(), false)
		a.link = nil
	}
	return nil
}
