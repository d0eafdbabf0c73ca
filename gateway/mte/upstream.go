package mte

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

// An upstream is where a domain's requests go. It does not change once made and
// may be used from any loop; connections are kept by origin, so that upstreams
// with the same scheme, host and port share them.
type upstream struct {
	key      string // scheme://host:port, what connections are kept under
	tls      bool
	host     string         // without brackets, for the resolver and for certificates
	addr     netip.AddrPort // of a numeric host, else not valid
	port     uint16
	base     string // path in front of every target; no slash at the end, may be empty
	hostLine string // "Host: …" with its CRLF
}

// newUpstream reads an http or https URL without credentials, query and
// fragment. A slash at the end of its path is dropped (contract, mte-relay §6).
func newUpstream(raw string) (*upstream, error) {
	u, err := url.Parse(raw)
	if err != nil {
		return nil, fmt.Errorf("upstream: %w", err)
	}
	up := &upstream{host: u.Hostname(), base: strings.TrimSuffix(u.EscapedPath(), "/")}
	switch u.Scheme {
	case "http":
		up.port = 80
	case "https":
		up.tls, up.port = true, 443
	default:
		return nil, fmt.Errorf("upstream: scheme %q; legal are http and https", u.Scheme)
	}
	if up.host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("upstream: an http:// or https:// URL with a host, without credentials, query and fragment is needed")
	}
	if p := u.Port(); p != "" {
		n, err := strconv.ParseUint(p, 10, 16)
		if err != nil || n == 0 {
			return nil, fmt.Errorf("upstream: port %q; legal are 1 to 65535", p)
		}
		up.port = uint16(n)
	}
	if a, err := netip.ParseAddr(up.host); err == nil {
		up.addr = netip.AddrPortFrom(a.Unmap(), up.port)
	}
	up.key = u.Scheme + "://" + net.JoinHostPort(strings.ToLower(up.host), strconv.Itoa(int(up.port)))
	up.hostLine = "Host: " + u.Host + "\r\n"
	return up, nil
}
