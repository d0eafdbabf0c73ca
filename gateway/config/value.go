package config

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"sluice/codec/frame"
)

// A Kind is how a setting's text is read and which numbers are legal unless the row says less.
type Kind uint8

const (
	Count       Kind = iota // 1 … 2^31 − 1
	Millis                  // 1 ms … a day
	Seconds                 // 1 s … 365 days
	Bytes                   // 1 … 2^40
	MiB                     // 1 … 2^20, held in bytes
	Port                    // 1 … 65535
	Flag                    // true false on off 1 0
	Choice                  // one of Setting.Choices
	Text                    // anything on one line: paths
	List                    // of non-empty texts, by commas
	Host                    // IP address, or localhost
	HeaderName              // a field name that we do not use ourselves
	HeaderValue             // printable ASCII
	Congestion              // name of a kernel module
	Endpoint                // http or https URL without credentials
	Proxies                 // proxies.go
	RedisURL                // redis.go; a secret
	DomainMap               // domain.go; holds secrets
)

// secret reports whether a value of this kind must not be shown.
func (k Kind) secret() bool { return k == RedisURL || k == DomainMap || k == Endpoint }

// limits returns the legal numbers of a numeric kind.
func (k Kind) limits() (least, most int64, ok bool) {
	switch k {
	case Count:
		return 1, 1<<31 - 1, true
	case Millis:
		return 1, 24 * 60 * 60 * 1000, true
	case Seconds:
		return 1, 365 * 24 * 60 * 60, true
	case Bytes:
		return 1, 1 << 40, true
	case MiB:
		return 1, 1 << 20, true
	case Port:
		return 1, 65535, true
	}
	return 0, 0, false
}

// Legal says in words which values the row takes.
func (s *Setting) Legal() string {
	var b strings.Builder
	if least, most, ok := s.Kind.limits(); ok {
		unit := map[Kind]string{Count: "a whole number", Millis: "whole milliseconds", Seconds: "whole seconds", Bytes: "whole bytes", MiB: "whole MiB", Port: "a port"}[s.Kind]
		fmt.Fprintf(&b, "%s from %d to %d", unit, max(least, s.Min), most)
		if s.Zero != "" {
			fmt.Fprintf(&b, ", or 0 (%s)", s.Zero)
		}
		return b.String()
	}
	switch s.Kind {
	case Flag:
		return "true, false, on, off, 1 or 0"
	case Choice:
		last := len(s.Choices) - 1
		return strings.Join(s.Choices[:last], ", ") + " or " + s.Choices[last]
	case Text:
		return "text on one line"
	case List:
		return "texts separated by commas"
	case Host:
		return "an IP address or localhost"
	case HeaderName:
		return "the name of an HTTP header that does not frame a message"
	case HeaderValue:
		return "1 to 256 printable ASCII characters without blanks"
	case Congestion:
		return "a congestion control of the kernel, at most 15 letters, digits, - and _"
	case Endpoint:
		return "an http:// or https:// URL without credentials"
	case Proxies:
		return legalProxies
	case RedisURL:
		return legalRedis
	case DomainMap:
		return "a JSON object of host → domain"
	}
	panic("BUG: setting without a kind")
}

// set reads text, which is not empty, into the row's field of c and reports whether it is legal.
// Of the kinds that can tell, bad is the part that is not.
func (s *Setting) set(c *Config, text string) (ok bool, bad string) {
	p := s.field(c)
	if _, _, number := s.Kind.limits(); number {
		n, ok := s.number(text)
		if ok {
			store(p, s.Kind, n)
		}
		return ok, text
	}
	switch s.Kind {
	case Flag:
		*p.(*bool) = text == "true" || text == "on" || text == "1"
		return *p.(*bool) || text == "false" || text == "off" || text == "0", text
	case Choice:
		return s.choose(p, text), text
	case Text:
		*p.(*string) = text
		return isOneLine(text), text
	case List:
		*p.(*[]string), ok = parseList(text)
		return ok, text
	case Host:
		*p.(*netip.Addr), ok = parseHost(text)
		return ok, text
	case HeaderName:
		*p.(*string) = text
		return isFieldName(text) && !isFraming(text), text
	case HeaderValue:
		*p.(*string) = text
		return len(text) <= 256 && isVisible(text), text
	case Congestion:
		*p.(*string) = text
		return len(text) <= 15 && isToken(text), text
	case Endpoint:
		*p.(*string) = text
		_, err := parseEndpoint(text)
		return err == nil, text
	case Proxies:
		list, entry, err := parseProxies(text)
		*p.(*[]netip.Prefix) = list
		return err == nil, entry
	case RedisURL:
		var err error
		*p.(*RedisServer), err = parseRedisURL(text)
		return err == nil, text
	}
	panic("BUG: " + s.Name + " cannot be read from text")
}

