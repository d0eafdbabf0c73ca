package relay

import (
	"strconv"
	"time"

	"sluice/codec/ws"
)

const (
	// controlCeiling bounds a message to a control socket's input, bytes of payload.
	controlCeiling = 64 << 10

	// watchFirst after a client attached without a data socket coming, control
	// gets a fresh sync; watchSecond later it is closed. Contract, relay §2.
	watchFirst  = int64(10e9)
	watchSecond = int64(5e9)
)

// What control is told of a connectionId.
const (
	connected    = "connected"
	disconnected = "disconnected"
)

// notify tells control that a connectionId has got a client, or lost its last.
func (sess *session) notify(ch *channel, event string) {
	if sess.controlSock == nil {
		return
	}
	b := sess.shard.scratch[:0]
	b = append(b, `{"type":"`...)
	b = append(b, event...)
	b = append(b, `","connectionId":`...)
	b = appendJSONString(b, ch.id)
	b = append(b, '}')
	sess.shard.scratch = b
	sess.controlSock.tell(b)
}

// sendSync tells k which connectionIds have a client.
func (sess *session) sendSync(k *sock) {
	b := append(sess.shard.scratch[:0], `{"type":"sync","connectionIds":[`...)
	sep := false
	for _, ch := range sess.channels {
		if ch.clients == 0 {
			continue
		}
		if sep {
			b = append(b, ',')
		}
		b = appendJSONString(b, ch.id)
		sep = true
	}
	b = append(b, `]}`...)
	k.tell(b)
	if cap(b) > 64<<10 {
		b = nil // one huge session must not fix the size for good
	}
	sess.shard.scratch = b
}

// tell queues a text frame for a control socket. A notification always fits an
// empty queue; one that does not fit closes the socket, since it must not be
// told half of the story.
func (k *sock) tell(text []byte) {
	s := k.shard
	if n := k.out.d.Queued(); n > 0 && n+int64(len(text)) > s.relay.cfg.ControlQueue {
		k.shut(closeControlFull)
		return
	}
	k.enqueue(s.controlParcel(s.ownFrame(ws.OpText, text)))
	k.pump()
	k.arm()
}

// onControl handles a complete message of a control socket: a JSON ping is
// answered, everything else ignored.
func (k *sock) onControl(op ws.Opcode, payload []byte) {
	if op != ws.OpText || !isControlPing(payload) {
		return
	}
	b := append(k.shard.scratch[:0], `{"type":"pong","ts":`...)
	b = strconv.AppendInt(b, time.Now().UnixMilli(), 10)
	b = append(b, '}')
	k.shard.scratch = b
	k.shard.batch.writes++
	k.tell(b)
}

// startWatch begins the wait for C's data socket, when a client has attached
// without one.
func (ch *channel) startWatch() {
	if ch.data == nil && ch.dueAt == 0 {
		ch.dueAt = ch.sess.shard.l.Now() + watchFirst
		ch.sess.armWatch(ch.dueAt)
	}
}

// rewatch gives a new control socket the full time for every channel.
func (sess *session) rewatch() {
	for _, ch := range sess.channels {
		if ch.dueAt, ch.warned = 0, false; ch.clients > 0 {
			ch.startWatch()
		}
	}
}

func (sess *session) armWatch(when int64) {
	if !sess.watch.Active() || when < sess.watch.When() {
		sess.shard.l.StartTimer(&sess.watch, when, sess)
	}
}

// OnTimer is the control watchdog: channels with a client and no data socket
// first earn control a fresh sync and then its end.
func (sess *session) OnTimer(now int64) {
	if sess.meeting.tenure.Lost(now) {
		sess.shard.lose(sess.meeting)
		return
	}
	next, sync, dead := int64(0), false, false
	for _, ch := range sess.channels {
		if ch.dueAt == 0 {
			continue
		}
		if ch.dueAt <= now {
			switch {
			case ch.warned:
				dead = true
				ch.dueAt, ch.warned = 0, false
				continue
			case sess.controlSock == nil:
				ch.dueAt = 0 // the next control socket gets a sync as it opens
				continue
			default:
				sync = true
				ch.warned = true
				ch.dueAt = now + watchSecond
			}
		}
		if next == 0 || ch.dueAt < next {
			next = ch.dueAt
		}
	}
	if next != 0 {
		sess.armWatch(next)
	}
	k := sess.controlSock
	switch {
	case k == nil:
	case dead:
		k.shut(closeControlDead)
	case sync && !k.out.syncing:
		k.out.syncing = true
		sess.sendSync(k)
		if k.out.head == nil {
			k.out.syncing = false
		}
	}
}

const hexDigits = "0123456789abcdef"

// appendJSONString appends s, which is UTF-8, as a JSON string.
func appendJSONString(b []byte, s string) []byte {
	b = append(b, '"')
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c < 0x20:
			b = append(b, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		default:
			b = append(b, c)
		}
	}
	return append(b, '"')
}
