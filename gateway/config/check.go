package config

import (
	"crypto/tls"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"sluice/codec/frame"
	"sluice/codec/open"
)

const second = time.Second

// check finds what no row can see by itself: settings that contradict each other. A setting that
// already has a fault takes no part, so that one mistake is one line.
func (l *loader) check() {
	l.checkListeners()
	l.checkRelay()
	l.checkCluster()
	l.checkMTE()
	l.checkClient()
	l.checkEdge()
}

// refuse adds a fault about name unless it, or one of the others that the rule compares it with,
// has a fault already.
func (l *loader) refuse(broken bool, name, legal string, others ...string) {
	for _, n := range append(others, name) {
		if !broken || l.faulty[n] {
			return
		}
	}
	g, ok := l.given[name]
	if !ok {
		g.byDefault = true
	}
	l.fault(name, g.show(lookup(name).Kind), legal)
}

// isSet reports whether somebody gave the setting a value.
func (l *loader) isSet(name string) bool {
	g, ok := l.given[name]
	return ok && !g.byDefault
}

func (l *loader) checkListeners() {
	relay, mte, admin := l.c.Relay.Listen, l.c.MTE.Listen, l.c.Admin.Listen
	l.refuse(!relay.On() && !mte.On(), "PORT", "not 0 while PASEO_RELAY_PORT is 0: no role would be left", "PASEO_RELAY_PORT")
	l.refuse(relay.overlaps(mte), "PORT", "a port other than PASEO_RELAY_PORT", "PASEO_RELAY_PORT", "PASEO_RELAY_HOST", "HOST")
	l.refuse(relay.overlaps(admin), "ADMIN_PORT", "a port other than PASEO_RELAY_PORT", "PASEO_RELAY_PORT", "PASEO_RELAY_HOST", "ADMIN_HOST")
	l.refuse(mte.overlaps(admin), "ADMIN_PORT", "a port other than PORT", "PORT", "HOST", "ADMIN_HOST")
	l.checkTLS("PASEO_RELAY_TLS_CERT_FILE", "PASEO_RELAY_TLS_KEY_FILE", l.c.Relay.TLS)
	l.checkTLS("TLS_CERT_FILE", "TLS_KEY_FILE", l.c.MTE.TLS)
}

// checkTLS loads every pair once, so that a wrong file stops the start and not the first client.
func (l *loader) checkTLS(certs, keys string, t TLS) {
	if l.faulty[certs] || l.faulty[keys] {
		return
	}
	if n, m := len(t.CertFiles), len(t.KeyFiles); n != m {
		l.fault(certs, fmt.Sprintf("%d certificates and %d keys", n, m), "as many as "+keys+" has keys")
		return
	}
	for i := range t.CertFiles {
		cert, err := l.readFile(t.CertFiles[i])
		if err != nil {
			l.fault(certs, fmt.Sprintf("%s cannot be read (%v)", quote(t.CertFiles[i]), err), "readable files")
			return
		}
		key, err := l.readFile(t.KeyFiles[i])
		if err != nil {
			l.fault(keys, fmt.Sprintf("%s cannot be read (%v)", quote(t.KeyFiles[i]), err), "readable files")
			return
		}
		pair, err := tls.X509KeyPair(cert, key)
		if err != nil {
			found := fmt.Sprintf("%s is no pair with %s (%v)", quote(t.CertFiles[i]), quote(t.KeyFiles[i]), err)
			l.fault(certs, found, "PEM certificates whose keys "+keys+" lists in the same order")
			return
		}
		if end := pair.Leaf.NotAfter; time.Now().After(end) {
			l.notices.warn(certs + ": " + quote(t.CertFiles[i]) + " expired on " + end.UTC().Format(time.DateOnly) + "; clients will refuse it")
		}
	}
}

