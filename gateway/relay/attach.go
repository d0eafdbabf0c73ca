package relay

// Frames of a v2 client that has no data socket yet wait here, in arrival
// order. A client with a waiting frame is not read, so what waits is bounded
// by what was in flight. Contract, relay §2.

// await queues a parcel of k's for the data socket to come and stops reading k.
func (ch *channel) await(k *sock, p *parcel) {
	if ch.waitingTail == nil {
		ch.waiting = p
	} else {
		ch.waitingTail.next = p
	}
	ch.waitingTail = p
	if k.waitSince == 0 {
		k.waitSince = p.since
	}
	k.hold(holdWait)
}

// takeWaiting gives what waits to a new data socket, in front of everything
// else, and lets the clients be read again.
func (ch *channel) takeWaiting(d *sock) {
	for p := ch.waiting; p != nil; {
		next := p.next
		p.next = nil
		d.enqueue(p)
		p = next
	}
	ch.waiting, ch.waitingTail = nil, nil
	d.pump()
	d.arm()
	for k := ch.first; k != nil; k = k.nextSib {
		if k.waitSince != 0 {
			k.waitSince = 0
			k.unhold(holdWait)
			k.arm()
		}
	}
}

// dropWaiting gives up what waits: nobody is left who sent it.
func (ch *channel) dropWaiting() {
	p := ch.waiting
	ch.waiting, ch.waitingTail = nil, nil
	ch.sess.shard.dropParcels(p)
}
