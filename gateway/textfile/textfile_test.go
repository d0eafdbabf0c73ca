package textfile_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"sluice/gateway/textfile"
)

func TestRead(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	for name, text := range map[string]string{"empty": "", "most": strings.Repeat("x", 10), "more": strings.Repeat("x", 11)} {
		if err := os.WriteFile(at(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mkfifo(at("pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(at("most"), at("link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(at("loop"), at("loop")); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, text string
		err        error
	}{
		{at("empty"), "", nil},
		{at("most"), "xxxxxxxxxx", nil},
		{at("link"), "xxxxxxxxxx", nil},
		{at("none"), "", fs.ErrNotExist},
		{at("loop"), "", unix.ELOOP},
		{at("pipe"), "", textfile.ErrIrregular},
		{dir, "", textfile.ErrIrregular},
		{os.DevNull, "", textfile.ErrIrregular},
		{"/dev/zero", "", textfile.ErrIrregular},
	} {
		text, err := textfile.Read(c.name, 10)
		if string(text) != c.text || !errors.Is(err, c.err) {
			t.Errorf("%s: %q %v", c.name, text, err)
		}
		if err != nil && !strings.Contains(err.Error(), c.name) {
			t.Errorf("%v does not name the file", err)
		}
	}
	if text, err := textfile.Read(at("more"), 10); !errors.Is(err, textfile.ErrTooLong) || text != nil || !strings.Contains(err.Error(), "more than 10 bytes") {
		t.Errorf("%q %v", text, err)
	}
}
