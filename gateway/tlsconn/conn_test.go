package tlsconn

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"io"
	"math/big"
	mathrand "math/rand/v2"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"sluice/loop"
)

// patience bounds every wait of a test; passing tests never come near it.
const patience = 20 * time.Second

var certificate = sync.OnceValue(func() tls.Certificate {
	key, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"test"}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		panic(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
})

// echo sends back what it reads, through reads of odd sizes and writes in pieces.
type echo struct {
	t    *Conn
	rnd  *mathrand.Rand
	out  []byte
	errs chan error
	end  bool
	vec  loop.Vec
}

func (h *echo) OnHandshake(err error) {
	if err != nil {
		h.errs <- err
		h.t.Close()
	}
}

func (h *echo) OnRead(*loop.Conn) {
	b := h.t.Loop().Buffer()[loop.Headroom:]
	size := []int{1, 100, 5000, 16 << 10, 100000, len(b) - 1}[h.rnd.IntN(6)]
	var n int
	var r loop.ReadResult
	if h.rnd.IntN(3) == 0 {
		h.vec.Reset()
		h.vec.Add(b[:1+size/3])
		h.vec.Add(b[1+size/3 : 1+size])
		n, r = h.t.Readv(&h.vec)
	} else {
		n, r = h.t.Read(b[:size])
	}
	clobber := h.t.shard.in
	if h.rnd.IntN(2) == 0 { // what is kept must not lie where others read
		for i := range clobber {
			clobber[i] = 0xaa
		}
	}
	switch r {
	case loop.ReadBytes:
		h.out = append(h.out, b[:n]...)
		h.write()
	case loop.ReadEOF:
		h.end = true
		h.write()
	case loop.ReadReset:
		h.t.Reset()
	}
}

func (h *echo) write() {
	for len(h.out) > 0 && h.t.Writable() {
		h.vec.Reset()
		for at := 0; at < len(h.out) && !h.vec.Full(); {
			m := min(len(h.out)-at, 1+h.rnd.IntN(40000))
			h.vec.Add(h.out[at : at+m])
			at += m
		}
		n, err := h.t.Writev(&h.vec)
		if err != nil {
			h.errs <- err
			h.t.Reset()
			return
		}
		h.out = h.out[:copy(h.out, h.out[n:])]
	}
	switch {
	case len(h.out) > 0:
		h.t.Pause()
	case h.end:
		h.t.Linger(1<<20, loop.Now()+int64(patience), 0, func() { h.errs <- nil })
	default:
		h.t.Resume()
	}
}

func (h *echo) OnWrite(*loop.Conn)        { h.write() }
func (h *echo) OnHangup(*loop.Conn, bool) {}
func (h *echo) OnTimer(*loop.Conn)        {}

type acceptor struct {
	e    *Engine
	cfg  *tls.Config
	errs chan error
}

func (a *acceptor) OnAccept(c *loop.Conn) loop.Handler {
	h := &echo{rnd: mathrand.New(mathrand.NewPCG(c.ID(), 1)), errs: a.errs}
	h.t = a.e.Server(c, a.cfg, h, patience, nil)
	return h.t
}

// serve starts an echo on one loop.
func serve(t testing.TB) (addr string, a *acceptor) {
	t.Helper()
	return serveWithin(t, Limits{})
}

func serveWithin(t testing.TB, lim Limits) (addr string, a *acceptor) {
	t.Helper()
	l, err := loop.New(0, loop.Config{Spin: -1})
	if err != nil {
		t.Fatal(err)
	}
	ln, err := loop.Listen("127.0.0.1:0", loop.SocketOptions{SendBuffer: 32 << 10})
	if err != nil {
		t.Fatal(err)
	}
	a = &acceptor{
		e:    New([]*loop.Loop{l}, lim),
		cfg:  &tls.Config{Certificates: []tls.Certificate{certificate()}, DynamicRecordSizingDisabled: true},
		errs: make(chan error, 64),
	}
	if err := l.Accept(ln, a); err != nil {
		t.Fatal(err)
	}
	go l.Run()
	t.Cleanup(func() { l.Stop(); <-l.Done(); ln.Close() })
	return ln.Addr().String(), a
}