func (l *loader) checkRelay() {
	r := l.c.Relay
	delivery := itoa(r.DeliveryTimeout.Milliseconds())
	l.refuse(r.TransportSendTimeout <= r.DeliveryTimeout, "PASEO_RELAY_TRANSPORT_SEND_TIMEOUT_MS",
		"more than PASEO_RELAY_DELIVERY_TIMEOUT_MS ("+delivery+")", "PASEO_RELAY_DELIVERY_TIMEOUT_MS")
	l.refuse(r.DataAttachTimeout > r.DeliveryTimeout, "PASEO_RELAY_DATA_ATTACH_TIMEOUT_MS",
		"at most PASEO_RELAY_DELIVERY_TIMEOUT_MS ("+delivery+")", "PASEO_RELAY_DELIVERY_TIMEOUT_MS")
	l.refuse(r.IngressBudgetBytes < MaxPayload*int64(r.IngressWeight), "PASEO_RELAY_INGRESS_BUDGET_BYTES",
		fmt.Sprintf("at least %d = %d × PASEO_RELAY_INGRESS_WEIGHT (%d), one message of the largest size", MaxPayload*int64(r.IngressWeight), MaxPayload, r.IngressWeight),
		"PASEO_RELAY_INGRESS_WEIGHT")
	l.refuse(r.Acceptors > maxCount/r.ConnectionsPerAcceptor, "PASEO_RELAY_ACCEPTORS",
		fmt.Sprintf("at most %d in product with PASEO_RELAY_CONNECTIONS_PER_ACCEPTOR (%d)", maxCount, r.ConnectionsPerAcceptor),
		"PASEO_RELAY_CONNECTIONS_PER_ACCEPTOR")
}

const maxCount = 1<<31 - 1

func (l *loader) checkCluster() {
	r, redis := l.c.Relay, l.c.Redis.On()
	for _, name := range []string{"PASEO_RELAY_CLUSTER_QUERY", "PASEO_RELAY_CLUSTER_NODES"} {
		if !l.isSet(name) {
			continue
		}
		l.refuse(!redis, name, "unset: nodes find each other through REDIS_URL, and PASEO_RELAY_OWNERSHIP_TARGET says how to reach this one", "REDIS_URL")
		if redis {
			l.notices.warn(name + ": ignored, nodes find each other through REDIS_URL")
		}
	}
	l.refuse(r.Ownership == OwnershipRedis && !redis, "PASEO_RELAY_OWNERSHIP", "local, or redis with REDIS_URL", "REDIS_URL")
	clustered := r.MinClusterSize > 1
	l.refuse(clustered && !redis, "PASEO_RELAY_MIN_CLUSTER_SIZE", "1 without REDIS_URL", "REDIS_URL")
	l.refuse(clustered && redis && r.Ownership == OwnershipLocal, "PASEO_RELAY_MIN_CLUSTER_SIZE",
		"1 with PASEO_RELAY_OWNERSHIP=local", "PASEO_RELAY_OWNERSHIP")
	local := r.OwnershipTarget == "local"
	l.refuse(clustered && local, "PASEO_RELAY_MIN_CLUSTER_SIZE",
		"1 while PASEO_RELAY_OWNERSHIP_TARGET is local: other nodes could not reach this one", "PASEO_RELAY_OWNERSHIP_TARGET")
	if !clustered && local && redis && r.Listen.On() && r.Ownership == OwnershipRedis {
		l.notices.warn("PASEO_RELAY_OWNERSHIP_TARGET: local with REDIS_URL; other nodes cannot reach this one, set it to what the deployment adapter understands, or PASEO_RELAY_OWNERSHIP=local")
	}
	l.idle(redis, "REDIS_URL", "REDIS_POOL_SIZE", "REDIS_DIAL_TIMEOUT_SECONDS", "REDIS_READ_TIMEOUT_SECONDS", "REDIS_WRITE_TIMEOUT_SECONDS",
		"REDIS_MAX_RETRIES", "REDIS_OP_TIMEOUT_SECONDS", "LOCAL_STATE_CACHE")
	if c := l.c.Redis; redis && l.isSet("REDIS_WRITE_TIMEOUT_SECONDS") && c.WriteTimeout < c.ReadTimeout {
		l.notices.warn("REDIS_WRITE_TIMEOUT_SECONDS: without effect below REDIS_READ_TIMEOUT_SECONDS (" + itoa(int64(c.ReadTimeout/second)) + "), a write may take as long")
	}
	l.idle(l.c.Source.ControlPlaneURL != "", "CONTROL_PLANE_URL", "CONTROL_PLANE_TOKEN_FILE", "CONTROL_PLANE_CACHE_FILE")
	if s := l.c.Source; s.ControlPlaneToken != "" && plainAcrossTheNetwork(s.ControlPlaneURL) {
		l.notices.warn("CONTROL_PLANE_TOKEN_FILE: the token goes to an http:// URL that is not on this machine; everybody on the way can read it and the settings")
	}
}

