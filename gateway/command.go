package gateway

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/valyala/fasthttp"
	"golang.org/x/sys/unix"

	"sluice/gateway/config"
	"sluice/gateway/logging"
)

// Serve runs a gateway with the settings of environ until it is told to stop,
// and returns the exit code.
func Serve(environ []string) int { return serve(environ, contractTuning) }

func serve(environ []string, tune tuning) int {
	cfg, notices, ok := load(environ, os.Stderr)
	if !ok {
		return 1
	}
	out := logging.NewAsync(os.Stderr, cfg.Log.Format)
	defer out.Close()
	log := logging.New(out, cfg.Log.Level, cfg.Log.Format)
	for _, n := range notices {
		log.Log(context.Background(), n.Level, n.Text)
	}
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	g, err := start(cfg, log, tune)
	if err != nil {
		log.Error("sluice cannot start", "error", err)
		return 1
	}
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP) // which would end the process otherwise
	signal.Notify(g.certs.hup, syscall.SIGHUP)
	g.live = watchConfig(g, environ, hup)
	return g.Wait(signals)
}

// CheckConfig validates the settings of environ and returns the exit code.
func CheckConfig(environ []string) int {
	_, notices, ok := load(environ, os.Stderr)
	if !ok {
		return 1
	}
	for _, n := range notices {
		fmt.Println(n.Text)
	}
	fmt.Println("the settings are good")
	return 0
}

// load reads the settings and writes a line per fault to out.
func load(environ []string, out io.Writer) (*config.Config, config.Notices, bool) {
	cfg, faults, notices := config.Load(environ, os.ReadFile)
	var lines []string
	for _, f := range faults {
		lines = append(lines, f.String())
	}
	if cfg != nil {
		lines = unsupported(cfg)
	}
	if len(lines) > 0 {
		for _, n := range notices {
			fmt.Fprintln(out, n.Text)
		}
		for _, line := range lines {
			fmt.Fprintln(out, line)
		}
		return nil, nil, false
	}
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err == nil {
		notices = append(notices, cfg.CheckFileLimit(files.Cur)...)
	}
	return cfg, notices, true
}

// Health asks the admin listener, else the relay's, whether the process lives,
// and returns the exit code.
func Health(environ []string) int {
	cfg, _, ok := load(environ, os.Stderr)
	if !ok {
		return 1
	}
	at := cfg.Admin.Listen
	if !at.On() {
		at = cfg.Relay.Listen
	}
	switch {
	case at.Host == netip.IPv4Unspecified():
		at.Host = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	case at.Host == netip.IPv6Unspecified():
		at.Host = netip.IPv6Loopback()
	}
	if !at.On() {
		fmt.Fprintln(os.Stderr, "no listener to ask: ADMIN_PORT and PASEO_RELAY_PORT are 0")
		return 1
	}
	status, _, err := fasthttp.GetTimeout(nil, "http://"+at.Addr()+"/health", 3*time.Second)
	if err != nil || status != 200 {
		fmt.Fprintln(os.Stderr, "unhealthy:", status, err)
		return 1
	}
	return 0
}
