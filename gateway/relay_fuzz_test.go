package gateway_test

import (
	"bytes"
	"fmt"
	"io"
	"sync"
	"testing"
	"time"
)

// fuzzNode is one relay for all inputs of a fuzzing process.
var fuzzNode = struct {
	once sync.Once
	n    *node
}{}

// FuzzRelayInput feeds arbitrary bytes to a socket of each kind, in one piece
// and cut at arbitrary places: nothing may hang or panic, the peer must see
// the same messages and the socket the same end, and the ledger must be empty.
func FuzzRelayInput(f *testing.F) {
	text := func(fin bool, op int, s string) []byte { return frame(op, fin, []byte(s)) }
	seed := func(parts ...[]byte) {
		for kind := range kinds {
			f.Add(uint8(kind), []byte{1, 2, 5, 30}, bytes.Join(parts, nil))
		}
	}
	seed(text(true, opText, "hello"), text(true, opBin, "\x00\xff"))
	seed(text(false, opText, "ab\xe2\x82"), text(true, opPing, "p"), text(true, opCont, "\xac"))
	seed(text(true, opText, `{"type":"hello","key":"x"}`))
	seed(text(true, opText, `{"type":"ping"}`), text(true, opText, "x"))
	seed(closeFrame(1000, "bye"), text(true, opText, "behind"))
	seed(text(true, opText, "a"), []byte{0x83, 0x80, 0, 0, 0, 0})
	seed(text(true, opBin, string(make([]byte, 5000))), text(true, opText, "\xff"))
	seed(frameHead(opBin, true, maxPayload+1, true))
	seed(frameHead(opBin, true, 70000, true), make([]byte, 69000))
	seed(bytes.Repeat(text(true, opPing, "0123456789"), 500), text(false, opBin, ""), text(true, opCont, ""))
	f.Fuzz(func(t *testing.T, kindByte uint8, cuts, input []byte) {
		fuzzNode.once.Do(func() { fuzzNode.n = startNode(keptOpen{t}, "LOOPS=2") })
		base := fuzzNode.n
		n := &node{t: t, g: base.g, addr: base.addr, log: base.log}
		n.ids.Store(base.ids.Add(10))
		kind := kinds[int(kindByte)%len(kinds)]
		whole := feed(n, kind, input, nil)
		if pieces := feed(n, kind, input, cuts); whole != pieces {
			t.Errorf("%s: in one piece %s\nin pieces    %s", kind, whole, pieces)
		}
		if err := n.emptied(); err != nil {
			t.Error(err)
		}
	})
}

// keptOpen keeps a node beyond the input that started it.
type keptOpen struct{ *testing.T }

func (keptOpen) Cleanup(func()) {}

// feed sends input, cut in pieces of the given lengths, and describes what came of it.
func feed(n *node, kind string, input, cuts []byte) string {
	n.ids.Add(1)
	w, peer := n.kind(kind)
	defer w.rst()
	go func() {
		rest := input
		for _, c := range cuts {
			if k := int(c) + 1; k < len(rest) {
				if w.write(rest[:k]) != nil {
					return
				}
				rest = rest[k:]
				time.Sleep(50 * time.Microsecond) // or the pieces arrive as one
			}
		}
		w.write(rest)
		w.fin()
	}()
	end := "none"
	answers := 0
	for {
		m, err := w.message(patience)
		if err == errReset || err == io.EOF {
			break
		}
		if err != nil {
			return fmt.Sprint("the socket: ", err)
		}
		if m.op == opClose {
			end = fmt.Sprintf("%d %s", m.code, m.reason)
			break
		}
		answers++
	}
	if peer == nil {
		return fmt.Sprintf("%d answers, end %s", answers, end)
	}
	defer peer.rst()
	out := fmt.Sprintf("%d answers, end %s:", answers, end)
	peer.write(frame(opPing, true, []byte("the end")))
	for {
		m, err := peer.next(patience)
		switch {
		case err != nil:
			return out + " " + err.Error()
		case m.op == opPong && string(m.data) == "the end" && kind[0] == 'v':
			return out
		case m.op == opPong:
		default:
			out += fmt.Sprintf(" [%v %d]", m, len(m.data))
		}
		if m.op == opClose {
			return out
		}
	}
}
