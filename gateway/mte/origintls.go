package mte

import (
	"crypto/tls"
	"crypto/x509"
)

// resumedSessions is how many TLS sessions a loop keeps for one origin.
const resumedSessions = 16

// originTLSConfig is how we speak TLS to an origin: verified, at least 1.2,
// HTTP/1.1 and nothing else.
func originTLSConfig(up *upstream, roots *x509.CertPool) *tls.Config {
	return &tls.Config{
		ServerName:         up.host,
		RootCAs:            roots,
		MinVersion:         tls.VersionTLS12,
		NextProtos:         []string{"http/1.1"},
		ClientSessionCache: tls.NewLRUClientSessionCache(resumedSessions),
		// Small first records help browsers paint early; here they only cost.
		DynamicRecordSizingDisabled: true,
	}
}
