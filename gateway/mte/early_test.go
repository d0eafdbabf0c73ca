package mte

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"

	"sluice/codec/frame"
	"sluice/loop"
)

// streams runs f on the loops, for each stream there is, until it returns true.
func (r *testRelay) streams(what string, f func(st *stream) bool) {
	r.t.Helper()
	r.await(what, func() bool {
		found := make(chan bool, len(r.loops))
		for _, l := range r.loops {
			l.Post(loop.Func(func(l *loop.Loop) {
				for st := r.role.shard(l).streams; st != nil; st = st.next {
					if f(st) {
						found <- true
						return
					}
				}
				found <- false
			}))
		}
		any := false
		for range r.loops {
			any = <-found || any
		}
		return any
	})
}

// fire has the timer of a stream in a state go off at once.
func (r *testRelay) fire(in streamState) {
	r.t.Helper()
	r.streams(fmt.Sprintf("a stream in state %d", in), func(st *stream) bool {
		if st.state != in {
			return false
		}
		st.timer.Stop()
		st.OnTimer(st.s.l.Now())
		return true
	})
}

// unread is a handler that hands out its connections, and reads nothing more of them.
func unread(t *testing.T) (h http.Handler, conns chan net.Conn) {
	conns = make(chan net.Conn, 1)
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path != "/unread" {
			digestOrigin(w, req)
			return
		}
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		t.Cleanup(func() { conn.Close() })
		conn.(*net.TCPConn).SetReadBuffer(4 << 10)
		conns <- conn
	}), conns
}

// uploadUnread begins an upload to it, of frames of up to 8 MiB. The client has
// another pair, which keeps it known.
func uploadUnread(t *testing.T) (r *testRelay, p *testPair, conn net.Conn, conns chan net.Conn) {
	h, conns := unread(t)
	r = startRelay(t, relayOptions{origin: h}, "MAX_FRAME_BYTES=8388608")
	c := r.client()
	c.pair()
	p = c.pair()
	return r, p, p.upload("unread"), conns
}

// httpEnd ends the HTTP body of an upload.
const httpEnd = "0\r\n\r\n"

// upload begins an encrypted upload of chunks.
func (p *testPair) upload(path string) net.Conn {
	conn := p.c.dial()
	io.WriteString(conn, p.c.head("POST", "/", "Content-Type: "+typeFrames, "Transfer-Encoding: chunked"))
	sendChunk(conn, p.post(path))
	return conn
}

func sendChunk(w io.Writer, b []byte) { fmt.Fprintf(w, "%x\r\n%s\r\n", len(b), b) }

// backedUp is more than the kernel takes for an origin that reads nothing.
const backedUp = 5 << 20

// wantEarly reads an early answer and checks what became of its pair.
func (p *testPair) wantEarly(conn net.Conn, status int, body []byte, fate fate) {
	p.c.r.t.Helper()
	a, err := readReply(conn, "POST")
	if err != nil {
		p.c.r.t.Fatal(err)
	}
	if e := p.read(a); e.status != status || !bytes.Equal(e.body, body) || e.err != nil {
		p.c.r.t.Fatalf("answer %d of %d bytes, %+v", e.status, len(e.body), e.err)
	}
	if a.close != (fate == gone) {
		p.c.r.t.Errorf("Connection: close is %v, the pair %s", a.close, fate)
	}
	p.want(fate)
}

// TestEarlyAnswerBehindEnd: END was read while the origin took nothing, and then
// it answers more than is held without reading on. It gets no more, and the answer
// is delivered.
func TestEarlyAnswerBehindEnd(t *testing.T) {
	t.Parallel()
	r, p, conn, conns := uploadUnread(t)
	origin := <-conns
	go func(b []byte) {
		sendChunk(conn, b)
		io.WriteString(conn, httpEnd)
	}(p.data(frame.FlagEnd, make([]byte, backedUp)))
	r.streams("END behind an origin that is backed up", func(st *stream) bool { return st.state == streamEnded && st.origin.backed })
	answer := bytes.Repeat([]byte("a"), 4*heldBytes)
	go fmt.Fprintf(origin, "HTTP/1.1 413 X\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s", len(answer), answer)
	p.wantEarly(conn, 413, answer, inStep)
}

