package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
)

// cores says what is pinned where, as lists that taskset understands.
type cores struct {
	server    string // one core
	servers   string // two, for two loops
	generator string // the last of all; with two cores it is among servers too
}

// raiseFileLimit makes room for descriptors in this process and its children.
// The explicit call matters: a limit that the Go runtime raised by itself is
// taken back in children.
func raiseFileLimit(want uint64) error {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return err
	}
	if limit.Max < want {
		// Works for root; the others get the error below.
		if syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: want, Max: want}) == nil {
			return nil
		}
		return fmt.Errorf("needs %d descriptors, the hard limit is %d: raise it (ulimit -Hn) or lower -sockets", want, limit.Max)
	}
	limit.Cur = limit.Max
	return syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit)
}

// freePort asks the kernel for a port that is free just now.
func freePort() (int, error) {
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer ln.Close()
	return ln.Addr().(*net.TCPAddr).Port, nil
}

// clockTick is the unit of /proc/PID/stat: USER_HZ is 100 on every Linux port
// that Go runs on.
const clockTick = 0.01 // seconds

// cpuSeconds is the user and system time that a process has used.
func cpuSeconds(pid int) (float64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// The command in parentheses may hold blanks; fields are counted after it.
	_, rest, ok := strings.Cut(string(b), ") ")
	fields := strings.Fields(rest)
	if !ok || len(fields) < 13 {
		return 0, fmt.Errorf("unexpected /proc/%d/stat", pid)
	}
	user, err1 := strconv.ParseFloat(fields[11], 64)
	system, err2 := strconv.ParseFloat(fields[12], 64)
	return (user + system) * clockTick, errors.Join(err1, err2)
}

// describeMachine is the line under which figures are quoted.
func describeMachine(congestion string) string {
	parts := []string{
		fmt.Sprintf("%d × %s", runtime.NumCPU(), cpuModel()),
		"Linux " + kernelRelease(),
		runtime.Version(),
		firstLine("gcc", "--version"),
		"congestion control " + congestion,
	}
	return strings.Join(parts, "; ")
}

func cpuModel() string {
	b, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(b)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}

// firstLine of what a program says, or nothing when it is not there.
func firstLine(name string, args ...string) string {
	b, _ := exec.Command(name, args...).CombinedOutput()
	line, _, _ := strings.Cut(string(b), "\n")
	return strings.TrimSpace(line)
}
