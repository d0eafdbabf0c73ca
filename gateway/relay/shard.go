package relay

import (
	"slices"
	"sync/atomic"

	"sluice/gateway/metric"
	"sluice/ledger"
	"sluice/loop"
)

const (
	// resumeBatch is how many sources of one destination are let go at once
	// when it drained: the first of them is likely to fill it again.
	resumeBatch = 16
	// scannersKept bounds the idle hello scanners of a loop.
	scannersKept = 4
)

// A shard is one loop's part of the relay: the sessions that hash to it and
// what their sockets share. Only its loop touches it, the field at the end apart.
type shard struct {
	relay *Relay
	l     *loop.Loop
	led   *ledger.Ledger

	meetings map[string]*meeting // by serverId
	all      *sock               // every socket here, linked through nextAll
	attached int                 // of them, in sessions

	batch       batch
	blocks      blockPool
	trimming    loop.Timer
	freeBodies  *body
	freeParcels *parcel
	scanners    []*helloScanner

	// Scratch of one call.
	scratch  []byte // JSON being written
	small    []byte // a close frame
	pongs    []byte
	gathered []byte // a control message in one piece
	taken    []int  // fanOut

	// Done at the end of the turn, so that nobody is ended while somebody
	// else's bytes are being moved.
	brokens  []*sock
	fused    []*sock
	resuming []*channel // with gated sources whose destination drained
	waiters  []*sock    // for budget
	wake     bool       // budget came free

	turns    int64 // the last turn that was given to a source, see sock.turn
	drainEnd int64 // when the node's drain ends; 0 while it does not drain

	count *metric.RelayShard

	// From anywhere.
	wakePosted atomic.Bool
}

func newShard(r *Relay, l *loop.Loop) *shard {
	s := &shard{relay: r, l: l, led: r.led, meetings: make(map[string]*meeting), small: make([]byte, 0, 160), count: r.metrics.NewShard()}
	s.batch.s = s
	l.AddHook(s)
	return s
}

// OnTurn does what waited for the end of the turn.
func (s *shard) OnTurn(*loop.Loop) {
	for len(s.brokens) > 0 || len(s.fused) > 0 {
		for i := 0; i < len(s.brokens); i++ {
			k := s.brokens[i]
			if k.doomed = false; k.outlived() {
				k.dropQueue()
				k.c.Kick() // a read will tell of the reset, when it comes to that
				continue
			}
			k.drop(byPeerReset)
		}
		s.brokens = s.brokens[:0]
		for i := 0; i < len(s.fused); i++ {
			if k := s.fused[i]; k.accounted() > s.relay.cfg.SocketMemory {
				k.shed()
			}
		}
		s.fused = s.fused[:0]
	}
	if s.wake {
		s.wake = false
		s.wakeWaiters()
	}
	if len(s.resuming) > 0 {
		s.resume()
	}
	if !s.trimming.Active() && s.blocks.spare() {
		s.l.StartTimer(&s.trimming, s.l.Now()+trimEvery, trimmer{s})
	}
	if n := s.blocks.freed; n > 0 {
		s.blocks.freed = 0
		s.relay.freed.Add(n)
	}
	s.count.Publish()
}

// trimmer gives spare blocks up, once a second while there are any.
type trimmer struct{ *shard }

func (t trimmer) OnTimer(int64) { t.blocks.trim() }

// breakLater marks a socket whose write failed. At the end of the turn what waits
// for it is dropped, and so is the socket unless its own messages are still read.
func (s *shard) breakLater(k *sock) {
	k.broken = true
	if !k.doomed {
		k.doomed = true
		s.brokens = append(s.brokens, k)
	}
}

// outlived reports whether k, to which nothing can be written any more, may have
// sent something that nobody has read and that counts. The kernel keeps it behind
// a reset, and then tells of that: there is no waiting for more.
func (k *sock) outlived() bool {
	return k.state == open && k.kind != kindControl && k.holds&holdWait == 0 && k.c.WasReset()
}

// fuseLater has a socket that holds more than one may looked at.
func (s *shard) fuseLater(k *sock) { s.fused = append(s.fused, k) }

