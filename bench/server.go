package main

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"
)

const (
	startWithin = 10 * time.Second
	stopWithin  = 5 * time.Second
)

// A server is a started process of a target.
type server struct {
	name   string
	port   int
	admin  int // port of the admin listener, of ours
	cmd    *exec.Cmd
	output bytes.Buffer // what it said; read only after it ended
	ended  chan struct{}
}

// pid of the process itself: taskset replaces itself by what it starts.
func (s *server) pid() int { return s.cmd.Process.Pid }

// start runs a target on the given cores and waits until it accepts.
func (l *lab) start(t target, onCores string, loops int) (*server, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	argv, env := t.command(l, port, loops)
	return l.startProcess(t.name, port, onCores, argv, env)
}

// startProcess runs argv with env (and no other variables than PATH and HOME:
// settings of the caller's shell are not to change figures).
func (l *lab) startProcess(name string, port int, onCores string, argv, env []string) (*server, error) {
	admin, err := freePort()
	if err != nil {
		return nil, err
	}
	s := &server{
		name:  name,
		port:  port,
		admin: admin,
		cmd:   exec.Command("taskset", slices.Concat([]string{"-c", onCores}, argv)...),
		ended: make(chan struct{}),
	}
	s.cmd.Env = slices.Concat(env, []string{
		"PATH=" + os.Getenv("PATH"),
		"HOME=" + os.Getenv("HOME"),
		fmt.Sprintf("ADMIN_PORT=%d", admin),
	})
	s.cmd.Stdout = &s.output
	s.cmd.Stderr = &s.output
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = s.cmd.Wait() // how it ended shows in its output
		close(s.ended)
	}()
	if err := s.waitAccepting(); err != nil {
		s.stop()
		return nil, fmt.Errorf("%s: %w\n%s", name, err, s.output.String())
	}
	return s, nil
}

func (s *server) waitAccepting() error {
	deadline := time.Now().Add(startWithin)
	for time.Now().Before(deadline) {
		c, err := net.Dial("tcp4", fmt.Sprintf("127.0.0.1:%d", s.port))
		if err == nil {
			return c.Close()
		}
		select {
		case <-s.ended:
			return fmt.Errorf("ended at the start")
		case <-time.After(20 * time.Millisecond):
		}
	}
	return fmt.Errorf("does not accept on port %d after %v", s.port, startWithin)
}

// stop ends the process and waits for it. It may be called twice.
func (s *server) stop() {
	_ = s.cmd.Process.Signal(syscall.SIGTERM) // an error means it is gone
	select {
	case <-s.ended:
	case <-time.After(stopWithin):
		_ = s.cmd.Process.Kill()
		<-s.ended
	}
}

// check reports a server that did not survive the measurement.
func (s *server) check() error {
	select {
	case <-s.ended:
		return fmt.Errorf("%s died: %s\n%s", s.name, s.cmd.ProcessState, strings.TrimSpace(s.output.String()))
	default:
		return nil
	}
}

// startAll starts each target on the server core with one loop. On an error
// none is left running.
func (l *lab) startAll(list []target) ([]*server, error) {
	var servers []*server
	for _, t := range list {
		s, err := l.start(t, l.cores.server, 1)
		if err != nil {
			stopAll(servers)
			return nil, err
		}
		servers = append(servers, s)
	}
	return servers, nil
}

func stopAll(servers []*server) {
	for _, s := range servers {
		s.stop()
	}
}
