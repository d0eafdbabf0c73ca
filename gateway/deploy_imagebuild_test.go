package gateway_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A builder is buildah with a store of its own, so that it meets no image of
// this machine and leaves none.
type builder struct {
	t     *testing.T
	flags []string
}

func newBuilder(t *testing.T) builder {
	t.Helper()
	if _, err := exec.LookPath("buildah"); err != nil {
		t.Skip("buildah is not installed (scripts/deps accept)")
	}
	if os.Getuid() != 0 {
		t.Skip("building in a chroot needs root")
	}
	dir := t.TempDir()
	return builder{t, []string{"--root", dir + "/root", "--runroot", dir + "/runroot", "--storage-driver", "vfs"}}
}

func (b builder) run(args ...string) string {
	b.t.Helper()
	var stderr strings.Builder
	cmd := exec.Command("buildah", slices.Concat(b.flags, args)...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		b.t.Fatalf("buildah %q: %v\n%s%s", args, err, out, stderr.String())
	}
	return strings.TrimSpace(string(out))
}

// goEnv is one variable of the go command.
func goEnv(t *testing.T, name string) string {
	t.Helper()
	out, err := exec.Command("go", "env", name).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// standIn makes an image under the name of the Dockerfile's first stage out of
// this machine's shell, certificates and Go, so that no registry is asked. What
// it cannot show is that the published image of that name has them too.
func (b builder) standIn(name string) (volumes []string) {
	b.t.Helper()
	dir := b.t.TempDir()
	copyFile := func(from, to string) {
		text, err := os.ReadFile(from)
		if err != nil {
			b.t.Skipf("the build stage needs it: %v", err)
		}
		to = filepath.Join(dir, "base", to)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			b.t.Fatal(err)
		}
		if err := os.WriteFile(to, text, 0o755); err != nil {
			b.t.Fatal(err)
		}
	}
	shell, err := filepath.EvalSymlinks("/bin/sh")
	if err != nil {
		b.t.Fatal(err)
	}
	copyFile(shell, "/bin/sh")
	libs, _ := exec.Command("ldd", shell).Output() // fails for a static one, which needs none
	for word := range strings.FieldsSeq(string(libs)) {
		if strings.HasPrefix(word, "/") {
			copyFile(word, word)
		}
	}
	const certificates = "/etc/ssl/certs/ca-certificates.crt"
	copyFile(certificates, certificates)
	if err := os.MkdirAll(dir+"/base/tmp", 0o777); err != nil {
		b.t.Fatal(err)
	}
	text := "FROM scratch\nCOPY base /\nENV PATH=/usr/local/go/bin:/bin GOTOOLCHAIN=local GOFLAGS=-mod=mod GOPROXY=off GOMODCACHE=/modules GOCACHE=/cache\n"
	if err := os.WriteFile(dir+"/Dockerfile", []byte(text), 0o644); err != nil {
		b.t.Fatal(err)
	}
	b.run("build", "--isolation", "chroot", "-t", name, dir)
	return []string{
		"-v", goEnv(b.t, "GOROOT") + ":/usr/local/go:ro",
		"-v", goEnv(b.t, "GOMODCACHE") + ":/modules:ro",
		"-v", goEnv(b.t, "GOCACHE") + ":/cache",
	}
}

// TestAcceptImageBuild builds the Dockerfile as it stands, looks at what an
// engine would read in the image, and runs it.
func TestAcceptImageBuild(t *testing.T) {
	onlyFull(t)
	text, err := os.ReadFile(topDir + "/Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "\nFROM ")
	base, _, _ := strings.Cut(rest, " AS ")
	b := newBuilder(t)
	volumes := b.standIn("docker.io/library/" + base)
	args := append([]string{"build", "--isolation", "chroot", "--pull-never", "--format", "docker", "--build-arg", "VERSION=of-the-image-test", "-t", "sluice:test"}, volumes...)
	b.run(append(args, topDir)...)

	var described struct {
		Docker struct {
			Config struct {
				User, StopSignal     string
				Env, Entrypoint, Cmd []string
				Healthcheck          struct{ Test []string }
				ExposedPorts         map[string]any
			} `json:"config"`
		}
	}
	if err := json.Unmarshal([]byte(b.run("inspect", "--type", "image", "sluice:test")), &described); err != nil {
		t.Fatal(err)
	}
	c, im := described.Docker.Config, readDockerfile(t)
	f := func(what string, got, want []string) {
		t.Helper()
		if !slices.Equal(got, want) {
			t.Errorf("%s of the image is %q, expected %q", what, got, want)
		}
	}
	f("the user", []string{c.User}, []string{im.user})
	f("the stop signal", []string{c.StopSignal}, []string{im.stopSignal})
	f("the entry point", c.Entrypoint, im.entrypoint)
	f("the command", c.Cmd, im.cmd)
	f("the health check", c.Healthcheck.Test, append([]string{"CMD"}, im.health...))
	for _, e := range im.env {
		if !slices.Contains(c.Env, e) {
			t.Errorf("the environment %q lacks %s", c.Env, e)
		}
	}

	from := b.run("from", "--pull-never", "sluice:test")
	root := b.run("mount", from)
	t.Cleanup(func() { b.run("umount", from) })
	f("the content", filesBelow(t, root), []string{
		root + " d---------", root + "/etc d---------", root + "/etc/ssl d---------", root + "/etc/ssl/certs d---------",
		root + "/etc/ssl/certs/ca-certificates.crt ----------", root + "/sluice ----------",
	})
	wantStatic(t, root+"/sluice")
	if out, err := exec.Command(root+"/sluice", "version").Output(); err != nil || string(out) != "of-the-image-test\n" {
		t.Errorf("its version is %q, %v", out, err)
	}
	runImage(t, root, im)
}
