//go:build !linux

package main

import (
	"errors"
	"time"
)

// errNotLinux: the yardsticks are written for epoll, and CPU time is read from
// /proc. The package still builds elsewhere, so that the tree does.
var errNotLinux = errors.New("the benchmarks need Linux")

func pickCores() (cores, error) { return cores{}, errNotLinux }

func pickCongestion() (string, error) { return "", errNotLinux }

func kernelRelease() string { return "" }

func lowerThread() {}

func onCore(string, func() error) error { return errNotLinux }

func pinProcess(string) error { return errNotLinux }

func threadCPU() time.Duration { return 0 }

type httpLoad struct{}

func dialLoad(int, []talker) (*httpLoad, error) { return nil, errNotLinux }

func (*httpLoad) run(string, float64) (int, error) { return 0, errNotLinux }

func (*httpLoad) pace(string, float64, float64) ([]time.Duration, error) { return nil, errNotLinux }

func (*httpLoad) close() {}
