package gateway_test

import (
	"regexp"
	"testing"
)

var generatedID = regexp.MustCompile(`^{"type":"connected","connectionId":"conn_[0-9a-f]{16}"}$`)

func TestV1ForwardsBothWays(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	s, c := n.v1pair()
	c.text("one")
	c.bin([]byte{0, 0xff, 1})
	c.text("täxt 😀")
	s.wantText("one")
	s.want(opBin, []byte{0, 0xff, 1})
	s.wantText("täxt 😀")
	s.bin(nil)
	s.text("")
	c.want(opBin, nil)
	c.wantText("")
}

func TestV1WithoutAPeerDrops(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	for _, role := range []string{"client", "server"} {
		other := map[string]string{"client": "server", "server": "client"}[role]
		sid := n.sid()
		a := n.v1(role, sid)
		a.text("lost")
		a.raw(frame(opBin, false, []byte("lo")), frame(opCont, true, make([]byte, 70000)))
		a.barrier()
		b := n.v1(other, sid)
		a.text("kept")
		b.wantText("kept")
		b.barrier()
		n.untilIngress(0)
	}
}

func TestV1OneSideLeavesTheOtherStays(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	leave := map[string]func(*wsClient){
		"close frame": func(c *wsClient) { c.leave(1000) },
		"fin":         func(c *wsClient) { c.fin(); c.wantEOF() },
		"reset":       func(c *wsClient) { c.rst() },
	}
	for name, how := range leave {
		for _, role := range []string{"client", "server"} {
			w, peer := n.kind("v1 " + role)
			before := n.g.Ledger().Snapshot().Sockets
			how(w)
			n.untilSockets(before - 1)
			peer.text("to nobody: " + name)
			peer.barrier()
			peer.leave(1000)
		}
	}
}

func TestV1Replacement(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	for _, role := range []string{"client", "server"} {
		other := map[string]string{"client": "server", "server": "client"}[role]
		sid := n.sid()
		peer := n.v1(other, sid)
		old := n.v1(role, sid)
		old.text("of the old one")
		peer.wantText("of the old one")
		old.raw(frame(opText, false, []byte("begun by the old one")))
		old.barrier()
		young := n.v1(role, sid)
		old.wantCloseFrame(1008, "Replaced by new connection")
		old.raw(frame(opText, true, []byte("too late")))
		young.text("of the new one")
		peer.wantText("of the new one")
		peer.text("back")
		young.wantText("back")
		old.write(closeFrame(1008, ""))
		old.wantEOF()
		young.barrier()
		peer.barrier()
	}
}

// v1 and v2 of one serverId are separate worlds, as are two serverIds.
func TestWorldsAreSeparate(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	sid, other := n.sid(), n.sid()
	s1, c1 := n.v1("server", sid), n.v1("client", sid)
	ctl := n.control(sid)
	c2 := n.client(sid, "c")
	ctl.wantJSON(connectedJSON("c"))
	d2 := n.data(sid, "c")
	d3 := n.data(other, "c")
	c3 := n.client(other, "c")
	c1.text("v1")
	c2.text("v2")
	c3.text("other")
	s1.wantText("v1")
	d2.wantText("v2")
	d3.wantText("other")
	if got, _ := n.metric("active_sessions"); got != 3 {
		t.Errorf("%v active sessions", got)
	}
	c3.leave(1000)
	d3.wantClose(1001, "Client disconnected")
	c1.leave(1000)
	for _, w := range []*wsClient{s1, ctl, c2, d2} {
		w.barrier()
	}
	n.untilMetric("active_sessions", 2)
}

func TestV2ControlIsToldOfClients(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	sid := n.sid()
	ctl := n.control(sid)
	// Every socket that attaches, the last that leaves.
	a := n.client(sid, "x")
	ctl.wantJSON(connectedJSON("x"))
	b := n.client(sid, "x")
	ctl.wantJSON(connectedJSON("x"))
	y := n.client(sid, "y")
	ctl.wantJSON(connectedJSON("y"))
	a.leave(1000)
	ctl.barrier()
	b.rst()
	ctl.wantJSON(disconnectedJSON("x"))
	// Data sockets are no news.
	d := n.data(sid, "y")
	d2 := n.data(sid, "z")
	d2.leave(1000)
	ctl.barrier()
	// A newer control socket replaces the older and is told where things stand.
	ctl2 := n.control(sid, "y")
	ctl.wantClose(1008, "Replaced by new connection")
	y.fin()
	ctl2.wantJSON(disconnectedJSON("y"))
	d.wantClose(1001, "Client disconnected")
	ctl2.barrier()
	n.control(sid)
}

