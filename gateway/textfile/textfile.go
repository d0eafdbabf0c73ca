// Package textfile reads the small files that an operator names and replaces while
// the process runs: settings, certificates, tokens.
package textfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// ErrIrregular is of what is no regular file: a pipe or a device, of which reading
// may wait without end, or a directory.
var ErrIrregular = errors.New("not a regular file")

// ErrTooLong is of a file that holds more than it may.
var ErrTooLong = errors.New("too long")

// Read returns what is in a regular file, of at most that many bytes. It never waits
// for a writer, as opening a pipe does. Errors name the file.
func Read(name string, most int) ([]byte, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, &fs.PathError{Op: "read", Path: name, Err: ErrIrregular}
	}
	text, err := io.ReadAll(io.LimitReader(f, int64(most)+1))
	if err == nil && len(text) > most {
		err = fmt.Errorf("%s: %w: more than %d bytes", name, ErrTooLong, most)
	}
	if err != nil {
		return nil, err
	}
	return text, nil
}