// TestEarlyAnswerBeforeEnd: the clock that an early answer has started runs out
// behind END. The answer is not lost to that.
func TestEarlyAnswerBeforeEnd(t *testing.T) {
	t.Parallel()
	r, p, conn, conns := uploadUnread(t)
	sendChunk(conn, p.data(0, []byte("b")))
	origin := <-conns
	io.WriteString(origin, "HTTP/1.1 413 X\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n")
	r.fire(streamHolding)
	go func(b []byte) {
		sendChunk(conn, b)
		io.WriteString(conn, httpEnd)
	}(p.data(frame.FlagEnd, make([]byte, backedUp)))
	r.streams("the answer", func(st *stream) bool { return st.state == streamAnswering })
	io.WriteString(origin, "4\r\ndone\r\n0\r\n\r\n")
	p.wantEarly(conn, 413, []byte("hellodone"), inStep)
}

// TestEarlyAnswerDrainExceeded: the HTTP body does not end behind END. The answer
// is delivered all the same, the pair retired and the connection closed.
func TestEarlyAnswerDrainExceeded(t *testing.T) {
	t.Parallel()
	h, conns := unread(t)
	r := startRelay(t, relayOptions{origin: h, domain: `"mte_routes":["/unread","/fate"]`})
	c := r.client()
	c.pair()

	// What we say ourselves.
	p := c.pair()
	conn := p.upload("nope")
	sendChunk(conn, p.data(frame.FlagEnd, []byte("x")))
	r.fire(streamEnded)
	conn.(*net.TCPConn).CloseWrite()
	p.wantEarly(conn, 404, nil, gone)

	// An origin that is done, and one that waits for the end of its request until
	// it is told that none comes.
	f := func(first, rest string) {
		t.Helper()
		p := c.pair()
		conn := p.upload("unread")
		sendChunk(conn, p.data(frame.FlagEnd, []byte("x")))
		origin := <-conns
		r.streams("END", func(st *stream) bool { return st.state == streamEnded })
		io.WriteString(origin, first)
		r.streams("the answer's head", func(st *stream) bool { return st.answer.early() && st.answer.whole == (rest == "") })
		r.fire(streamEnded)
		io.WriteString(origin, rest)
		conn.(*net.TCPConn).CloseWrite()
		p.wantEarly(conn, 200, []byte("hello"), gone)
	}
	f("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", "")
	f("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhe", "llo")
}

// TestEarlyAnswerFails: an origin that takes no more of the body breaks its early
// answer off. What was dropped until then is not held against the refusal.
func TestEarlyAnswerFails(t *testing.T) {
	t.Parallel()
	r, p, conn, conns := uploadUnread(t)
	sendChunk(conn, p.data(0, []byte("b")))
	origin := <-conns
	io.WriteString(origin, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhe")
	r.streams("half an answer", func(st *stream) bool {
		if st.state != streamHolding || len(st.answer.held) == 0 {
			return false
		}
		st.giveUpOrigin()
		return true
	})
	go sendChunk(conn, p.data(0, make([]byte, 2*drainBytes)))
	r.streams("more is dropped than a refusal may", func(st *stream) bool { return st.in.drained > drainBytes })
	origin.Close()
	r.streams("the refusal", func(st *stream) bool { return st.first.reason != frame.NoReason })
	sendChunk(conn, p.data(frame.FlagEnd, []byte("end")))
	io.WriteString(conn, httpEnd)
	a, err := readReply(conn, "POST")
	if err != nil {
		t.Fatal(err)
	}
	a.wantRefusal(t, frame.UpstreamResponseFailed, frame.NoReason)
	p.want(inStep)
}
