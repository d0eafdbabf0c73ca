package main

import (
	"fmt"
	"path/filepath"
	"strconv"
)

// Names of the targets that scenarios ask for by name.
const (
	floorName  = "floor"
	sluiceName = "sluice"
)

// A target is a server that can be measured.
type target struct {
	name  string
	build func(*lab) error
	// command is how to start it on a port of 127.0.0.1, with as many event
	// loops (for the Go ones: threads that run Go code).
	command func(l *lab, port, loops int) (argv, env []string)
}

// targets in the order of the table's columns. The floor and ours come first:
// they are neighbours in every round.
var targets = []target{
	{floorName, buildNothing, floorCommand},
	{sluiceName, buildSluice, sluiceCommand},
	peer("gws"),
	peer("nbio"),
	peer("gorilla"),
	peer("fasthttp"),
}

func targetNames() []string {
	var names []string
	for _, t := range targets {
		names = append(names, t.name)
	}
	return names
}

func targetByName(name string) target {
	for _, t := range targets {
		if t.name == name {
			return t
		}
	}
	panic("BUG: no target " + name)
}

// isPeer says that a target is there for company only.
func (t target) isPeer() bool { return t.name != floorName && t.name != sluiceName }

// buildNothing is for the tools in C, which are always built.
func buildNothing(*lab) error { return nil }

func floorCommand(l *lab, port, _ int) (argv, env []string) {
	return []string{l.tool("floor"), strconv.Itoa(port), "ws", "0", l.congestion}, nil
}

func buildSluice(l *lab) error {
	if l.plan.sluice != "" {
		return nil
	}
	return command(l.root, "go", "build", "-trimpath", "-o", l.tool("sluice"), "./gateway/sluice")
}

// sluicePath is the binary under test.
func (l *lab) sluicePath() string {
	if l.plan.sluice != "" {
		path, err := filepath.Abs(l.plan.sluice)
		if err == nil {
			return path
		}
	}
	return l.tool("sluice")
}

// sluiceEnv are the settings of every run of ours: all defaults, except that
// kernel buffers are left to the kernel and the congestion control is the one
// that the yardsticks use.
func (l *lab) sluiceEnv(loops int) []string {
	return []string{
		fmt.Sprintf("GOMAXPROCS=%d", loops),
		fmt.Sprintf("LOOPS=%d", loops),
		"PASEO_RELAY_TCP_RECEIVE_BUFFER_BYTES=0",
		"TCP_CONGESTION=" + l.congestion,
		"DRAIN_SECONDS=0",
		"LOG_LEVEL=error",
	}
}

func sluiceCommand(l *lab, port, loops int) (argv, env []string) {
	env = append(l.sluiceEnv(loops),
		fmt.Sprintf("PASEO_RELAY_PORT=%d", port),
		"PORT=0",
	)
	return []string{l.sluicePath(), "serve"}, env
}

func peer(lib string) target {
	return target{
		name:  lib,
		build: buildPeers,
		command: func(l *lab, port, loops int) (argv, env []string) {
			argv = []string{l.tool("peers"), "-lib", lib, "-port", strconv.Itoa(port), "-congestion", l.congestion}
			return argv, []string{fmt.Sprintf("GOMAXPROCS=%d", loops)}
		},
	}
}

func buildPeers(l *lab) error {
	return command(filepath.Join(l.root, "bench", "peers"), "go", "build", "-trimpath", "-o", l.tool("peers"), ".")
}
