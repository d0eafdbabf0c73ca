package config

import (
	"log/slog"
	"slices"
	"strconv"
	"strings"
)

// A Fault is one reason not to start (or, live, not to apply a version).
type Fault struct {
	Setting string // variable, or the unknown key
	Given   string // what was found, quoted; never a secret
	Legal   string
}

// String is the fault's one line.
func (f Fault) String() string { return f.Setting + ": " + f.Given + "; legal: " + f.Legal }

// Faults is every reason at once, in the order of the table. Empty means that the Config stands.
type Faults []Fault

// Error joins the lines.
func (f Faults) Error() string {
	lines := make([]string, len(f))
	for i := range f {
		lines[i] = f[i].String()
	}
	return strings.Join(lines, "\n")
}

// What a settings file, and an answer of the control plane, must be.
const (
	legalForm = "a JSON or YAML object of settings, each once"
	legalSize = "at most 1 MiB"
)

// OfForm reports whether a fault is that a settings file, or an answer of the control plane, cannot
// be taken apart at all.
func (f Faults) OfForm() bool {
	return slices.ContainsFunc(f, func(x Fault) bool { return x.Legal == legalForm || x.Legal == legalSize })
}

// certificates are the settings whose faults may be of the files that they name.
var certificates = []string{"PASEO_RELAY_TLS_CERT_FILE", "PASEO_RELAY_TLS_KEY_FILE", "TLS_CERT_FILE", "TLS_KEY_FILE"}

// OfFiles reports whether a fault may be over when files that the settings name change, as while
// certificates are renewed.
func (f Faults) OfFiles() bool {
	return slices.ContainsFunc(f, func(x Fault) bool { return slices.Contains(certificates, x.Setting) })
}

// A Notice is something the operator should read although it does not stop the start.
type Notice struct {
	Level slog.Level // Warn or Info
	Text  string     // one line, names its settings, never a secret
}

// Notices are in the order of discovery.
type Notices []Notice

func (n *Notices) warn(text string) { *n = append(*n, Notice{slog.LevelWarn, text}) }
func (n *Notices) info(text string) { *n = append(*n, Notice{slog.LevelInfo, text}) }

// maxShown is how many bytes of a value a fault line repeats.
const maxShown = 120

// quote shows a value on one line and in bounded length.
func quote(s string) string {
	if len(s) <= maxShown {
		return strconv.Quote(s)
	}
	return strconv.Quote(s[:maxShown]) + "… (" + strconv.Itoa(len(s)) + " bytes)"
}

// hidden stands where a secret was given.
const hidden = "(a value that is not shown)"
