package gateway_test

import (
	"os"
	"strings"
	"testing"

	"sluice/gateway/config"
)

// checkSettings fails on a variable that is no setting, and on whatever
// check-config would say about the rest: nothing that ships is faulty or warned
// of.
func checkSettings(t testing.TB, where string, env []string) *config.Config {
	t.Helper()
	return checkSettingsWith(t, where, env, os.ReadFile)
}

// isSetting reports whether the table of settings has a row of that name.
func isSetting(name string) bool {
	return strings.Contains(config.Reference(), "\n| "+name+" | ")
}

func checkSettingsWith(t testing.TB, where string, env []string, read func(string) ([]byte, error)) *config.Config {
	t.Helper()
	for _, e := range env {
		if name, _, _ := strings.Cut(e, "="); !isSetting(name) {
			t.Errorf("%s: %s is no setting", where, name)
		}
	}
	// An image and a unit have no domains before somebody gives them some.
	cfg, faults, notices := config.Load(env, read)
	for _, f := range faults {
		t.Errorf("%s: %s", where, f)
	}
	for _, n := range notices {
		if !strings.HasPrefix(n.Text, "DOMAIN_MAP:") {
			t.Errorf("%s: %s", where, n.Text)
		}
	}
	if cfg == nil {
		t.FailNow()
	}
	return cfg
}
