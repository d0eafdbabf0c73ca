package gateway_test

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/tls"
	"encoding/binary"
	"encoding/hex"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// A recordPeer writes TLS 1.3 records of its own behind a handshake of
// crypto/tls, and so what crypto/tls never writes.
type recordPeer struct {
	*net.TCPConn
	t      testing.TB
	secret []byte
	aead   cipher.AEAD
	iv     []byte
	seq    uint64
}

// secrets keeps the traffic secret that crypto/tls logs.
type secrets struct{ client []byte }

func (s *secrets) Write(line []byte) (int, error) {
	if f := strings.Fields(string(line)); len(f) == 3 && f[0] == "CLIENT_TRAFFIC_SECRET_0" {
		s.client, _ = hex.DecodeString(f[2])
	}
	return len(line), nil
}

func expandLabel(secret []byte, label string, n int) []byte {
	label = "tls13 " + label // RFC 8446 §7.1
	info := binary.BigEndian.AppendUint16(nil, uint16(n))
	info = append(append(info, byte(len(label))), label...)
	key, err := hkdf.Expand(sha256.New, secret, string(append(info, 0)), n)
	if err != nil {
		panic(err)
	}
	return key
}

func (n *node) recordPeer() *recordPeer {
	n.t.Helper()
	c, err := dialTCP(n.addr, wsDial{})
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { c.Close() })
	var s secrets
	cfg := clientTLS("localhost")
	cfg.KeyLogWriter = &s
	tc := tls.Client(c, cfg)
	c.SetDeadline(time.Now().Add(patience))
	if err := tc.Handshake(); err != nil {
		n.t.Fatal(err)
	}
	if tc.ConnectionState().CipherSuite != tls.TLS_AES_128_GCM_SHA256 {
		n.t.Skip("this machine prefers another cipher suite")
	}
	p := &recordPeer{TCPConn: c, t: n.t}
	p.key(s.client)
	return p
}

func (p *recordPeer) key(secret []byte) {
	p.secret, p.seq = secret, 0
	block, _ := aes.NewCipher(expandLabel(secret, "key", 16))
	p.aead, _ = cipher.NewGCM(block)
	p.iv = expandLabel(secret, "iv", 12)
}

// record makes one record of a content type, with padding.
func (p *recordPeer) record(typ byte, content []byte, padding int) []byte {
	inner := append(append(bytes.Clone(content), typ), make([]byte, padding)...)
	head := []byte{0x17, 3, 3}
	head = binary.BigEndian.AppendUint16(head, uint16(len(inner)+p.aead.Overhead()))
	nonce := bytes.Clone(p.iv)
	for i := range 8 {
		nonce[4+i] ^= byte(p.seq >> (56 - 8*i))
	}
	p.seq++
	return p.aead.Seal(head, nonce, inner, head)
}

const (
	typeHandshake = 22
	typeData      = 23
)

// keyUpdate makes a KeyUpdate and takes the next key.
func (p *recordPeer) keyUpdate(answer byte) []byte {
	b := p.record(typeHandshake, []byte{24, 0, 0, 1, answer}, 0)
	p.key(expandLabel(p.secret, "traffic upd", sha256.Size))
	return b
}

func (p *recordPeer) send(b []byte) {
	p.t.Helper()
	if _, err := p.Write(b); err != nil {
		p.t.Fatal(err)
	}
}

// wantCut expects the end of the connection, whatever comes before it.
func (p *recordPeer) wantCut(what string) {
	p.t.Helper()
	p.SetReadDeadline(time.Now().Add(patience))
	if _, err := io.Copy(io.Discard, p); err != nil && strings.Contains(err.Error(), "timeout") {
		p.t.Errorf("%s: the connection stays", what)
	}
}

