package main

import (
	"encoding/binary"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// pace offers requests from the given core at a steady rate for some seconds,
// whether or not answers come, and waits until all are answered. It returns how
// long each took from when it was due, so that a server that stops shows in every
// request it kept waiting.
func (g *httpLoad) pace(core string, seconds, rate float64) (took []time.Duration, err error) {
	failed := onCore(core, func() error {
		took, err = g.paced(int(rate*seconds), time.Duration(float64(time.Second)/rate))
		return err
	})
	return took, failed
}

// paced sends n requests, one every so often.
func (g *httpLoad) paced(n int, every time.Duration) ([]time.Duration, error) {
	timer, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	if err != nil {
		return nil, err
	}
	defer unix.Close(timer)
	start, tick := time.Now(), unix.NsecToTimespec(int64(every))
	if err := unix.TimerfdSettime(timer, 0, &unix.ItimerSpec{Interval: tick, Value: tick}, nil); err != nil {
		return nil, err
	}
	const timerEvent = -1
	if err := unix.EpollCtl(g.epoll, unix.EPOLL_CTL_ADD, timer, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: timerEvent}); err != nil {
		return nil, err
	}
	// Closing takes it out of the poller.

	took := make([]time.Duration, 0, n)
	idle := make([]*loadConn, len(g.conns))
	copy(idle, g.conns)
	due, sent := 0, 0
	dueAt := func(i int) time.Time { return start.Add(time.Duration(i+1) * every) }
	events := make([]unix.EpollEvent, len(g.conns)+1)
	for len(took) < n {
		k, err := unix.EpollWait(g.epoll, events, int(answerPatience/time.Millisecond))
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return nil, err
		}
		if k == 0 {
			return nil, fmt.Errorf("no answer for %v to %d requests", answerPatience, sent-len(took))
		}
		for i := range events[:k] {
			if events[i].Fd == timerEvent {
				var count [8]byte
				if _, err := unix.Read(timer, count[:]); err == nil {
					due = min(due+int(binary.NativeEndian.Uint64(count[:])), n)
				}
				continue
			}
			c := g.conns[events[i].Fd]
			done, err := c.receive()
			if err != nil {
				return nil, err
			}
			if done {
				took = append(took, time.Since(c.due))
				idle = append(idle, c)
			}
		}
		for ; sent < due && len(idle) > 0; sent++ {
			c := idle[len(idle)-1]
			idle = idle[:len(idle)-1]
			c.due = dueAt(sent)
			if err := g.send(c); err != nil {
				return nil, err
			}
		}
		if due == n {
			// No more ticks: with the timer quiet, silence is the server's.
			if err := unix.TimerfdSettime(timer, 0, &unix.ItimerSpec{}, nil); err != nil {
				return nil, err
			}
		}
	}
	return took, nil
}
