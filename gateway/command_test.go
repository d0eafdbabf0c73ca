package gateway_test

import (
	"bytes"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sluice/gateway"
	"sluice/gateway/config"
)

// A process that runs is healthy whatever has become of its files since.
func TestHealthWithBadFiles(t *testing.T) {
	a, dir := testAuthority(), t.TempDir()
	cert, key := a.write(t, dir, "it", time.Now().Add(time.Hour), "localhost")
	file := savedFile(t, dir, "sluice.yaml", "MAX_REQUEST_BODY_MIB: 1\n")
	env := []string{"PASEO_RELAY_PORT=0", "PORT=" + nextPort(), "CONFIG_FILE=" + file, "TLS_CERT_FILE=" + cert, "TLS_KEY_FILE=" + key, "DRAIN_SECONDS=0"}
	port := nextPort()
	cfg, faults, _ := config.Load(append(env, "ADMIN_PORT="+port), os.ReadFile)
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	g, err := gateway.Start(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Stop)
	f := func(name string, code int, port string) {
		t.Helper()
		if got := gateway.Health(append(env, "ADMIN_PORT="+port)); got != code {
			t.Errorf("%s: %d, want %d", name, got, code)
		}
	}
	f("all is well", 0, port)
	replaceFile(t, file, "MAX_REQUEST_BODY_MIB: many\nUNKNOWN: 1\nLOOPS: 77\n")
	f("a bad value", 0, port)
	replaceFile(t, file, "{")
	f("a broken file", 0, port)
	f("a broken file, and nobody there", 1, nextPort())
	a.write(t, dir, "other", time.Now().Add(time.Hour), "localhost")
	if err := os.Rename(filepath.Join(dir, "other.key"), key); err != nil {
		t.Fatal(err)
	}
	f("half of a renewal", 0, port)
	os.Remove(file)
	f("no file", 0, port)
	if err := unix.Mkfifo(file, 0o600); err != nil {
		t.Fatal(err)
	}
	f("a pipe that nobody writes", 0, port)
}

// check-config judges what the control plane says, too.
func TestCheckConfigControlPlane(t *testing.T) {
	p := startPlane(t, "MAX_REQUEST_BODY_MIB: 1")
	f := func(name string, code int, want string, settings ...string) {
		t.Helper()
		var out, errOut bytes.Buffer
		got := gateway.CheckConfig(append(settings, "CONTROL_PLANE_URL="+p.url), &out, &errOut)
		where := out.String()
		if code != 0 {
			where = errOut.String()
		}
		if got != code || !strings.Contains(where, want) {
			t.Errorf("%s: %d\n%s\n%s\nwant %d with %q", name, got, &out, &errOut, code, want)
		}
	}
	f("good", 0, "the settings are good")
	f("a token that cannot be read", 0, "CONTROL_PLANE_TOKEN_FILE: open /none", "CONTROL_PLANE_TOKEN_FILE=/none")
	f("a cache that cannot be", 0, "CONTROL_PLANE_CACHE_FILE: nothing can be kept there", "CONTROL_PLANE_CACHE_FILE=/none/kept")
	f("a fault of the environment", 1, "LOOPS: ", "LOOPS=none")
	p.serve("MAX_REQUEST_BODY_MIB: x")
	f("a bad value", 1, `CONTROL_PLANE_URL (settings): MAX_REQUEST_BODY_MIB: "x" in CONTROL_PLANE_URL:1; legal: `)
	p.serve("LOOPS: 77")
	f("what the environment has", 0, "the settings are good", "LOOPS=1")
	f("what needs a restart", 1, "CONTROL_PLANE_URL (restart): needs a restart: LOOPS")
}

// Tuning of Redis that is not taken as given is told.
func TestCheckConfigRedisTuning(t *testing.T) {
	f := func(want string, settings ...string) {
		t.Helper()
		var out bytes.Buffer
		env := append(settings, "REDIS_URL=redis://127.0.0.1:1", "PASEO_RELAY_OWNERSHIP=local", "PORT=0")
		if code := gateway.CheckConfig(env, &out, &out); code != 0 || strings.Contains(out.String(), "REDIS_") != (want != "") || !strings.Contains(out.String(), want) {
			t.Errorf("%q: %d\n%s\nwant %q", settings, code, &out, want)
		}
	}
	f("")
	f("", "REDIS_POOL_SIZE=64")
	f("REDIS_POOL_SIZE: 65; 64 connections are made", "REDIS_POOL_SIZE=65")
	f("REDIS_POOL_SIZE: 2147483647; 64 connections are made", "REDIS_POOL_SIZE=2147483647")
	f("REDIS_POOL_SIZE: 3; 2 connections are made", "REDIS_POOL_SIZE=3")
	f("", "REDIS_READ_TIMEOUT_SECONDS=5") // nobody said anything of writes
	f("", "REDIS_READ_TIMEOUT_SECONDS=5", "REDIS_WRITE_TIMEOUT_SECONDS=5")
	f("REDIS_WRITE_TIMEOUT_SECONDS: without effect below REDIS_READ_TIMEOUT_SECONDS (5)", "REDIS_READ_TIMEOUT_SECONDS=5", "REDIS_WRITE_TIMEOUT_SECONDS=4")
}

// Without an answer check-config says what a start would do.
func TestCheckConfigWithoutControlPlane(t *testing.T) {
	p := startPlane(t, "")
	p.play(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) })
	f := func(name, kept string, code int, want string) {
		t.Helper()
		settings := []string{"CONTROL_PLANE_URL=" + p.url}
		if kept != "" {
			settings = append(settings, "CONTROL_PLANE_CACHE_FILE="+tempFile(t, "kept", kept))
		}
		var out bytes.Buffer
		if got := gateway.CheckConfig(settings, &out, &out); got != code || !strings.Contains(out.String(), want) {
			t.Errorf("%s: %d\n%s", name, got, &out)
		}
		if !strings.Contains(out.String(), "no settings from "+p.url+" now (status): status 500") {
			t.Errorf("%s: not told why\n%s", name, &out)
		}
	}
	f("nothing kept", "", 0, "nothing is kept")
	f("a good version", "MAX_REQUEST_BODY_MIB: 1", 0, "a start would use the version that is kept")
	f("a bad version", "MAX_REQUEST_BODY_MIB: x", 1, "CONTROL_PLANE_CACHE_FILE (settings): ")
}
