package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Load reads the environment ("NAME=value" as os.Environ gives it; of a name given twice the
// first counts, as for os.Getenv) and the file that CONFIG_FILE names, and checks everything.
// readFile reads that file and the TLS pairs; Load touches nothing else.
//
// With faults there is no Config. The notices count in both cases.
//
// An empty variable (in a file also null and []) is the same as an unset one where unset is a value of its
// own: paths, lists, URLs, TCP_CONGESTION. Elsewhere it is a fault: a number, a switch or
// DOMAIN_MAP that came out empty is a template that went wrong, and no default should hide it.
func Load(environ []string, readFile func(string) ([]byte, error)) (*Config, Faults, Notices) {
	return LoadWith(environ, nil, readFile)
}

// LoadWith is Load with an answer of the control plane, in the format of the file, between the
// environment and the file; nil is none. Which of its settings may differ from what is in force is
// for the caller to judge, by Diff.
func LoadWith(environ []string, control []byte, readFile func(string) ([]byte, error)) (*Config, Faults, Notices) {
	l := read(environ, control, readFile)
	l.check()
	if len(l.faults) > 0 {
		return nil, l.faults, l.notices
	}
	l.c.Version = 1
	return l.c, nil, l.notices
}

// Addresses is where a process with these settings listens, as far as they say: for another process
// that looks for it. Whatever is wrong with a setting, it has a value, its default; the faults are
// those that may have hidden an address. What settings contradict or name is not looked at.
func Addresses(environ []string, readFile func(string) ([]byte, error)) (*Config, Faults) {
	l := read(environ, nil, readFile)
	return l.c, l.faults
}

// read takes every setting by itself.
func read(environ []string, control []byte, readFile func(string) ([]byte, error)) *loader {
	l := &loader{readFile: readFile, env: map[string]string{}, given: map[string]given{}, faulty: map[string]bool{}, c: new(Config), answered: control != nil}
	for _, e := range environ {
		name, value, ok := strings.Cut(e, "=")
		if _, twice := l.env[name]; ok && !twice {
			l.env[name] = value
		}
	}
	l.strangers()
	for s := range settings {
		if text, ok := l.env[s.Name]; ok && !(text == "" && s.Kind.emptyIsUnset()) {
			l.given[s.Name] = given{text: text}
		}
	}
	if control != nil {
		l.document(control, "CONTROL_PLANE_URL", "", "CONTROL_PLANE_URL")
	}
	l.file()
	for s := range settings {
		l.take(s)
	}
	for s := range settings {
		if _, ok := l.given[s.Name]; !ok && s.derived != nil {
			l.set(s, given{text: s.derived(l.c), byDefault: true})
		}
	}
	l.settle()
	return l
}

// emptyIsUnset reports whether an empty value of this kind says "unset".
func (k Kind) emptyIsUnset() bool {
	switch k {
	case Text, List, Congestion, Endpoint, Proxies, RedisURL:
		return true
	}
	return false
}

// given is the value that counts for one setting and where it came from.
type given struct {
	text      string
	tree      *node  // DomainMap from a file
	where     string // " in FILE:LINE", empty for the environment
	byDefault bool
}

// show returns the value for a fault line.
func (g given) show(k Kind) string {
	text := quote(g.text)
	if k.secret() {
		text = hidden
	}
	if g.byDefault {
		text += " (the default)"
	}
	return text + g.where
}

type loader struct {
	readFile func(string) ([]byte, error)
	env      map[string]string
	given    map[string]given // by setting; defaults are added as they are taken
	faulty   map[string]bool  // settings with a fault of their own take no part in contradictions
	answered bool             // the control plane's settings are among them
	c        *Config
	faults   Faults
	notices  Notices
}

// fault adds a line and marks the setting.
func (l *loader) fault(name, found, legal string) {
	l.faulty[name] = true
	l.faults = append(l.faults, Fault{name, found, legal})
}

// prefixes are ours: a variable with one of them that we do not know is probably misspelt.
var prefixes = []string{"PASEO_RELAY_", "CLIENT_", "REDIS_"}

// strangers looks at the variables that are no settings.
func (l *loader) strangers() {
	var links, erlang []string
	for _, name := range slices.Sorted(maps.Keys(l.env)) {
		switch {
		case lookup(name) != nil:
		case strings.HasPrefix(name, "RELEASE_") || strings.HasPrefix(name, "ERL_"):
			erlang = append(erlang, showName(name))
		case !slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(name, p) }):
		case isServiceLink(name, l.env[name]):
			links = append(links, showName(name))
		default:
			l.notices.warn(showName(name) + ": unknown variable, ignored")
		}
	}
	if links != nil {
		l.notices.warn(strings.Join(links, ", ") + ": unknown variables, ignored; they look like Kubernetes service links (enableServiceLinks: false keeps them away)")
	}
	if erlang != nil {
		l.notices.info(strings.Join(erlang, ", ") + ": settings of the Elixir relay's runtime, ignored")
	}
}

// showName returns a name as it is if it is one, else quoted.
func showName(name string) string {
	if isToken(name) && len(name) <= maxShown {
		return name
	}
	return quote(name)
}

// isServiceLink reports whether Kubernetes makes such a variable for a service whose name begins
// like our settings: NAME_SERVICE_HOST, NAME_SERVICE_PORT…, NAME_PORT… = tcp://….
func isServiceLink(name, value string) bool {
	return strings.HasSuffix(name, "_SERVICE_HOST") || strings.Contains(name, "_SERVICE_PORT") ||
		isLinkValue(value) || strings.Contains(name, "_PORT_") && (strings.Contains(name, "_TCP") || strings.Contains(name, "_UDP"))
}

