package gateway

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"sluice/gateway/config"
	"sluice/gateway/metric"
	"sluice/gateway/textfile"
	"sluice/loop"
)

// A liveConfig keeps the settings that may change while running in step with
// CONFIG_FILE and CONTROL_PLANE_URL (contract, settings). A version is what both
// say at a time, below the environment; it is applied whole or not at all.
//
// It belongs to the goroutine that starts the process, and after start to one of
// its own.
type liveConfig struct {
	environ []string
	log     *slog.Logger
	polled  *controlPlane // nil without CONTROL_PLANE_URL
	cache   configCache   // empty for none

	file    configSource
	pipe    bool   // CONFIG_FILE is none that can be read again
	unread  string // why it cannot be read now
	plane   configSource
	applied *config.Config
	notices config.Notices // of the version in force

	failures int       // polls of the control plane in a row that brought nothing
	failing  time.Time // when the first of them ended
	failure  string    // what was logged of the last

	uncounted []func(*metric.Config) // what happened before start

	// Set by start.
	g        *Gateway
	notifier *notifier // nil without a supervisor

	hup  <-chan os.Signal // looks at once
	quit chan struct{}
	done chan struct{}
}

// A configSource is one of the texts that a version is made of.
type configSource struct {
	setting string // that names it
	latest  []byte // as last seen, good or bad; nil for none
	good    []byte // of the version in force

	told *configFault // of the latest text, as last logged; nil for none
}

// refused says that the latest text is not the one in force.
func (s *configSource) refused() bool { return !bytes.Equal(s.latest, s.good) }

// see takes a text and says whether it is to be judged: a new one is, and one that
// was refused for another file, such as a certificate whose key had not come yet.
func (s *configSource) see(text []byte) bool {
	if !bytes.Equal(text, s.latest) {
		s.latest, s.told = text, nil
		return true
	}
	return s.refused() && (s.told == nil || s.told.files)
}

// A configFault is why a version is not applied: a line each.
type configFault struct {
	cause metric.ConfigRefusal
	lines []string
	files bool // files that the settings name have a part in it: it may pass
}

// start starts a gateway with the settings in force and begins to look at their
// sources. A signal on hup has them looked at without waiting for the next time.
func (w *liveConfig) start(tune tuning, pending bool, hup <-chan os.Signal) (*Gateway, error) {
	g, err := start(w.applied, w.log, tune, pending)
	if err != nil {
		return nil, err
	}
	w.g, w.hup, g.live, g.notifier = g, hup, w, w.notifier
	for _, f := range w.uncounted {
		f(g.process.Config)
	}
	w.uncounted = nil
	go w.run()
	return g, nil
}

// stop ends the watching. A nil liveConfig has nothing to stop.
func (w *liveConfig) stop() {
	if w == nil {
		return
	}
	close(w.quit)
	if w.polled != nil {
		w.polled.stop()
	}
	<-w.done
}

func (w *liveConfig) run() {
	defer close(w.done)
	interval := w.applied.Source.Poll
	file := time.NewTicker(interval)
	defer file.Stop()
	plane := time.NewTimer(w.untilNext())
	defer plane.Stop()
	for {
		select {
		case <-w.quit:
			return
		case <-file.C:
			w.lookAtFile()
		case <-plane.C:
			w.lookAtPlane()
			plane.Reset(w.untilNext())
		case <-w.hup:
			w.g.notifier.reload(w.g, func() {
				w.lookAtFile()
				w.lookAtPlane()
			})
			plane.Reset(w.untilNext())
		}
	}
}

func (w *liveConfig) untilNext() time.Duration {
	return pollDelay(w.applied.Source.Poll, w.failures, rand.Float64())
}

// longestPause bounds the pause between polls of a control plane that fails,
// unless CONFIG_POLL_SECONDS is longer.
const longestPause = 5 * time.Minute

// pollDelay is the time to the next poll: within the interval while there are
// answers, up to eight intervals when there are none. random, from 0 to 1, keeps
// the nodes of a fleet from asking at the same time.
func pollDelay(interval time.Duration, failures int, random float64) time.Duration {
	d := interval << min(max(failures-1, 0), 3)
	d = max(interval, min(d, longestPause))
	return d - time.Duration(random*float64(d/10))
}

// lookAtFile reads CONFIG_FILE. A text is judged once, or until the files that it
// names are good: a bad one is not complained of again until the fault changes.
func (w *liveConfig) lookAtFile() {
	name := w.applied.Source.File
	if name == "" || w.pipe {
		return
	}
	text, err := textfile.Read(name, config.MaxDocument)
	switch {
	case err != nil:
		if w.unread == err.Error() {
			return
		}
		fault := &configFault{cause: metric.ConfigUnreadable, lines: []string{"CONFIG_FILE: cannot be read: " + err.Error()}}
		if errors.Is(err, textfile.ErrTooLong) {
			fault.cause = metric.ConfigForm
		}
		w.unread, w.file.latest, w.file.told = err.Error(), nil, nil
		w.refuse(w.file.setting, fault)
		return
	case !w.file.see(text) && w.unread == "":
		return
	}
	w.unread = ""
	w.consider(&w.file, &w.plane)
}

