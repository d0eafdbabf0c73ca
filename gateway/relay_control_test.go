package gateway_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestControlPing(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	ctl := n.control(n.sid())
	answered := func(text string) {
		t.Helper()
		before := time.Now().UnixMilli()
		ctl.text(text)
		m, err := ctl.message(patience)
		if err != nil || m.op != opText {
			t.Fatalf("%.60q: %v %v", text, m, err)
		}
		var pong map[string]any
		d := json.NewDecoder(strings.NewReader(string(m.data)))
		d.UseNumber()
		if err := d.Decode(&pong); err != nil || len(pong) != 2 || pong["type"] != "pong" {
			t.Fatalf("%.60q: %s", text, m.data)
		}
		ts, err := pong["ts"].(json.Number).Int64()
		if err != nil || ts < before || ts > time.Now().UnixMilli() {
			t.Errorf("ts %v", pong["ts"])
		}
		ctl.barrier()
	}
	ignored := func(op int, text string) {
		t.Helper()
		ctl.raw(frame(op, true, []byte(text)))
		ctl.barrier()
	}
	answered(`{"type":"ping"}`)
	answered(" {\"x\":[1,{\"type\":2}],\n\"type\" : \"ping\"} ")
	answered(`{"t\u0079pe":"p\u0069ng"}`)
	answered(`{"type":1,"type":"ping"}`)
	long := `{"type":"ping","pad":"` + strings.Repeat("x", 64<<10)
	answered(long[:64<<10-2] + `"}`) // exactly the ceiling
	ignored(opText, `{"type":"PING"}`)
	ignored(opText, `{"type":"ping"`)
	ignored(opText, `{"type":"ping"}{}`)
	ignored(opText, `[{"type":"ping"}]`)
	ignored(opText, `{"a":{"type":"ping"}}`)
	ignored(opText, `{"type":"ping","type":"x"}`)
	ignored(opText, `null`)
	ignored(opText, ``)
	ignored(opBin, `{"type":"ping"}`)
	ignored(opBin, "\xff\xfe")
	// In fragments.
	ctl.raw(frame(opText, false, []byte(`{"type":`)), frame(opPing, true, nil), frame(opCont, true, []byte(`"ping"}`)))
	if m, err := ctl.message(patience); err != nil || !strings.Contains(string(m.data), `"pong"`) {
		t.Errorf("%v %v", m, err)
	}
	n.untilIngress(0)
	ctl.raw(frameHead(opText, true, 64<<10+1, true))
	ctl.wantClose(1009, "Message too big")
	// The ceiling counts whole messages.
	ctl = n.control(n.sid())
	ctl.raw(frame(opText, false, make([]byte, 40<<10)), frameHead(opCont, true, 40<<10, true))
	ctl.wantClose(1009, "Message too big")
}

// Control that does not read: the queue is bounded, and a notification always
// fits an empty one.
func TestControlQueue(t *testing.T) {
	t.Parallel()
	n := startNode(t, "CONTROL_QUEUE_BYTES=20000", smallSend)
	sid := n.sid()
	ctl := n.ws(wsQuery(sid, "server", 2, "-"), "slow control", smallBuffers)
	cid := strings.Repeat("c", 250)
	// More than the queue and all kernel buffers hold, and soon enough for the
	// close frame to find a reader within its 5 s.
	for range 400 {
		n.client(sid, cid).rst()
	}
	for {
		m, err := ctl.message(patience)
		if err != nil {
			t.Fatal(err)
		}
		if m.op == opClose {
			if m.code != 1013 || m.reason != "Control queue full" {
				t.Errorf("%v", m)
			}
			break
		}
	}
	// A sync larger than the queue.
	sid = n.sid()
	var ids []string
	for i := range 800 {
		ids = append(ids, fmt.Sprintf("%s%03d", cid, i))
		n.client(sid, ids[i])
	}
	ctl = n.ws(wsQuery(sid, "server", 2, "-"), "control", smallBuffers)
	n.untilBlocked(1)
	ctl.wantJSON(syncJSON(ids...))
	ctl.barrier()
}

