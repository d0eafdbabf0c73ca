package gateway_test

import (
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

const unitFile = deployDir + "/systemd/sluice.service"

// unit is a unit file: "Section.Key" → its values in order.
type unit map[string][]string

func readUnit(t testing.TB) unit {
	t.Helper()
	text, err := os.ReadFile(unitFile)
	if err != nil {
		t.Fatal(err)
	}
	u := unit{}
	section := ""
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		key, value, ok := strings.Cut(line, "=")
		switch {
		case line == "" || line[0] == '#':
		case line[0] == '[':
			section = strings.Trim(line, "[]")
		case ok:
			u[section+"."+key] = append(u[section+"."+key], value)
		default:
			t.Errorf("%s: %q", unitFile, line)
		}
	}
	return u
}

func (u unit) one(t testing.TB, key string) string {
	t.Helper()
	if len(u[key]) != 1 {
		t.Fatalf("%s: %d values of %s", unitFile, len(u[key]), key)
	}
	return u[key][0]
}

func (u unit) seconds(t testing.TB, key string) time.Duration {
	t.Helper()
	n, err := strconv.Atoi(u.one(t, key))
	if err != nil {
		t.Fatal(err)
	}
	return time.Duration(n) * time.Second
}

func TestSystemdUnit(t *testing.T) {
	u := readUnit(t)
	f := func(key, want string) {
		t.Helper()
		if got := u.one(t, "Service."+key); got != want {
			t.Errorf("%s is %s, expected %s", key, got, want)
		}
	}
	f("Type", "notify")
	f("ExecStart", "/usr/local/bin/sluice serve")
	// check-config fails of a control plane's bad version, with which serve starts.
	if pre := u["Service.ExecStartPre"]; pre != nil {
		t.Errorf("%q must succeed before a start", pre)
	}
	f("ExecReload", "/bin/kill -HUP $MAINPID")
	f("KillMode", "mixed")
	var env []string
	for _, line := range u["Service.Environment"] {
		env = append(env, strings.Fields(line)...)
	}
	cfg := checkSettings(t, unitFile, env)
	enoughTime(t, unitFile, cfg, u.seconds(t, "Service.TimeoutStopSec"))
	files, err := strconv.ParseUint(u.one(t, "Service.LimitNOFILE"), 10, 64)
	if err != nil {
		t.Error(err)
	}
	enoughFiles(t, unitFile, cfg, files)
	f("MemoryMax", "2G")
	quarters(t, unitFile, cfg, 2<<30)
	// A stuck loop is noticed before twice the timeout, and the process ends a
	// second later: only what that cannot do is left to the supervisor.
	if w := u.seconds(t, "Service.WatchdogSec"); w < 2*cfg.Relay.CapacityMutationTimeout+5*time.Second {
		t.Errorf("WatchdogSec is %v: it kills before the process gives up by itself", w)
	}
}

// TestSystemdVerifies asks systemd whether it knows every line, and how exposed
// the service is.
func TestSystemdVerifies(t *testing.T) {
	t.Parallel()
	analyze := debianProgram(t, "systemd-analyze")
	// The program is not installed where this runs.
	file := savedFile(t, t.TempDir(), "sluice.service", rewritten(t, "systemd/sluice.service", "/usr/local/bin/sluice", "/bin/true"))
	out, err := exec.Command(analyze, "verify", "--man=no", file).CombinedOutput()
	if err != nil || strings.Contains(string(out), file) {
		t.Errorf("verify: %v\n%s", err, out)
	}
	if help, _ := exec.Command(analyze, "--help").Output(); !strings.Contains(string(help), "--offline") {
		t.Skip("this systemd-analyze does not judge files")
	}
	// Of 100; 12 when this was written.
	if out, err := exec.Command(analyze, "security", "--offline=yes", "--threshold=15", "--no-pager", file).CombinedOutput(); err != nil {
		t.Errorf("security: %v\n%s", err, out)
	}
}