// drained has the sources of a channel's data socket looked at, since it takes
// bytes again, or is another, or none.
func (s *shard) drained(ch *channel) {
	if ch.gated.head != nil && !ch.queued {
		ch.queued = true
		s.resuming = append(s.resuming, ch)
	}
	if ch.over == 0 && ch.data != nil {
		ch.data.unhold(holdGate)
	}
}

// resume lets gated sources go on, some of each channel at a time and in the
// order in which they were held up. Those behind the one that fills the
// destination again are held up again, and keep their turns.
func (s *shard) resume() {
	list := s.resuming
	s.resuming = nil
	for _, ch := range list {
		ch.queued = false
		for n := 0; n < resumeBatch && ch.gated.head != nil; n++ {
			if d := ch.data; d != nil && d.out.over {
				break
			}
			k := ch.gated.pop()
			k.unhold(holdGate)
		}
		if d := ch.data; ch.gated.head != nil && (d == nil || !d.out.over) {
			ch.queued = true
			s.resuming = append(s.resuming, ch)
		}
	}
	if s.resuming == nil {
		s.resuming = list[:0]
	} else if s.wakePosted.CompareAndSwap(false, true) {
		s.l.Post(wakeShard{s}) // what follows needs a turn, which nobody else may ask for
	}
}

// giveBack returns budget and has those that wait for it woken.
func (s *shard) giveBack(c *ledger.Charge, n int64) {
	if s.led.Return(c, n) {
		s.relay.wakeAll(s)
	}
}

// listWaiter and unlistWaiter keep the sources of this loop that wait for budget.
func (s *shard) listWaiter(k *sock) {
	if !k.waits {
		k.waits = true
		s.waiters = append(s.waiters, k)
	}
}

func (s *shard) unlistWaiter(k *sock) {
	if k.waits {
		k.waits = false
		i := slices.Index(s.waiters, k)
		s.waiters = slices.Delete(s.waiters, i, i+1)
	}
}

// wakeWaiters lets those sources that wait for budget try again whose step there
// is room for, the one that waits longest first. To wake all of them at every
// return would cost the loop more the more there are. One that fails, since
// another loop was quicker, is listed again.
func (s *shard) wakeWaiters() {
	room := s.led.Room()
	kept := s.waiters[:0]
	for _, k := range s.waiters {
		if int64(k.in.want) > room {
			kept = append(kept, k)
			continue
		}
		room -= int64(k.in.want)
		k.waits = false
		k.unhold(holdBudget)
		if k.holds == 0 {
			k.c.Kick()
		}
	}
	clear(s.waiters[len(kept):])
	s.waiters = kept
}

// wakeShard comes through the door when budget was freed on another loop.
type wakeShard struct{ s *shard }

func (w wakeShard) Deliver(*loop.Loop) {
	w.s.wakePosted.Store(false)
	w.s.wakeWaiters()
}

// wakeAll has every loop let its waiting sources try again; on the calling
// shard at the end of the turn.
func (r *Relay) wakeAll(from *shard) {
	from.wake = true
	for _, s := range r.shards {
		if s != from && s.wakePosted.CompareAndSwap(false, true) {
			s.l.Post(wakeShard{s})
		}
	}
}

// link and unlink keep the list of all sockets.
func (s *shard) link(k *sock) {
	k.nextAll = s.all
	if s.all != nil {
		s.all.prevAll = k
	}
	s.all = k
}

func (s *shard) unlink(k *sock) {
	if k.prevAll != nil {
		k.prevAll.nextAll = k.nextAll
	} else if s.all == k {
		s.all = k.nextAll
	}
	if k.nextAll != nil {
		k.nextAll.prevAll = k.prevAll
	}
	k.nextAll, k.prevAll = nil, nil
}

func (s *shard) takeScanner() *helloScanner {
	if n := len(s.scanners); n > 0 {
		x := s.scanners[n-1]
		s.scanners = s.scanners[:n-1]
		return x
	}
	return new(helloScanner)
}

func (s *shard) putScanner(x *helloScanner) {
	x.Reset()
	if len(s.scanners) < scannersKept {
		s.scanners = append(s.scanners, x)
	}
}
