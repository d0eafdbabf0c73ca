package loop

import (
	"io"
	"testing"
)

// TestSteadyStateAllocs sends a message through an echo on a live loop, over
// real sockets, and counts what the whole process allocates for it.
func TestSteadyStateAllocs(t *testing.T) {
	if raceEnabled {
		t.Skip("under the race detector everything allocates")
	}
	f := func(name string, size int, vec bool) {
		t.Run(name, func(t *testing.T) {
			l := start(t, 1, Config{})[0]
			_, peer := pair(t, l, &echo{vec: vec}, nil)
			out, in := noise(1, size), make([]byte, size)
			n := testing.AllocsPerRun(500, func() {
				if _, err := peer.Write(out); err != nil {
					t.Fatal(err)
				}
				if _, err := io.ReadFull(peer, in); err != nil {
					t.Fatal(err)
				}
			})
			if n != 0 {
				t.Errorf("%v allocations per round, want none", n)
			}
		})
	}
	f("key stroke", 16, false)
	f("screen", 16<<10, false)
	f("screen in vectors", 16<<10, true)
}

// TestDeadlineAllocs: moving a deadline, as every request does, is free, and so
// is pausing and resuming.
func TestDeadlineAllocs(t *testing.T) {
	if raceEnabled {
		t.Skip("under the race detector everything allocates")
	}
	l := start(t, 1, Config{})[0]
	c, _ := pair(t, l, &script{t: t}, nil)
	on(t, l, func() {
		at := far()
		n := testing.AllocsPerRun(1000, func() {
			at++
			c.SetDeadline(at)
			c.Pause()
			c.Resume()
		})
		want(t, "nothing is allocated", n == 0)
		c.Close()
	})
}

func BenchmarkPingPong(b *testing.B) {
	l := start(b, 1, Config{})[0]
	ln, err := Listen("127.0.0.1:0", SocketOptions{})
	if err != nil {
		b.Fatal(err)
	}
	defer ln.Close()
	l.Post(Func(func(l *Loop) { l.Accept(ln, acceptFunc(func(*Conn) Handler { return &echo{} })) }))
	peer := connect(b, ln)
	buf := make([]byte, 64)
	for b.Loop() {
		peer.Write(buf)
		if _, err := io.ReadFull(peer, buf); err != nil {
			b.Fatal(err)
		}
	}
}
