package gateway

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/valyala/fasthttp"

	"sluice/gateway/config"
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
	p := patientListener{ln, &admin{g: g}}
	c, err := p.Accept()
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	if _, err := p.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a closed listener gives %v", err)
	}
	if n := p.a.acceptErrors.Load(); n != 2 {
		t.Errorf("%d failures are counted", n)
	}
}

// A connection on which nothing was ever asked, as browsers keep them, does not
// hold up the end.
func TestAdminStopsAtOnce(t *testing.T) {
	var g *Gateway
	for try := 0; ; try++ {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		_, port, _ := net.SplitHostPort(ln.Addr().String())
		ln.Close()
		cfg, faults, _ := config.Load([]string{"PASEO_RELAY_PORT=0", "PORT=" + port, "ADMIN_PORT=1", "LOOPS=1", "DEFAULT_POOL_SIZE=1"}, nil)
		if len(faults) > 0 {
			t.Fatal(faults)
		}
		cfg.Admin.Listen.Port = cfg.MTE.Listen.Port + 1
		if g, err = Start(cfg, slog.New(slog.DiscardHandler)); err == nil {
			break
		}
		if try == 20 {
			t.Fatal(err)
		}
	}
	c, err := net.Dial("tcp", g.cfg.Admin.Listen.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	// It is the server's when an answer to a later one has come.
	if status, _, err := fasthttp.Get(nil, "http://"+g.cfg.Admin.Listen.Addr()+"/health"); status != 200 {
		t.Fatal(status, err)
	}
	if page := string(g.allMetrics()); !strings.Contains(page, "sluice_http_connections{listener=\"admin\"} 2\n") {
		t.Error("the two connections are not counted")
	}
	began := time.Now()
	g.Stop()
	if took := time.Since(began); took > 10*adminGrace {
		t.Errorf("stopping took %v", took)
	}
}
