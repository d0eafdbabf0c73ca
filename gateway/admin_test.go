package gateway

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"syscall"
	"testing"
)

// scriptedListener fails as told and then ends.
type scriptedListener struct {
	net.Listener
	errs []error
}

func (l *scriptedListener) Accept() (net.Conn, error) {
	err := l.errs[0]
	l.errs = l.errs[1:]
	if err == nil {
		a, b := net.Pipe()
		b.Close()
		return a, nil
	}
	return nil, err
}

// The admin listener outlives a time without descriptors.
func TestAdminAcceptsAgain(t *testing.T) {
	g := &Gateway{log: slog.New(slog.NewTextHandler(io.Discard, nil))}
	ln := &scriptedListener{errs: []error{syscall.EMFILE, syscall.EMFILE, nil, net.ErrClosed}}
	p := patientListener{ln, g}
	c, err := p.Accept()
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	if _, err := p.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a closed listener gives %v", err)
	}
}