func TestV2SyncListsIdsOnce(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	sid := n.sid()
	n.client(sid, "a")
	n.client(sid, "a")
	n.client(sid, `b "\`)
	n.data(sid, "only data")
	c := n.ws(wsQuery(sid, "server", 2, "  "), "control by a blank id")
	c.wantJSON(`{"type":"sync","connectionIds":["a","b \"\\"]}`)
	c.barrier()
}

func TestV2FramesGoToTheOtherSideOfTheirID(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	sid := n.sid()
	a1, a2, b := n.client(sid, "a"), n.client(sid, "a"), n.client(sid, "b")
	da, db := n.data(sid, "a"), n.data(sid, "b")
	a1.text("1")
	da.wantText("1")
	a2.bin([]byte("2"))
	da.want(opBin, []byte("2"))
	b.text("3")
	db.wantText("3")
	da.text("to all of a")
	db.text("to b")
	a1.wantText("to all of a")
	a2.wantText("to all of a")
	b.wantText("to b")
	for _, c := range []*wsClient{a1, a2, b, da, db} {
		c.barrier()
	}
}

// A data socket without clients stays, and what it says is for nobody.
func TestV2DataWithoutClients(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	sid := n.sid()
	d := n.data(sid, "c")
	d.text("to nobody")
	d.barrier()
	c := n.client(sid, "c")
	c.barrier()
	d.text("to somebody")
	c.wantText("to somebody")
}

func TestV2DataReplacementKeepsTheClients(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	sid := n.sid()
	ctl := n.control(sid)
	a, b := n.client(sid, "c"), n.client(sid, "c")
	ctl.wantJSON(connectedJSON("c"))
	ctl.wantJSON(connectedJSON("c"))
	d := n.data(sid, "c")
	for range 3 {
		d2 := n.data(sid, "c")
		d.wantClose(1008, "Replaced by new connection")
		a.text("up")
		d2.wantText("up")
		d2.text("down")
		a.wantText("down")
		b.wantText("down")
		d = d2
	}
	ctl.barrier()
}

func TestV2DataLeavesItsClientsClose(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	leave := map[string]func(*wsClient){
		"close frame": func(c *wsClient) { c.raw(closeFrame(3456, "x")); c.wantCloseFrame(3456, "") },
		"fin":         func(c *wsClient) { c.fin() },
		"reset":       func(c *wsClient) { c.barrier(); c.rst() },
		"fault":       func(c *wsClient) { c.raw(frame(3, true, nil)); c.wantCloseFrame(1002, "unknown opcode") },
	}
	for _, how := range leave {
		sid := n.sid()
		ctl := n.control(sid)
		a, b, other := n.client(sid, "c"), n.client(sid, "c"), n.client(sid, "other")
		ctl.wantJSON(connectedJSON("c"))
		ctl.wantJSON(connectedJSON("c"))
		ctl.wantJSON(connectedJSON("other"))
		d := n.data(sid, "c")
		for i := range 20 {
			d.bin(make([]byte, 100*i))
		}
		how(d)
		for _, c := range []*wsClient{a, b} {
			for i := range 20 {
				c.want(opBin, make([]byte, 100*i))
			}
			c.wantClose(1012, "Server disconnected")
		}
		ctl.wantJSON(disconnectedJSON("c"))
		other.barrier()
		ctl.barrier()
	}
}

func TestV2LastClientLeavesDataCloses(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	leave := map[string]func(*wsClient){
		"close frame": func(c *wsClient) { c.raw(closeFrame(1001, "")) },
		"fin":         func(c *wsClient) { c.fin() },
		"reset":       func(c *wsClient) { c.barrier(); c.rst() },
		"hello":       func(c *wsClient) { c.text(`{"type":"hello"}`) },
	}
	for _, how := range leave {
		sid := n.sid()
		first := n.client(sid, "c")
		d, c := n.data(sid, "c"), n.client(sid, "c")
		first.leave(1000)
		d.barrier()
		for i := range 20 {
			c.bin(make([]byte, 300*i))
		}
		how(c)
		for i := range 20 {
			d.want(opBin, make([]byte, 300*i))
		}
		d.wantClose(1001, "Client disconnected")
	}
}

// Waiting frames come first, in arrival order, whatever follows them.
func TestV2WaitingFramesComeFirst(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	sid := n.sid()
	a, b, c := n.client(sid, "c"), n.client(sid, "c"), n.client(sid, "other")
	a.text("a0")
	n.untilIngress(2)
	b.text("b0")
	n.untilIngress(4)
	c.text("not yours")
	n.untilIngress(13)
	// From its frame on a client is not read.
	a.raw(frame(opText, true, []byte("a1")), frame(opPing, true, []byte("late")), frame(opText, true, []byte("a2")))
	n.untilIngress(13)
	d := n.data(sid, "c")
	d.wantText("a0")
	d.wantText("b0")
	d.wantText("a1")
	d.wantText("a2")
	d.barrier()
	a.barrier()
	if len(a.pong) != 1 || string(a.pong[0]) != "late" {
		t.Errorf("pongs %q", a.pong)
	}
	n.untilIngress(9)
	n.data(sid, "other").wantText("not yours")
}

// Several messages in the segment of the upgrade.
func TestFramesBehindTheUpgrade(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	sid := n.sid()
	s := n.v1("server", sid)
	n.v1("client", sid, early(append(frame(opText, true, []byte("one")), frame(opText, true, []byte("two"))...)))
	s.wantText("one")
	s.wantText("two")
	sid = n.sid()
	n.client(sid, "c", early(append(frame(opText, true, []byte("one")), frame(opText, true, []byte("two"))...)))
	d := n.data(sid, "c")
	d.wantText("one")
	d.wantText("two")
}

func TestV2WaitingFramesOfTheLastClientAreDiscarded(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	sid := n.sid()
	c := n.client(sid, "c")
	c.bin(make([]byte, 5000))
	n.untilIngress(5000)
	c.rst()
	n.untilIngress(0)
	n.untilSockets(0)
	c = n.client(sid, "c")
	d := n.data(sid, "c")
	c.text("fresh")
	d.wantText("fresh")
}

func TestV2DataTimeout(t *testing.T) {
	t.Parallel()
	n := startNode(t, "DATA_ATTACH_TIMEOUT_MS=300")
	sid := n.sid()
	ctl := n.control(sid)
	idle := n.client(sid, "idle")
	ctl.wantJSON(connectedJSON("idle"))
	c := n.client(sid, "c")
	ctl.wantJSON(connectedJSON("c"))
	c.text("anybody?")
	c.wantClose(1013, "Data socket timeout")
	ctl.wantJSON(disconnectedJSON("c"))
	idle.barrier() // it has sent nothing, so nothing times out
	n.untilIngress(0)
	n.untilMetric(`closes_total{code="1013",by="us"}`, 1)
}

// A message under way does not hold its siblings' up.
func TestV2IncompleteMessageBlocksNobody(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	sid := n.sid()
	d, a, b := n.data(sid, "c"), n.client(sid, "c"), n.client(sid, "c")
	big := frame(opBin, true, make([]byte, 300000))
	a.raw(big[:200000])
	for range 5 {
		b.text("b")
		d.wantText("b")
	}
	a.raw(big[200000:])
	d.want(opBin, make([]byte, 300000))
	d.barrier()
}

func TestGeneratedConnectionIDs(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	sid := n.sid()
	ctl := n.control(sid)
	seen := map[string]bool{}
	for _, cid := range []string{"-", "", "  "} {
		n.ws(wsQuery(sid, "client", 2, cid), "client")
		m, err := ctl.message(patience)
		if err != nil {
			t.Fatal(err)
		}
		if !generatedID.Match(m.data) || seen[string(m.data)] {
			t.Errorf("%s", m.data)
		}
		seen[string(m.data)] = true
	}
	// v1 ignores it.
	s := n.ws(wsQuery(sid, "server", 1, "a"), "v1 server")
	n.ws(wsQuery(sid, "client", 1, "b"), "v1 client").text("x")
	s.wantText("x")
}
