package gateway

import (
	"bytes"
	"os"
	"strings"
	"time"

	"sluice/gateway/config"
)

// maxConfigFile bounds what is read of CONFIG_FILE while running.
const maxConfigFile = 1 << 20

// A liveConfig re-reads CONFIG_FILE and applies what may change while running,
// whole or not at all. It runs on a goroutine of its own.
type liveConfig struct {
	g       *Gateway
	environ []string
	applied *config.Config
	seen    []byte           // the file as last judged, good or bad
	hup     <-chan os.Signal // looks at once
	quit    chan struct{}
	done    chan struct{}
}

// watchConfig begins to poll the settings file; nil without one. A signal on hup
// has it looked at without waiting for the next time.
func watchConfig(g *Gateway, environ []string, hup <-chan os.Signal) *liveConfig {
	if g.cfg.Source.File == "" {
		return nil
	}
	w := &liveConfig{g: g, environ: environ, applied: g.cfg, hup: hup, quit: make(chan struct{}), done: make(chan struct{})}
	w.seen, _ = os.ReadFile(g.cfg.Source.File)
	go w.run()
	return w
}

// stop ends the polling. A nil liveConfig has nothing to stop.
func (w *liveConfig) stop() {
	if w != nil {
		close(w.quit)
		<-w.done
	}
}

func (w *liveConfig) run() {
	defer close(w.done)
	tick := time.NewTicker(w.g.cfg.Source.Poll)
	defer tick.Stop()
	for {
		select {
		case <-w.quit:
			return
		case <-tick.C:
			w.poll()
		case <-w.hup:
			w.poll()
		}
	}
}

// poll looks at the file once. A version is judged once: a bad one is not
// complained of again until it changes.
func (w *liveConfig) poll() {
	file := w.g.cfg.Source.File
	text, err := os.ReadFile(file)
	switch {
	case err != nil:
		text = nil
	case len(text) > maxConfigFile:
		text = text[:maxConfigFile+1] // cannot be good, and is refused below
	}
	if bytes.Equal(text, w.seen) {
		return
	}
	w.seen = text
	if err != nil {
		w.refuse("CONFIG_FILE: cannot be read: " + err.Error())
		return
	}
	if len(text) > maxConfigFile {
		w.refuse("CONFIG_FILE: longer than 1 MiB")
		return
	}
	next, faults, _ := config.Load(w.environ, func(name string) ([]byte, error) {
		if name == file {
			return text, nil
		}
		return os.ReadFile(name)
	})
	if len(faults) > 0 {
		lines := make([]string, len(faults))
		for i, f := range faults {
			lines[i] = f.String()
		}
		w.refuse(lines...)
		return
	}
	w.apply(next)
}

// apply puts a good version into force.
func (w *liveConfig) apply(next *config.Config) {
	live, restart := w.applied.Diff(next)
	if len(restart) > 0 {
		w.refuse("needs a restart: " + strings.Join(restart, ", "))
		return
	}
	if len(live) == 0 {
		return
	}
	g := w.g
	if err := g.certs.check(next); err != nil {
		w.refuse(err.Error())
		return
	}
	version := w.applied.Version + 1
	if e := g.encrypting; e != nil {
		if err := e.role.ApplyDomains(next.MTE.Domains, version); err != nil {
			w.refuse("DOMAIN_MAP: " + err.Error())
			return
		}
		e.role.SetMaxRequestBody(next.MTE.MaxRequestBodyBytes)
	}
	g.certs.setFiles(next)
	next.Version = version // nobody else has seen it yet
	w.applied = next
	g.configVersion.Store(version)
	g.process.ConfigApplied.Inc()
	g.log.Info("settings applied", "version", version, "changed", strings.Join(live, ", "))
}

// refuse keeps the old version.
func (w *liveConfig) refuse(why ...string) {
	w.g.process.ConfigRefused.Inc()
	for _, line := range why {
		w.g.log.Error("new settings refused, the old ones stay", "file", w.g.cfg.Source.File, "fault", line)
	}
}
