package client

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"sluice/codec/frame"
)

func TestNewFailure(t *testing.T) {
	f := func(url string) {
		t.Helper()
		if c, err := New(Options{URL: url}); err == nil {
			t.Errorf("%q: %v", url, c.address)
		}
	}
	f("")
	f("localhost:8080")
	f("ftp://localhost")
	f("http://")
	f("http://:80")
	f("http://a b")
}

func TestNewSuccess(t *testing.T) {
	f := func(url, address, host string) {
		t.Helper()
		c, err := New(Options{URL: url})
		if err != nil || c.address != address || c.host != host {
			t.Errorf("%q: %v, %v", url, c, err)
		}
	}
	f("http://h", "h:80", "h")
	f("https://h/x?y", "h:443", "h")
	f("http://h:81", "h:81", "h:81")
	f("http://[::1]:81", "[::1]:81", "[::1]:81")
}

// Bodies of all sizes, in both types, known and unknown lengths, whole and in odd pieces.

func TestEcho(t *testing.T) {
	s := startRelay(t)
	for _, mte := range []bool{false, true} {
		c := newClient(t, s, func(o *Options) { o.MTE = mte })
		res, body, err := do(t, c, &Request{Head: Head{Path: "/a?b=c", Header: []Header{{"Accept", "x"}, {"X-Two", "1"}, {"x-two", "2"}}}})
		if err != nil || res.Status != 200 || len(body) != 0 || res.get("x-method") != "GET" || res.get("x-path") != "a?b=c" {
			t.Fatalf("%+v, %q, %v", res, body, err)
		}
		for _, size := range []int{0, 1, 100, 8189, 8190, 8191, 65510, 65511, 65512, 70000, 300000} {
			want := make([]byte, size)
			for i := range want {
				want[i] = byte(i * 7)
			}
			f := func(name string, r io.Reader, length int64) {
				t.Helper()
				res, body, err := do(t, c, &Request{Head: Head{Method: "POST", Path: "echo"}, Body: r, Length: length})
				if err != nil || res.get("x-method") != "POST" || !bytes.Equal(body, want) {
					t.Fatalf("%d bytes %s: %d bytes, %v", size, name, len(body), err)
				}
			}
			f("of known length", bytes.NewReader(want), int64(size))
			f("of unknown length", bytes.NewReader(want), 0)
			f("with the end at once", iotest.DataErrReader(bytes.NewReader(want)), 0)
			if size < 1000 {
				f("a byte at a time", iotest.OneByteReader(bytes.NewReader(want)), 0)
			} else {
				f("in halves", iotest.HalfReader(bytes.NewReader(want)), int64(size))
			}
		}
	}
	if s.conns > 4 {
		t.Errorf("%d connections", s.conns)
	}
	if len(s.auths) != 2 || len(s.pairings) != 2 {
		t.Errorf("%d auths and %d pairings of two clients", len(s.auths), len(s.pairings))
	}
}

// Both directions flow: each piece is seen before the next is made.

func TestStreaming(t *testing.T) {
	s := startRelay(t)
	pieces := make(chan string)
	s.handle = func(q *relayRequest) {
		for {
			piece, err := q.next()
			if err != nil {
				break
			}
			if len(piece) > 0 {
				pieces <- string(piece)
			}
		}
		q.respond(200, false)
		for i := range 3 {
			q.data([]byte{byte('0' + i)}, false)
			pieces <- "sent"
		}
		q.data(nil, true)
	}
	c := newClient(t, s)
	r, w := io.Pipe()
	go func() {
		for i := range 3 {
			fmt.Fprintf(w, "piece %d", i)
			if got, want := <-pieces, fmt.Sprintf("piece %d", i); got != want {
				t.Errorf("%q at the relay, want %q", got, want)
			}
		}
		w.Close()
	}()
	res, err := c.Do(t.Context(), &Request{Head: Head{Method: "POST"}, Body: r})
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	one := make([]byte, 1)
	for i := range 3 {
		if _, err := io.ReadFull(res.Body, one); err != nil || one[0] != byte('0'+i) {
			t.Fatalf("event %d: %q, %v", i, one, err)
		}
		<-pieces // only now the next is made
	}
	if n, err := res.Body.Read(one); n != 0 || err != io.EOF {
		t.Fatalf("at the end: %d, %v", n, err)
	}
}

