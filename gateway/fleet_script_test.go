package gateway_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// TestFleetScript runs the worked example of the README, with the configuration
// that it gives to operators, behind each front.
func TestFleetScript(t *testing.T) {
	if raceEnabled {
		t.Skip("the binary it starts has no race detector")
	}
	t.Parallel()
	bin := filepath.Join(t.TempDir(), "sluice")
	build := exec.Command("go", "build", "-o", bin, "sluice/gateway/sluice")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, front := range []string{"nginx", "haproxy"} {
		t.Run(front, func(t *testing.T) {
			t.Parallel()
			for _, program := range []string{front, "redis-server", "python3"} {
				if _, err := exec.LookPath(program); err != nil {
					if _, err := os.Stat("/usr/sbin/" + program); err != nil {
						t.Skipf("no %s: run scripts/deps test", program)
					}
				}
			}
			cmd := exec.Command("../scripts/fleet", "--check")
			cmd.Env = append(os.Environ(), "FLEET_FRONT="+front, "SLUICE_BIN="+bin)
			// It stops what it has started when it is told to.
			timer := time.AfterFunc(3*time.Minute, func() { cmd.Process.Signal(os.Interrupt) })
			defer timer.Stop()
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
		})
	}
}
