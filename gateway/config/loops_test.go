package config

import (
	"runtime"
	"testing"
)

// LOOPS that nobody set stays what it was when the runtime follows its cgroup, or
// every later version would need a restart. Not parallel: it moves GOMAXPROCS.
func TestLoopsKeepTheirDefault(t *testing.T) {
	first, faults, _ := Load(nil, nil)
	if faults != nil {
		t.Fatal(faults)
	}
	was := runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + 1)
	defer runtime.GOMAXPROCS(was)
	next, faults, _ := Load(nil, nil)
	if faults != nil {
		t.Fatal(faults)
	}
	if _, restart := first.Diff(next); len(restart) > 0 {
		t.Errorf("needs a restart: %v", restart)
	}
}
