// Package config turns the environment, a settings file and nothing else into one immutable
// Config. The settings themselves are the table in settings.go.
package config

import (
	"net/netip"
	"runtime"
	"sync"
	"time"
)

// A Config is one applied version of all settings.
//
// It is never changed after Load returned it, nor is anything its slices and maps reach: a reload
// makes a new one. Any goroutine may read it.
type Config struct {
	// Version counts applied versions from 1; discovery calls it configVersion.
	Version uint64

	Relay     Relay
	MTE       MTE
	Client    Client
	HTTP      HTTP
	Socket    Socket
	Edge      Edge
	Admin     Admin
	Redis     Redis
	Lifecycle Lifecycle
	Source    Source
	Log       Log

	Loops int // event loops, at least 1
}

// Relay is the WebSocket relay (PASEO_RELAY_…).
type Relay struct {
	Listen Listen
	TLS    TLS

	StartDraining   bool
	OwnershipTarget string // what other nodes hand to the deployment adapter
	RerouteHeader   string // header of a 409 that carries the owner's target
	Ownership       string // OwnershipLocal or OwnershipRedis
	MinClusterSize  int

	Acceptors              int // only the product counts, see MaxWebSockets
	ConnectionsPerAcceptor int

	HTTPIdleTimeout         time.Duration // before the upgrade, and unread bodies
	CapacityMutationTimeout time.Duration // a loop slower than this is wedged
	DeliveryTimeout         time.Duration
	TransportSendTimeout    time.Duration // longer than DeliveryTimeout
	DataAttachTimeout       time.Duration // at most DeliveryTimeout
	IngressWait             time.Duration // 0: close at once
	MessageIdleTimeout      time.Duration
	PingInterval            time.Duration // 0: the relay sends no pings

	IngressBudgetBytes   int64 // admits MaxPayload × IngressWeight at least
	IngressWeight        int
	ControlQueueBytes    int64
	MemoryWatermarkBytes int64 // 0: off
	HeapWords            int64 // 8 bytes each, see SocketHeapBytes
	ReceiveBufferBytes   int64 // per socket; 0: the kernel's

	clusterQuery string // of the Elixir relay, refused or ignored
	clusterNodes string
}

// The values of Relay.Ownership.
const (
	OwnershipLocal = "local"
	OwnershipRedis = "redis"
)

// MaxPayload is the largest message payload in bytes: 32 MiB less a 14-byte frame header
// (contract, relay §3).
const MaxPayload = 32<<20 - 14

// MaxWebSockets is the ceiling of active WebSockets.
func (r Relay) MaxWebSockets() int { return r.Acceptors * r.ConnectionsPerAcceptor }

// SocketHeapBytes is how much one socket may hold in this process.
func (r Relay) SocketHeapBytes() int64 { return r.HeapWords * 8 }

// MTE is the relay half of the encrypting relay.
type MTE struct {
	Listen  Listen
	TLS     TLS
	Domains Domains // live

	KyberStrength   int // 512, 768 or 1024
	RateLimits      bool
	LocalStateCache bool // only with Redis and sticky routing
	SessionTimeout  time.Duration
	TokenMaxAge     time.Duration

	MaxRequestBodyBytes int64 // live; 0: unlimited
	MaxControlBodyBytes int64
	MaxFrameBytes       int64
	MaxMetadataBytesMKE int64 // plaintext; its REQUEST fits MaxFrameBytes
	MaxMetadataBytesMTE int64
	MaxPairsPerBatch    int
	MaxPairsPerClient   int
	MaxPairs            int           // memory store
	MaxPairBytes        int64         // advertised
	MaxPairTime         time.Duration // advertised
	MaxRequestTime      time.Duration // between two reads of a body
	MaxResponseTime     time.Duration // to the origin's first byte

	CodecPoolSize    int // idle instances per pool, at most CodecPoolCeiling
	CodecPoolCeiling int

	OriginConnectTimeout time.Duration
	OriginIdle           time.Duration
	OriginMaxIdle        int // per loop and origin

	pairMiB int64 // MAX_PAIR_MIB, folded into MaxPairBytes
}

// Client is the client half of the encrypting relay: one pair pool per outbound host.
type Client struct {
	MaxPairs        int
	InitialPairs    int // at most MaxPairs
	MinPairs        int // at most MaxPairs
	RefillThreshold int
	AcquireWait     time.Duration
	BufferBytes     int64 // all buffered request bodies together
}

// HTTP bounds what a connection may do before, or without, becoming a WebSocket.
type HTTP struct {
	MaxConnections int // per listener, WebSockets not counted
	MaxHeadBytes   int64
	MaxHeaders     int
}

// Socket holds what is set on, or expected of, every accepted socket.
type Socket struct {
	WriteStall      time.Duration
	SendBufferBytes int64  // 0: the kernel's
	Congestion      string // empty: the kernel's
}

// Edge is what stands in front of both roles.
type Edge struct {
	TrustedProxies []netip.Prefix // masked, IPv4-mapped ones as IPv4
	ProxyProtocol  bool           // version 1 and 2, from TrustedProxies only
}

// Admin is the listener for operators.
type Admin struct {
	Listen Listen
}

// Lifecycle is how the process ends.
type Lifecycle struct {
	Drain    time.Duration
	LameDuck time.Duration
}

// Source is where settings come from besides the environment.
type Source struct {
	File              string // empty: none
	ControlPlaneURL   string // empty: none
	ControlPlaneToken string // path of the file that holds the token
	ControlPlaneCache string // path of the last good version
	Poll              time.Duration
}

// Log is the form of log lines. The values are those of LOG_LEVEL and LOG_FORMAT.
type Log struct {
	Level  string
	Format string
}

// Listen is where a listener binds. Port 0 means that it does not exist.
type Listen struct {
	Host netip.Addr
	Port uint16
}

// On reports whether there is a listener.
func (l Listen) On() bool { return l.Port != 0 }

// Addr returns "host:port", IPv6 in brackets.
func (l Listen) Addr() string { return netip.AddrPortFrom(l.Host, l.Port).String() }

// overlaps reports whether the kernel would refuse the second of two listeners.
func (l Listen) overlaps(m Listen) bool {
	return l.On() && l.Port == m.Port &&
		(l.Host == m.Host || l.Host.IsUnspecified() || m.Host.IsUnspecified())
}

// TLS names the certificates of one listener; the files are read again when they change. The
// slices have one length, the first pair is the default. Empty: plain text.
type TLS struct {
	CertFiles []string
	KeyFiles  []string
}

// On reports whether the listener speaks TLS.
func (t TLS) On() bool { return len(t.CertFiles) > 0 }

// A Secret is a byte string that prints as nothing: neither fmt nor log/slog shows it.
type Secret string

// String, GoString and MarshalText keep the secret out of every formatted output.
func (Secret) String() string { return "(secret)" }

// GoString is String for %#v.
func (Secret) GoString() string { return "(secret)" }

// MarshalText is String for encoders.
func (Secret) MarshalText() ([]byte, error) { return []byte("(secret)"), nil }

// defaultLoops is GOMAXPROCS as it is when first asked for: the runtime follows the limits of its
// cgroup, and a version must not differ in LOOPS because of that.
var defaultLoops = sync.OnceValue(func() int { return runtime.GOMAXPROCS(0) })
