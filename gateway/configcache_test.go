package gateway

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"sluice/gateway/config"
)

func TestConfigCache(t *testing.T) {
	dir := t.TempDir()
	file := configCache(filepath.Join(dir, "kept"))
	if text, err := file.load(); text != nil || err != nil {
		t.Errorf("before anything was kept: %q, %v", text, err)
	}
	for _, text := range []string{"{}", strings.Repeat("x", config.MaxDocument), "a: 1"} {
		if err := file.save([]byte(text)); err != nil {
			t.Fatal(err)
		}
		if got, err := file.load(); string(got) != text || err != nil {
			t.Errorf("%d bytes kept, %d found, %v", len(text), len(got), err)
		}
	}
	if info, _ := os.Stat(string(file)); info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v", info.Mode())
	}
	if err := file.check(); err != nil {
		t.Error(err)
	}
	// One that others may read is replaced by one that they may not.
	os.Chmod(string(file), 0o644)
	file.save([]byte("{}"))
	if info, _ := os.Stat(string(file)); info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v after a replacement", info.Mode())
	}
	if list, _ := os.ReadDir(dir); len(list) != 1 {
		t.Errorf("left over: %v", list)
	}
}

func TestConfigCacheFailure(t *testing.T) {
	dir := t.TempDir()
	nowhere := configCache(filepath.Join(dir, "none", "kept"))
	if nowhere.save([]byte("{}")) == nil || nowhere.check() == nil {
		t.Error("kept in a directory that is not there")
	}
	isDir := configCache(dir)
	if isDir.save([]byte("{}")) == nil {
		t.Error("a directory was replaced")
	}
	if list, _ := os.ReadDir(filepath.Dir(dir)); len(list) > 1 {
		for _, e := range list {
			if strings.HasPrefix(e.Name(), ".") {
				t.Errorf("left over: %v", e)
			}
		}
	}
	long := configCache(filepath.Join(dir, "long"))
	os.WriteFile(string(long), bytes.Repeat([]byte("x"), config.MaxDocument+1), 0o600)
	if text, err := long.load(); text != nil || err == nil {
		t.Errorf("%d bytes, %v", len(text), err)
	}
	pipe := configCache(filepath.Join(dir, "pipe"))
	if err := unix.Mkfifo(string(pipe), 0o600); err != nil {
		t.Fatal(err)
	}
	if text, err := pipe.load(); text != nil || err == nil {
		t.Errorf("from a pipe: %d bytes, %v", len(text), err)
	}
}
