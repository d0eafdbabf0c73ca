package gateway_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// overTLS runs every relay test of the package over wss: SLUICE_TEST_TLS=1.
var overTLS = os.Getenv("SLUICE_TEST_TLS") == "1"

// securedAddrs are the listeners that speak TLS. Ports are used once.
var securedAddrs sync.Map

// noteTLS has clients of addr speak TLS if the settings say so.
func noteTLS(addr string, settings []string) {
	for _, s := range settings {
		if strings.Contains(s, "TLS_CERT_FILE=") {
			securedAddrs.Store(addr, true)
			return
		}
	}
	securedAddrs.Delete(addr)
}

func secured(addr string) bool {
	_, ok := securedAddrs.Load(addr)
	return ok
}

// tlsPeer is TLS over a TCP connection whose descriptor stays in reach.
type tlsPeer struct {
	*tls.Conn
	tcp *tlsWire
}

// A tlsWire keeps what a write deadline left unsent: crypto/tls itself never goes
// on behind one.
type tlsWire struct {
	*net.TCPConn
	mu  sync.Mutex
	out []byte
}

func (w *tlsWire) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.out = append(w.out, b...)
	if err := w.flush(); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		return 0, err
	}
	return len(b), nil
}

func (w *tlsWire) flush() error {
	n, err := w.TCPConn.Write(w.out)
	w.out = w.out[:copy(w.out, w.out[n:])]
	return err
}

// Write takes all of b, or at the deadline nothing.
func (p tlsPeer) Write(b []byte) (int, error) {
	p.tcp.mu.Lock()
	var err error
	if len(p.tcp.out) > 0 {
		err = p.tcp.flush()
	}
	p.tcp.mu.Unlock()
	if err != nil {
		return 0, err
	}
	return p.Conn.Write(b)
}

func (p tlsPeer) SetLinger(sec int) error  { return p.tcp.SetLinger(sec) }
func (p tlsPeer) SetNoDelay(on bool) error { return p.tcp.SetNoDelay(on) }
func (p tlsPeer) File() (*os.File, error)  { return p.tcp.File() }

// settle sends what a deadline left unsent.
func (p tlsPeer) settle() {
	p.tcp.mu.Lock()
	defer p.tcp.mu.Unlock()
	p.tcp.SetWriteDeadline(time.Now().Add(patience))
	p.tcp.flush()
}

// Close closes the descriptor, without the close_notify that a stalled relay
// would keep waiting.
func (p tlsPeer) Close() error { return p.tcp.Close() }

// CloseWrite sends close_notify and FIN.
func (p tlsPeer) CloseWrite() error {
	p.Conn.CloseWrite()
	return p.tcp.CloseWrite()
}

// dialAny opens a connection the way the listener wants it.
func dialAny(addr string, d wsDial) (wsConn, error) {
	c, err := dialTCP(addr, d)
	if err != nil || !secured(addr) {
		return c, err
	}
	return startTLS(c, clientTLS("localhost"))
}

func startTLS(c *net.TCPConn, cfg *tls.Config) (tlsPeer, error) {
	w := &tlsWire{TCPConn: c}
	p := tlsPeer{tls.Client(w, cfg), w}
	c.SetDeadline(time.Now().Add(patience))
	if err := p.Handshake(); err != nil {
		c.Close()
		return tlsPeer{}, err
	}
	c.SetDeadline(time.Time{})
	return p, nil
}

// An authority signs certificates for tests.
type authority struct {
	cert   *x509.Certificate
	key    *ecdsa.PrivateKey
	serial int64
	mu     sync.Mutex
}

var testAuthority = sync.OnceValue(func() *authority {
	a := &authority{serial: 1}
	a.key, _ = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &a.key.PublicKey, a.key)
	if err != nil {
		panic(err)
	}
	a.cert, _ = x509.ParseCertificate(der)
	return a
})

// issue makes a certificate for names and returns it with its key, in PEM.
func (a *authority) issue(until time.Time, names ...string) (cert, key []byte) {
	a.mu.Lock()
	a.serial++
	serial := a.serial
	a.mu.Unlock()
	k, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: names[0]}, DNSNames: names,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore:   time.Now().Add(-2 * time.Hour), NotAfter: until,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, a.cert, &k.PublicKey, a.key)
	if err != nil {
		panic(err)
	}
	kder, _ := x509.MarshalPKCS8PrivateKey(k)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: kder})
}

// write puts a new certificate for names into dir and returns the two files.
func (a *authority) write(t testing.TB, dir, file string, until time.Time, names ...string) (cert, key string) {
	t.Helper()
	c, k := a.issue(until, names...)
	cert, key = filepath.Join(dir, file+".crt"), filepath.Join(dir, file+".key")
	for name, text := range map[string][]byte{cert: c, key: k} {
		if err := os.WriteFile(name+".new", text, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(name+".new", name); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}

// clientTLS trusts the test authority.
func clientTLS(name string) *tls.Config {
	roots := x509.NewCertPool()
	roots.AddCert(testAuthority().cert)
	return &tls.Config{RootCAs: roots, ServerName: name, NextProtos: []string{"http/1.1"}}
}

// tlsFiles are a certificate for localhost and its key, shared by all tests that
// do not change them.
var tlsFiles = sync.OnceValues(func() (cert, key string) {
	dir, err := os.MkdirTemp("", "sluice-tls")
	if err != nil {
		panic(err)
	}
	c, k := testAuthority().issue(time.Now().Add(24*time.Hour), "localhost")
	cert, key = filepath.Join(dir, "crt"), filepath.Join(dir, "key")
	os.WriteFile(cert, c, 0o600)
	os.WriteFile(key, k, 0o600)
	return cert, key
})

// testTLS are the settings for TLS on a listener.
func testTLS(prefix string) []string {
	cert, key := tlsFiles()
	return []string{prefix + "TLS_CERT_FILE=" + cert, prefix + "TLS_KEY_FILE=" + key}
}
