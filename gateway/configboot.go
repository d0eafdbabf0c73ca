package gateway

import (
	"bytes"
	"io"
	"log/slog"
	"os"
	"slices"

	"sluice/gateway/config"
	"sluice/gateway/metric"
	"sluice/gateway/textfile"
)

// openConfig reads the settings of the environment and of CONFIG_FILE. With
// faults there is no liveConfig.
func openConfig(environ []string) (*liveConfig, config.Faults, config.Notices) {
	file := variable(environ, "CONFIG_FILE")
	var text []byte
	cfg, faults, notices := config.Load(environ, func(name string) (b []byte, err error) {
		if name != file {
			return textfile.Read(name, config.MaxDocument)
		}
		text, err = readOnce(name)
		return text, err
	})
	if len(faults) > 0 {
		return nil, faults, notices
	}
	w := &liveConfig{
		environ: environ,
		log:     slog.New(slog.DiscardHandler),
		file:    configSource{setting: "CONFIG_FILE"},
		plane:   configSource{setting: "CONTROL_PLANE_URL"},
		cache:   configCache(cfg.Source.ControlPlaneCache),
		applied: cfg,
		notices: notices,
		quit:    make(chan struct{}),
		done:    make(chan struct{}),
	}
	w.file.latest, w.file.good = text, text
	if info, err := os.Stat(file); err == nil {
		w.pipe = !info.Mode().IsRegular()
	}
	if cfg.Source.ControlPlaneURL != "" {
		w.polled = newControlPlane(&cfg.Source, nil)
	}
	return w, nil, notices
}

// readOnce reads CONFIG_FILE for a start, which waits for it if it is a pipe. It
// returns at most one byte more than is legal; the loader refuses that.
func readOnce(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, config.MaxDocument+1))
}

// boot asks the control plane for the first time, before anything is started, and
// falls back on what CONTROL_PLANE_CACHE_FILE keeps. With neither the settings are
// those of environment and file, and pending is true: the encrypting relay is not
// ready before the control plane has said what it is to serve.
func (w *liveConfig) boot() (pending bool) {
	if w.polled == nil {
		return false
	}
	if err := w.cache.check(); err != nil {
		w.log.Error("the control plane's settings cannot be kept for the next start", "setting", "CONTROL_PLANE_CACHE_FILE", "error", err)
	}
	text, _, no := w.polled.fetch()
	switch {
	case no != nil:
		w.pollFailed(no)
	case w.bootWith(text, w.plane.setting):
		w.keep()
		return false
	}
	kept, err := w.keptVersion()
	switch {
	case err != nil:
		w.log.Error("the kept version of the control plane's settings cannot be read", "setting", "CONTROL_PLANE_CACHE_FILE", "error", err)
	case kept != nil && w.bootWith(kept, "CONTROL_PLANE_CACHE_FILE"):
		if text != nil {
			w.plane.latest = text // refused; judged again only with other files
		}
		w.log.Warn("starting with the kept version of the control plane's settings", "setting", "CONTROL_PLANE_CACHE_FILE")
		return false
	}
	w.plane.latest = text
	w.log.Error("starting without settings of the control plane; the encrypting relay is not ready until they have come",
		"setting", "CONTROL_PLANE_URL", "hint", "CONTROL_PLANE_CACHE_FILE keeps the last good ones for a start like this")
	return true
}

// bootWith takes the first answer of the control plane, if it is good.
func (w *liveConfig) bootWith(text []byte, from string) bool {
	next, notices, fault := w.judge(w.file.good, text)
	if fault != nil {
		w.refuse(from, fault)
		if from == w.plane.setting {
			w.plane.told = fault
		}
		return false
	}
	w.notice(notices)
	w.applied, w.plane.latest, w.plane.good = next, text, text
	return true
}

func (w *liveConfig) keptVersion() ([]byte, error) {
	if w.cache == "" {
		return nil, nil
	}
	return w.cache.load()
}

// keep writes the control plane's part of the version in force to
// CONTROL_PLANE_CACHE_FILE, unless it is there.
func (w *liveConfig) keep() {
	if w.cache == "" || w.plane.good == nil {
		return
	}
	if kept, err := w.cache.load(); err == nil && bytes.Equal(kept, w.plane.good) {
		return
	}
	if err := w.cache.save(w.plane.good); err != nil {
		w.count(func(m *metric.Config) { m.CacheFailures.Inc() })
		w.log.Error("the control plane's settings cannot be kept for the next start", "setting", "CONTROL_PLANE_CACHE_FILE", "error", err)
	}
}

// checkPlane judges an answer of the control plane as a start would. One that does
// not answer is told and no fault, since a start goes on without it.
func (w *liveConfig) checkPlane() (told, faults []string) {
	if w.polled == nil {
		return nil, nil
	}
	if err := w.cache.check(); err != nil {
		told = append(told, "CONTROL_PLANE_CACHE_FILE: nothing can be kept there: "+err.Error())
	}
	text, _, no := w.polled.fetch()
	from := w.plane.setting
	if no != nil {
		told = append(told, from+": no settings from "+w.polled.origin+" now ("+no.cause.String()+"): "+no.text)
		from = "CONTROL_PLANE_CACHE_FILE"
		var err error
		if text, err = w.keptVersion(); err != nil {
			return told, []string{from + ": " + err.Error()}
		}
		if text == nil {
			return append(told, from+": nothing is kept; the encrypting relay would not be ready before the control plane answers"), nil
		}
		told = append(told, from+": a start would use the version that is kept")
	}
	_, notices, fault := w.judge(w.file.good, text)
	if fault != nil {
		for _, line := range fault.lines {
			faults = append(faults, from+" ("+fault.cause.String()+"): "+line)
		}
		return told, faults
	}
	for _, n := range notices {
		if !slices.Contains(w.notices, n) {
			told = append(told, n.Text)
		}
	}
	return told, nil
}
