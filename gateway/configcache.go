package gateway

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"sluice/gateway/config"
	"sluice/gateway/textfile"
)

// A configCache is CONTROL_PLANE_CACHE_FILE: the last good answer of the control
// plane as it came, so that a start without the control plane has settings. It
// holds the secrets of DOMAIN_MAP and is for its owner's eyes only (0600).
type configCache string

// check reports whether a version can be kept there.
func (file configCache) check() error {
	if file == "" {
		return nil
	}
	dir := filepath.Dir(string(file))
	if err := unix.Access(dir, unix.W_OK|unix.X_OK); err != nil {
		return &fs.PathError{Op: "writing to", Path: dir, Err: err}
	}
	return nil
}

// load returns what is kept; nil without an error if nothing was kept so far.
func (file configCache) load() ([]byte, error) {
	text, err := textfile.Read(string(file), config.MaxDocument)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return text, err
}

// save keeps an answer in place of the one before: whoever looks, whenever the
// power fails, finds the one or the other, whole.
func (file configCache) save(text []byte) (err error) {
	dir := filepath.Dir(string(file))
	f, err := os.CreateTemp(dir, "."+filepath.Base(string(file))+"-*") // mode 0600
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			os.Remove(f.Name())
		}
	}()
	_, err = f.Write(text)
	if err == nil {
		err = f.Sync()
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Rename(f.Name(), string(file))
	}
	if err != nil {
		return err
	}
	if d, err := os.Open(dir); err == nil {
		d.Sync() // the rename itself; not every file system can
		d.Close()
	}
	return nil
}
