// Package redistest starts real Redis servers for tests, on free ports of
// 127.0.0.1: one alone, a master with a replica and sentinels, a cluster. Servers
// end with their test, and with its process however that ends.
package redistest

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// patience is how long a condition may take to come true. Machines differ.
const patience = 60 * time.Second

// A Server is one redis-server or sentinel. It is of one test's goroutine.
type Server struct {
	Addr string
	Dir  string // its working directory; holds its snapshot and log

	t       testing.TB
	port    int
	program string
	args    []string

	cmd   *exec.Cmd
	stdin io.Closer
	pid   int // 0 while it does not run
}

// Start starts a server that keeps nothing on disk unless it is told to, with
// options as they stand on redis-server's command line.
func Start(t testing.TB, options ...string) *Server {
	t.Helper()
	s := newServer(t, "redis-server", func(port int) []string {
		return append([]string{"--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no",
			"--repl-diskless-sync", "yes", "--repl-diskless-sync-delay", "0"}, options...)
	})
	s.start()
	return s
}

// newServer finds a port for a program and makes its arguments.
func newServer(t testing.TB, program string, args func(port int) []string) *Server {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil {
		t.Skipf("no %s: run scripts/deps test", program)
	}
	s := &Server{t: t, program: program, Dir: t.TempDir(), port: freePort(t)}
	s.Addr = "127.0.0.1:" + strconv.Itoa(s.port)
	s.args = args(s.port)
	t.Cleanup(s.Kill)
	return s
}

// freePort finds a port that is free, and free again 10000 above it, where a
// member of a cluster has its bus.
func freePort(t testing.TB) int {
	t.Helper()
	for range 100 {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		port := ln.Addr().(*net.TCPAddr).Port
		ln.Close()
		if port > 1<<16-10001 {
			port -= 20000 // the kernel's ports lie above 32768
		}
		free := true
		for _, p := range []int{port, port + 10000} {
			l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", p))
			if free = free && err == nil; err == nil {
				l.Close()
			}
		}
		if free {
			return port
		}
	}
	t.Fatal("no free ports")
	return 0
}

// guard runs a program and kills it when its own standard input ends, which it
// does with the process of the test.
const guard = `exec 3<&0
"$@" </dev/null >&2 &
p=$!
echo $p
{ read x <&3; kill -9 $p; } >/dev/null 2>&1 &
wait $p
kill $! 2>/dev/null`

// start runs the program and waits until it answers.
func (s *Server) start() {
	s.t.Helper()
	log, err := os.OpenFile(filepath.Join(s.Dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		s.t.Fatal(err)
	}
	defer log.Close()
	s.cmd = exec.Command("sh", append([]string{"-c", guard, "guard", s.program}, s.args...)...)
	s.cmd.Dir, s.cmd.Stderr = s.Dir, log
	if s.stdin, err = s.cmd.StdinPipe(); err != nil {
		s.t.Fatal(err)
	}
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if s.pid, _ = strconv.Atoi(strings.TrimSpace(line)); s.pid == 0 {
		s.t.Fatalf("%s did not start: %v", s.program, err)
	}
	s.Await("it answers", func() bool {
		_, err := s.Try("PING")
		return err == nil || strings.Contains(err.Error(), "LOADING") || strings.Contains(err.Error(), "NOAUTH")
	})
}

// Kill ends the server as kill -9 does, and waits for its end. It may be called
// twice.
func (s *Server) Kill() {
	if s.pid == 0 {
		return
	}
	syscall.Kill(s.pid, syscall.SIGKILL)
	s.cmd.Wait()
	s.stdin.Close()
	s.pid = 0
}

// Restart starts a killed server again: same port, same directory.
func (s *Server) Restart() {
	s.t.Helper()
	s.Kill()
	s.start()
}

// Pause stops the server's process, Resume lets it go on.
func (s *Server) Pause() { syscall.Kill(s.pid, syscall.SIGSTOP) }

// Resume lets a paused server go on.
func (s *Server) Resume() { syscall.Kill(s.pid, syscall.SIGCONT) }

// PID is the server's process.
func (s *Server) PID() int { return s.pid }

// URL is its REDIS_URL.
func (s *Server) URL() string { return "redis://" + s.Addr }

// Await waits for a condition about the server, and shows its log if that does not
// come.
func (s *Server) Await(what string, f func() bool) {
	s.t.Helper()
	for end := time.Now().Add(patience); !f(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			log, _ := os.ReadFile(filepath.Join(s.Dir, "log"))
			s.t.Fatalf("%s %s: not in time: %s\n%s", s.program, s.Addr, what, log[max(0, len(log)-2000):])
		}
	}
}

// Info is one field of INFO.
func (s *Server) Info(section, field string) string {
	s.t.Helper()
	for line := range strings.Lines(s.Do("INFO", section)) {
		if v, ok := strings.CutPrefix(line, field+":"); ok {
			return strings.TrimSpace(v)
		}
	}
	s.t.Fatalf("INFO %s has no %s", section, field)
	return ""
}
