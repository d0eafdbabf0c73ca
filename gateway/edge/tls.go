package edge

import (
	"crypto/tls"

	"sluice/gateway/tlsconn"
	"sluice/loop"
)

// TLS is what a Server speaks TLS with. A connection counts against
// MaxConnections from its first byte on: a handshake under way is an idle
// connection, which goes first when room is needed.
type TLS struct {
	Engine *tlsconn.Engine
	Config *tls.Config

	// OnHandshake and OnFailure are told how each handshake went, on loops.
	OnHandshake func(resumed bool)
	OnFailure   func(c *HTTPConn, why tlsconn.Failure, err error)
}

// cipherSuites are those of TLS 1.2 that are not weak: forward secrecy and AEAD.
// TLS 1.3 has no others.
var cipherSuites = []uint16{
	tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
	tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
	tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
	tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
	tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
	tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
}

// ServerTLS is how we speak TLS to clients: 1.2 or 1.3, HTTP/1.1, no
// renegotiation, sessions resumed by tickets whose keys change daily and never
// leave the process. Replacing a certificate leaves the sessions valid.
func ServerTLS(certs *Certificates) *tls.Config {
	return &tls.Config{
		MinVersion:     tls.VersionTLS12,
		MaxVersion:     tls.VersionTLS13,
		NextProtos:     []string{"http/1.1"},
		CipherSuites:   cipherSuites,
		GetCertificate: certs.choose,
		// Small first records help browsers paint early; here they only cost.
		DynamicRecordSizingDisabled: true,
	}
}

// startTLS begins the handshake; unread is what the peer sent already.
func (c *HTTPConn) startTLS(raw *loop.Conn, unread []byte) {
	cfg := c.sh.srv.cfg.TLS
	c.tls = cfg.Engine.Server(raw, cfg.Config, c, 2*c.sh.srv.cfg.IdleTimeout, unread)
	c.sock = c.tls
}

// OnHandshake hears how the handshake went.
func (c *HTTPConn) OnHandshake(err error) {
	cfg := c.sh.srv.cfg.TLS
	if err == nil {
		if cfg.OnHandshake != nil {
			cfg.OnHandshake(c.tls.Resumed())
		}
		c.goIdle() // its time for a request begins
		c.arm()
		return
	}
	why := tlsconn.FailureOf(err)
	if cfg.OnFailure != nil {
		cfg.OnFailure(c, why, err)
	}
	if why == tlsconn.FailProtocol {
		c.linger() // the peer has an alert to read
		return
	}
	c.leave()
	c.sock.Close()
}

// endHandshake takes note of a handshake that we give up, if one is under way.
func (c *HTTPConn) endHandshake(why tlsconn.Failure) {
	if c.tls != nil && c.tls.Handshaking() && c.sh.srv.cfg.TLS.OnFailure != nil {
		c.sh.srv.cfg.TLS.OnFailure(c, why, nil)
	}
}
