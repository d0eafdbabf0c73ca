//go:build linux

package loop

import (
	"bytes"
	"io"
	"testing"

	"golang.org/x/sys/unix"
)

// pending returns how many bytes the kernel holds for c to read.
func pending(c *Conn) int {
	n, _ := unix.IoctlGetInt(int(c.fd), unix.SIOCINQ)
	return n
}

// TestPause: while nobody reads, the sender's window closes and no call comes;
// when the reading resumes all bytes are there. No poll event announces them.
func TestPause(t *testing.T) {
	l := start(t, 1, Config{})[0]
	r := collect(t)
	c, peer := pair(t, l, r, (*Conn).Pause)

	const size = 16 << 20
	data := noise(1, size)
	sent := make(chan error, 1)
	go func() {
		_, err := peer.Write(data)
		if err == nil {
			err = peer.CloseWrite()
		}
		sent <- err
	}()
	raw, err := peer.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the sender's kernel probes a closed window", func() (closed bool) {
		raw.Control(func(fd uintptr) {
			info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
			closed = err == nil && info.Notsent_bytes > 0 && info.Backoff > 0
		})
		return closed
	})
	select {
	case err := <-sent:
		t.Fatalf("the sender was not stopped: %v", err)
	default:
	}
	on(t, l, func() {
		want(t, "a paused connection knows that there is something to read", c.Readable() && c.Paused())
		want(t, "but is not read", r.reads == 0)
		c.Resume()
		want(t, "it lines up at once", c.flags&queued != 0 && len(l.ready) == 1)
	})
	want(t, "everything is read, in the end the end", await(t, "the end of the stream", r.end) == ReadEOF)
	if err := await(t, "the sender gets rid of everything", sent); err != nil {
		t.Error(err)
	}
	on(t, l, func() {
		want(t, "every byte came", bytes.Equal(r.got, data))
		c.Close()
	})
}

// TestPauseWithinTheLine: a connection that is paused while it stands on the
// ready list is not read, and reads when it resumes.
func TestPauseWithinTheLine(t *testing.T) {
	l := start(t, 1, Config{})[0]
	r := collect(t)
	c, peer := pair(t, l, r, nil)
	release := hold(t, l)
	peer.Write([]byte("x"))
	eventually(t, "the byte has arrived", func() bool { return pending(c) == 1 })
	l.Post(Func(func(*Loop) {
		c.Kick() // lines up
		c.Pause()
	}))
	release()
	turns(t, l, 3)
	on(t, l, func() {
		// The turn of the release may have read the byte before the message came.
		reads := r.reads
		c.Kick()
		want(t, "a kick does not read a paused connection", c.flags&queued == 0)
		l.Post(Func(func(*Loop) {
			want(t, "nor later", r.reads == reads)
			c.Resume()
		}))
	})
	turns(t, l, 3)
	on(t, l, func() {
		want(t, "the byte is there", string(r.got) == "x")
		c.Close()
	})
}

// TestHangupWhilePaused: the end of the stream is told once, and what stands in
// front of it is read after the pause.
func TestHangupWhilePaused(t *testing.T) {
	l := start(t, 1, Config{})[0]
	r := collect(t)
	hung := make(chan bool, 4)
	r.hangup = func(c *Conn, reset bool) { hung <- reset }
	c, peer := pair(t, l, r, (*Conn).Pause)

	data := noise(2, 20<<10) // less than a window, or the end cannot arrive
	for b := data; len(b) > 0; {
		// In pieces, so that several events come before the end.
		n, err := peer.Write(b[:min(len(b), 1<<10)])
		if err != nil {
			t.Fatal(err)
		}
		b = b[n:]
	}
	on(t, l, func() { want(t, "nothing is told before the end", len(hung) == 0 && !c.HungUp()) })
	peer.CloseWrite()
	want(t, "the end is no reset", !await(t, "the end is told", hung))
	written := make(chan struct{}, 64)
	on(t, l, func() {
		r.write = func(c *Conn) { written <- struct{}{} }
		c.Write(make([]byte, 32<<20))
	})
	go io.Copy(io.Discard, peer)
	await(t, "another event, which tells of the end too", written)
	turns(t, l, 3)
	on(t, l, func() {
		want(t, "the hang-up is known, and not read", c.HungUp() && !c.WasReset() && r.reads == 0)
		c.Resume()
	})
	want(t, "behind the bytes comes the end", await(t, "the end is read", r.end) == ReadEOF)
	on(t, l, func() {
		want(t, "every byte before it was read", bytes.Equal(r.got, data))
		want(t, "it was told once", len(hung) == 0)
		c.Close()
	})
}

// TestResetWhilePaused: a reset is told, and the bytes before it can be read.
func TestResetWhilePaused(t *testing.T) {
	l := start(t, 1, Config{})[0]
	r := collect(t)
	hung := make(chan bool, 4)
	r.hangup = func(c *Conn, reset bool) { hung <- reset }
	c, peer := pair(t, l, r, (*Conn).Pause)
	peer.Write([]byte("last words"))
	eventually(t, "the bytes have arrived", func() bool { return pending(c) == 10 })
	peer.SetLinger(0)
	peer.Close()
	want(t, "it is a reset", await(t, "the reset is told", hung))
	on(t, l, func() {
		want(t, "the reset is known", c.HungUp() && c.WasReset())
		c.Resume()
	})
	want(t, "behind the bytes comes the reset", await(t, "the reset is read", r.end) == ReadReset)
	turns(t, l, 3)
	on(t, l, func() {
		want(t, "the bytes before it were read", string(r.got) == "last words")
		want(t, "it was told once and read once", len(hung) == 0 && len(r.end) == 0)
		c.Close()
	})
}

