//go:build linux

package loop

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Of failures in a row the first is told, and the first after a quiet minute.
func TestAcceptFailuresTold(t *testing.T) {
	t.Parallel()
	var ln Listener
	now := int64(time.Hour)
	f := func(after time.Duration, told bool) {
		t.Helper()
		now += int64(after)
		if ln.acceptFailed(now) != told {
			t.Errorf("%v after the last: told is %v", after, !told)
		}
	}
	f(0, true)
	for range 2 * acceptQuiet / acceptBackoff {
		f(acceptBackoff, false)
	}
	f(-acceptBackoff, false) // another loop's clock is behind
	f(acceptQuiet, true)
	f(acceptQuiet-1, false)
	if n := ln.AcceptErrors.Load(); n != int64(2*acceptQuiet/acceptBackoff)+4 {
		t.Errorf("%d failures are counted", n)
	}
}

const exhaustionChild = "SLUICE_LOOP_TEST_EXHAUSTION"

// TestDescriptorsExhausted lets a process of its own, an echo server, run out of
// descriptors: it leaves the listener alone for a while, goes on serving what it
// has, and accepts again as soon as descriptors are free.
func TestDescriptorsExhausted(t *testing.T) {
	if os.Getenv(exhaustionChild) != "" {
		serveExhausted(t)
		return
	}
	child := exec.Command(os.Args[0], "-test.run=^TestDescriptorsExhausted$", "-test.v")
	child.Env = append(os.Environ(), exhaustionChild+"=1")
	child.Stderr = os.Stderr
	in, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		in.Close() // its signal to end
		if err := child.Wait(); err != nil {
			t.Errorf("the server ended with %v", err)
		}
	}()
	lines := bufio.NewScanner(out)
	ask := func() (answer string) { // one line for one line
		fmt.Fprintln(in)
		for lines.Scan() {
			if s, ok := strings.CutPrefix(lines.Text(), "child: "); ok {
				return s
			}
		}
		t.Fatal("the server does not answer")
		return ""
	}
	errorsSoFar := func() (n int) {
		fmt.Sscan(ask(), &n)
		return n
	}
	addr := ask()

	const room, more = 10, 5
	var conns []net.Conn
	for range room + more {
		c, err := net.DialTimeout("tcp4", addr, patience)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(2 * patience))
		conns = append(conns, c)
	}
	ping := func(c net.Conn) error {
		c.Write([]byte("ping"))
		_, err := io.ReadFull(c, make([]byte, 4))
		return err
	}
	for i, c := range conns[:room] {
		if err := ping(c); err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
	}
	eventually(t, "accepting fails", func() bool { return errorsSoFar() > 0 })

	// While nothing can be accepted, those that are go on, and the listener is
	// asked ten times a second, not all the time.
	before, since := errorsSoFar(), time.Now()
	for range 300 {
		for i, c := range conns[:room] {
			if err := ping(c); err != nil {
				t.Fatalf("with no descriptors left, connection %d: %v", i, err)
			}
		}
	}
	eventually(t, "it is asked again", func() bool { return errorsSoFar() > before })
	if n, most := errorsSoFar()-before, int(time.Since(since)/acceptBackoff)+2; n > most {
		t.Errorf("%d tries to accept, more than %d", n, most)
	}

	for _, c := range conns[:more] {
		c.Close()
	}
	for i, c := range conns[room:] {
		if err := ping(c); err != nil {
			t.Errorf("connection %d, which waited: %v", room+i, err)
		}
	}
}

// serveExhausted is the server: it answers each line of its input with one of
// its own, first the address and then how many accepts failed.
func serveExhausted(t *testing.T) {
	l := start(t, 1, Config{})[0]
	ln := serve(t, SocketOptions{}, func(*Conn) Handler { return &echo{} }, l)
	lines := bufio.NewScanner(os.Stdin)
	lines.Scan()

	// Exactly ten descriptors more than are open, however they are numbered.
	last, err := unix.FcntlInt(uintptr(ln.fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	unix.Close(last)
	free := 0
	limit := last
	for ; free < 10; limit++ {
		if _, err := unix.FcntlInt(uintptr(limit), unix.F_GETFD, 0); err != nil {
			free++
		}
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(limit), Max: uint64(limit)}); err != nil {
		t.Fatal(err)
	}
	fmt.Println("child:", ln.Addr())
	for lines.Scan() {
		fmt.Println("child:", ln.AcceptErrors.Load())
	}
}