func TestAnswerWithoutBody(t *testing.T) {
	s := startRelay(t)
	s.handle = func(q *relayRequest) {
		q.readAll()
		q.respond(204, true, "Set-Cookie", "a=1", "Set-Cookie", "b=2")
	}
	c := newClient(t, s)
	for range 3 {
		res, body, err := do(t, c, &Request{Head: Head{Method: "HEAD", Path: "x"}})
		if err != nil || res.Status != 204 || len(body) != 0 || len(res.Header) != 2 || res.Header[1] != (Header{"set-cookie", "b=2"}) {
			t.Fatalf("%+v, %q, %v", res, body, err)
		}
	}
	if s.conns != 1 {
		t.Errorf("%d connections", s.conns)
	}
}

func TestTooLarge(t *testing.T) {
	s := startRelay(t)
	s.relay.MaxRequestBodyBytes = 1000
	s.relay.MaxMetadataMKE = 600
	c := newClient(t, s)
	f := func(name string, r *Request, want error) {
		t.Helper()
		if _, _, err := do(t, c, r); err == nil || err.Error() != want.Error() {
			t.Errorf("%s: %v, want %v", name, err, want)
		}
	}
	body := func(n int) io.Reader { return bytes.NewReader(make([]byte, n)) }
	post := Head{Method: "POST"}
	f("a known body", &Request{Head: post, Body: body(1001), Length: 1001}, &RequestTooLarge{1001, 1000})
	if len(s.clients) > 0 {
		t.Error("something was paired for a body over the cap")
	}
	if _, got, err := do(t, c, &Request{Head: post, Body: body(1000), Length: 1000}); err != nil || len(got) != 1000 {
		t.Errorf("exactly the cap: %v", err)
	}
	if _, got, err := do(t, c, &Request{Head: post, Body: body(1000)}); err != nil || len(got) != 1000 {
		t.Errorf("exactly the cap, not known: %v", err)
	}
	f("an unknown body", &Request{Head: post, Body: body(1001)}, &RequestTooLarge{1001, 1000})
	f("one header", &Request{Head: Head{Header: []Header{{"x-fat", strings.Repeat("f", 600)}}}}, &HeadTooLarge{"x-fat", 605, 600})
	f("all headers", &Request{Head: Head{Header: []Header{{"a", strings.Repeat("f", 300)}, {"b", strings.Repeat("f", 300)}}}}, &HeadTooLarge{"", 658, 600})
	f("a bad header", &Request{Head: Head{Header: []Header{{"a", "x\ny"}}}}, frame.BadHeader)
	f("a bad path", &Request{Head: Head{Path: "//x"}}, frame.BadPath)
	f("a bad method", &Request{Head: Head{Method: "G T"}}, frame.BadMember)
	if err := get(t, c, "after"); err != nil {
		t.Errorf("after all refusals: %v", err)
	}
}

func TestBodyFaults(t *testing.T) {
	s := startRelay(t)
	s.loose = true // what was not sent leaves a gap
	c := newClient(t, s, func(o *Options) { o.MaxPairs = 1 })
	f := func(name string, r *Request, want string) {
		t.Helper()
		if _, _, err := do(t, c, r); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
		if err := get(t, c, "after"); err != nil {
			t.Errorf("after %s: %v", name, err)
		}
	}
	broken := errors.New("the disk is broken")
	post := Head{Method: "POST"}
	f("a small body that breaks", &Request{Head: post, Body: iotest.ErrReader(broken), Length: 10}, "the disk is broken")
	f("a small body too short", &Request{Head: post, Body: strings.NewReader("123"), Length: 4}, "another length than the 4 bytes")
	f("a small body too long", &Request{Head: post, Body: strings.NewReader("12345"), Length: 4}, "another length than the 4 bytes")
	f("an empty body that should not be", &Request{Head: post, Body: strings.NewReader(""), Length: 4}, "another length than the 4 bytes")
	f("a stream that breaks", &Request{Head: post, Body: io.MultiReader(strings.NewReader("x"), iotest.ErrReader(broken))}, "the disk is broken")
	f("a stream too short", &Request{Head: post, Body: strings.NewReader(strings.Repeat("x", 99999)), Length: 100000}, "another length than the 100000 bytes")
	f("a stream too long", &Request{Head: post, Body: strings.NewReader(strings.Repeat("x", 100001)), Length: 100000}, "another length than the 100000 bytes")
}

// What the registry asks for is done: script answers the requests one after the other.