// plainAcrossTheNetwork reports whether an endpoint is asked without TLS and outside of loopback.
func plainAcrossTheNetwork(endpoint string) bool {
	u, err := parseEndpoint(endpoint)
	if err != nil || u.Scheme != "http" {
		return false
	}
	ip, err := netip.ParseAddr(u.Hostname())
	return u.Hostname() != "localhost" && (err != nil || !ip.IsLoopback())
}

// idle warns of settings that do nothing because the one they belong to is unset.
func (l *loader) idle(on bool, owner string, names ...string) {
	var set []string
	for _, n := range names {
		if l.isSet(n) {
			set = append(set, n)
		}
	}
	if !on && set != nil && !l.faulty[owner] {
		l.notices.warn(strings.Join(set, ", ") + ": without effect, " + owner + " is unset")
	}
}

func (l *loader) checkMTE() {
	m := l.c.MTE
	profile, err := open.New(m.KyberStrength, open.MinWindow) // neither counts for sizes
	if err != nil {
		panic("BUG: KYBER_STRENGTH: " + err.Error())
	}
	// The rows have the bounds of the contract, of which the least frame carries no
	// legal metadata: then no other value of the next two settings would help.
	least := frame.RequestHeadBytes + profile.EncodedBytes(open.MTE, int(lookup("MAX_METADATA_BYTES_MTE").Min))
	l.refuse(m.MaxFrameBytes < int64(least), "MAX_FRAME_BYTES", "at least "+itoa(int64(least))+", to carry the least MAX_METADATA_BYTES_MTE")
	metadata := func(t open.Type, name string, n int64) {
		most := profile.PlaintextBytes(t, int(m.MaxFrameBytes)-frame.RequestHeadBytes)
		l.refuse(n > int64(most), name,
			fmt.Sprintf("at most %d, what a frame of MAX_FRAME_BYTES (%d) can carry", most, m.MaxFrameBytes), "MAX_FRAME_BYTES")
	}
	metadata(open.MKE, "MAX_METADATA_BYTES_MKE", m.MaxMetadataBytesMKE)
	metadata(open.MTE, "MAX_METADATA_BYTES_MTE", m.MaxMetadataBytesMTE)
	l.refuse(m.CodecPoolSize > m.CodecPoolCeiling, "DEFAULT_POOL_SIZE",
		"at most MAX_POOL_SIZE_LIMIT ("+itoa(m.CodecPoolCeiling)+")", "MAX_POOL_SIZE_LIMIT")
	if m.Listen.On() {
		l.checkDomains()
	}
}

func (l *loader) checkClient() {
	c := l.c.Client
	legal := "at most CLIENT_MAX_PAIRS (" + itoa(c.MaxPairs) + ")"
	l.refuse(c.InitialPairs > c.MaxPairs, "CLIENT_INITIAL_PAIRS", legal, "CLIENT_MAX_PAIRS")
	l.refuse(c.MinPairs > c.MaxPairs, "CLIENT_MIN_PAIRS", legal, "CLIENT_MAX_PAIRS")
}

func (l *loader) checkEdge() {
	e := l.c.Edge
	if e.ProxyProtocol && len(e.TrustedProxies) == 0 && !l.faulty["TRUSTED_PROXIES"] {
		l.notices.warn("PROXY_PROTOCOL: on, but TRUSTED_PROXIES is empty: a peer that sends the header is closed")
	}
}

// reservedFiles are the descriptors the process needs besides one per connection.
const reservedFiles = 1000

// CheckFileLimit compares the ceilings with limit, the soft RLIMIT_NOFILE of the process.
func (c *Config) CheckFileLimit(limit uint64) Notices {
	var n Notices
	ceiling := func(on bool, names string, most int) {
		if on && uint64(most)+reservedFiles > limit {
			n.warn(fmt.Sprintf("%s: a ceiling of %d connections is above RLIMIT_NOFILE (%d) less %d; raise the limit or lower the ceiling", names, most, limit, reservedFiles))
		}
	}
	ceiling(c.Relay.Listen.On(), "PASEO_RELAY_ACCEPTORS × PASEO_RELAY_CONNECTIONS_PER_ACCEPTOR", c.Relay.MaxWebSockets())
	ceiling(true, "HTTP_MAX_CONNECTIONS", c.HTTP.MaxConnections)
	return n
}