// TestEndThenResetWhilePaused: both are told, in order, once each.
func TestEndThenResetWhilePaused(t *testing.T) {
	l := start(t, 1, Config{})[0]
	r := collect(t)
	hung := make(chan bool, 4)
	r.hangup = func(c *Conn, reset bool) { hung <- reset }
	c, peer := pair(t, l, r, (*Conn).Pause)
	peer.CloseWrite()
	want(t, "first the end", !await(t, "the end is told", hung))
	peer.SetLinger(0)
	peer.Close()
	want(t, "then the reset", await(t, "the reset is told", hung))
	turns(t, l, 3)
	on(t, l, func() {
		want(t, "and nothing twice", len(hung) == 0)
		c.Close()
	})
}

// TestHangupCloses: a handler may close the connection from OnHangup, and
// nothing more comes.
func TestHangupCloses(t *testing.T) {
	l := start(t, 1, Config{})[0]
	gone := make(chan struct{})
	h := &script{t: t, hangup: func(c *Conn, reset bool) {
		c.Resume()
		c.Close()
		want(t, "a closed connection says so", c.Closed())
		close(gone)
	}}
	_, peer := pair(t, l, h, (*Conn).Pause)
	peer.Write([]byte("x"))
	peer.CloseWrite()
	await(t, "the end is told", gone)
	turns(t, l, 3)
	want(t, "the loop owns nothing", l.Stats().Conns.Load() == 0)
}

// TestHangupBeforePause: what was seen before the pause is not told again, but
// HungUp knows.
func TestHangupBeforePause(t *testing.T) {
	l := start(t, 1, Config{})[0]
	read := make(chan bool, 4)
	h := &script{t: t}
	h.read = func(c *Conn) { // reads one byte and pauses
		c.Read(c.Loop().Buffer()[:1])
		c.Pause()
		read <- c.HungUp()
	}
	c, peer := pair(t, l, h, nil)
	release := hold(t, l)
	peer.Write([]byte("xyz"))
	peer.CloseWrite()
	eventually(t, "bytes and end have arrived", func() bool {
		p := []unix.PollFd{{Fd: c.fd, Events: unix.POLLRDHUP}}
		unix.Poll(p, 0)
		return p[0].Revents&unix.POLLRDHUP != 0 && pending(c) == 3
	})
	release()
	want(t, "HungUp knows of the end", await(t, "the first byte is read", read))
	turns(t, l, 3)
	on(t, l, c.Close)
}

// TestEndIsReadOnce: a handler that keeps a connection open behind the peer's
// end is not asked again and again, nor does it miss the reset that may follow.
func TestEndIsReadOnce(t *testing.T) {
	l := start(t, 1, Config{})[0]
	r := collect(t)
	c, peer := pair(t, l, r, nil)
	peer.CloseWrite()
	await(t, "the end is read", r.end)
	turns(t, l, 20) // the kernel may report the end in two events
	var reads int
	on(t, l, func() {
		for len(r.end) > 0 {
			<-r.end
		}
		reads = r.reads
	})
	turns(t, l, 20)
	on(t, l, func() {
		want(t, "it is not read again", r.reads == reads && len(r.end) == 0)
		c.Kick()
	})
	want(t, "unless a kick asks for it", await(t, "the end is read again", r.end) == ReadEOF)
	on(t, l, func() { c.Write([]byte("the answer")) })
	got := make([]byte, 10)
	peer.Read(got)
	want(t, "the other direction is still open", string(got) == "the answer")
	peer.SetLinger(0)
	peer.Close()
	want(t, "the reset is read", await(t, "the reset", r.end) == ReadReset)
	on(t, l, c.Close)
}

// TestKick: OnRead comes though the kernel has nothing, once.
func TestKick(t *testing.T) {
	l := start(t, 1, Config{})[0]
	results := make(chan ReadResult, 4)
	h := &script{t: t}
	h.read = func(c *Conn) {
		_, r := c.Read(c.Loop().Buffer()[Headroom:])
		results <- r
	}
	c, _ := pair(t, l, h, nil)
	on(t, l, func() {
		c.Kick()
		c.Kick()
	})
	want(t, "there is nothing to read", await(t, "OnRead comes", results) == ReadAgain)
	turns(t, l, 5)
	on(t, l, func() {
		want(t, "once, for two kicks", len(results) == 0)
		want(t, "then the connection is not readable", !c.Readable())
		c.Close()
	})
}

// TestReadv fills the buffers in order, and knows a short read.
func TestReadv(t *testing.T) {
	l := start(t, 1, Config{})[0]
	type reading struct {
		n        int
		r        ReadResult
		readable bool
	}
	got := make(chan reading, 1)
	a, b := make([]byte, 3), make([]byte, 5)
	h := &script{t: t}
	h.read = func(c *Conn) {
		v := c.Loop().Vec()
		v.Add(a)
		v.Add(b)
		n, r := c.Readv(v)
		got <- reading{n, r, c.Readable()}
	}
	_, peer := pair(t, l, h, nil)

	release := hold(t, l)
	peer.Write([]byte("12345678"))
	release()
	r := await(t, "the first read", got)
	want(t, "both are filled, and there may be more", r == reading{8, ReadBytes, true})
	want(t, "in order", string(a)+string(b) == "12345678")
	r = await(t, "the look whether there is more", got)
	want(t, "there is not", r == reading{0, ReadAgain, false})

	peer.Write([]byte("abcd"))
	r = await(t, "a short read", got)
	want(t, "which needs no look for more", r == reading{4, ReadBytes, false})
	want(t, "the first buffer is full, the second has one byte", string(a) == "abc" && b[0] == 'd')
	peer.CloseWrite()
	want(t, "the end is read", await(t, "the end", got).r == ReadEOF)
}
