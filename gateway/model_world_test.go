package gateway_test

import (
	"fmt"
	mrand "math/rand/v2"
	"time"
)

// A world is one session and its oracle. Its steps run one after the other;
// what they set off goes on meanwhile.
type world struct {
	m     *model
	r     *mrand.Rand
	sid   string
	v2    bool
	peers []*modelPeer
	steps []string

	// v1: places "server" and "client"; v2: "data C" and one for each client.
	places  map[string]*place
	server  *modelPeer // v1
	client  *modelPeer
	control *modelPeer
	datas   [3]*modelPeer
	clients map[string][]*modelPeer // by connectionId
	expect  []string                // notices that control is still owed
}

func newPlace(name string) *place {
	return &place{name: name, streams: map[uint32]*stream{}, holes: map[[2]uint32]bool{}}
}

func (w *world) step(format string, a ...any) {
	w.steps = append(w.steps, fmt.Sprintf(format, a...))
	w.m.steps.Add(1)
}

func (w *world) run(until time.Time) error {
	for range 20 + w.r.IntN(60) {
		if time.Now().After(until) {
			break
		}
		if w.r.IntN(150) == 0 {
			if err := w.drain(); err != nil {
				return fmt.Errorf("drain: %w", err)
			}
			continue
		}
		w.m.draining.RLock()
		var err error
		if w.v2 {
			err = w.stepV2()
		} else {
			err = w.stepV1()
		}
		w.m.draining.RUnlock()
		if err != nil {
			return err
		}
		if err := w.faults(); err != nil {
			return err
		}
	}
	w.step("settle at the end")
	return w.settle()
}

func (w *world) end() {
	for _, p := range w.peers {
		p.setStalled(false)
		p.mu.Lock()
		p.stopped = true
		p.cond.Broadcast()
		p.mu.Unlock()
		p.c.rst()
	}
}

func (w *world) faults() error {
	for _, p := range w.peers {
		p.mu.Lock()
		err := p.err
		p.mu.Unlock()
		if err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
	}
	return nil
}

// alive are the sockets that are attached as far as the oracle knows.
func (w *world) alive() (all []*modelPeer) {
	for _, p := range append([]*modelPeer{w.server, w.client, w.control}, w.datas[:]...) {
		if p != nil {
			all = append(all, p)
		}
	}
	for _, cs := range w.clients {
		all = append(all, cs...)
	}
	return all
}

// settle resumes everybody and waits until everything owed has arrived. Clients
// without a data socket get one first: their frames wait for it.
func (w *world) settle() error {
	for i := range w.datas {
		if len(w.clients[cidOf(i)]) > 0 && w.datas[i] == nil {
			if err := w.attachData(i); err != nil {
				return err
			}
		}
	}
	for _, p := range w.peers {
		p.setStalled(false)
	}
	for _, p := range w.alive() {
		if err := p.written(); err != nil {
			return err
		}
		if err := p.barrier(); err != nil {
			return err
		}
	}
	for _, p := range w.places {
		why := ""
		ok := false
		if !poll(func() bool {
			if w.faults() != nil {
				return true
			}
			ok, why = p.settled()
			return ok
		}) {
			return fmt.Errorf("not settled: %s", why)
		}
		if err := w.faults(); err != nil {
			return err
		}
	}
	return w.notices()
}

// send has p send a message: any size, whole or in fragments with pings between.
func (w *world) send(p *modelPeer, owed ...*place) {
	size := [...]int{w.r.IntN(200), w.r.IntN(200), w.r.IntN(5000), w.r.IntN(70000), w.r.IntN(300 << 10)}[w.r.IntN(5)]
	flag := byte(flagPlain)
	if w.r.IntN(6) == 0 {
		flag = flagEmpty
	}
	payload := modelPayload(p.src, p.seq, size, flag)
	op := opText + p.seq&1
	for _, at := range owed {
		at.owe(p.src, p.seq)
	}
	p.seq++
	var b []byte
	if w.r.IntN(4) == 0 {
		for rest := payload; ; op = opCont {
			n := w.r.IntN(len(rest) + 1)
			if w.r.IntN(3) == 0 {
				n = len(rest)
			}
			b = append(b, frame(op, n == len(rest), rest[:n])...)
			if rest = rest[n:]; len(rest) == 0 && b != nil && n >= 0 {
				if n == 0 && op == opText {
					continue
				}
				break
			}
			if w.r.IntN(3) == 0 {
				b = append(b, frame(opPing, true, []byte("between"))...)
			}
		}
	} else {
		b = frame(op, true, payload)
	}
	if flag == flagEmpty {
		b = append(b, frame(opBin, true, nil)...)
	}
	p.put(b)
	w.m.messages.Add(1)
	w.m.bytes.Add(int64(size))
}

// burst sends some messages.
func (w *world) burst(p *modelPeer, owed ...*place) {
	k := 1 + w.r.IntN(6)
	w.step("%s sends %d", p.name, k)
	for range k {
		w.send(p, owed...)
	}
}

// replaced notes that old has lost its place to a newer socket.
func (w *world) replaced(old *modelPeer) {
	if old.at != nil {
		old.at.mu.Lock()
		old.at.olds++
		old.at.mu.Unlock()
	}
	old.mu.Lock()
	old.old = true
	if old.over != nil && old.at != nil {
		old.at.mu.Lock()
		old.at.olds--
		old.at.mu.Unlock()
	}
	old.mu.Unlock()
}
