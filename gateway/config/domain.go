package config

import (
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// Domains is DOMAIN_MAP by its keys: lower case, with a port only where the key has one.
type Domains map[string]*Domain

// A Domain is one entry of DOMAIN_MAP. Either Outbound is set and only OutboundToken beside it,
// or the domain is inbound.
type Domain struct {
	Host string // its key

	// Inbound. Upstream has no slash at the end of its path; nil with Echo.
	Upstream            *url.URL
	Echo                bool   // the built-in development domain: the origin answers what it is sent
	Secret              Secret // empty: the role makes one up for the life of the process
	CORSOrigins         []string
	CORSMethods         []string // empty: the defaults of the role
	CORSAllowedHeaders  []string
	CORSExposedHeaders  []string
	PassThroughRoutes   []string // begin with /; a prefix where they end in *
	MTERoutes           []string // likewise; empty: no limit
	ForwardPlainHeaders []string // lower case; * stands for any run of characters
	ForwardCookies      bool
	Headers             []Header // sorted by name

	// Outbound.
	Outbound      *url.URL // scheme and authority only
	OutboundToken Secret   // empty: none is demanded
}

// A Header is one line that a domain adds.
type Header struct{ Name, Value string }

// minSecret is the least length of a client_id_secret in bytes.
const minSecret = 32

func builtinDomains() Domains {
	return Domains{"localhost": {Host: "localhost", Echo: true, ForwardCookies: true}}
}

// checkDomains looks at what depends on other settings. It is called only with the role on.
func (l *loader) checkDomains() {
	if l.faulty["DOMAIN_MAP"] {
		return
	}
	if _, ok := l.given["DOMAIN_MAP"]; !ok && !l.answered && l.c.Source.ControlPlaneURL != "" && l.c.Redis.On() {
		// The built-in domain has no secret that nodes could share, and a fleet's domains
		// may stand at the control plane alone.
		l.c.MTE.Domains = Domains{}
		l.notices.info("DOMAIN_MAP: left to the control plane; until it has answered, every request of the encrypting relay is refused")
		return
	}
	if len(l.c.MTE.Domains) == 0 {
		l.notices.warn("DOMAIN_MAP: no domain, every request of the encrypting relay will be refused")
	}
	var bare []string // inbound hosts without a secret
	for _, host := range l.c.MTE.Domains.hosts() {
		d := l.c.MTE.Domains[host]
		if d.Outbound == nil && d.Secret == "" {
			bare = append(bare, quote(host))
		}
		if d.Echo {
			l.notices.warn("DOMAIN_MAP: unset, serving localhost with an echo origin, which is for development only")
		}
	}
	if len(bare) == 0 {
		return
	}
	found := "no client_id_secret for " + SomeOf(bare)
	if !l.c.Redis.On() {
		l.notices.warn("DOMAIN_MAP: " + found + "; one is made up, and clients pair again after a restart")
		return
	}
	if d := l.c.MTE.Domains["localhost"]; d != nil && d.Echo {
		found = "unset, and the built-in localhost domain has no client_id_secret"
	}
	l.fault("DOMAIN_MAP", found, fmt.Sprintf("with REDIS_URL, a client_id_secret of at least %d bytes for every inbound domain, the same on every node (or PORT=0)", minSecret))
}

// mostNamed is how many of a list one line names.
const mostNamed = 20

// SomeOf names what a line has room for of a list.
func SomeOf(names []string) string {
	if more := len(names) - mostNamed; more > 0 {
		return strings.Join(names[:mostNamed], ", ") + " and " + strconv.Itoa(more) + " more"
	}
	return strings.Join(names, ", ")
}

func (d Domains) hosts() []string {
	hosts := make([]string, 0, len(d))
	for h := range d {
		hosts = append(hosts, h)
	}
	slices.Sort(hosts)
	return hosts
}

// domains reads DOMAIN_MAP from the environment's JSON or a file's object.
func (l *loader) domains(g given) {
	tree := g.tree
	if tree == nil {
		var err *fileError
		if tree, err = parseJSON([]byte(g.text)); err != nil {
			l.fault("DOMAIN_MAP", err.Error(), lookup("DOMAIN_MAP").Legal())
			return
		}
	}
	p := domainParser{where: g.where, out: Domains{}}
	p.parse(tree)
	for _, f := range p.faults {
		l.fault(f.Setting, f.Given, f.Legal)
	}
	l.c.MTE.Domains = p.out
}

// domainParser collects every fault of a map, one line each.
type domainParser struct {
	where  string
	out    Domains
	faults Faults
}

func (p *domainParser) fault(found, legal string) {
	p.faults = append(p.faults, Fault{"DOMAIN_MAP", found + p.where, legal})
}

func (p *domainParser) parse(tree *node) {
	if tree.kind != nodeObject {
		p.fault(tree.kind.String(), lookup("DOMAIN_MAP").Legal())
		return
	}
	for i, key := range tree.keys {
		host := strings.ToLower(key)
		switch {
		case !isDomainKey(host):
			p.fault("host "+quote(key), "a host name or IP address, with a port where only that port is meant")
		case p.out[host] != nil:
			p.fault("host "+quote(key)+" given twice in different letters", "each host once")
		case tree.items[i].kind != nodeObject:
			p.fault("host "+quote(key)+": "+tree.items[i].kind.String(), "an object with upstream or outbound")
		default:
			m := members{p: p, host: host, object: tree.items[i]}
			p.out[host] = m.domain()
		}
	}
}

// isDomainKey reports whether a lower-case Host header can look like key.
func isDomainKey(key string) bool {
	_, ok := hostPort(key, "80")
	if !ok || strings.Contains(key, "[") {
		return ok
	}
	// What looks like an IPv4 address must be one.
	host, _, _ := strings.Cut(key, ":")
	if strings.Trim(host, "0123456789.") == "" {
		_, err := netip.ParseAddr(host)
		return err == nil
	}
	return true
}

// inboundMembers and outboundMembers are all there are.
var (
	inboundMembers = []string{
		"upstream", "client_id_secret", "cors_origins", "cors_methods", "cors_allowed_headers", "cors_exposed_headers",
		"pass_through_routes", "mte_routes", "forward_plain_headers", "forward_browser_cookies", "headers",
	}
	outboundMembers = []string{"outbound", "outbound_token"}
)

// members reads one domain's object. Each method takes the member off, if it is there.
type members struct {
	p      *domainParser
	host   string
	object *node
}

func (m *members) fault(member, found, legal string) {
	m.p.fault(fmt.Sprintf("host %s, %s: %s", quote(m.host), member, found), legal)
}

func (m *members) get(name string) *node {
	for i, k := range m.object.keys {
		if k == name {
			return m.object.items[i]
		}
	}
	return nil
}

func (m *members) domain() *Domain {
	d := &Domain{Host: m.host, ForwardCookies: true}
	in, out := m.get("upstream") != nil, m.get("outbound") != nil
	if in == out {
		found := "neither upstream nor outbound"
		if in {
			found = "upstream and outbound"
		}
		m.p.fault("host "+quote(m.host)+": "+found, "one of upstream and outbound")
		return d
	}
	legal := inboundMembers
	if out {
		legal = outboundMembers
	}
	for _, k := range m.object.keys {
		if slices.Contains(legal, k) {
			continue
		}
		found := "unknown member"
		if slices.Contains(inboundMembers, k) || slices.Contains(outboundMembers, k) {
			found = "given for the wrong kind of domain"
		}
		m.fault(showName(k), found, strings.Join(legal, ", "))
	}
	if out {
		d.Outbound = m.url("outbound", "an http:// or https:// URL of the other relay, without credentials, path and query", false)
		d.OutboundToken = m.secret("outbound_token", 1)
		return d
	}
	d.Upstream = m.url("upstream", "an http:// or https:// URL without credentials and query", true)
	d.Secret = m.secret("client_id_secret", minSecret)
	d.CORSOrigins = m.list("cors_origins", "origins such as https://app.example, or *", isOrigin)
	d.CORSMethods = m.list("cors_methods", "HTTP methods", isFieldName)
	d.CORSAllowedHeaders = m.list("cors_allowed_headers", "header names", isFieldName)
	d.CORSExposedHeaders = m.list("cors_exposed_headers", "header names", isFieldName)
	d.PassThroughRoutes = m.list("pass_through_routes", "paths that begin with /, without query", isRoute)
	d.MTERoutes = m.list("mte_routes", "paths that begin with /, without query", isRoute)
	d.ForwardPlainHeaders = m.list("forward_plain_headers", "header names in which * stands for anything", isFieldName)
	for i, name := range d.ForwardPlainHeaders {
		d.ForwardPlainHeaders[i] = strings.ToLower(name)
	}
	if n := m.get("forward_browser_cookies"); n != nil {
		d.ForwardCookies = n.text == "true"
		if n.kind != nodeFlag {
			m.fault("forward_browser_cookies", n.kind.String(), "true or false")
		}
	}
	d.Headers = m.headers()
	return d
}

func (m *members) url(name, legal string, path bool) *url.URL {
	n := m.get(name)
	if n.kind != nodeText {
		m.fault(name, n.kind.String(), legal)
		return nil
	}
	u, err := parseEndpoint(n.text)
	if err != nil || u.RawQuery != "" || u.ForceQuery || !path && u.Path != "" && u.Path != "/" {
		found := quote(n.text)
		if strings.Contains(n.text, "@") || strings.Contains(n.text, "?") {
			found = hidden // it may hold credentials
		}
		m.fault(name, found, legal)
		return nil
	}
	u.Path, u.RawPath = strings.TrimSuffix(u.Path, "/"), strings.TrimSuffix(u.RawPath, "/")
	return u
}

func (m *members) secret(name string, least int) Secret {
	n := m.get(name)
	if n == nil {
		return ""
	}
	if n.kind != nodeText {
		m.fault(name, n.kind.String(), "a string")
	} else if len(n.text) < least {
		m.fault(name, strconv.Itoa(len(n.text))+" bytes", "at least "+strconv.Itoa(least)+" bytes")
	} else if name == "outbound_token" && !isFieldValue(n.text) {
		m.fault(name, hidden, "text that a header can carry")
	}
	return Secret(n.text)
}

func (m *members) list(name, legal string, ok func(string) bool) []string {
	n := m.get(name)
	if n == nil {
		return nil
	}
	if n.kind != nodeList {
		m.fault(name, n.kind.String(), "a list of "+legal)
		return nil
	}
	var list []string
	for _, item := range n.items {
		switch {
		case item.kind != nodeText:
			m.fault(name, item.kind.String(), "a list of "+legal)
		case !ok(item.text):
			m.fault(name, quote(item.text), "a list of "+legal)
		default:
			list = append(list, item.text)
		}
	}
	return list
}

func (m *members) headers() []Header {
	n := m.get("headers")
	if n == nil {
		return nil
	}
	const legal = "an object of header name → text; no header that frames a message, each once"
	if n.kind != nodeObject {
		m.fault("headers", n.kind.String(), legal)
		return nil
	}
	var list []Header
	for i, name := range n.keys {
		value := n.items[i]
		twice := slices.ContainsFunc(list, func(h Header) bool { return strings.EqualFold(h.Name, name) })
		switch {
		case !isFieldName(name) || isFraming(name) || twice:
			m.fault("headers", quote(name), legal)
		case value.kind != nodeText:
			m.fault("headers", quote(name)+" is "+value.kind.String(), legal)
		case !isFieldValue(value.text):
			m.fault("headers", quote(name)+" has control characters or blanks at its ends", legal) // the value may be a secret
		default:
			list = append(list, Header{name, value.text})
		}
	}
	slices.SortFunc(list, func(a, b Header) int { return strings.Compare(a.Name, b.Name) })
	return list
}

// isOrigin reports whether s is * or what a browser sends as Origin: scheme://host[:port].
func isOrigin(s string) bool {
	if s == "*" {
		return true
	}
	scheme, host, ok := strings.Cut(s, "://")
	if !ok || scheme == "" || strings.Trim(scheme, "abcdefghijklmnopqrstuvwxyz0123456789+-.") != "" {
		return false
	}
	_, ok = hostPort(host, "80")
	return ok && host == strings.ToLower(host)
}

// isRoute reports whether s can match the path of a request target.
func isRoute(s string) bool {
	return strings.HasPrefix(s, "/") && isVisible(s) && !strings.ContainsAny(s, "?#")
}

// isFieldValue reports whether s can be sent as a header's value as it is (RFC 9110 §5.5).
func isFieldValue(s string) bool {
	return strings.Trim(s, " \t") == s && isOneLine(strings.ReplaceAll(s, "\t", " "))
}