func isLinkValue(value string) bool {
	return strings.HasPrefix(value, "tcp://") || strings.HasPrefix(value, "udp://")
}

// file adds what CONFIG_FILE says to what nobody before it does.
func (l *loader) file() {
	path, ok := l.given["CONFIG_FILE"]
	if !ok {
		return
	}
	text, err := l.readFile(path.text)
	if err != nil {
		l.fault("CONFIG_FILE", fmt.Sprintf("%s cannot be read (%v)", quote(path.text), err), "a readable file")
		return
	}
	l.document(text, "CONFIG_FILE", quote(path.text)+" ", showPath(path.text))
}

// document adds the settings of a text to those that are given already. The setting from names it
// in faults of its form, name stands before the line number there, and place in faults of a value.
func (l *loader) document(text []byte, from, name, place string) {
	if len(text) > MaxDocument {
		l.fault(from, name+"longer than 1 MiB", legalSize)
		return
	}
	root, bad := parseFile(text)
	if bad != nil {
		found := fmt.Sprintf("%sline %d: %s", name, bad.line, bad.text)
		l.fault(from, found, legalForm)
		return
	}
	for i, key := range root.keys {
		value := root.items[i]
		where := fmt.Sprintf(" in %s:%d", place, value.line)
		s := lookup(key)
		switch {
		case s == nil:
			l.fault(showName(key), "unknown key"+where, "the names of the settings reference")
			continue
		case key == "CONFIG_FILE":
			l.fault(key, "given"+where, "only in the environment")
			continue
		}
		if _, ok := l.given[key]; ok || value.isEmpty() && s.Kind.emptyIsUnset() {
			continue
		}
		g, ok := s.fromNode(value)
		g.where = where
		if !ok {
			l.given[key] = g
			l.fault(key, value.kind.String()+where, s.Legal())
			continue
		}
		l.given[key] = g
	}
}

// showPath keeps a path with odd characters from breaking the line.
func showPath(path string) string {
	if isVisible(path) && len(path) <= maxShown {
		return path
	}
	return quote(path)
}

// fromNode turns a value of a file into what the environment would have said. It reports false
// for a value of the wrong shape.
func (s *Setting) fromNode(n *node) (given, bool) {
	switch n.kind {
	case nodeObject:
		return given{tree: n}, s.Kind == DomainMap
	case nodeList:
		if s.Kind != List && s.Kind != Proxies {
			return given{}, false
		}
		texts := make([]string, len(n.items))
		for i, item := range n.items {
			if item.kind != nodeText || strings.Contains(item.text, ",") {
				return given{}, false
			}
			texts[i] = item.text
		}
		return given{text: strings.Join(texts, ",")}, true
	}
	return given{text: n.text}, s.Kind != DomainMap
}

// take reads the row's value, or its fixed default.
func (l *loader) take(s *Setting) {
	g, ok := l.given[s.Name]
	switch {
	case l.faulty[s.Name]:
		l.setDefault(s)
	case ok:
		l.set(s, g)
	case s.Kind == DomainMap:
		l.c.MTE.Domains = builtinDomains()
	default:
		l.setDefault(s)
	}
}

// setDefault gives a faulty or unset row its fixed default: the rules below need sane numbers.
func (l *loader) setDefault(s *Setting) {
	if s.Default == "" {
		return
	}
	g := given{text: s.Default, byDefault: true}
	if _, ok := l.given[s.Name]; !ok {
		l.given[s.Name] = g
	}
	if ok, _ := s.set(l.c, g.text); !ok {
		panic("BUG: the default of " + s.Name + " is not legal")
	}
}

// set reads one value into the Config, or adds its fault.
func (l *loader) set(s *Setting, g given) {
	l.given[s.Name] = g
	if s.Kind == DomainMap {
		l.domains(g)
		return
	}
	ok, bad := s.set(l.c, g.text)
	if ok {
		return
	}
	legal := s.Legal()
	if s.Kind == Port && isLinkValue(g.text) {
		legal += "; this value is a Kubernetes service link (enableServiceLinks: false keeps it away)"
	}
	if bad != g.text {
		g.text = bad
	}
	l.fault(s.Name, g.show(s.Kind), legal)
	if s.Default != "" {
		l.setDefault(s)
	}
}

// settle folds aliases and the values that mean a default into the fields that are read.
func (l *loader) settle() {
	m := &l.c.MTE
	const pairBytes, pairTime = 1 << 30, 86400
	_, haveBytes := l.given["MAX_PAIR_BYTES"]
	_, haveMiB := l.given["MAX_PAIR_MIB"]
	if m.pairMiB == 0 {
		m.pairMiB = pairBytes
	}
	switch {
	case !haveBytes && haveMiB:
		m.MaxPairBytes = m.pairMiB
	case m.MaxPairBytes == 0:
		m.MaxPairBytes = pairBytes
	}
	if haveBytes && haveMiB && m.MaxPairBytes != m.pairMiB {
		l.notices.warn("MAX_PAIR_MIB: " + l.given["MAX_PAIR_MIB"].show(MiB) + " disagrees with MAX_PAIR_BYTES (" + itoa(m.MaxPairBytes) + "), which wins")
	}
	if m.MaxPairTime == 0 {
		m.MaxPairTime = pairTime * second
	}
}