// A full repair starts over: no old id, no route header.

// More operations that the relay never decoded than its window bears: the pair is replaced before it
// would fail.

// Answers that break the protocol end in an error, and the pair is not used again.

// An answer that is no relay's says nothing about the pair, which is kept: the relay may have decoded
// the request or not.

// A refusal that comes while the body is still being sent is not missed, whatever the body does.

// Leaving before the RESPONSE keeps the pair, leaving behind it or inside the request gives it up.

func TestDiscoveryFaults(t *testing.T) {
	s := startRelay(t)
	s.relay.Profile = "mte/licensed-4;kyber=512;probe=0000000000000000"
	var mismatch *ProfileMismatch
	if err := get(t, newClient(t, s), ""); !errors.As(err, &mismatch) || mismatch.Theirs != s.relay.Profile {
		t.Errorf("another profile: %v", err)
	}
	s.relay.KyberStrength = 2048
	if err := get(t, newClient(t, s), ""); !errors.As(err, &mismatch) {
		t.Errorf("another strength: %v", err)
	}
	if len(s.pairings) != 0 {
		t.Error("paired with a relay of another profile")
	}
	s = startRelay(t)
	s.relay.Profile = s.profile.String()[:len(s.profile.String())-16] + "0000000000000000"
	c := newClient(t, s)
	if err := get(t, c, ""); err != nil || !c.Relay().ProbeDiffers {
		t.Errorf("another probe: %v", err)
	}
	s = startRelay(t)
	s.onAuth = func(int) *Refusal { return refusal(frame.FrameVersionUnsupported) }
	if err := get(t, newClient(t, s), ""); err == nil || err.(*Refusal).Code != 478 {
		t.Errorf("another frame version: %v", err)
	}
}

// Many requests at once on few pairs: none shares one, all are served.

// A caller that waits for a pair leaves when its context ends, and the pair goes to the next.

func TestClose(t *testing.T) {
	s := startRelay(t)
	arrived, leave := make(chan struct{}), make(chan struct{})
	s.handle = func(q *relayRequest) {
		q.readAll()
		q.respond(200, false)
		arrived <- struct{}{}
		<-leave
	}
	c := newClient(t, s, func(o *Options) { o.MaxPairs = 1 })
	result := make(chan error)
	go func() { result <- get(t, c, "") }()
	<-arrived
	go func() {
		_, err := c.Do(t.Context(), &Request{}) // waits for a pair
		result <- err
	}()
	c.Close()
	for range 2 {
		if err := <-result; err != ErrClosed {
			t.Errorf("in flight or waiting: %v", err)
		}
	}
	close(leave)
	if err := get(t, c, ""); err != ErrClosed {
		t.Errorf("afterwards: %v", err)
	}
	c.Close()
}

func TestTLS(t *testing.T) {
	s := relayOffline(t)
	server := httptest.NewUnstartedServer(s)
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // one client refuses the certificate
	server.StartTLS()
	defer server.Close()
	s.url = server.URL
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	c := newClient(t, s, func(o *Options) { o.TLS = &tls.Config{RootCAs: roots} })
	if _, body, err := do(t, c, &Request{Head: Head{Method: "POST"}, Body: strings.NewReader("over TLS")}); err != nil || string(body) != "over TLS" {
		t.Errorf("%q, %v", body, err)
	}
	if err := get(t, newClient(t, s), ""); err == nil {
		t.Error("a certificate nobody vouches for was accepted")
	}
}

// pipes is a listener without a network, for virtual time.

// The token is refreshed at 80 % of its age, pairs are kept alive every third of the session timeout,
// and pairs that were given up are named.

func TestTrace(t *testing.T) {
	s := startRelay(t)
	var mu sync.Mutex
	var lines []string
	c := newClient(t, s, func(o *Options) {
		o.Trace = func(line string) { mu.Lock(); lines = append(lines, line); mu.Unlock() }
	})
	if err := get(t, c, "x"); err != nil {
		t.Fatal(err)
	}
	all := strings.Join(lines, "\n")
	for _, want := range []string{"connected to 127.0.0.1:", "authenticated as client ", "paired 2 in ", "POST /: ", "RESPONSE 200"} {
		if !strings.Contains(all, want) {
			t.Errorf("no %q in:\n%s", want, all)
		}
	}
	token := c.session.token
	if strings.Contains(all, string(token.AppendText(nil))) {
		t.Error("the token is in the trace")
	}
}
