package loop

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"golang.org/x/sys/unix"
)

// TestWriteRefused fills the kernel until it refuses bytes: the rest stays with
// the caller, further tries cost nothing, and OnWrite tells when to go on.
func TestWriteRefused(t *testing.T) {
	l := start(t, 1, Config{})[0]
	data := noise(3, 32<<20)
	left := data
	calls := 0
	done := make(chan struct{})
	h := &script{t: t}
	h.write = func(c *Conn) {
		calls++
		want(t, "OnWrite comes to a writable connection", c.Writable())
		n, err := c.Write(left)
		if err != nil {
			t.Error(err)
		}
		if left = left[n:]; len(left) == 0 {
			c.Close()
			close(done)
		} else {
			want(t, "a short write is not writable", !c.Writable())
		}
	}
	c, peer := pair(t, l, h, nil)
	on(t, l, func() {
		n, err := c.Write(nil)
		want(t, "nothing is always taken", n == 0 && err == nil && c.Writable())
		n, err = c.Write(left)
		want(t, "the kernel takes some", err == nil && n > 0 && n < len(left))
		left = left[n:]
		want(t, "it is not writable", !c.Writable())
		n, err = c.Write(left)
		want(t, "another try is not made", n == 0 && err == nil)
		v := l.Vec()
		v.Add(left)
		n, err = c.Writev(v)
		want(t, "nor with vectors", n == 0 && err == nil)
	})
	turns(t, l, 3)
	on(t, l, func() { want(t, "OnWrite does not come before the peer reads", calls == 0) })
	got, err := io.ReadAll(peer)
	if err != nil {
		t.Error(err)
	}
	await(t, "everything is taken", done)
	want(t, "every byte arrives", bytes.Equal(got, data))
}

// TestUnacked: what the peer's kernel does not take is seen, until it does.
func TestUnacked(t *testing.T) {
	l := start(t, 1, Config{})[0]
	var left int
	h := &script{t: t}
	h.write = func(c *Conn) {
		n, _ := c.Write(make([]byte, left))
		left -= n
	}
	c, peer := pair(t, l, h, nil)
	on(t, l, func() {
		want(t, "nothing was written", c.Unacked() == 0)
		left = 32 << 20
		h.write(c)
		want(t, "the kernel holds what the peer has no room for", c.Unacked() > 0)
	})
	go io.Copy(io.Discard, peer)
	eventually(t, "in the end everything is acknowledged", func() (all bool) {
		on(t, l, func() { all = left == 0 && c.Unacked() == 0 })
		return all
	})
	on(t, l, func() {
		c.Close()
		want(t, "a closed connection holds nothing", c.Unacked() == 0)
	})
}

// TestWriteToTheDead: a write to a connection that was reset is an error, not a
// signal, and the connection knows.
func TestWriteToTheDead(t *testing.T) {
	l := start(t, 1, Config{})[0]
	hung := make(chan bool, 4)
	h := &script{t: t, hangup: func(c *Conn, reset bool) { hung <- reset }}
	c, peer := pair(t, l, h, (*Conn).Pause)
	peer.SetLinger(0)
	peer.Close()
	await(t, "the reset is told", hung)
	on(t, l, func() {
		_, err := c.Write([]byte("x"))
		want(t, "the first write fails", errors.Is(err, unix.ECONNRESET) || errors.Is(err, unix.EPIPE))
		_, err = c.Write([]byte("x"))
		want(t, "and the next", errors.Is(err, unix.EPIPE))
		v := l.Vec()
		v.Add([]byte("x"))
		v.Add([]byte("y"))
		_, err = c.Writev(v)
		want(t, "and one with vectors", errors.Is(err, unix.EPIPE))
		want(t, "the connection knows", c.WasReset())
		c.Close()
		_, err = c.Write([]byte("x"))
		want(t, "a closed one writes to nobody", errors.Is(err, unix.EBADF))
		_, r := c.Read(l.Buffer())
		want(t, "and reads from nobody", r == ReadReset)
	})
}

// TestResetWakesTheWriter: a handler that waits for OnWrite hears of the reset
// by it, paused or not.
func TestResetWakesTheWriter(t *testing.T) {
	l := start(t, 1, Config{})[0]
	failed := make(chan error, 1)
	h := &script{t: t}
	h.write = func(c *Conn) {
		_, err := c.Write([]byte("more"))
		failed <- err
		c.Reset()
	}
	c, peer := pair(t, l, h, (*Conn).Pause)
	on(t, l, func() { c.Write(make([]byte, 32<<20)) })
	peer.SetLinger(0)
	peer.Close()
	if err := await(t, "OnWrite comes", failed); err == nil {
		t.Error("a write to a reset connection succeeded")
	}
}

// TestVec pins what a vector says of itself.
func TestVec(t *testing.T) {
	v := new(Vec)
	want(t, "a new vector is empty", v.Len() == 0 && v.Size() == 0 && !v.Full())
	v.Add([]byte("ab"))
	v.Add([]byte("cde"))
	want(t, "it counts buffers and bytes", v.Len() == 2 && v.Size() == 5)
	want(t, "it gives them back", string(v.Bytes(0)) == "ab" && string(v.Bytes(1)) == "cde")
	v.Reset()
	want(t, "reset, it is empty", v.Len() == 0 && v.Size() == 0)
	for _, p := range v.iov {
		if p.Base != nil {
			t.Fatal("reset, it still refers to memory")
		}
	}
	for range MaxVec {
		want(t, "it takes as many as the kernel does", !v.Full())
		v.Add([]byte("x"))
	}
	want(t, "and no more", v.Full())
}

// TestWritevLongest writes the largest vector there is.
func TestWritevLongest(t *testing.T) {
	l := start(t, 1, Config{})[0]
	c, peer := pair(t, l, &script{t: t}, nil)
	data := noise(4, MaxVec)
	on(t, l, func() {
		v := l.Vec()
		for i := range data {
			v.Add(data[i : i+1])
		}
		n, err := c.Writev(v)
		want(t, "all of it is taken", n == MaxVec && err == nil && c.Writable())
		c.Close()
	})
	got, err := io.ReadAll(peer)
	want(t, "and arrives in order", err == nil && bytes.Equal(got, data))
}
