package main

import (
	"fmt"
	"strconv"
	"time"
)

// idleBarKiB is the process memory of one idle upgraded socket.
const idleBarKiB = 2

// runIdle opens many upgraded sockets to each server, one server at a time,
// and reads how much its resident memory grew; then again after each socket
// sent one message.
func runIdle(l *lab, r *report) error {
	t := newTable(fmt.Sprintf("KiB per socket, %d sockets", l.plan.sockets), "idle", "after 1 KiB through each")
	for _, x := range l.targets {
		got, err := l.holdIdle(x)
		if err != nil {
			return err
		}
		r.raw("idle", "%s: %s", x.name, got.line)
		idle, err := got.get("per_conn")
		if err != nil {
			return err
		}
		after, err := got.get("after1KmsgEach")
		if err != nil {
			return err
		}
		t.add(x.name, number(idle), number(after))
		if x.name == sluiceName {
			r.check("memory of an idle socket, KiB", idle, idleBarKiB)
		}
	}
	r.section("Idle sockets", t.String())
	return nil
}

func (l *lab) holdIdle(x target) (result, error) {
	s, err := l.start(x, l.cores.server, 1)
	if err != nil {
		return result{}, err
	}
	defer s.stop()
	got, err := l.runTool(2*time.Minute, "idle",
		strconv.Itoa(s.port), strconv.Itoa(s.pid()), strconv.Itoa(l.plan.sockets), "burst")
	if gone := s.check(); gone != nil {
		return got, gone
	}
	return got, err
}