// syscallSet expands one of systemd's groups of system calls.
func syscallSet(t testing.TB, analyze, name string) map[string]bool {
	t.Helper()
	out, err := exec.Command(analyze, "syscall-filter", name).Output()
	if err != nil {
		t.Skipf("systemd-analyze syscall-filter %s: %v", name, err)
	}
	set := map[string]bool{}
	for i, line := range strings.Split(string(out), "\n") {
		line = strings.TrimSpace(line)
		switch {
		case i == 0 || line == "" || line[0] == '#':
		case line[0] == '@':
			for call := range syscallSet(t, analyze, line) {
				set[call] = true
			}
		default:
			set[line] = true
		}
	}
	return set
}

// TestSystemdFilter records the system calls of a working process and holds them
// against the unit's filter.
func TestSystemdFilter(t *testing.T) {
	t.Parallel()
	if raceEnabled {
		t.Skip("the race detector has calls of its own")
	}
	analyze, strace := debianProgram(t, "systemd-analyze"), debianProgram(t, "strace")
	u := readUnit(t)
	filters := u["Service.SystemCallFilter"]
	if !slices.Equal(filters, []string{"@system-service", "~@privileged @resources"}) {
		t.Fatalf("the filter is %q", filters)
	}
	allowed := syscallSet(t, analyze, "@system-service")
	for _, name := range []string{"@privileged", "@resources"} {
		for call := range syscallSet(t, analyze, name) {
			delete(allowed, call)
		}
	}
	for call := range syscallSet(t, analyze, "@default") {
		allowed[call] = true
	}

	s := serve(t, "DRAIN_SECONDS=0")
	file := savedFile(t, t.TempDir(), "calls", "")
	// The process runs already, so that what the tests' own start does is left out;
	// the image's start is the Go runtime's.
	tracer := exec.Command(strace, "-f", "-qq", "-o", file, "-p", strconv.Itoa(s.cmd.Process.Pid))
	if err := tracer.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.cmd.Process.Kill()
		tracer.Wait()
	})
	seen := func() map[string]bool {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		calls := map[string]bool{}
		for _, m := range regexp.MustCompile(`(?m)^\d+ +([a-z0-9_]+)\(`).FindAllStringSubmatch(string(text), -1) {
			calls[m[1]] = true
		}
		return calls
	}
	if !poll(func() bool { s.metric("ready"); return seen()["accept4"] }) {
		t.Skip("this user may not trace processes")
	}
	a, b := s.openWS(wsQuery("a", "server", 1, "-")), s.openWS(wsQuery("a", "client", 1, "-"))
	b.text("small")
	a.wantText("small")
	a.bin(make([]byte, 3<<20))
	b.want(opBin, make([]byte, 3<<20))
	httpDo(t, s.admin, "GET", "/metrics")
	s.cmd.Process.Signal(syscall.SIGHUP)
	s.cmd.Process.Signal(syscall.SIGTERM)
	a.wantClose(1012, "Service restart")
	b.wantClose(1012, "Service restart")
	s.wantExit(0)
	calls := seen()
	for call := range calls {
		if !allowed[call] {
			t.Errorf("the unit forbids %s", call)
		}
	}
	if !calls["exit_group"] && !poll(func() bool { return seen()["exit_group"] }) {
		t.Errorf("the trace has only %d calls", len(calls))
	}
}

// The sysctls are some that the kernel has.
func TestSysctls(t *testing.T) {
	text, err := os.ReadFile(deployDir + "/systemd/sluice.sysctl")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		key, value, ok := strings.Cut(line, " = ")
		if path := "/proc/sys/" + strings.ReplaceAll(key, ".", "/"); !ok || value == "" || fileExists("/proc/sys/net/core/somaxconn") && !fileExists(path) {
			t.Errorf("%q: no %s", line, path)
		}
	}
}
