package relay

import (
	"testing"
	"time"
)

// A client that lags behind its siblings keeps a block for every read of the
// source, be it of one byte. So many hold the source up as if they were full.
func TestLagOfSmallFramesIsBounded(t *testing.T) {
	t.Parallel()
	s := newSource(t, maxMessage)
	k, sh := s.k, s.k.shard
	sh.relay.cfg.IngressWait, sh.relay.cfg.SocketMemory = time.Second, 1<<30
	from, quick, lazy := &taker{}, &taker{open: true}, &taker{}
	k.c, k.kind = from, kindData
	k.ch.sess, k.ch.data = &session{v2: true, shard: sh}, k
	fast := &sock{c: quick, shard: sh, ch: k.ch, kind: kindClient}
	slow := &sock{c: lazy, shard: sh, ch: k.ch, kind: kindClient}
	k.ch.addClient(fast)
	k.ch.addClient(slow)

	reads := 0
	send := func() {
		from.head = masked(1)
		k.read()
		reads++
	}
	queued := func(d *sock) (n int) {
		for p := d.out.head; p != nil; p = p.next {
			n++
		}
		if n != d.out.parcels {
			t.Fatalf("%d parcels counted, %d in the queue", d.out.parcels, n)
		}
		return n
	}
	for k.holds == 0 && reads <= mostLag {
		send()
	}
	if n := queued(slow); k.holds != holdGate || n != mostLag {
		t.Fatalf("%d reads: %d parcels, holds %b", reads, n, k.holds)
	}
	if quick.took != 3*reads || fast.out.parcels != 0 {
		t.Errorf("the other client got %d bytes of %d reads", quick.took, reads)
	}

	// A pong for it is one more, and the younger one takes its place.
	for range 2 {
		slow.out.pongWaits = true
		slow.placePong()
	}
	if n := queued(slow); n != mostLag+1 {
		t.Errorf("%d parcels with a pong", n)
	}
	// What it takes lets the source go on.
	slow.wrote(2)
	slow.wrote(3)
	slow.pressure()
	if n := queued(slow); k.holds != 0 || n != mostLag-1 {
		t.Errorf("it took one: %d parcels, holds %b", n, k.holds)
	}
	send()
	slow.wrote(1)
	sh.dropParcels(slow.cutFlight())
	if n := queued(slow); n != 1 {
		t.Errorf("%d parcels, one in flight", n)
	}
	lazy.open = true
	slow.pump()
	if n := queued(slow); n != 0 {
		t.Errorf("it took all: %d parcels", n)
	}
	// Two frames of one read are a parcel, until a pong comes between them.
	lazy.open = false
	from.head = append(masked(1), masked(1)...)
	k.read()
	slow.wrote(1)
	slow.out.pongWaits = true
	slow.placePong()
	if n := queued(slow); n != 3 {
		t.Errorf("a frame in flight, a pong and a frame are %d parcels", n)
	}
	slow.dropQueue()
	if n := queued(slow); n != 0 {
		t.Errorf("all was dropped: %d parcels", n)
	}
	if err := sh.led.Empty(); err != nil {
		t.Error(err)
	}
}
