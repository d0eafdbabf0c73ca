package frame

import "strconv"

// A Discovery is what a relay tells about itself (contract, mte-relay §4): the members that apply to a
// relay of HTTP. Lengths are in bytes, times in seconds.
type Discovery struct {
	BuildVersion          string
	Features              []string
	Profile               string // mteProfile
	ConfigVersion         int
	KyberStrength         int
	MaxFrameBytes         int
	MaxMetadataMKE        int
	MaxMetadataMTE        int
	MaxPairsPerBatch      int
	MaxPairsPerClient     int
	MaxPairBytes          int64
	MaxPairSeconds        int64
	MaxRequestSeconds     int
	MaxResponseSeconds    int
	DrainSeconds          int
	SessionTimeoutSeconds int64
	TokenMaxAgeSeconds    int64
	StateMode             string // memory or shared
	MaxRequestBodyBytes   int64  // 0: no cap
	PassThroughRoutes     []string
	ForwardPlainHeaders   []string
	ForwardBrowserCookies bool

	// Filled by Parse; AppendJSON writes our own.

	FrameVersions  []int
	SequenceWindow int
}

// What is advertised and fixed.
const (
	DiscoverySchema     = 1
	SequenceWindow      = -63
	TimeWindow          = 1000
	IdleTimeoutSeconds  = 60
	PingIntervalSeconds = 25
)

// AppendJSON appends the discovery object.
func (d *Discovery) AppendJSON(dst []byte) []byte {
	number := func(name string, v int64) {
		dst = append(appendString(dst, name), ':')
		dst = append(strconv.AppendInt(dst, v, 10), ',')
	}
	text := func(name, v string) {
		dst = append(appendString(dst, name), ':')
		dst = append(appendString(dst, v), ',')
	}
	list := func(name string, v []string) {
		dst = append(append(appendString(dst, name), ':'), '[')
		for i, s := range v {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = appendString(dst, s)
		}
		dst = append(dst, ']', ',')
	}
	dst = append(dst, '{')
	number("discoverySchema", DiscoverySchema)
	text("buildVersion", d.BuildVersion)
	dst = append(dst, `"frameVersions":[2],`...)
	list("features", d.Features)
	text("mteProfile", d.Profile)
	number("configVersion", int64(d.ConfigVersion))
	number("kyberStrength", int64(d.KyberStrength))
	number("sequenceWindow", SequenceWindow)
	number("timeWindow", TimeWindow)
	number("maxFrameBytes", int64(d.MaxFrameBytes))
	number("maxMessageBytes", int64(d.MaxFrameBytes))
	dst = append(dst, `"maxMetadataBytes":{`...)
	number("MKE", int64(d.MaxMetadataMKE))
	number("MTE", int64(d.MaxMetadataMTE))
	dst[len(dst)-1] = '}'
	dst = append(dst, ',')
	number("maxPairsPerBatch", int64(d.MaxPairsPerBatch))
	number("maxPairsPerClient", int64(d.MaxPairsPerClient))
	number("maxPairBytes", d.MaxPairBytes)
	number("maxPairSeconds", d.MaxPairSeconds)
	number("maxRequestSeconds", int64(d.MaxRequestSeconds))
	number("maxResponseSeconds", int64(d.MaxResponseSeconds))
	number("idleTimeoutSeconds", IdleTimeoutSeconds)
	number("pingIntervalSeconds", PingIntervalSeconds)
	number("drainSeconds", int64(d.DrainSeconds))
	number("sessionTimeoutSeconds", d.SessionTimeoutSeconds)
	number("tokenMaxAgeSeconds", d.TokenMaxAgeSeconds)
	list("transports", []string{"http"})
	text("stateMode", d.StateMode)
	text("routeHeader", RouteHeader)
	number("maxRequestBodyBytes", d.MaxRequestBodyBytes)
	list("passThroughRoutes", d.PassThroughRoutes)
	list("forwardPlainHeaders", d.ForwardPlainHeaders)
	dst = append(dst, `"forwardBrowserCookies":`...)
	return append(strconv.AppendBool(dst, d.ForwardBrowserCookies), '}')
}

// parse reads the object a relay sent. Members that a client has no use for are skipped.
func (d *Discovery) parse(r *reader) bool {
	if r.peek() != '{' {
		return false
	}
	integer := func(v *int) bool {
		n, ok := r.uint(1 << 53)
		*v = int(n)
		return ok
	}
	long := func(v *int64) bool {
		n, ok := r.uint(1 << 53)
		*v = int64(n)
		return ok
	}
	text := func(v *string) bool {
		s, ok := r.member()
		*v = string(s)
		return ok
	}
	base, ok := r.object()
	for ok {
		var key []byte
		var more bool
		if key, more, ok = r.next(base); !ok || !more {
			break
		}
		switch string(key) {
		case "buildVersion":
			ok = text(&d.BuildVersion)
		case "mteProfile":
			ok = text(&d.Profile)
		case "stateMode":
			ok = text(&d.StateMode)
		case "features":
			ok = r.each(func() bool {
				s, ok := r.member()
				d.Features = append(d.Features, string(s))
				return ok
			})
		case "frameVersions":
			ok = r.each(func() bool {
				var v int
				ok := integer(&v)
				d.FrameVersions = append(d.FrameVersions, v)
				return ok
			})
		case "configVersion":
			ok = integer(&d.ConfigVersion)
		case "kyberStrength":
			ok = integer(&d.KyberStrength)
		case "sequenceWindow":
			ok = d.parseWindow(r)
		case "maxFrameBytes":
			ok = integer(&d.MaxFrameBytes)
		case "maxMetadataBytes":
			ok = d.parseMetadataBounds(r)
		case "maxPairsPerBatch":
			ok = integer(&d.MaxPairsPerBatch)
		case "maxPairsPerClient":
			ok = integer(&d.MaxPairsPerClient)
		case "maxRequestSeconds":
			ok = integer(&d.MaxRequestSeconds)
		case "maxResponseSeconds":
			ok = integer(&d.MaxResponseSeconds)
		case "sessionTimeoutSeconds":
			ok = long(&d.SessionTimeoutSeconds)
		case "tokenMaxAgeSeconds":
			ok = long(&d.TokenMaxAgeSeconds)
		case "maxRequestBodyBytes":
			ok = long(&d.MaxRequestBodyBytes)
		default:
			_, ok = r.skip()
		}
	}
	return ok
}

func (d *Discovery) parseWindow(r *reader) bool {
	negative := r.peek() == '-'
	if negative {
		r.at++
	}
	n, ok := r.uint(65535)
	if d.SequenceWindow = int(n); negative {
		d.SequenceWindow = -int(n)
	}
	return ok
}

func (d *Discovery) parseMetadataBounds(r *reader) bool {
	if r.peek() != '{' {
		return false
	}
	base, ok := r.object()
	for ok {
		var key []byte
		var more bool
		var n uint64
		if key, more, ok = r.next(base); !ok || !more {
			break
		}
		switch string(key) {
		case "MKE":
			n, ok = r.uint(1 << 53)
			d.MaxMetadataMKE = int(n)
		case "MTE":
			n, ok = r.uint(1 << 53)
			d.MaxMetadataMTE = int(n)
		default:
			_, ok = r.skip()
		}
	}
	return ok
}

// each reads an array, calling f for every element, which f must read.
func (r *reader) each(f func() bool) bool {
	if r.peek() != '[' {
		return false
	}
	ok := r.array()
	for first, more := true, true; ok && more; first = false {
		if more, ok = r.element(first); ok && more {
			ok = f()
		}
	}
	return ok
}
