package gateway_test

import (
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// The program itself: a control plane over https whose certificate the system's
// settings vouch for, a token, a kept version, and SIGHUP.
func TestServeWithControlPlane(t *testing.T) {
	var mu sync.Mutex
	text := "MAX_REQUEST_BODY_MIB: 1"
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if r.Header.Get("Authorization") != "Bearer the-token-of-the-test" {
			w.WriteHeader(401)
			return
		}
		w.Write([]byte(text))
	}))
	t.Cleanup(s.Close)
	dir := t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	cache := filepath.Join(dir, "kept")
	t.Setenv("CONTROL_PLANE_URL", s.URL)
	t.Setenv("CONTROL_PLANE_TOKEN_FILE", file("token", "the-token-of-the-test\n"))
	t.Setenv("CONTROL_PLANE_CACHE_FILE", cache)
	t.Setenv("CONFIG_POLL_SECONDS", "3600")
	t.Setenv("SSL_CERT_FILE", file("roots.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))))

	n := serve(t)
	n.adminUp()
	until := func(line string) {
		t.Helper()
		if !poll(func() bool { return strings.Contains(httpDo(t, n.admin, "GET", "/metrics").body, "\n"+line+"\n") }) {
			t.Fatalf("never %s", line)
		}
	}
	until("sluice_config_version 1")
	until("sluice_config_pending 0")
	if kept, _ := os.ReadFile(cache); string(kept) != text {
		t.Errorf("kept %q", kept)
	}
	mu.Lock()
	text = "MAX_REQUEST_BODY_MIB: 2"
	mu.Unlock()
	n.cmd.Process.Signal(syscall.SIGHUP)
	until("sluice_config_version 2")
	file("token", "another")
	n.cmd.Process.Signal(syscall.SIGHUP)
	until(`sluice_config_poll_failures_total{cause="unauthorized"} 1`)
	n.cmd.Process.Signal(syscall.SIGTERM)
	n.wantExit(0)
	log := n.out.String()
	if strings.Contains(log, "the-token") || !strings.Contains(log, "settings applied") || !strings.Contains(log, "look at CONTROL_PLANE_TOKEN_FILE") {
		t.Errorf("log:\n%s", log)
	}
}

// adminUp waits until the admin listener of a process is there, which opens last.
func (s *served) adminUp() {
	s.t.Helper()
	if !poll(func() bool {
		c, err := dialTCP(s.admin, wsDial{})
		if err == nil {
			c.Close()
		}
		return err == nil
	}) {
		s.t.Fatal("the admin listener never opens")
	}
}
