package gateway_test

import (
	"bytes"
	"errors"
	"fmt"
)

func (w *world) stepV1() error {
	roles := []string{"server", "client"}
	i := w.r.IntN(2)
	me, other := &w.server, &w.client
	if i == 1 {
		me, other = other, me
	}
	at, otherAt := w.places[roles[i]], w.places[roles[1-i]]
	switch k := w.r.IntN(12); {
	case *me == nil:
		// What is sent to nobody is dropped: nothing may be on its way.
		if err := w.settle(); err != nil {
			return err
		}
		w.step("open %s", roles[i])
		at = newPlace("v1 " + roles[i])
		w.places[roles[i]] = at
		p, err := w.open(wsQuery(w.sid, roles[i], 1, "-"), "v1 "+roles[i], at)
		if err != nil {
			return err
		}
		*me = p
	case k == 0: // replace, under load
		w.step("replace %s", roles[i])
		old := *me
		// What the old one sent and was not read is lost with it.
		if otherAt != nil {
			otherAt.loses(old.src)
		}
		w.replaced(old)
		p, err := w.open(wsQuery(w.sid, roles[i], 1, "-"), "v1 "+roles[i], at)
		if err != nil {
			return err
		}
		*me = p
		return old.wantEnd(1008, "Replaced by new connection")
	case k == 1:
		if err := w.settle(); err != nil {
			return err
		}
		how := w.r.IntN(3)
		w.step("%s leaves (%d)", roles[i], how)
		p := *me
		*me = nil
		at.loses(0)
		if err := p.leave(how); err != nil {
			return err
		}
		delete(w.places, roles[i])
	case k == 2:
		w.step("%s stalls", roles[i])
		(*me).setStalled(true)
	case k == 3:
		w.step("%s resumes", roles[i])
		(*me).setStalled(false)
	case k == 4:
		w.step("settle")
		return w.settle()
	case *other != nil:
		w.burst(*me, otherAt)
	default:
		w.burst(*me)
	}
	return nil
}

func cidOf(i int) string { return string(rune('a' + i)) }

func (w *world) attachData(i int) error {
	cid := cidOf(i)
	at := w.places["data "+cid]
	if at == nil {
		at = newPlace("data " + cid)
		w.places["data "+cid] = at
	}
	old := w.datas[i]
	if old != nil {
		for _, c := range w.clients[cid] {
			c.at.loses(old.src)
		}
		w.replaced(old)
	}
	w.step("data %s attaches, replacing: %t", cid, old != nil)
	p, err := w.open(wsQuery(w.sid, "server", 2, cid), "data "+cid, at)
	if err != nil {
		return err
	}
	w.datas[i] = p
	if old != nil {
		return old.wantEnd(1008, "Replaced by new connection")
	}
	return nil
}

func (w *world) stepV2() error {
	i := w.r.IntN(len(w.datas))
	cid := cidOf(i)
	cs, d := w.clients[cid], w.datas[i]
	switch k := w.r.IntN(24); {
	case k < 2 && w.control == nil || k == 0:
		return w.openControl()
	case k < 6 && len(cs) < 4:
		w.step("client of %s attaches", cid)
		at := newPlace("client of " + cid)
		w.places[fmt.Sprintf("client %d", len(w.peers))] = at
		p, err := w.open(wsQuery(w.sid, "client", 2, cid), "client of "+cid, at)
		if err != nil {
			return err
		}
		w.clients[cid] = append(cs, p)
		if len(cs) == 0 && w.places["data "+cid] == nil {
			w.places["data "+cid] = newPlace("data " + cid)
		}
		w.expect = append(w.expect, connectedJSON(cid))
		return w.notices()
	case k == 6 || d == nil && k < 10:
		return w.attachData(i)
	case k == 7 && len(cs) > 0 && d != nil:
		return w.clientLeaves(i, w.r.IntN(len(cs)), w.r.IntN(3))
	case k == 8 && d != nil:
		if len(cs) == 0 {
			return w.dataLeaves(i, w.r.IntN(2)) // nobody would tell when the relay has noticed a reset
		}
		return w.dataLeaves(i, w.r.IntN(3))
	case k == 9:
		if all := w.alive(); len(all) > 0 {
			p := all[w.r.IntN(len(all))]
			if p != w.control {
				w.step("%s stalls", p.name)
				p.setStalled(true)
			}
		}
	case k == 10:
		for _, p := range w.alive() {
			p.setStalled(false)
		}
	case k == 11:
		w.step("settle")
		return w.settle()
	case k == 12 && w.control != nil:
		w.control.put(frame(opText, true, []byte("[1,2]")))
		return w.control.barrier()
	case k < 18 && len(cs) > 0:
		w.burst(cs[w.r.IntN(len(cs))], w.places["data "+cid])
	case d != nil:
		var owed []*place
		for _, c := range cs {
			owed = append(owed, c.at)
		}
		w.burst(d, owed...)
	}
	return nil
}

