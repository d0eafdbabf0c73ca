package config

import (
	"errors"
	"net/netip"
	"net/url"
	"strings"
)

// hostPort completes "host", "host:port" or "[v6]:port" with a port. It reports false for
// anything that can be no host.
func hostPort(s, port string) (string, bool) {
	host := s
	if strings.HasPrefix(s, "[") {
		end := strings.IndexByte(s, ']')
		if end < 0 {
			return "", false
		}
		a, err := netip.ParseAddr(s[1:end])
		if err != nil || !a.Is6() {
			return "", false
		}
		host, s = s[:end+1], s[end+1:]
		if s != "" {
			if s[0] != ':' {
				return "", false
			}
			port = s[1:]
		}
	} else {
		if i := strings.IndexByte(s, ':'); i >= 0 {
			host, port = s[:i], s[i+1:]
		}
		if !isHostname(host) {
			return "", false
		}
	}
	if n, ok := parseWhole(port); !ok || n < 1 || n > 65535 {
		return "", false
	}
	return host + ":" + port, true
}

// isHostname reports whether s can be a DNS name or an IPv4 address: labels of letters, digits,
// '-' and '_', at most 253 bytes.
func isHostname(s string) bool {
	if s == "" || len(s) > 253 {
		return false
	}
	for label := range strings.SplitSeq(s, ".") {
		if label == "" || len(label) > 63 {
			return false
		}
		for i := range len(label) {
			switch c := label[i]; {
			case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '_':
			case c == '-' && i > 0:
			default:
				return false
			}
		}
	}
	return true
}

// parseHost reads the address of a listener.
func parseHost(s string) (netip.Addr, bool) {
	if s == "localhost" {
		return netip.AddrFrom4([4]byte{127, 0, 0, 1}), true
	}
	a, err := netip.ParseAddr(s)
	return a, err == nil && a.Zone() == ""
}

// parseEndpoint reads an absolute http or https URL without user and fragment.
func parseEndpoint(s string) (*url.URL, error) {
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.User != nil || u.Opaque != "" ||
		strings.Contains(s, "#") || !isVisible(s) {
		return nil, errEndpoint
	}
	if u.Port() == "" && strings.HasSuffix(u.Host, ":") {
		return nil, errEndpoint
	}
	if _, ok := hostPort(u.Host, "80"); !ok {
		return nil, errEndpoint
	}
	return u, nil
}

var errEndpoint = errors.New("no http or https URL")