// lookAtPlane polls the control plane.
func (w *liveConfig) lookAtPlane() {
	if w.polled == nil {
		return
	}
	text, changed, no := w.polled.fetch()
	if no != nil {
		if w.polled.ctx.Err() == nil {
			w.pollFailed(no)
		}
		return
	}
	w.g.configAnswer.Store(loop.Now())
	if w.failures > 0 {
		w.log.Info("the control plane answers again", "setting", "CONTROL_PLANE_URL", "failed_polls", w.failures, "after", time.Since(w.failing).Round(time.Second))
		w.failures, w.failure = 0, ""
	}
	if !changed {
		text = w.plane.latest
	}
	if w.plane.see(text) {
		w.consider(&w.plane, &w.file)
	}
}

// pollFailed notes a poll that brought nothing. The same failure is told once.
func (w *liveConfig) pollFailed(no *pollFailure) {
	w.count(func(m *metric.Config) { m.Failed(no.cause) })
	if w.failures == 0 {
		w.failing = time.Now()
	}
	w.failures++
	level := slog.LevelDebug
	if w.failure != no.text {
		level = slog.LevelWarn
	}
	w.failure = no.text
	w.log.Log(context.Background(), level, "the control plane brought no settings; what is in force stays",
		"setting", "CONTROL_PLANE_URL", "at", w.polled.origin, "cause", no.cause.String(), "fault", no.text)
}

// consider puts what changed into force: with the latest of both sources or, if
// the other one's was refused before, with its good one. A fault that stays the
// same is told once.
func (w *liveConfig) consider(changed, other *configSource) {
	fault := w.attempt()
	if fault != nil && other.refused() {
		held := other.latest
		other.latest = other.good
		fault = w.attempt()
		other.latest = held
	}
	if fault != nil && (changed.told == nil || !slices.Equal(changed.told.lines, fault.lines)) {
		w.refuse(changed.setting, fault)
	}
	changed.told = fault
}

// attempt puts the latest texts into force.
func (w *liveConfig) attempt() *configFault {
	next, notices, fault := w.judge(w.file.latest, w.plane.latest)
	if fault == nil {
		fault = w.apply(next)
	}
	if fault != nil {
		return fault
	}
	w.notice(notices)
	w.file.good, w.plane.good = w.file.latest, w.plane.latest
	if w.plane.good != nil {
		w.g.configPending.Store(false)
	}
	w.keep()
	return nil
}

// judge makes a version of the two texts and looks for what is wrong with it.
func (w *liveConfig) judge(file, plane []byte) (*config.Config, config.Notices, *configFault) {
	next, faults, notices := config.LoadWith(w.environ, plane, func(name string) ([]byte, error) {
		if name == w.applied.Source.File && file != nil {
			return file, nil
		}
		return textfile.Read(name, config.MaxDocument)
	})
	if len(faults) > 0 {
		f := &configFault{cause: metric.ConfigSettings, files: faults.OfFiles()}
		if faults.OfForm() {
			f.cause = metric.ConfigForm
		}
		for _, x := range faults {
			f.lines = append(f.lines, x.String())
		}
		return nil, nil, f
	}
	if _, restart := w.applied.Diff(next); len(restart) > 0 {
		return nil, nil, &configFault{cause: metric.ConfigRestart, lines: []string{"needs a restart: " + strings.Join(restart, ", ")}}
	}
	return next, notices, nil
}

// notice tells what is new among the notices of the version in force.
func (w *liveConfig) notice(notices config.Notices) {
	for _, n := range notices {
		if !slices.Contains(w.notices, n) {
			w.log.Log(context.Background(), n.Level, n.Text)
		}
	}
	w.notices = notices
}

// apply puts a good version into force.
func (w *liveConfig) apply(next *config.Config) *configFault {
	live, _ := w.applied.Diff(next)
	if len(live) == 0 {
		return nil
	}
	g := w.g
	if err := g.certs.check(next); err != nil {
		return &configFault{cause: metric.ConfigUnusable, lines: []string{err.Error()}}
	}
	version := w.applied.Version + 1
	if e := g.encrypting; e != nil {
		if err := e.role.Apply(next.MTE.Domains, next.MTE.MaxRequestBodyBytes, version); err != nil {
			return &configFault{cause: metric.ConfigUnusable, lines: []string{err.Error()}}
		}
	}
	g.certs.setFiles(next)
	next.Version = version // nobody else has seen it yet
	added, removed, changed := w.applied.MTE.Domains.Changes(next.MTE.Domains)
	w.applied = next
	g.configVersion.Store(version)
	g.process.Config.Applied.Inc()
	line := []any{"version", version, "changed", strings.Join(live, ", ")}
	tell := func(what string, hosts []string) {
		if len(hosts) > 0 {
			line = append(line, what, config.SomeOf(hosts))
		}
	}
	tell("domains_added", added)
	tell("domains_removed", removed)
	tell("domains_changed", changed)
	w.log.Info("settings applied", line...)
	return nil
}

// mostFaults is how many lines a refused version gets.
const mostFaults = 20

// refuse keeps the old version.
func (w *liveConfig) refuse(from string, fault *configFault) {
	w.count(func(m *metric.Config) { m.Refused(fault.cause) })
	lines := fault.lines
	if more := len(lines) - mostFaults; more > 0 {
		lines = append(slices.Clone(lines[:mostFaults]), "and "+strconv.Itoa(more)+" more; sluice check-config shows them all")
	}
	for _, line := range lines {
		w.log.Error("new settings refused, the old ones stay", "from", from, "cause", fault.cause.String(), "fault", line)
	}
}

// count bumps a counter, or remembers to once there are counters.
func (w *liveConfig) count(f func(*metric.Config)) {
	if w.g != nil {
		f(w.g.process.Config)
		return
	}
	w.uncounted = append(w.uncounted, f)
}
