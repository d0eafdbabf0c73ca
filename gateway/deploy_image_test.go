package gateway_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// deployDir holds what operators start from; the Dockerfile is at the top.
const (
	topDir    = ".."
	deployDir = "../scripts/deploy"
)

// An imageSpec is what a Dockerfile says about the container it makes: the
// instructions of its last stage, and the RUN lines of those before.
type imageSpec struct {
	from       string
	copies     [][]string // source and destination in the image
	env        []string
	user       string
	stopSignal string
	health     []string
	entrypoint []string
	cmd        []string
	exposed    []string
	runs       []string // of all stages, in order
}

// parseDockerfile reads the instructions that our Dockerfile uses; another one is
// an error, so that this test learns of it.
func parseDockerfile(text string) (imageSpec, error) {
	var im imageSpec
	text = strings.ReplaceAll(text, "\\\n", " ")
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		word, rest, _ := strings.Cut(line, " ")
		rest = strings.TrimSpace(rest)
		var err error
		switch word {
		case "FROM":
			im = imageSpec{from: rest, runs: im.runs} // a new stage forgets the last
		case "ARG", "WORKDIR":
		case "RUN":
			im.runs = append(im.runs, rest)
		case "COPY":
			im.copies = append(im.copies, strings.Fields(rest))
		case "ENV":
			im.env = append(im.env, strings.Fields(rest)...)
		case "EXPOSE":
			im.exposed = strings.Fields(rest)
		case "USER":
			im.user = rest
		case "STOPSIGNAL":
			im.stopSignal = rest
		case "HEALTHCHECK":
			_, rest, _ = strings.Cut(rest, "CMD ")
			err = json.Unmarshal([]byte(rest), &im.health)
		case "ENTRYPOINT":
			err = json.Unmarshal([]byte(rest), &im.entrypoint)
		case "CMD":
			err = json.Unmarshal([]byte(rest), &im.cmd)
		default:
			err = fmt.Errorf("an unknown instruction")
		}
		if err != nil {
			return im, fmt.Errorf("%q: %w", line, err)
		}
	}
	return im, nil
}

func readDockerfile(t testing.TB) imageSpec {
	t.Helper()
	text, err := os.ReadFile(topDir + "/Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	im, err := parseDockerfile(string(text))
	if err != nil {
		t.Fatal(err)
	}
	return im
}

// What compose, the manifest and the README start is what make image makes.
func TestImageName(t *testing.T) {
	t.Parallel()
	f := func(file, says string) {
		t.Helper()
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), says) {
			t.Errorf("%s does not say %q", file, says)
		}
	}
	f(topDir+"/Makefile", " -t sluice:latest .")
	f(deployDir+"/compose/compose.yaml", "image: sluice:latest\n")
	f(deployDir+"/kubernetes/sluice.yaml", "image: sluice:latest\n")
	f(topDir+"/README.md", " -p 8080:8080 sluice\n")
}

// TestImageSays pins what operators and engines rely on.
func TestImageSays(t *testing.T) {
	im := readDockerfile(t)
	f := func(what string, got any, want string) {
		t.Helper()
		if s := fmt.Sprint(got); s != want {
			t.Errorf("%s is %s, expected %s", what, s, want)
		}
	}
	f("the base", im.from, "scratch")
	f("the user", im.user, "65532:65532")
	f("the stop signal", im.stopSignal, "SIGTERM")
	f("the health check", im.health, "[/sluice health]")
	f("the entry point", im.entrypoint, "[/sluice]")
	f("the command", im.cmd, "[serve]")
	f("the ports", im.exposed, "[4000 8080]")
	for _, e := range im.env {
		if name, _, _ := strings.Cut(e, "="); name == "ADMIN_HOST" {
			t.Error("the admin listener leaves loopback")
		}
	}
	// An engine's ten seconds are enough for the drain of the image.
	cfg := checkSettings(t, "the image", im.env)
	if grace := int64(10); int64(cfg.Lifecycle.Drain.Seconds()+cfg.Lifecycle.LameDuck.Seconds()) >= grace {
		t.Errorf("draining takes %v + %v, and an engine kills after %d s", cfg.Lifecycle.LameDuck, cfg.Lifecycle.Drain, grace)
	}
}

// buildRoot makes the root file system that the Dockerfile describes, without an
// engine: its own build command, its COPY lines.
func buildRoot(t testing.TB, im imageSpec) string {
	t.Helper()
	root := t.TempDir()
	build := im.runs[len(im.runs)-1]
	if strings.Count(build, " -o /sluice ") != 1 {
		t.Fatalf("the last RUN line does not build /sluice: %s", build)
	}
	sh := exec.Command("sh", "-c", strings.Replace(build, "-o /sluice ", "-o '"+root+"/sluice' ", 1))
	sh.Dir = topDir
	sh.Env = append(os.Environ(), "VERSION=of-the-image-test")
	if out, err := sh.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", build, err, out)
	}
	for _, c := range im.copies {
		from, to := c[len(c)-2], c[len(c)-1]
		if to == "/sluice" {
			continue
		}
		text, err := os.ReadFile(from)
		if err != nil {
			t.Skipf("the image has it, and this machine does not: %v", err)
		}
		if err := os.MkdirAll(root+to[:strings.LastIndexByte(to, '/')], 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(root+to, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	// The directory of a test is its owner's alone, the image is everybody's.
	if err := os.Chmod(root, 0o755); err != nil {
		t.Fatal(err)
	}
	return root
}

// TestImageRuns runs the image as an engine would, as far as that goes without one.
func TestImageRuns(t *testing.T) {
	if raceEnabled {
		t.Skip("the image's binary has no race detector")
	}
	t.Parallel()
	im := readDockerfile(t)
	root := buildRoot(t, im)
	wantStatic(t, root+"/sluice")
	runImage(t, root, im)
}
