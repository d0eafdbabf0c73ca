package gateway_test

import (
	"bytes"
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A container is what an engine makes of an image, made by hand: namespaces of
// its own for users, mounts and processes, the image's root file system read
// only, its user without capabilities, its environment and nothing else. The
// network stays the machine's, so that the test reaches it on loopback.
type container struct {
	Root string
	Argv []string
	Env  []string
	UID  int
	GID  int
}

// command returns the container's first process, not yet started.
func (c container) command(t testing.TB) *exec.Cmd {
	t.Helper()
	spec, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe", "-test.run=none")
	cmd.Env = []string{"SLUICE_TEST_CONTAINER=" + string(spec)}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: c.UID, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: c.GID, HostID: os.Getgid(), Size: 1}},
		// For the mounts; they end at the second exec, since the user is not root.
		AmbientCaps: []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_SYS_CHROOT},
		Pdeathsig:   unix.SIGKILL,
	}
	return cmd
}

// enterContainer makes this process the container's first and never returns.
func enterContainer(spec string) {
	var c container
	must := func(what string, err error) {
		if err != nil {
			fmt.Fprintln(os.Stderr, "container:", what+":", err)
			os.Exit(125)
		}
	}
	must("spec", json.Unmarshal([]byte(spec), &c))
	must("private mounts", unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
	must("the root", unix.Mount(c.Root, c.Root, "", unix.MS_BIND, ""))
	must("/proc", unix.Mount("proc", c.Root+"/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""))
	var fs unix.Statfs_t
	must("statfs", unix.Statfs(c.Root, &fs))
	// What the machine's mount forbids a user may not allow again.
	keep := uintptr(fs.Flags) & (unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC | unix.MS_NOATIME | unix.MS_NODIRATIME)
	must("read only", unix.Mount("", c.Root, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY|keep, ""))
	must("chroot", unix.Chroot(c.Root))
	must("chdir", unix.Chdir("/"))
	must("no new privileges", unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
	must("no ambient capabilities", unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0))
	must("exec", unix.Exec(c.Argv[0], c.Argv, c.Env))
}

// wantStatic expects a program that needs no other file.
func wantStatic(t *testing.T, name string) {
	t.Helper()
	f, err := elf.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if libs, err := f.ImportedLibraries(); err != nil || len(libs) != 0 {
		t.Errorf("%s needs %q, %v", name, libs, err)
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			t.Errorf("%s needs a loader", name)
		}
	}
}

// filesBelow lists what a directory holds, with its modes.
func filesBelow(t *testing.T, dir string) (names []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err == nil {
			names = append(names, name+" "+d.Type().String())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// runImage starts a container of the image, asks its health check, and stops it
// while sessions live.
func runImage(t *testing.T, root string, im imageSpec) {
	if err := os.Mkdir(root+"/proc", 0o755); err != nil { // engines mount it
		t.Fatal(err)
	}
	before := filesBelow(t, root)
	uid, gid, _ := strings.Cut(im.user, ":")
	c := container{Root: root, Argv: slices.Concat(im.entrypoint, im.cmd)}
	c.UID, _ = strconv.Atoi(uid)
	c.GID, _ = strconv.Atoi(gid)
	if c.UID == 0 || c.GID == 0 {
		t.Fatalf("the image runs as %q", im.user)
	}
	port, mte, admin := nextPort(), nextPort(), nextPort()
	c.Env = append(slices.Clone(im.env), "PASEO_RELAY_PORT="+port, "PORT="+mte, "ADMIN_PORT="+admin)

	s := &served{node: &node{t: t, addr: "127.0.0.1:" + port, admin: "127.0.0.1:" + admin, stopped: true}, exit: make(chan int, 1)}
	health := func() (code int, out []byte) {
		t.Helper()
		probe := c
		probe.Argv = im.health
		cmd := probe.command(t)
		out, err := cmd.CombinedOutput()
		if cmd.ProcessState == nil {
			t.Fatal(err)
		}
		return cmd.ProcessState.ExitCode(), out
	}
	probe := c.command(t)
	probe.Env = append(probe.Env, "SLUICE_TEST_CONTAINER=") // only whether this may be done at all
	if err := probe.Start(); errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EACCES) {
		t.Skipf("this user may not make namespaces: %v", err)
	} else if err != nil {
		t.Fatal(err)
	}
	probe.Process.Kill()
	probe.Wait()
	if code, out := health(); code != 1 {
		t.Fatalf("the health check of a container that does not run: %d %s", code, out)
	}

	s.cmd = c.command(t)
	s.cmd.Stderr, s.log = &s.out, &s.out
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		s.cmd.Wait()
		close(ended)
		s.exit <- s.cmd.ProcessState.ExitCode()
	}()
	t.Cleanup(func() {
		s.cmd.Process.Kill()
		<-ended
	})
	if !poll(func() bool { code, _ := health(); return code == 0 }) {
		t.Fatalf("never healthy: %s", s.out.String())
	}
	if a := httpDo(t, s.addr, "GET", "/ready"); a.status != 200 {
		t.Errorf("/ready: %d %s", a.status, a.body)
	}
	if a := httpDo(t, "127.0.0.1:"+mte, "GET", "/api/mte-relay", "Host:localhost"); a.status != 478 { // a client without frames
		t.Errorf("the encrypting relay answers %d %s", a.status, a.body)
	}
	// What the kernel says of the process.
	proc := "/proc/" + strconv.Itoa(s.cmd.Process.Pid)
	f := func(file, want string) {
		t.Helper()
		text, err := os.ReadFile(proc + file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range bytes.Lines(text) {
			if strings.Contains(strings.Join(strings.Fields(string(line)), " ")+" ", want) {
				return
			}
		}
		t.Errorf("%s%s does not say %q:\n%s", proc, file, want, text)
	}
	f("/uid_map", uid+" "+strconv.Itoa(os.Getuid())+" 1 ")
	f("/gid_map", gid+" "+strconv.Itoa(os.Getgid())+" 1 ")
	f("/status", "CapEff: 0000000000000000 ")
	f("/status", "CapPrm: 0000000000000000 ")
	f("/status", "NoNewPrivs: 1 ")
	f("/mountinfo", " / ro,")

	// Live sessions: at rest, under way, and one whose peer reads nothing.
	var all []*wsClient
	for i := range 10 {
		sid := fmt.Sprint("s", i)
		all = append(all, s.openWS(wsQuery(sid, "server", 1, "-")), s.openWS(wsQuery(sid, "client", 1, "-")))
	}
	all[1].text("hello")
	all[0].wantText("hello")
	stalled := s.openWS(wsQuery("stalled", "server", 1, "-"), smallBuffers)
	feeds := s.openWS(wsQuery("stalled", "client", 1, "-"), smallBuffers)
	st := stuff(feeds)
	st.stopped()
	_ = stalled

	began := time.Now()
	s.cmd.Process.Signal(syscall.SIGTERM)
	for _, w := range all {
		w.wantClose(1012, "Service restart")
	}
	feeds.wantCloseFrame(1012, "Service restart")
	feeds.rst()
	<-st.done
	s.wantExit(0)
	if took := time.Since(began); took > patience {
		t.Errorf("stopping took %v", took)
	}
	if code, _ := health(); code != 1 {
		t.Errorf("the health check after the end: %d", code)
	}
	if after := filesBelow(t, root); !slices.Equal(before, after) {
		t.Errorf("the root file system changed\n%q\n%q", before, after)
	}
	for line := range strings.Lines(s.out.String()) {
		if strings.Contains(line, "level=ERROR") {
			t.Error(line)
		}
	}
}
