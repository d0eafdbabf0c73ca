package ledger

import "time"

// SiblingLag is how many bytes a destination that shares its source with others
// may be behind before the source is paused for it. Contract, relay §5, fan-out.
const SiblingLag = 1 << 20

// Deadlines are the two times after which a destination has been slow for too long.
type Deadlines struct {
	Delivery time.Duration // it is shed
	Send     time.Duration // its socket is reset, whatever it is doing
}

// deliveryState is what one destination does with the bytes for it.
type deliveryState uint8

const (
	// flowing: the kernel takes what we have. Sources are read.
	// Leaves to blocked when bytes are refused.
	flowing deliveryState = iota
	// blocked: bytes wait, in order, with their tokens. Sources are not read,
	// unless the destination has siblings and lags little. Leaves to flowing
	// when nothing waits any more; its socket goes when the deadline passes.
	blocked
)

// A Delivery is the pressure account of one destination. The zero value is a
// destination that keeps up. It belongs to the loop that owns the destination.
type Delivery struct {
	queued int64 // bytes that wait
	state  deliveryState
	over   bool // as last returned by Over
}

// Queued returns the bytes that wait for the destination.
func (d *Delivery) Queued() int64 { return d.queued }

// Blocked reports whether bytes wait.
func (d *Delivery) Blocked() bool { return d.state == blocked }

// Refuse notes n more bytes that the destination did not take.
func (l *Ledger) Refuse(d *Delivery, n int64) {
	if n <= 0 {
		return
	}
	d.queued += n
	if d.state == flowing {
		d.state = blocked
		l.blocked.Add(1)
	}
}

// Accept notes n waiting bytes as taken, or dropped.
func (l *Ledger) Accept(d *Delivery, n int64) {
	if n > d.queued || n < 0 {
		panic("BUG: more bytes delivered than waited")
	}
	d.queued -= n
	if d.queued == 0 && d.state == blocked {
		d.state = flowing
		l.blocked.Add(-1)
	}
}

// Over reports whether the sources of the destination must not be read, and
// whether that changed since the last question. A destination without siblings
// holds its source up as soon as it is blocked; one with siblings may lag a
// little, so that its short stall is not felt by the others.
func (d *Delivery) Over(siblings bool) (over, changed bool) {
	over = d.state == blocked
	if siblings {
		over = d.queued > SiblingLag
	}
	changed = over != d.over
	d.over = over
	return over, changed
}

// Verdict is what is to be done about a destination's oldest message.
type Verdict uint8

const (
	KeepIt  Verdict = iota // not yet
	ShedIt                 // close the destination, 1013 Delivery timeout
	ResetIt                // reset its socket
)

// Judge looks at a message that was complete at the time since and is not
// delivered at now. next is when to judge again.
func (dl Deadlines) Judge(since, now int64) (v Verdict, next int64) {
	switch age := time.Duration(now - since); {
	case age >= dl.Send:
		return ResetIt, 0
	case age >= dl.Delivery:
		return ShedIt, since + int64(dl.Send)
	}
	return KeepIt, since + int64(dl.Delivery)
}
