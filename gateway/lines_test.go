package gateway_test

import (
	"encoding/json"
	"testing"
)

// Lines that were left out are counted to the last, however soon the end comes
// after them.
func TestStopTellsOfLinesLeftOut(t *testing.T) {
	const sockets = 50
	n := startNode(t)
	open := make([]*wsClient, sockets)
	for i := range open {
		open[i] = n.v1("server", n.sid())
	}
	for _, c := range open {
		c.rst()
	}
	n.untilSockets(0)
	n.finish()
	told := 0
	for _, line := range append(n.log.with(`"msg":"connection ended"`), n.log.with(`"msg":"lines left out"`)...) {
		var l struct {
			Msg     string
			LeftOut int `json:"left_out"`
		}
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatal(err)
		}
		if told += l.LeftOut; l.Msg == "connection ended" {
			told++
		}
	}
	if told != sockets {
		t.Errorf("%d ends of connections are told, expected %d", told, sockets)
	}
}
