package config

// A Setting is one row of the table: everything that is known about one variable. Parsing, the
// range check, fault lines and the reference are made from it.
type Setting struct {
	Name    string
	Kind    Kind
	Default string   // as the environment would write it; empty: unset
	Note    string   // how the reference shows a default that is not one fixed text
	Min     int64    // 0: the least of Kind
	Zero    string   // what the value 0 means; empty: 0 is like any other number
	Choices []string // of Kind Choice
	Live    bool     // changes while running; the others need a restart
	Help    string

	field   func(*Config) any            // pointer into a Config, its type fits Kind
	derived func(*Config) (value string) // the default when Note describes one
}

// A Section groups the rows for the reference.
type Section struct {
	Title string
	Rows  []Setting
}

// sections is THE table (contract, settings; mte-relay §8 and §9). Nothing else lists settings.
var sections = []Section{
	{"WebSocket relay", []Setting{
		{Name: "PASEO_RELAY_HOST", Kind: Host, Default: "127.0.0.1", field: func(c *Config) any { return &c.Relay.Listen.Host }, Help: "Address of the listener."},
		{Name: "PASEO_RELAY_PORT", Kind: Port, Default: "4000", Zero: "role off", field: func(c *Config) any { return &c.Relay.Listen.Port }, Help: "Port of the listener."},
		{Name: "PASEO_RELAY_DRAIN", Kind: Flag, Default: "false", field: func(c *Config) any { return &c.Relay.StartDraining }, Help: "Start draining: not ready, no new sessions."},
		{Name: "PASEO_RELAY_OWNERSHIP_TARGET", Kind: HeaderValue, Default: "local", field: func(c *Config) any { return &c.Relay.OwnershipTarget }, Help: "What other nodes hand to the deployment adapter to reach this one."},
		{Name: "PASEO_RELAY_REROUTE_HEADER", Kind: HeaderName, Default: "x-reroute-target", field: func(c *Config) any { return &c.Relay.RerouteHeader }, Help: "Header of a 409 that carries the owner's target."},
		{Name: "PASEO_RELAY_OWNERSHIP", Kind: Choice, Choices: []string{OwnershipRedis, OwnershipLocal}, Note: "redis if REDIS_URL is set, else local", derived: defaultOwnership, field: func(c *Config) any { return &c.Relay.Ownership }, Help: "local keeps session ownership out of Redis."},
		{Name: "PASEO_RELAY_MIN_CLUSTER_SIZE", Kind: Count, Default: "1", field: func(c *Config) any { return &c.Relay.MinClusterSize }, Help: "Nodes that must be alive before new sessions are accepted; more than 1 needs REDIS_URL."},
		{Name: "PASEO_RELAY_CLUSTER_QUERY", Kind: Text, field: func(c *Config) any { return &c.Relay.clusterQuery }, Help: "Of the Elixir relay's clustering; REDIS_URL and PASEO_RELAY_OWNERSHIP_TARGET replace it."},
		{Name: "PASEO_RELAY_CLUSTER_NODES", Kind: Text, field: func(c *Config) any { return &c.Relay.clusterNodes }, Help: "Likewise."},
		{Name: "PASEO_RELAY_ACCEPTORS", Kind: Count, Default: "100", field: func(c *Config) any { return &c.Relay.Acceptors }, Help: "Factor of the active-WebSocket ceiling; only the product counts."},
		{Name: "PASEO_RELAY_CONNECTIONS_PER_ACCEPTOR", Kind: Count, Default: "200", field: func(c *Config) any { return &c.Relay.ConnectionsPerAcceptor }, Help: "The other factor."},
		{Name: "PASEO_RELAY_HTTP_IDLE_TIMEOUT_MS", Kind: Millis, Default: "15000", field: func(c *Config) any { return &c.Relay.HTTPIdleTimeout }, Help: "Parsing before the upgrade, and unread bodies."},
		{Name: "PASEO_RELAY_CAPACITY_MUTATION_TIMEOUT_MS", Kind: Millis, Default: "5000", field: func(c *Config) any { return &c.Relay.CapacityMutationTimeout }, Help: "An event loop that takes longer to turn over ends the process."},
		{Name: "PASEO_RELAY_INGRESS_BUDGET_BYTES", Kind: Bytes, Default: "536870912", field: func(c *Config) any { return &c.Relay.IngressBudgetBytes }, Help: "Weighted bytes of all admitted messages; at least 33554418 × PASEO_RELAY_INGRESS_WEIGHT."},
		{Name: "PASEO_RELAY_INGRESS_WEIGHT", Kind: Count, Default: "4", field: func(c *Config) any { return &c.Relay.IngressWeight }, Help: "Budget bytes charged per payload byte."},
		{Name: "PASEO_RELAY_DELIVERY_TIMEOUT_MS", Kind: Millis, Default: "30000", field: func(c *Config) any { return &c.Relay.DeliveryTimeout }, Help: "From a complete message to its last byte written; past it the destination is shed."},
		{Name: "PASEO_RELAY_TRANSPORT_SEND_TIMEOUT_MS", Kind: Millis, Default: "35000", field: func(c *Config) any { return &c.Relay.TransportSendTimeout }, Help: "Last resort, resets the socket; more than PASEO_RELAY_DELIVERY_TIMEOUT_MS."},
		{Name: "PASEO_RELAY_CONTROL_QUEUE_BYTES", Kind: Bytes, Default: "1048576", field: func(c *Config) any { return &c.Relay.ControlQueueBytes }, Help: "Notifications that may wait for one control socket."},
		{Name: "PASEO_RELAY_DATA_ATTACH_TIMEOUT_MS", Kind: Millis, Note: "15000, or PASEO_RELAY_DELIVERY_TIMEOUT_MS if that is less", derived: defaultAttach, field: func(c *Config) any { return &c.Relay.DataAttachTimeout }, Help: "How long a client's frame waits for a data socket; at most PASEO_RELAY_DELIVERY_TIMEOUT_MS."},
		{Name: "PASEO_RELAY_INGRESS_WAIT_MS", Kind: Millis, Default: "1000", Zero: "close at once", field: func(c *Config) any { return &c.Relay.IngressWait }, Help: "How long a source may wait for ingress budget."},
		{Name: "PASEO_RELAY_MESSAGE_IDLE_TIMEOUT_MS", Kind: Millis, Default: "30000", field: func(c *Config) any { return &c.Relay.MessageIdleTimeout }, Help: "A begun message that gains nothing for so long closes its source."},
		{Name: "PASEO_RELAY_PING_INTERVAL_MS", Kind: Millis, Default: "0", Zero: "none", field: func(c *Config) any { return &c.Relay.PingInterval }, Help: "Pings of the relay; two unanswered ones reset the socket."},
		{Name: "PASEO_RELAY_TCP_RECEIVE_BUFFER_BYTES", Kind: Bytes, Default: "65536", Zero: "the kernel's choice", field: func(c *Config) any { return &c.Relay.ReceiveBufferBytes }, Help: "Receive buffer per socket."},
		{Name: "PASEO_RELAY_WEBSOCKET_MAX_HEAP_WORDS", Kind: Count, Default: "33554432", Min: 33554432, field: func(c *Config) any { return &c.Relay.HeapWords }, Help: "× 8 = bytes one socket may hold in the process."},
		{Name: "PASEO_RELAY_MEMORY_WATERMARK_BYTES", Kind: Bytes, Default: "0", Zero: "off", field: func(c *Config) any { return &c.Relay.MemoryWatermarkBytes }, Help: "Resident memory above which admission stops and sockets are shed."},
		{Name: "PASEO_RELAY_TLS_CERT_FILE", Kind: List, Live: true, field: func(c *Config) any { return &c.Relay.TLS.CertFiles }, Help: "Certificates of this listener, chosen by SNI; the first is the default."},
		{Name: "PASEO_RELAY_TLS_KEY_FILE", Kind: List, Live: true, field: func(c *Config) any { return &c.Relay.TLS.KeyFiles }, Help: "Their keys, in the same order."},
	}},
	{"Encrypting relay", []Setting{
		{Name: "HOST", Kind: Host, Default: "127.0.0.1", field: func(c *Config) any { return &c.MTE.Listen.Host }, Help: "Address of the listener."},
		{Name: "PORT", Kind: Port, Default: "8080", Zero: "role off", field: func(c *Config) any { return &c.MTE.Listen.Port }, Help: "Port of the listener."},
		{Name: "DOMAIN_MAP", Kind: DomainMap, Note: "`localhost` with an echo origin, for development", Live: true, field: func(c *Config) any { return &c.MTE.Domains }, Help: "Host → domain: JSON, or an object in the file."},
		{Name: "KYBER_STRENGTH", Kind: Choice, Choices: []string{"1024", "768", "512"}, Default: "1024", field: func(c *Config) any { return &c.MTE.KyberStrength }, Help: "ML-KEM strength; both ends of a pair must agree."},
		{Name: "RATE_LIMITS", Kind: Flag, Default: "true", field: func(c *Config) any { return &c.MTE.RateLimits }, Help: "Token buckets in front of the control endpoints."},
		{Name: "SESSION_TIMEOUT_SECONDS", Kind: Seconds, Default: "7200", field: func(c *Config) any { return &c.MTE.SessionTimeout }, Help: "Life of a pair from its last use or keepalive."},
		{Name: "TOKEN_MAX_AGE_SECONDS", Kind: Seconds, Default: "86400", field: func(c *Config) any { return &c.MTE.TokenMaxAge }, Help: "Age at which pairing and keepalive refuse a token."},
		{Name: "MAX_REQUEST_BODY_MIB", Kind: MiB, Default: "0", Zero: "unlimited", Live: true, field: func(c *Config) any { return &c.MTE.MaxRequestBodyBytes }, Help: "Plaintext of a request body."},
		{Name: "MAX_CONTROL_BODY_MIB", Kind: MiB, Default: "4", field: func(c *Config) any { return &c.MTE.MaxControlBodyBytes }, Help: "Body of a pairing or keepalive call."},
		{Name: "MAX_FRAME_BYTES", Kind: Bytes, Default: "65536", Min: 4096, field: func(c *Config) any { return &c.MTE.MaxFrameBytes }, Help: "Payload of one frame."},
		{Name: "MAX_METADATA_BYTES_MKE", Kind: Bytes, Default: "61439", Min: 512, field: func(c *Config) any { return &c.MTE.MaxMetadataBytesMKE }, Help: "Plaintext metadata of an MKE frame; must fit MAX_FRAME_BYTES encoded."},
		{Name: "MAX_METADATA_BYTES_MTE", Kind: Bytes, Default: "7168", Min: 512, field: func(c *Config) any { return &c.MTE.MaxMetadataBytesMTE }, Help: "The same for MTE, whose encoding is 8 times as long."},
		{Name: "MAX_PAIRS_PER_BATCH", Kind: Count, Default: "100", field: func(c *Config) any { return &c.MTE.MaxPairsPerBatch }, Help: "Pairs of one pairing call."},
		{Name: "MAX_PAIRS_PER_CLIENT", Kind: Count, Default: "2048", field: func(c *Config) any { return &c.MTE.MaxPairsPerClient }, Help: "Pairs one client may hold."},
		{Name: "MAX_PAIRS", Kind: Count, Default: "1000000", field: func(c *Config) any { return &c.MTE.MaxPairs }, Help: "Pairs in the memory store."},
		{Name: "MAX_PAIR_BYTES", Kind: Bytes, Note: "1073741824", Zero: "the default", field: func(c *Config) any { return &c.MTE.MaxPairBytes }, Help: "Rekey budget of a connection, advertised."},
		{Name: "MAX_PAIR_MIB", Kind: MiB, Zero: "the default", field: func(c *Config) any { return &c.MTE.pairMiB }, Help: "Alias of MAX_PAIR_BYTES, which wins."},
		{Name: "MAX_PAIR_SECONDS", Kind: Seconds, Default: "86400", Zero: "the default", field: func(c *Config) any { return &c.MTE.MaxPairTime }, Help: "Rekey age of a connection, advertised."},
		{Name: "MAX_REQUEST_SECONDS", Kind: Seconds, Default: "30", field: func(c *Config) any { return &c.MTE.MaxRequestTime }, Help: "Between two reads of a body."},
		{Name: "MAX_RESPONSE_SECONDS", Kind: Seconds, Default: "30", field: func(c *Config) any { return &c.MTE.MaxResponseTime }, Help: "To the origin's first byte."},
		{Name: "DEFAULT_POOL_SIZE", Kind: Count, Note: "250, or MAX_POOL_SIZE_LIMIT if that is less", derived: defaultPool, field: func(c *Config) any { return &c.MTE.CodecPoolSize }, Help: "Idle instances of each of the four codec pools."},
		{Name: "MAX_POOL_SIZE_LIMIT", Kind: Count, Default: "100000", field: func(c *Config) any { return &c.MTE.CodecPoolCeiling }, Help: "The most DEFAULT_POOL_SIZE may say."},
		{Name: "ORIGIN_CONNECT_TIMEOUT_MS", Kind: Millis, Default: "5000", field: func(c *Config) any { return &c.MTE.OriginConnectTimeout }, Help: "Connecting to an origin."},
		{Name: "ORIGIN_IDLE_SECONDS", Kind: Seconds, Default: "60", field: func(c *Config) any { return &c.MTE.OriginIdle }, Help: "Life of an idle origin connection."},
		{Name: "ORIGIN_MAX_IDLE", Kind: Count, Default: "256", field: func(c *Config) any { return &c.MTE.OriginMaxIdle }, Help: "Idle connections per loop and origin."},
		{Name: "TLS_CERT_FILE", Kind: List, Live: true, field: func(c *Config) any { return &c.MTE.TLS.CertFiles }, Help: "Certificates of this listener, chosen by SNI; the first is the default."},
		{Name: "TLS_KEY_FILE", Kind: List, Live: true, field: func(c *Config) any { return &c.MTE.TLS.KeyFiles }, Help: "Their keys, in the same order."},
	}},
	{"Outbound domains", []Setting{
		{Name: "CLIENT_MAX_PAIRS", Kind: Count, Default: "1024", field: func(c *Config) any { return &c.Client.MaxPairs }, Help: "Requests in flight per outbound host."},
		{Name: "CLIENT_INITIAL_PAIRS", Kind: Count, Note: "2, or CLIENT_MAX_PAIRS if that is less", derived: defaultInitialPairs, field: func(c *Config) any { return &c.Client.InitialPairs }, Help: "Pairs a pool begins with."},
		{Name: "CLIENT_MIN_PAIRS", Kind: Count, Note: "25, or CLIENT_MAX_PAIRS if that is less", derived: defaultMinPairs, field: func(c *Config) any { return &c.Client.MinPairs }, Help: "Pairs a pool fills to and keeps."},
		{Name: "CLIENT_REFILL_THRESHOLD", Kind: Count, Default: "10", field: func(c *Config) any { return &c.Client.RefillThreshold }, Help: "Free pairs a refill adds to what is waited for."},
		{Name: "CLIENT_PAIR_ACQUIRE_WAIT_MS", Kind: Millis, Default: "1000", field: func(c *Config) any { return &c.Client.AcquireWait }, Help: "How long a request waits for a pair."},
		{Name: "CLIENT_BUFFER_BYTES", Kind: Bytes, Default: "268435456", field: func(c *Config) any { return &c.Client.BufferBytes }, Help: "Buffered request bodies, all together."},
	}},
	{"Redis", []Setting{
		{Name: "REDIS_URL", Kind: RedisURL, field: func(c *Config) any { return &c.Redis.Server }, Help: "redis://, rediss://, redis+sentinel://h1,h2/NAME or redis+cluster://h1,h2; what follows applies only with it."},
		{Name: "REDIS_POOL_SIZE", Kind: Count, Default: "2", field: func(c *Config) any { return &c.Redis.PoolSize }, Help: "Connections per server."},
		{Name: "REDIS_DIAL_TIMEOUT_SECONDS", Kind: Seconds, Default: "5", field: func(c *Config) any { return &c.Redis.DialTimeout }, Help: "Connecting."},
		{Name: "REDIS_READ_TIMEOUT_SECONDS", Kind: Seconds, Default: "3", field: func(c *Config) any { return &c.Redis.ReadTimeout }, Help: "One answer."},
		{Name: "REDIS_WRITE_TIMEOUT_SECONDS", Kind: Seconds, Default: "3", field: func(c *Config) any { return &c.Redis.WriteTimeout }, Help: "One write."},
		{Name: "REDIS_MAX_RETRIES", Kind: Count, Default: "3", field: func(c *Config) any { return &c.Redis.MaxRetries }, Help: "Attempts after the first."},
		{Name: "REDIS_OP_TIMEOUT_SECONDS", Kind: Seconds, Default: "5", field: func(c *Config) any { return &c.Redis.OpTimeout }, Help: "One operation with its retries."},
		{Name: "LOCAL_STATE_CACHE", Kind: Flag, Default: "false", field: func(c *Config) any { return &c.MTE.LocalStateCache }, Help: "Serve pair state from memory under a lease; only with sticky routing."},
	}},
	{"Listeners and connections", []Setting{
		{Name: "HTTP_MAX_CONNECTIONS", Kind: Count, Default: "10000", field: func(c *Config) any { return &c.HTTP.MaxConnections }, Help: "Per listener, WebSockets not counted; the longest idle goes first."},
		{Name: "HTTP_MAX_HEAD_BYTES", Kind: Bytes, Default: "65536", field: func(c *Config) any { return &c.HTTP.MaxHeadBytes }, Help: "Request line and headers; over it 431."},
		{Name: "HTTP_MAX_HEADERS", Kind: Count, Default: "128", field: func(c *Config) any { return &c.HTTP.MaxHeaders }, Help: "Header lines; over it 431."},
		{Name: "WRITE_STALL_SECONDS", Kind: Seconds, Default: "60", field: func(c *Config) any { return &c.Socket.WriteStall }, Help: "A peer that takes no byte for so long ends."},
		{Name: "TCP_SEND_BUFFER_BYTES", Kind: Bytes, Default: "0", Zero: "the kernel's choice", field: func(c *Config) any { return &c.Socket.SendBufferBytes }, Help: "Send buffer per accepted socket; those to origins and other relays keep the kernel's."},
		{Name: "TCP_CONGESTION", Kind: Congestion, field: func(c *Config) any { return &c.Socket.Congestion }, Help: "Congestion control per accepted socket; empty, and towards origins and other relays: the kernel's."},
		{Name: "TRUSTED_PROXIES", Kind: Proxies, field: func(c *Config) any { return &c.Edge.TrustedProxies }, Help: "Addresses and CIDRs whose X-Forwarded-For counts."},
		{Name: "PROXY_PROTOCOL", Kind: Flag, Default: "off", field: func(c *Config) any { return &c.Edge.ProxyProtocol }, Help: "A peer in TRUSTED_PROXIES must send the header (v1, v2), others must not."},
	}},
	{"Process", []Setting{
		{Name: "ADMIN_HOST", Kind: Host, Default: "127.0.0.1", field: func(c *Config) any { return &c.Admin.Listen.Host }, Help: "Address of the admin listener."},
		{Name: "ADMIN_PORT", Kind: Port, Default: "9090", field: func(c *Config) any { return &c.Admin.Listen.Port }, Help: "Health, ready, metrics, drain, the live page."},
		{Name: "LOOPS", Kind: Count, Note: "GOMAXPROCS", derived: func(*Config) string { return itoa(defaultLoops()) }, field: func(c *Config) any { return &c.Loops }, Help: "Event loops."},
		{Name: "DRAIN_SECONDS", Kind: Seconds, Default: "30", Zero: "none", field: func(c *Config) any { return &c.Lifecycle.Drain }, Help: "How long existing work may go on after SIGTERM."},
		{Name: "LAME_DUCK_SECONDS", Kind: Seconds, Default: "0", Zero: "none", field: func(c *Config) any { return &c.Lifecycle.LameDuck }, Help: "How long new sessions are admitted after /ready turned 503."},
		{Name: "CONFIG_FILE", Kind: Text, field: func(c *Config) any { return &c.Source.File }, Help: "Settings in JSON or YAML; the environment wins."},
		{Name: "CONTROL_PLANE_URL", Kind: Endpoint, field: func(c *Config) any { return &c.Source.ControlPlaneURL }, Help: "Polled for live settings; wins over the file."},
		{Name: "CONTROL_PLANE_TOKEN_FILE", Kind: Text, field: func(c *Config) any { return &c.Source.ControlPlaneToken }, Help: "File with the token for it."},
		{Name: "CONTROL_PLANE_CACHE_FILE", Kind: Text, field: func(c *Config) any { return &c.Source.ControlPlaneCache }, Help: "File that keeps the last good version."},
		{Name: "CONFIG_POLL_SECONDS", Kind: Seconds, Default: "15", field: func(c *Config) any { return &c.Source.Poll }, Help: "Between two looks at both."},
		{Name: "LOG_LEVEL", Kind: Choice, Choices: []string{"debug", "info", "warn", "error"}, Default: "info", field: func(c *Config) any { return &c.Log.Level }, Help: "The least level that is written."},
		{Name: "LOG_FORMAT", Kind: Choice, Choices: []string{"text", "json"}, Default: "text", field: func(c *Config) any { return &c.Log.Format }, Help: "Form of the lines on stderr."},
	}},
}

// settings calls yield for every row in the order of the table.
func settings(yield func(*Setting) bool) {
	for i := range sections {
		for j := range sections[i].Rows {
			if !yield(&sections[i].Rows[j]) {
				return
			}
		}
	}
}

// lookup returns the row of name, or nil.
func lookup(name string) *Setting {
	for s := range settings {
		if s.Name == name {
			return s
		}
	}
	return nil
}

func defaultOwnership(c *Config) string {
	if c.Redis.On() {
		return OwnershipRedis
	}
	return OwnershipLocal
}

func defaultAttach(c *Config) string {
	return itoa(min(15000, c.Relay.DeliveryTimeout.Milliseconds()))
}

func defaultPool(c *Config) string         { return itoa(min(250, c.MTE.CodecPoolCeiling)) }
func defaultInitialPairs(c *Config) string { return itoa(min(2, c.Client.MaxPairs)) }
func defaultMinPairs(c *Config) string     { return itoa(min(25, c.Client.MaxPairs)) }
