package client

import (
	"fmt"
	"io"
	"sync"

	"sluice/codec/http1"
)

// upload sends one request. A small body of known length is made into frames at once and sent with
// the head; another is sent as it comes, by a goroutine of its own so that an answer which comes early
// is not missed. Until that goroutine has stopped it has the exchange to itself, but for abandon.
type upload struct {
	a    *answer
	body io.Reader // nil once all is in frames
	size int64     // declared, 0 if not known

	frames []byte // what was made so far: all of it, or at least what is to be sent first
	over   bool   // some of it was not kept

	stopped bool       // what was to be sent was, and nothing writes to the connection
	done    chan error // what run has to say, once

	mu   sync.Mutex
	left bool // nobody waits any more: the exchange is not the upload's
}

// held tells whether all bytes of the request are at hand to be sent again.
func (u *upload) held() bool { return !u.over && u.a.x.ended && len(u.frames) <= heldBytes }

// begin makes the REQUEST frame and, of a small body, all the others. Errors are those of AppendHead
// and the body's.
func (u *upload) begin(head *Head) (err error) {
	x := &u.a.x
	if u.frames, err = x.AppendHead(nil, head, u.body != nil); err != nil || u.body == nil {
		return err
	}
	if u.size <= 0 || u.size > heldBytes {
		return nil
	}
	body := make([]byte, u.size+1) // to see that there is no more
	n, err := io.ReadFull(u.body, body)
	switch {
	case err == nil, n < int(u.size) && (err == io.ErrUnexpectedEOF || err == io.EOF):
		return u.wrongLength()
	case err != io.ErrUnexpectedEOF:
		return fmt.Errorf("the request's body: %w", err)
	}
	u.body = nil
	u.frames, err = x.AppendData(u.frames, body[:n], true)
	return err
}

func (u *upload) wrongLength() error {
	return fmt.Errorf("the request's body has another length than the %d bytes declared", u.size)
}

// exchange sends the request on the answer's link, all of it again if it was sent before, and reads
// the head of the HTTP answer. When it returns, the upload does not touch the exchange any more.
func (u *upload) exchange(resent int) (status int, err error) {
	a := u.a
	a.c.mu.Lock()
	header := a.c.session.DataHeader()
	a.c.mu.Unlock()
	l := a.link
	if u.body == nil || resent > 0 {
		a.c.trace("POST %s: %d bytes of frames", DataTarget, len(u.frames))
		l.out = appendRequestHead(l.out[:0], "POST", DataTarget, a.c.host, header, len(u.frames))
		l.out = append(l.out, u.frames...)
		u.stopped = true
		if _, err := l.conn.Write(l.out); err != nil {
			return 0, err
		}
		return l.readHead()
	}
	a.c.trace("POST %s: frames in chunks", DataTarget)
	l.out = appendRequestHead(l.out[:0], "POST", DataTarget, a.c.host, header, chunked)
	l.out = appendChunk(l.out, u.frames)
	u.done = make(chan error, 1)
	go u.run(l, u.done)

	status, err = l.readHead()
	// Whatever came may have come early, and the body may wait for its source for ever: it is told to
	// leave and not waited for.
	u.abandon()
	switch {
	case err != nil && a.x.ended:
		l.conn.SetDeadline(longAgo) // all that is left to it is a write
		u.stopped = <-u.done == nil
		return 0, err
	case err == nil && status == 200 && a.x.ended:
		return status, nil // settle waits for that write
	}
	select {
	case sendErr := <-u.done:
		u.stopped = sendErr == nil
		if own, ok := sendErr.(*sourceError); ok && (err != nil || status == 200) {
			return 0, own.err // run has cut the connection
		}
	default:
	}
	return status, err
}

// settle tells, behind an answer, whether all of the request was sent and nothing writes to the
// connection any more. A last write that is under way has until the connection's deadline.
func (u *upload) settle() bool {
	if !u.stopped && u.a.x.ended {
		u.stopped = <-u.done == nil
	}
	return u.stopped && u.a.x.ended
}

// abandon takes the exchange away from the upload.
func (u *upload) abandon() {
	u.mu.Lock()
	u.left = true
	u.mu.Unlock()
}

// sourceError is a fault of the request's body, not of the connection.
type sourceError struct{ err error }

func (e *sourceError) Error() string { return e.err.Error() }
func (e *sourceError) Unwrap() error { return e.err }

// run sends the body and says how it went. When the source fails, the connection is cut after that:
// the relay must not take what it got for all.
func (u *upload) run(l *link, done chan<- error) {
	err := u.send(l)
	done <- err
	if _, own := err.(*sourceError); own {
		l.conn.SetDeadline(longAgo)
	}
}

func (u *upload) send(l *link) error {
	if _, err := l.conn.Write(l.out); err != nil { // the source may be slow
		return err
	}
	piece := make([]byte, min(u.a.x.DataBytes(), linkBuffer))
	var frames []byte
	var total int64
	for {
		n, err := u.body.Read(piece)
		total += int64(n)
		last := err == io.EOF
		switch {
		case err != nil && !last:
			return &sourceError{fmt.Errorf("the request's body: %w", err)}
		case u.size > 0 && (total > u.size || last && total < u.size):
			return &sourceError{u.wrongLength()}
		case n == 0 && !last:
			continue
		}
		if frames, err = u.encode(frames[:0], piece[:n], last); err != nil {
			return &sourceError{err}
		}
		if len(frames) == 0 {
			return nil // abandoned
		}
		l.out = appendChunk(l.out[:0], frames)
		if last {
			l.out = append(l.out, http1.LastChunk...)
		}
		if _, err := l.conn.Write(l.out); err != nil || last {
			return err
		}
	}
}

// encode makes frames of a piece, nothing if the upload was abandoned meanwhile.
func (u *upload) encode(dst, piece []byte, last bool) ([]byte, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.left {
		return nil, nil
	}
	dst, err := u.a.x.AppendData(dst, piece, last)
	if err != nil {
		return nil, err
	}
	if u.over = u.over || len(u.frames)+len(dst) > heldBytes; !u.over {
		u.frames = append(u.frames, dst...)
	}
	return dst, nil
}

func appendChunk(dst, data []byte) []byte {
	dst = http1.AppendChunkHeader(dst, len(data))
	return append(append(dst, data...), http1.CRLF...)
}