func (w *world) openControl() error {
	w.step("control attaches")
	old := w.control
	p, err := w.open(wsQuery(w.sid, "server", 2, "-"), "control", nil)
	if err != nil {
		return err
	}
	w.control = p
	if old != nil {
		if err := old.wantEnd(1008, "Replaced by new connection"); err != nil {
			return err
		}
	}
	w.expect = []string{w.sync()}
	return w.notices()
}

func (w *world) sync() string {
	var ids []string
	for cid, cs := range w.clients {
		if len(cs) > 0 {
			ids = append(ids, cid)
		}
	}
	return syncJSON(ids...)
}

// notices waits for what control is owed. The watchdog's sync may come at any time.
func (w *world) notices() error {
	if w.control == nil {
		w.expect = nil
		return nil
	}
	for len(w.expect) > 0 {
		var got string
		if err := w.control.until("a notice "+w.expect[0], func() bool {
			if len(w.control.notices) == 0 {
				return false
			}
			got = w.control.notices[0]
			w.control.notices = w.control.notices[1:]
			return true
		}); err != nil {
			return err
		}
		switch {
		case sameJSON([]byte(got), []byte(w.expect[0])):
			w.expect = w.expect[1:]
		case bytes.Contains([]byte(got), []byte(`"sync"`)):
		default:
			return fmt.Errorf("control was told %s, expected %s", got, w.expect[0])
		}
	}
	return nil
}

// resumeAll lets everybody of a connectionId read, so that nothing waits for long.
func (w *world) resumeAll(cid string, d *modelPeer) {
	d.setStalled(false)
	for _, c := range w.clients[cid] {
		c.setStalled(false)
	}
}

func (w *world) clientLeaves(i, which, how int) error {
	cid := cidOf(i)
	cs, d := w.clients[cid], w.datas[i]
	c := cs[which]
	w.step("client of %s leaves (%d), %d stay", cid, how, len(cs)-1)
	w.resumeAll(cid, d)
	at := w.places["data "+cid]
	if how == 2 {
		at.loses(c.src)
	}
	c.at.loses(0)
	w.clients[cid] = append(append([]*modelPeer(nil), cs[:which]...), cs[which+1:]...)
	if err := c.leave(how); err != nil {
		return err
	}
	if len(cs) > 1 {
		return nil
	}
	// The last: what it had sent, then the close.
	w.datas[i] = nil
	if err := d.wantEnd(1001, "Client disconnected"); err != nil {
		return err
	}
	if ok, why := at.settled(); !ok {
		return fmt.Errorf("closed with messages owed: %s", why)
	}
	delete(w.places, "data "+cid)
	w.expect = append(w.expect, disconnectedJSON(cid))
	return w.notices()
}

func (w *world) dataLeaves(i, how int) error {
	cid := cidOf(i)
	cs, d := w.clients[cid], w.datas[i]
	w.step("data %s leaves (%d), %d clients", cid, how, len(cs))
	w.resumeAll(cid, d)
	for _, c := range cs {
		if how == 2 {
			c.at.loses(d.src)
		}
	}
	w.places["data "+cid].loses(0)
	w.datas[i] = nil
	delete(w.clients, cid)
	if err := d.leave(how); err != nil {
		return err
	}
	for _, c := range cs {
		if err := c.wantEnd(1012, "Server disconnected"); err != nil {
			return err
		}
		if ok, why := c.at.settled(); !ok {
			return fmt.Errorf("closed with messages owed: %s", why)
		}
	}
	delete(w.places, "data "+cid)
	if len(cs) > 0 {
		w.expect = append(w.expect, disconnectedJSON(cid))
		return w.notices()
	}
	return nil
}

// drain begins a drain and takes it back: new sessions are refused, what is
// attached goes on and may come back.
func (w *world) drain() error {
	w.m.draining.Lock()
	defer w.m.draining.Unlock()
	w.step("drain")
	w.m.n.g.SetDraining(true)
	defer func() {
		w.m.n.g.SetDraining(false)
	}()
	c, err := dialWS(w.m.n.t, w.m.n.addr, wsQuery(w.sid+"-new", "server", 1, "-"), "new")
	var no *refusedError
	if err == nil {
		c.rst()
	}
	if !errors.As(err, &no) || no.status != 503 || no.body != "draining" {
		return fmt.Errorf("a new session while draining: %v", err)
	}
	err = nil
	for range 3 {
		if len(w.alive()) == 0 {
			return nil
		}
		if w.v2 {
			err = w.openControl()
		} else if w.server != nil {
			old := w.server
			if at := w.places["client"]; at != nil {
				at.loses(old.src)
			}
			w.replaced(old)
			if w.server, err = w.open(wsQuery(w.sid, "server", 1, "-"), "v1 server", old.at); err == nil {
				err = old.wantEnd(1008, "Replaced by new connection")
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}