// Bytes come back whole, in order and once, whatever the sizes of records, reads
// and writes, several connections of one loop at a time, and the end is one.
func TestEcho(t *testing.T) {
	addr, a := serve(t)
	const conns, size = 4, 4 << 20
	var wg sync.WaitGroup
	for i := range conns {
		wg.Go(func() {
			cfg := &tls.Config{InsecureSkipVerify: true, MaxVersion: []uint16{tls.VersionTLS12, tls.VersionTLS13}[i%2], DynamicRecordSizingDisabled: i > 1}
			c, err := tls.Dial("tcp", addr, cfg)
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			c.SetDeadline(time.Now().Add(3 * patience))
			sent := make([]byte, size)
			mathrand.NewChaCha8([32]byte{byte(i)}).Read(sent)
			go func() {
				rnd := mathrand.New(mathrand.NewPCG(uint64(i), 2))
				for b := sent; len(b) > 0; {
					n := min(len(b), []int{1, 10, 1000, 16 << 10, 200000}[rnd.IntN(5)])
					if _, err := c.Write(b[:n]); err != nil {
						t.Error(err)
						return
					}
					b = b[n:]
				}
				c.CloseWrite()
			}()
			got, err := io.ReadAll(c)
			if err != nil || !bytes.Equal(got, sent) {
				t.Errorf("connection %d: %d bytes came back, %v", i, len(got), err)
			}
		})
	}
	wg.Wait()
	for range conns {
		select {
		case err := <-a.errs:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(patience):
			t.Fatal("a connection is left")
		}
	}
	if n := a.e.Handshaking(); n != 0 {
		t.Errorf("%d handshakes are left", n)
	}
	kept := make(chan int, 1)
	l := a.e.shards[0].l
	l.Post(loop.Func(func(*loop.Loop) { kept <- a.e.shards[0].kept }))
	if n := <-kept; n != 0 {
		t.Errorf("%d bytes are kept for nobody", n)
	}
}

// A handshake fails with the reason that the metrics know.
func TestFailures(t *testing.T) {
	addr, a := serve(t)
	f := func(send string, want Failure) {
		t.Helper()
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(c, send)
		c.(*net.TCPConn).CloseWrite()
		defer c.Close()
		select {
		case err := <-a.errs:
			if FailureOf(err) != want {
				t.Errorf("%q: %v (%v), expected %v", send, FailureOf(err), err, want)
			}
		case <-time.After(patience):
			t.Fatalf("%q: nothing", send)
		}
	}
	f("", FailClosed)
	f("GET / HTTP/1.1\r\n", FailPlain)
	f("\x16", FailClosed)
	f("\x16\x03\x01\x40\x01", FailPlain) // longer than a record can be
	f("\x16\x03\x01\x00\x04\x01\x00\x00\x00", FailProtocol)
	f("\x16\x03\x01\x00\x04\x01\x00\x10\x00", FailClosed) // a message whose rest never comes
	if FailureOf(errCrowded) != FailCrowded || FailureOf(errGivenUp) != FailTimeout || FailureOf(errors.New("?")) != FailProtocol {
		t.Error("names of failures")
	}
}

// Over the bound the handshake that has waited longest makes room, and one of a
// client in a hurry is soon over.
func TestCrowd(t *testing.T) {
	addr, a := serveWithin(t, Limits{Handshakes: 3, Computing: 1})
	p, q := net.Pipe()
	go tls.Client(p, &tls.Config{ServerName: "test"}).Handshake()
	hello := make([]byte, 16<<10)
	n, err := q.Read(hello)
	if err != nil {
		t.Fatal(err)
	}
	p.Close()
	q.Close()
	var waiting []net.Conn
	for i := range 5 {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(patience))
		c.Write(hello[:n])
		if _, err := c.Read(make([]byte, 1)); err != nil { // its answer: the handshake waits for us
			t.Fatal(err)
		}
		waiting = append(waiting, c)
		if i < 3 {
			continue
		}
		if err := <-a.errs; FailureOf(err) != FailCrowded {
			t.Error(err)
		}
		if _, err := io.Copy(io.Discard, waiting[i-3]); err != nil && errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("connection %d, the oldest, stays", i-3)
		}
	}
	c, err := tls.Dial("tcp", addr, &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	for end := time.Now().Add(patience); a.e.Handshaking() > 3; time.Sleep(time.Millisecond) { // between two looks
		if time.Now().After(end) {
			t.Fatalf("%d goroutines are left", a.e.Handshaking())
		}
	}
}

