package gateway

import (
	"fmt"
	"os"
	"sync"
	"time"

	"sluice/gateway/config"
	"sluice/gateway/edge"
	"sluice/gateway/metric"
	"sluice/gateway/tlsconn"
	"sluice/loop"
)

// proxyRule is what a listener does with PROXY headers; nil with PROXY_PROTOCOL off.
func (g *Gateway) proxyRule(of metric.Listener) *edge.Proxy {
	if !g.cfg.Edge.ProxyProtocol {
		return nil
	}
	return &edge.Proxy{Trusted: edge.NewTrustedProxies(g.cfg.Edge.TrustedProxies), OnRefused: func(c *edge.HTTPConn, err error) {
		g.process.ProxyRefused(of)
		if of == metric.ListenerRelay {
			g.metrics.Reject(metric.RejectProxyProtocol)
		}
		if log := g.proxyLines.Line(of, loop.Now()); log != nil {
			log.Warn("connection closed by the rule of PROXY_PROTOCOL and TRUSTED_PROXIES", "listener", of.String(),
				"peer", c.Remote().String(), "error", err)
		}
	}}
}

// handshakeFreed is what a handshake counts for among what the collector is to
// give back to the kernel after a burst. It leaves several times as much, but with
// all of it a steady stream of clients would have the collector called all the time.
const handshakeFreed = 4 << 10

// tlsOf is what a listener speaks TLS with; nil without certificates.
func (g *Gateway) tlsOf(of metric.Listener, setting string, files config.TLS) (*edge.TLS, error) {
	if !files.On() {
		return nil, nil
	}
	certs, err := g.certs.add(of, setting, files)
	if err != nil {
		return nil, err
	}
	return &edge.TLS{
		Engine: g.tls,
		Config: edge.ServerTLS(certs),
		OnHandshake: func(resumed bool) {
			g.process.TLSHandshakes.Inc()
			if resumed {
				g.process.TLSResumptions.Inc()
			}
			if g.relay != nil {
				g.relay.Freed(handshakeFreed)
			}
		},
		OnFailure: func(c *edge.HTTPConn, why tlsconn.Failure, err error) {
			g.process.TLSFailed(int(why))
			if log := g.tlsLines.Line(why, loop.Now()); log != nil {
				log.Debug("TLS handshake failed", "listener", of.String(), "peer", c.Remote().String(), "reason", why.String(), "error", err)
			}
		},
	}, nil
}

// A certificateWatch reads the certificate files of the listeners again, every
// CONFIG_POLL_SECONDS and on SIGHUP. It runs on a goroutine of its own; check and
// setFiles, which looks as well, are called on liveConfig's.
type certificateWatch struct {
	g    *Gateway
	hup  chan os.Signal // looks at once
	quit chan struct{}
	done chan struct{}

	mu   sync.Mutex        // a look, and the files that setFiles replaces
	sets []*certificateSet // constant after start
}

// A certificateSet is what one listener has.
type certificateSet struct {
	of      metric.Listener
	setting string // of the certificates; faults name it
	files   config.TLS
	certs   edge.Certificates
}

func newCertificateWatch(g *Gateway) *certificateWatch {
	return &certificateWatch{g: g, hup: make(chan os.Signal, 1), quit: make(chan struct{}), done: make(chan struct{})}
}

// add reads a listener's certificates for the first time. It is called before start.
func (w *certificateWatch) add(of metric.Listener, setting string, files config.TLS) (*edge.Certificates, error) {
	s := &certificateSet{of: of, setting: setting, files: files}
	if _, err := s.certs.Load(files.CertFiles, files.KeyFiles); err != nil {
		return nil, fmt.Errorf("%s: %w", setting, err)
	}
	w.sets = append(w.sets, s)
	w.warn(s)
	return &s.certs, nil
}

func (w *certificateWatch) start() {
	go w.run()
}

// stop ends the watch, if it was started.
func (w *certificateWatch) stop() {
	close(w.quit)
	<-w.done
}

func (w *certificateWatch) run() {
	defer close(w.done)
	tick := time.NewTicker(w.g.cfg.Source.Poll)
	defer tick.Stop()
	for {
		select {
		case <-w.quit:
			return
		case <-tick.C:
			w.look()
		case <-w.hup:
			w.look()
		}
	}
}

// look reads the files once. A fault is told once, until the files change again.
func (w *certificateWatch) look() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.sets {
		changed, err := s.certs.Load(s.files.CertFiles, s.files.KeyFiles)
		switch {
		case !changed:
		case err != nil:
			w.g.process.CertificatesRefused.Inc()
			w.g.log.Error("changed certificate files are no good; the certificates in use stay", "setting", s.setting, "error", err)
		default:
			w.g.process.CertificatesRead.Inc()
			w.g.log.Info("certificates taken into use", "setting", s.setting, "until", s.certs.Ends().UTC().Format(time.RFC3339))
			w.warn(s)
		}
	}
}

// warn tells of certificates that clients will not take.
func (w *certificateWatch) warn(s *certificateSet) {
	for i, leaf := range s.certs.Leaves() {
		if now := time.Now(); now.After(leaf.NotAfter) || now.Before(leaf.NotBefore) {
			w.g.log.Warn("a certificate is not valid at this time", "setting", s.setting, "file", s.files.CertFiles[i],
				"from", leaf.NotBefore.UTC().Format(time.RFC3339), "until", leaf.NotAfter.UTC().Format(time.RFC3339))
		}
	}
}

// check says whether the files of a new version of the settings can be put into
// force without a restart.
func (w *certificateWatch) check(next *config.Config) error {
	for _, s := range [...]struct {
		setting string
		was, is config.TLS
	}{
		{"PASEO_RELAY_TLS_CERT_FILE", w.g.cfg.Relay.TLS, next.Relay.TLS},
		{"TLS_CERT_FILE", w.g.cfg.MTE.TLS, next.MTE.TLS},
	} {
		if s.was.On() != s.is.On() {
			return fmt.Errorf("%s: to begin or end TLS on a listener needs a restart", s.setting)
		}
	}
	return nil
}

// setFiles puts the files of a new version into force.
func (w *certificateWatch) setFiles(next *config.Config) {
	w.mu.Lock()
	for _, s := range w.sets {
		s.files = next.MTE.TLS
		if s.of == metric.ListenerRelay {
			s.files = next.Relay.TLS
		}
	}
	w.mu.Unlock()
	w.look()
}

// ends returns when the first certificate expires, in unix seconds; 0 without one.
func (w *certificateWatch) ends() float64 {
	var first time.Time
	for _, s := range w.sets {
		if t := s.certs.Ends(); first.IsZero() || t.Before(first) {
			first = t
		}
	}
	if first.IsZero() {
		return 0
	}
	return float64(first.Unix())
}