// Records of every shape that the protocol allows carry the same bytes.
func TestTLSRecordShapes(t *testing.T) {
	t.Parallel()
	n := startTLSNode(t)
	request := upgradeRequest("/ws?"+wsQuery("shapes", "client", 1, "-"), newKey())
	message := bytes.Repeat([]byte("shape"), 5000)
	upgraded := func(p *recordPeer) *wsClient {
		t.Helper()
		server := n.v1("server", "shapes")
		n.until("both are there", func() bool { return n.g.Ledger().Snapshot().Sockets == 2 })
		return server
	}
	f := func(what string, write func(p *recordPeer, b []byte)) {
		t.Helper()
		p := n.recordPeer()
		write(p, request)
		s := upgraded(p)
		write(p, frame(opBin, true, message))
		s.want(opBin, message)
		s.rst()
		p.SetLinger(0)
		p.Close()
		n.untilSockets(0)
	}
	f("whole", func(p *recordPeer, b []byte) {
		for ; len(b) > 0; b = b[min(len(b), 16<<10):] {
			p.send(p.record(typeData, b[:min(len(b), 16<<10)], 0))
		}
	})
	f("a byte each", func(p *recordPeer, b []byte) {
		var all []byte
		for i := range b {
			all = append(all, p.record(typeData, b[i:i+1], 0)...)
		}
		p.send(all)
	})
	f("cut everywhere", func(p *recordPeer, b []byte) {
		p.SetNoDelay(true)
		for at := 0; at < len(b); at += 5000 {
			r := p.record(typeData, b[at:min(len(b), at+5000)], 0)
			for _, cut := range []int{1, 2, 3, 1, 1, 7, 4000} {
				cut = min(cut, len(r))
				p.send(r[:cut])
				r = r[cut:]
				n.turned()
			}
			p.send(r)
		}
	})
	f("padded, with empty ones and key updates between", func(p *recordPeer, b []byte) {
		for at := 0; at < len(b); at += 1000 {
			p.send(p.record(typeData, nil, 100))
			p.send(p.record(typeData, b[at:min(len(b), at+1000)], 5000))
			p.send(p.keyUpdate(0))
		}
	})
}

// Records that carry nothing, and key updates, cost a peer its connection
// before they cost us anything; in between the others are served.
func TestTLSRecordFloods(t *testing.T) {
	t.Parallel()
	n := startTLSNode(t, "LOOPS=1")
	s, c := n.v1pair()
	served := func() {
		t.Helper()
		s.text("still")
		c.wantText("still")
	}
	p := n.recordPeer()
	var flood []byte
	for range 100 {
		flood = append(flood, p.record(typeData, nil, 0)...)
	}
	p.Write(flood)
	p.wantCut("empty records")
	served()

	p, flood = n.recordPeer(), nil
	for range 100 {
		flood = append(flood, p.keyUpdate(1)...)
	}
	p.Write(flood)
	p.wantCut("key updates")
	served()

	// With data between them key updates are legal for ever, and each asks for an
	// answer that this peer does not read: memory is bounded, and so is the turn.
	p = n.recordPeer()
	p.SetReadBuffer(4 << 10)
	p.SetWriteDeadline(time.Now().Add(patience))
	p.send(p.record(typeData, []byte("GET / HTTP/1.1\r\nHost: h\r\nX: "), 0))
	for range 40 {
		flood = flood[:0]
		for range 200 {
			flood = append(append(flood, p.keyUpdate(1)...), p.record(typeData, []byte("x"), 0)...)
		}
		if _, err := p.Write(flood); err != nil {
			break
		}
		served()
	}
	p.SetLinger(0)
	p.Close()

	// Not TLS any more, too long, the wrong type.
	for what, b := range map[string][]byte{
		"too long":      append([]byte{0x17, 3, 3, 0xff, 0xff}, make([]byte, 65535)...),
		"no ciphertext": {0x17, 3, 3, 0, 0},
		"no record":     []byte("GET / HTTP/1.1\r\n\r\n"),
	} {
		p := n.recordPeer()
		p.Write(b)
		p.wantCut(what)
	}
	for _, typ := range []byte{0, 21, 24} {
		p := n.recordPeer()
		p.Write(p.record(typ, []byte{1}, 0))
		p.wantCut("type")
	}
	served()
}
