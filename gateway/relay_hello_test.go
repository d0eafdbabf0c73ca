package gateway_test

import (
	"encoding/base64"
	"strings"
	"testing"
)

// goodKey is a canonical key that is no point of low order.
var goodKey = base64.StdEncoding.EncodeToString([]byte("\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f\x10\x11\x12\x13\x14\x15\x16\x17\x18\x19\x1a\x1b\x1c\x1d\x1e\x1f\x40"))

func hello(key string) string { return `{"type":"e2ee_hello","key":"` + key + `"}` }

// The check over the wire; its judgement has a table of its own beside it.
func TestHelloCheck(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	send := func(w *wsClient, op int, payload string, fragment int) {
		if fragment == 0 {
			w.raw(frame(op, true, []byte(payload)))
			return
		}
		for i := 0; i < len(payload); i += fragment {
			end := min(len(payload), i+fragment)
			w.raw(frame(op, end == len(payload), []byte(payload[i:end])))
			op = opCont
		}
	}
	each := func(payload string, do func(kind string, w, peer *wsClient, op int)) {
		t.Helper()
		for _, kind := range []string{"v1 client", "client"} {
			for i, op := range []int{opText, opBin} {
				w, peer := n.kind(kind)
				w.text("in front")
				send(w, op, payload, []int{0, 7}[i])
				peer.wantText("in front")
				do(kind, w, peer, op)
			}
		}
	}
	passes := func(payload string) {
		t.Helper()
		each(payload, func(kind string, w, peer *wsClient, op int) {
			peer.want(op, []byte(payload))
			w.barrier()
		})
	}
	refused := 0
	closes := func(payload string) {
		t.Helper()
		each(payload, func(kind string, w, peer *wsClient, op int) {
			w.wantClose(1008, "Invalid handshake key")
			peerEnds(kind, peer)
			refused++
		})
	}
	passes(hello(goodKey))
	passes("\ufeff \r\n\t" + hello(goodKey) + " ")
	passes(`{"type":"hello","key":"bad","key":"` + goodKey + `"}`)
	passes(`{"type":"hello","key":"bad"`) // broken JSON is opaque
	passes(`[{"type":"hello"}]`)
	passes(`{"type":"hello2"}`)
	passes("\n\t x")
	passes(`{"pad":"` + strings.Repeat("x", 300) + `","type":"hello","key":"` + goodKey + `"}`)
	closes(`{"type":"hello"}`)
	closes(`{"type":"e2ee_hello","key":null}`)
	closes(hello("bad"))
	closes(hello(base64.StdEncoding.EncodeToString(make([]byte, 32))))
	closes("\ufeff" + hello(strings.TrimSuffix(goodKey, "=")))
	closes(`{"ty\u0070e":"hel\u006co","key":1}`)
	closes(`{"pad":"` + strings.Repeat("x", 900) + `","key":"bad","type":"hello"}`)
	n.untilMetric("handshake_key_rejections_total", float64(refused))
	n.untilIngress(0)

	// Servers are not looked at.
	for _, kind := range []string{"v1 server", "data"} {
		w, peer := n.kind(kind)
		w.text(hello("bad"))
		peer.wantText(hello("bad"))
	}
	// Nor is control.
	ctl, _ := n.kind("control")
	ctl.text(hello("bad"))
	ctl.barrier()
}

// Messages that are read in pieces are scanned as they come.
func TestHelloInLargeMessages(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	for _, size := range []int{20 << 10, 100 << 10, 1 << 20} {
		pad := strings.Repeat(" ", size)
		w, peer := n.kind("v1 client")
		ok := `{"key":"` + goodKey + `",` + pad + `"type":"hello"}`
		go w.write(frame(opText, true, []byte(ok)))
		peer.wantText(ok)
		w.raw(frame(opText, true, []byte(`{"key":"bad",`+pad+`"type":"hello"}`)))
		w.wantClose(1008, "Invalid handshake key")
		peer.barrier()
	}
	// Nesting is charged, and returned.
	w, peer := n.kind("client")
	deep := `{"type":"hello","key":"bad","a":` + strings.Repeat("[", 1<<20)
	go w.write(frame(opBin, true, []byte(deep)))
	peer.want(opBin, []byte(deep))
	w.raw(frame(opText, true, []byte(deep+strings.Repeat("]", 1<<20)+"}")))
	w.wantClose(1008, "Invalid handshake key")
	n.untilIngress(0)
}

// Behind a waiting frame the check runs when the frame's turn comes.
func TestHelloBehindAWaitingFrame(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	sid := n.sid()
	c := n.client(sid, "c")
	c.raw(frame(opText, true, []byte("first")), frame(opText, true, []byte(hello("bad"))), frame(opText, true, []byte("third")))
	n.until("the first frame waits", func() bool { return n.g.Ledger().Snapshot().Ingress > 0 })
	c.nc.SetNoDelay(true)
	d := n.data(sid, "c")
	d.wantText("first")
	d.wantClose(1001, "Client disconnected")
	c.wantClose(1008, "Invalid handshake key")
}