// take hands out whole records in order, never two at once, however the input is
// cut, and stops where it must.
func TestTake(t *testing.T) {
	var all []byte
	var ends []int
	for _, n := range []int{0, 1, 4, 5, 500, 600, 16<<10 + 256, 0, 3} {
		all = append(all, 0x17, 3, 3)
		all = binary.BigEndian.AppendUint16(all, uint16(n))
		for i := range n {
			all = append(all, byte(i))
		}
		ends = append(ends, len(all))
	}
	for cut := 1; cut < 700; cut++ {
		c := &Conn{}
		var got []byte
		records, next := 0, 0
		b := make([]byte, 512)
		for at := 0; at < len(all); at += cut {
			in := all[at:min(len(all), at+cut)]
			for {
				n, rest := c.take(b, in, &records)
				if n == 0 {
					if len(rest) > 0 {
						t.Fatalf("cut %d: %d bytes are refused", cut, len(rest))
					}
					break
				}
				got, in = append(got, b[:n]...), rest
				if len(got) > ends[next] {
					t.Fatalf("cut %d: bytes of two records at once", cut)
				}
				if len(got) == ends[next] {
					next++
				}
			}
		}
		if !bytes.Equal(got, all) || c.within() || records != len(ends) {
			t.Fatalf("cut %d: %d bytes of %d, %d records", cut, len(got), len(all), records)
		}
	}
	// The one that is too many waits, its header taken or not.
	c, records := &Conn{}, maxRecords
	b := make([]byte, 512)
	n, rest := c.take(b, all[:5], &records)
	if n != 0 {
		t.Errorf("%d bytes beyond the bound", n)
	}
	records = 0
	if n, _ = c.take(b, rest, &records); n != 5 || !bytes.Equal(b[:5], all[:5]) {
		t.Errorf("later %d bytes, %q", n, b[:n])
	}
}

// Peers that take nothing make us keep a chunk each, and less when they are many.
func TestKeptOutput(t *testing.T) {
	addr, a := serve(t)
	s := a.e.shards[0]
	on := func(f func()) {
		done := make(chan struct{})
		s.l.Post(loop.Func(func(*loop.Loop) { f(); close(done) }))
		<-done
	}
	stall := func(most int) {
		t.Helper()
		c, err := tls.Dial("tcp", addr, &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			t.Fatal(err)
		}
		raw := c.NetConn().(*net.TCPConn)
		raw.SetReadBuffer(4 << 10)
		c.SetWriteDeadline(time.Now().Add(500 * time.Millisecond))
		for err == nil {
			_, err = c.Write(make([]byte, 64<<10))
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal(err)
		}
		kept := 0
		on(func() { kept = s.kept & (manyKept - 1) })
		if kept == 0 || kept > most {
			t.Errorf("%d bytes are kept, at most %d expected", kept, most)
		}
		raw.SetLinger(0)
		raw.Close()
		for end := time.Now().Add(patience); kept != 0; {
			on(func() { kept = s.kept & (manyKept - 1) })
			if time.Now().After(end) {
				t.Fatalf("%d bytes stay", kept)
			}
			time.Sleep(time.Millisecond) // between two looks
		}
	}
	stall(keptOutput)
	on(func() { s.kept += 2 * manyKept }) // as if many others were stalled
	stall(mediumBuffer)
	on(func() { s.kept -= 2 * manyKept })
}
