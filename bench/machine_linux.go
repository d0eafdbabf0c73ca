package main

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// pickCores spreads over the cores this process may use.
func pickCores() (cores, error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return cores{}, fmt.Errorf("cannot read the core affinity: %w", err)
	}
	var usable []int
	for cpu := 0; len(usable) < set.Count(); cpu++ {
		if set.IsSet(cpu) {
			usable = append(usable, cpu)
		}
	}
	if len(usable) < 2 {
		return cores{}, errors.New("needs two cores, one for the server and one for the generator")
	}
	return cores{
		server:    strconv.Itoa(usable[0]),
		servers:   fmt.Sprintf("%d,%d", usable[0], usable[1]),
		generator: strconv.Itoa(usable[len(usable)-1]),
	}, nil
}

// pickCongestion returns the first congestion control that does not pace and
// that a socket may ask for. A default of BBR would double the cost of large
// messages on loopback, for everyone.
func pickCongestion() (string, error) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	defer syscall.Close(fd)
	for _, name := range []string{"cubic", "reno"} {
		if unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, name) == nil {
			return name, nil
		}
	}
	return "", errors.New("neither cubic nor reno may be set; allow one in net.ipv4.tcp_allowed_congestion_control")
}

// kernelRelease is what uname -r says, or nothing.
func kernelRelease() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return ""
	}
	return unix.ByteSliceToString(u.Release[:])
}

// onCore runs f on a thread of its own that is pinned to a core.
func onCore(core string, f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with f
		done <- pinned(core, f)
	}()
	return <-done
}

func pinned(core string, f func() error) error {
	if err := pinThread(0, core); err != nil {
		return err
	}
	return f()
}

// pinProcess pins every thread that this process has, and so those that they will
// start, to a core. Programs that are started by taskset go where that says.
func pinProcess(core string) error {
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return err
	}
	for _, t := range threads {
		tid, err := strconv.Atoi(t.Name())
		if err != nil {
			return err
		}
		if err := pinThread(tid, core); err != nil && err != unix.ESRCH { // it has ended
			return err
		}
	}
	return nil
}

// pinThread pins a thread, 0 the calling one.
func pinThread(tid int, core string) error {
	cpu, err := strconv.Atoi(core)
	if err != nil {
		return fmt.Errorf("core %q: %w", core, err)
	}
	var set unix.CPUSet
	set.Set(cpu)
	return unix.SchedSetaffinity(tid, &set)
}

// threadCPU is the CPU time of the calling thread.
func threadCPU() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		panic("BUG: no CPU clock of the thread: " + err.Error())
	}
	return time.Duration(t.Nano())
}

// lowerThread gives the goroutine a thread of its own that runs only when nothing
// else of this process wants the core.
func lowerThread() {
	runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
	unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), 5)
}
