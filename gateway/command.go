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
	"syscall"
	"time"

	"github.com/valyala/fasthttp"
	"golang.org/x/sys/unix"

	"sluice/gateway/config"
	"sluice/gateway/edge"
	"sluice/gateway/logging"
	"sluice/gateway/textfile"
)

// Serve runs a gateway with the settings of environ until it is told to stop,
// and returns the exit code.
func Serve(environ []string) int { return serve(environ, contractTuning) }

func serve(environ []string, tune tuning) int {
	w, notices, ok := load(environ, os.Stderr)
	if !ok {
		return 1
	}
	cfg := w.applied
	out := logging.NewAsync(os.Stderr, cfg.Log.Format)
	defer out.Close()
	log := logging.New(out, cfg.Log.Level, cfg.Log.Format)
	for _, n := range notices {
		log.Log(context.Background(), n.Level, n.Text)
	}
	w.log = log
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP) // which would end the process otherwise
	pending := w.boot()
	w.notifier = dialNotifier(environ, os.Getpid(), log)
	defer w.notifier.stop()
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	g, err := w.start(tune, pending, hup)
	if err != nil {
		log.Error("sluice cannot start", "error", err)
		return 1
	}
	signal.Notify(g.certs.hup, syscall.SIGHUP)
	w.notifier.ready(g)
	w.notifier.watch(g)
	return g.Wait(signals)
}

// CheckConfig validates the settings of environ, those of the control plane
// included, and returns the exit code. Faults go to errOut, the rest to out.
func CheckConfig(environ []string, out, errOut io.Writer) int {
	w, notices, ok := load(environ, errOut)
	if !ok {
		return 1
	}
	for _, n := range notices {
		fmt.Fprintln(out, n.Text)
	}
	told, faults := w.checkPlane()
	for _, line := range told {
		fmt.Fprintln(out, line)
	}
	for _, line := range faults {
		fmt.Fprintln(errOut, line)
	}
	if len(faults) > 0 {
		return 1
	}
	fmt.Fprintln(out, "the settings are good")
	return 0
}

// load reads the settings of the environment and of CONFIG_FILE, and writes a
// line per fault to out.
func load(environ []string, out io.Writer) (*liveConfig, config.Notices, bool) {
	w, faults, notices := openConfig(environ)
	if len(faults) > 0 {
		for _, n := range notices {
			fmt.Fprintln(out, n.Text)
		}
		for _, f := range faults {
			fmt.Fprintln(out, f.String())
		}
		return nil, nil, false
	}
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err == nil {
		notices = append(notices, w.applied.CheckFileLimit(files.Cur)...)
	}
	return w, append(notices, redisNotices(&w.applied.Redis)...), true
}

// Health asks the admin listener, or the relay's if that does not answer, whether
// the process lives, and returns the exit code. What is wrong with the settings does
// not concern a process that runs with those it had, and is told if nobody answers.
func Health(environ []string) int {
	cfg, faults := config.Addresses(environ, func(name string) ([]byte, error) {
		return textfile.Read(name, config.MaxDocument)
	})
	status, err := askHealth("http://", cfg.Admin.Listen, nil)
	if err != nil && cfg.Relay.Listen.On() {
		scheme := "http://"
		if cfg.Relay.TLS.On() {
			scheme = "https://"
		}
		var front []byte
		if cfg.Edge.ProxyProtocol && edge.NewTrustedProxies(cfg.Edge.TrustedProxies).Contains(onThisMachine(cfg.Relay.Listen).Host) {
			front = []byte("PROXY UNKNOWN\r\n")
		}
		status, err = askHealth(scheme, cfg.Relay.Listen, front)
	}
	if err != nil || status != 200 {
		for _, f := range faults {
			fmt.Fprintln(os.Stderr, f.String())
		}
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