// A notification that is not written within its deadline.
func TestControlDeadline(t *testing.T) {
	t.Parallel()
	n := startNode(t, "DELIVERY_TIMEOUT_MS=300", "TRANSPORT_SEND_TIMEOUT_MS=60000", smallSend)
	sid := n.sid()
	cid := strings.Repeat("c", 250)
	for i := range 400 {
		n.client(sid, fmt.Sprint(cid, i))
	}
	ctl := n.ws(wsQuery(sid, "server", 2, "-"), "control", smallBuffers)
	n.untilBlocked(1)
	n.untilMetric(`closes_total{code="1013",by="us"}`, 0) // not yet: it is still closing
	n.until("it is given up", func() bool { return n.g.Ledger().Snapshot().Blocked == 1 })
	m, err := ctl.message(patience) // the sync was begun, and is finished
	if err != nil || m.op != opText {
		t.Fatal(m, err)
	}
	// Either everything was taken in time, or the close follows.
	n.client(sid, "one more")
	if m, err = ctl.message(patience); err != nil {
		t.Fatal(err)
	}
	if m.op == opClose && (m.code != 1013 || m.reason != "Control queue full") {
		t.Errorf("%v", m)
	}
}

// Control that asks and does not read the answers is not read either.
func TestControlFloodOfPings(t *testing.T) {
	t.Parallel()
	n := startNode(t, smallSend)
	sid := n.sid()
	ctl := n.ws(wsQuery(sid, "server", 2, "-"), "control", smallBuffers)
	ping := frame(opText, true, []byte(`{"type":"ping"}`))
	var batch []byte
	for range 1000 {
		batch = append(batch, ping...)
	}
	ctl.nc.SetWriteDeadline(time.Now().Add(2 * time.Second))
	sent := 0
	for {
		k, err := ctl.nc.Write(batch)
		sent += k
		if err != nil {
			break
		}
		if sent > 64<<20 {
			t.Fatal("a control socket that does not read is read without an end")
		}
	}
	d, c := n.pair()
	c.text("x")
	d.wantText("x")
}

// The watchdog: a client without a data socket. Its times are the contract's,
// so the cases run side by side.
func TestControlWatchdog(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("15 s")
	}
	n := startNode(t)
	sid, saved := n.sid(), n.sid()
	ctl, ctl2 := n.control(sid), n.control(saved)
	start := time.Now()
	n.client(sid, "a")
	n.client(sid, "b")
	n.client(saved, "late")
	n.client(saved, "in time")
	ctl.wantJSON(connectedJSON("a"))
	ctl.wantJSON(connectedJSON("b"))
	ctl2.wantJSON(connectedJSON("late"))
	ctl2.wantJSON(connectedJSON("in time"))
	n.data(saved, "in time")
	ctl.wantJSON(syncJSON("a", "b")) // one for all that are due
	if took := time.Since(start); took < 9900*time.Millisecond || took > 10*time.Second+patience {
		t.Errorf("sync after %v", took)
	}
	ctl2.wantJSON(syncJSON("late", "in time"))
	n.data(saved, "late")
	// One sync is for all that are due; clients whose attaches fell on different
	// ticks are due apart, and then b has one of its own.
	m, err := ctl.message(patience)
	if err == nil && m.op == opText && sameJSON(m.data, []byte(syncJSON("a", "b"))) {
		m, err = ctl.message(patience)
	}
	if err != nil || m.op != opClose || m.code != 1011 || m.reason != "Control unresponsive" {
		t.Fatalf("expected close 1011 Control unresponsive, got %v, %v", m, err)
	}
	ctl.write(closeFrame(1011, ""))
	ctl.wantEOF()
	if took := time.Since(start); took < 14900*time.Millisecond || took > 15*time.Second+patience {
		t.Errorf("closed after %v", took)
	}
	ctl2.barrier()
}
