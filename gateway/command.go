package gateway

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"slices"
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

// Health asks the admin listener, or the relay's if that does not answer, whether
// the process lives, and returns the exit code.
func Health(environ []string) int {
	cfg, _, ok := load(environ, os.Stderr)
	if !ok {
		return 1
	}
	status, err := askHealth("http://", cfg.Admin.Listen, nil)
	if err != nil && cfg.Relay.Listen.On() {
		scheme := "http://"
		if cfg.Relay.TLS.On() {
			scheme = "https://"
		}
		var front []byte
		if cfg.Edge.ProxyProtocol && trusts(cfg.Edge.TrustedProxies, onThisMachine(cfg.Relay.Listen).Host) {
			front = []byte("PROXY UNKNOWN\r\n")
		}
		status, err = askHealth(scheme, cfg.Relay.Listen, front)
	}
	if err != nil || status != 200 {
		fmt.Fprintln(os.Stderr, "unhealthy:", status, err)
		return 1
	}
	return 0
}

// healthTime bounds one question.
const healthTime = 3 * time.Second

// askHealth asks a listener of this machine, with front in front of the request.
// The certificate, which is for other names than an address, is not looked at.
func askHealth(scheme string, at config.Listen, front []byte) (status int, err error) {
	c := fasthttp.Client{TLSConfig: &tls.Config{InsecureSkipVerify: true}, Dial: func(addr string) (net.Conn, error) {
		conn, err := fasthttp.DialTimeout(addr, healthTime)
		if err == nil {
			_, err = conn.Write(front)
		}
		return conn, err
	}}
	status, _, err = c.GetTimeout(nil, scheme+onThisMachine(at).Addr()+"/health", healthTime)
	return status, err
}

// onThisMachine is where to reach a listener from here.
func onThisMachine(at config.Listen) config.Listen {
	switch at.Host {
	case netip.IPv4Unspecified():
		at.Host = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	case netip.IPv6Unspecified():
		at.Host = netip.IPv6Loopback()
	}
	return at
}

func trusts(list []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(list, func(p netip.Prefix) bool { return p.Contains(a.Unmap()) })
}
