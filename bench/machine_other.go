//go:build !linux

package main

import "errors"

// errNotLinux: the yardsticks are written for epoll, and CPU time is read from
// /proc. The package still builds elsewhere, so that the tree does.
var errNotLinux = errors.New("the benchmarks need Linux")

func pickCores() (cores, error) { return cores{}, errNotLinux }

func pickCongestion() (string, error) { return "", errNotLinux }

func kernelRelease() string { return "" }
