package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// A lab is the prepared machine: everything is built, cores are chosen.
type lab struct {
	plan       plan
	root       string // of the repository
	bin        string // where the tools are built
	cores      cores
	congestion string
	targets    []target
}

// toolFlags are for the C tools: the floor is to be as low as it goes.
var toolFlags = []string{"-O3", "-march=native"}

func newLab(p plan) (*lab, error) {
	root, err := findRoot()
	if err != nil {
		return nil, err
	}
	l := &lab{plan: p, root: root, bin: filepath.Join(root, "bench", ".bin")}
	if l.cores, err = pickCores(); err != nil {
		return nil, err
	}
	if l.congestion, err = pickCongestion(); err != nil {
		return nil, err
	}
	// Both ends of the held sockets, and some for everything else.
	if err := raiseFileLimit(uint64(p.sockets) + 2000); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(l.bin, 0o755); err != nil {
		return nil, err
	}
	if err := l.buildTools(); err != nil {
		return nil, err
	}
	for _, name := range p.targets {
		t := targetByName(name)
		if err := t.build(l); err != nil {
			return nil, fmt.Errorf("building %s: %w", name, err)
		}
		l.targets = append(l.targets, t)
	}
	// What runs in this process are generators, and waiting.
	return l, pinProcess(l.cores.generator)
}

func (l *lab) progress(format string, args ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", args...)
}

// tool is the path of a built program.
func (l *lab) tool(name string) string { return filepath.Join(l.bin, name) }

// buildTools compiles what is new among bench/c/*.c.
func (l *lab) buildTools() error {
	sources, err := filepath.Glob(filepath.Join(l.root, "bench", "c", "*.c"))
	if err != nil || len(sources) == 0 {
		return errors.Join(errors.New("no C sources in bench/c"), err)
	}
	for _, source := range sources {
		name := strings.TrimSuffix(filepath.Base(source), ".c")
		if newer(l.tool(name), source) {
			continue
		}
		args := slices.Concat(toolFlags, []string{"-o", l.tool(name), source})
		if err := command(l.root, "gcc", args...); err != nil {
			return err
		}
	}
	return nil
}

// newer says that file was made after source was last changed.
func newer(file, source string) bool {
	f, err1 := os.Stat(file)
	s, err2 := os.Stat(source)
	return err1 == nil && err2 == nil && f.ModTime().After(s.ModTime())
}

// command runs a build step and returns what it said if it failed.
func command(dir, name string, args ...string) error {
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, out)
	}
	return nil
}

// findRoot walks up to the module's go.mod.
func findRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		b, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && strings.HasPrefix(string(b), "module sluice\n") {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("run it inside the repository: no go.mod of module sluice found")
		}
		dir = parent
	}
}
