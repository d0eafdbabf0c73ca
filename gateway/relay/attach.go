package relay

import "sluice/loop"

// Frames of a v2 client that has no data socket yet wait here, in arrival
// order. A client with a waiting frame is not read, so what waits is bounded
// by what was in flight. Contract, relay §2.

// await queues a parcel of k's for the data socket to come and stops reading k.
func (ch *channel) await(k *sock, p *parcel) {
	p.from = k
	if ch.waitingTail == nil {
		ch.waiting = p
	} else {
		ch.waitingTail.next = p
	}
	ch.waitingTail = p
	if k.waitSince == 0 {
		k.waitSince = p.since
	}
	k.waitBytes += int64(p.n)
	k.hold(holdWait)
	if k.c.WasReset() {
		ch.sess.shard.breakLater(k) // seen before the pause, so it is not told again
	}
}

// takeWaiting gives what waits to a new data socket, in front of everything
// else, and lets the clients be read again.
func (ch *channel) takeWaiting(d *sock) {
	ch.stopExpiry()
	for p := ch.waiting; p != nil; {
		next := p.next
		p.next, p.from = nil, nil
		d.enqueue(p)
		p = next
	}
	ch.waiting, ch.waitingTail = nil, nil
	d.pump()
	d.arm()
	for k := ch.first; k != nil; k = k.nextSib {
		if k.waitSince != 0 {
			k.waitSince, k.waitBytes = 0, 0
			k.unhold(holdWait)
			k.arm()
		}
	}
}

// dropWaiting gives up what waits: nobody is left who sent it.
func (ch *channel) dropWaiting() {
	ch.stopExpiry()
	p := ch.waiting
	ch.waiting, ch.waitingTail = nil, nil
	ch.sess.shard.dropParcels(p)
}

// dropWaitingIf gives up the waiting parcels of which gone is true.
func (ch *channel) dropWaitingIf(gone func(p *parcel) bool) {
	p := ch.waiting
	ch.waiting, ch.waitingTail = nil, nil
	for p != nil {
		next := p.next
		p.next = nil
		switch {
		case gone(p):
			ch.sess.shard.freeParcel(p)
		case ch.waitingTail == nil:
			ch.waiting, ch.waitingTail = p, p
		default:
			ch.waitingTail.next, ch.waitingTail = p, p
		}
		p = next
	}
}

// expireOrphans bounds how long frames wait whose client has left while others
// of the connectionId stay. They are delivered if the data socket comes as soon
// as it would have had to for the client; a client that stayed is closed then.
func (ch *channel) expireOrphans() {
	for p := ch.waiting; p != nil; p = p.next {
		if p.from.ch == nil {
			s := ch.sess.shard
			if ch.expiry == nil {
				ch.expiry = new(loop.Timer)
			}
			s.l.StartTimer(ch.expiry, p.since+int64(s.relay.cfg.DataAttach), ch)
			return
		}
	}
}

func (ch *channel) stopExpiry() {
	if ch.expiry != nil {
		ch.expiry.Stop()
	}
}

// OnTimer drops what has waited too long.
func (ch *channel) OnTimer(now int64) {
	limit := now - int64(ch.sess.shard.relay.cfg.DataAttach)
	ch.dropWaitingIf(func(p *parcel) bool { return p.from.ch == nil && p.since <= limit })
	ch.expireOrphans()
}