func (s *Setting) number(text string) (int64, bool) {
	least, most, _ := s.Kind.limits()
	n, ok := parseWhole(text)
	if ok && n == 0 && s.Zero != "" {
		return 0, true
	}
	return n, ok && n >= max(least, s.Min) && n <= most
}

func (s *Setting) choose(p any, text string) bool {
	for _, c := range s.Choices {
		if c != text {
			continue
		}
		switch p := p.(type) {
		case *string:
			*p = text
		case *int:
			*p, _ = strconv.Atoi(text)
		default:
			panic("BUG: " + s.Name + " chooses into an unknown type")
		}
		return true
	}
	return false
}

// store puts a legal number where the row wants it.
func store(p any, k Kind, n int64) {
	switch p := p.(type) {
	case *int:
		*p = int(n)
	case *uint16:
		*p = uint16(n)
	case *int64:
		if k == MiB {
			n <<= 20
		}
		*p = n
	case *time.Duration:
		unit := time.Second
		if k == Millis {
			unit = time.Millisecond
		}
		*p = time.Duration(n) * unit
	default:
		panic(fmt.Sprintf("BUG: a number goes into %T", p))
	}
}

func itoa[T int | int64](n T) string { return strconv.FormatInt(int64(n), 10) }

// parseWhole reads decimal digits without sign and without leading zeros, which some would take
// for octal.
func parseWhole(s string) (int64, bool) {
	if s == "" || len(s) > 18 || s[0] == '0' && len(s) > 1 {
		return 0, false
	}
	var n int64
	for i := range len(s) {
		d := s[i] - '0'
		if d > 9 {
			return 0, false
		}
		n = n*10 + int64(d)
	}
	return n, true
}

func parseList(s string) ([]string, bool) {
	var list []string
	for item := range strings.SplitSeq(s, ",") {
		item = strings.TrimSpace(item)
		if item == "" || !isOneLine(item) {
			return nil, false
		}
		list = append(list, item)
	}
	return list, true
}

// isVisible reports whether s is one or more printable ASCII characters without blanks.
func isVisible(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' {
			return false
		}
	}
	return s != ""
}

// isOneLine reports whether s has no control characters.
func isOneLine(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] == 0x7f {
			return false
		}
	}
	return true
}

// isToken reports whether s is letters, digits, '-' and '_'.
func isToken(s string) bool {
	for i := range len(s) {
		c := s[i] | 0x20
		if !('a' <= c && c <= 'z' || '0' <= s[i] && s[i] <= '9' || s[i] == '-' || s[i] == '_') {
			return false
		}
	}
	return s != ""
}

// isFieldName reports whether s is a token of RFC 9110 §5.6.2.
func isFieldName(s string) bool {
	for i := range len(s) {
		c := s[i]
		if !('a' <= c|0x20 && c|0x20 <= 'z' || '0' <= c && c <= '9' || strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0) {
			return false
		}
	}
	return s != ""
}

// isFraming reports whether a header of that name decides where a message ends or belongs to one
// hop; nobody may set such a one by configuration.
func isFraming(name string) bool {
	name = strings.ToLower(name)
	return name == "content-length" || name == "host" || frame.HopByHop([]byte(name))
}
