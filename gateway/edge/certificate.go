package edge

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"sluice/gateway/textfile"
)

// maxPEM bounds what is read of a certificate or key file.
const maxPEM = 1 << 20

// Certificates are those of one listener, read from files and read again when
// the files change. All methods may be called from anywhere.
type Certificates struct {
	now atomic.Pointer[certificates]

	mu   sync.Mutex
	read [][]byte // what the files held when last looked at, good or bad
}

// certificates is one version: every pair of files was good together.
type certificates struct {
	list  []*tls.Certificate            // the first is the default
	names map[string][]*tls.Certificate // by exact name or *.parent, in the list's order
	ends  time.Time                     // the earliest end of one
}

// Load reads the pairs of certs and keys, lists of equal length that are not
// empty, and takes them into use if they are all good. changed is false if the
// files are what they were at the last call, whose verdict stands. On an error
// what was in use stays in use.
func (c *Certificates) Load(certs, keys []string) (changed bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var read [][]byte
	for i := range certs {
		for _, name := range [...]string{certs[i], keys[i]} {
			text, e := textfile.Read(name, maxPEM)
			if e != nil {
				text, err = []byte(e.Error()), e
			}
			read = append(read, []byte(name), text)
		}
	}
	if slices.EqualFunc(read, c.read, bytes.Equal) {
		return false, nil
	}
	c.read = read
	if err != nil {
		return true, err
	}
	next := &certificates{names: make(map[string][]*tls.Certificate)}
	for i := range certs {
		pair, err := tls.X509KeyPair(read[4*i+1], read[4*i+3])
		if err != nil {
			return true, fmt.Errorf("%s with %s: %w", certs[i], keys[i], err)
		}
		next.add(&pair)
	}
	c.now.Store(next)
	return true, nil
}

func (v *certificates) add(pair *tls.Certificate) {
	v.list = append(v.list, pair)
	for _, name := range pair.Leaf.DNSNames {
		name = strings.ToLower(name)
		v.names[name] = append(v.names[name], pair)
	}
	if end := pair.Leaf.NotAfter; v.ends.IsZero() || end.Before(v.ends) {
		v.ends = end
	}
}

// Ends returns when the first certificate in use expires.
func (c *Certificates) Ends() time.Time {
	if v := c.now.Load(); v != nil {
		return v.ends
	}
	return time.Time{}
}

// Leaves returns the certificates in use, in the order of their files.
func (c *Certificates) Leaves() []*x509.Certificate {
	var list []*x509.Certificate
	if v := c.now.Load(); v != nil {
		for _, pair := range v.list {
			list = append(list, pair.Leaf)
		}
	}
	return list
}

// choose picks the certificate for a client: of those that bear the name it asks
// for the first whose kind of key it takes, or else the first of them; the first
// of all when none bears it.
func (c *Certificates) choose(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	v := c.now.Load()
	name := strings.ToLower(strings.TrimSuffix(hello.ServerName, "."))
	fit := v.names[name]
	if len(fit) == 0 {
		if _, parent, ok := strings.Cut(name, "."); ok {
			fit = v.names["*."+parent]
		}
	}
	if len(fit) == 0 {
		return v.list[0], nil
	}
	for _, pair := range fit {
		if hello.SupportsCertificate(pair) == nil {
			return pair, nil
		}
	}
	return fit[0], nil
}
