package gateway_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"
)

// mirror answers with what it got.
func mirror(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("X-Method", r.Method)
	h.Set("X-Target", r.RequestURI)
	for name, values := range r.Header {
		h["X-Got-"+name] = values
	}
	switch r.URL.Path {
	case "/204":
		w.WriteHeader(204)
	case "/304":
		h.Set("ETag", `"a"`)
		w.WriteHeader(304)
	case "/404":
		w.WriteHeader(404)
		io.WriteString(w, "nothing here")
	case "/empty":
	case "/cookies":
		h.Add("Set-Cookie", "a=1; Path=/")
		h.Add("Set-Cookie", "b=2")
	default:
		b, _ := io.ReadAll(r.Body)
		w.Write(b)
	}
}

func TestOutboundExchanges(t *testing.T) {
	outboundExchanges(t, startRelayPair(t, pairOptions{origin: http.HandlerFunc(mirror)}))
}

// outboundExchanges needs a mirror for an origin.
func outboundExchanges(t *testing.T, p *relayPair) {
	for _, method := range []string{"GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND"} {
		a := p.do(method, "/a%2Fb/c%20d?x=%2B&y", nil)
		if a.status != 200 || a.header.Get("X-Method") != method || a.header.Get("X-Target") != "/a%2Fb/c%20d?x=%2B&y" {
			t.Errorf("%s: %+v", method, a)
		}
	}
	f := func(method, target string, status int, body string) answer {
		t.Helper()
		a := p.do(method, target, nil)
		if a.status != status || a.body != body {
			t.Errorf("%s %s: %d %q", method, target, a.status, a.body)
		}
		return a
	}
	f("HEAD", "/x", 200, "")
	f("HEAD", "/404", 404, "")
	f("GET", "/204", 204, "")
	if a := f("GET", "/304", 304, ""); a.header.Get("ETag") != `"a"` {
		t.Errorf("304: %v", a.header)
	}
	f("GET", "/404", 404, "nothing here")
	f("GET", "/empty", 200, "")
	f("GET", "/", 200, "")
	if a := f("GET", "/cookies", 200, ""); fmt.Sprint(a.header["Set-Cookie"]) != "[a=1; Path=/ b=2]" {
		t.Errorf("cookies: %v", a.header["Set-Cookie"])
	}

	// What goes along, and what does not.
	a := p.do("GET", "/x", nil, "Cookie: c=1", "X-Twice: 1", "X-Twice: 2", "X-Forwarded-For: 1.2.3.4", "X-Mte-Outbound-Token: t",
		"Connection: X-Listed", "X-Listed: 1", "Te: trailers", "Authorization: b")
	for name, want := range map[string]string{
		"Cookie": "[c=1]", "X-Twice": "[1 2]", "X-Forwarded-For": "[127.0.0.1]", "X-Mte-Outbound-Token": "[]", "X-Listed": "[]",
		"Te": "[]", "Authorization": "[b]", "X-Mte-Relay-Client": "[]", "X-Mte-Relay-Route": "[]",
	} {
		if got := fmt.Sprint(a.header["X-Got-"+name]); got != want {
			t.Errorf("%s at the origin: %s, want %s", name, got, want)
		}
	}
	if v := a.header.Get("X-Mte-Relay-Route"); v != "" {
		t.Errorf("the caller gets a route: %s", v)
	}
	if a := p.do("TRACE", "/", nil); a.status != 405 {
		t.Errorf("TRACE: %d", a.status)
	}
	p.do("GET", "//two/slashes", nil).wantRefusal(t, 490, "invalid_request", "")
}

func TestOutboundBodies(t *testing.T) {
	outboundBodies(t, startRelayPair(t, pairOptions{origin: http.HandlerFunc(mirror)}))
}

// outboundBodies needs a mirror for an origin.
func outboundBodies(t *testing.T, p *relayPair) {
	for _, size := range []int{1, 10, 4096, 65535, 65536, 65537, 300000, 3 << 20} {
		want := make([]byte, size)
		rand.Read(want)
		f := func(name string, body io.Reader) {
			t.Helper()
			if a := p.do("POST", "/x", body); a.status != 200 || a.body != string(want) {
				t.Errorf("%d bytes %s: %d, %d bytes", size, name, a.status, len(a.body))
			}
		}
		f("with a length", bytes.NewReader(want))
		f("without", struct{ io.Reader }{bytes.NewReader(want)})
		if size < 5000 {
			f("a byte at a time", iotest.OneByteReader(bytes.NewReader(want)))
		} else {
			f("in halves", iotest.HalfReader(bytes.NewReader(want)))
		}
	}
}

// A talkative origin passes on each piece of a body as it comes, and then sends
// events, each when the one before was seen.
type talkative struct{ pieces chan string }

func (o *talkative) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b := make([]byte, 100)
	for {
		n, err := r.Body.Read(b)
		if n > 0 {
			o.pieces <- string(b[:n])
		}
		if err != nil {
			break
		}
	}
	w.Header().Set("Content-Type", "text/event-stream")
	for i := range 3 {
		fmt.Fprintf(w, "data: %d\n\n", i)
		w.(http.Flusher).Flush()
		<-o.pieces
	}
}

// Each piece is seen on the other side before the next is made.
func TestOutboundStreams(t *testing.T) {
	origin := &talkative{make(chan string)}
	outboundStreams(t, startRelayPair(t, pairOptions{origin: origin}), "/x", origin.pieces)
}

// outboundStreams needs a talkative origin.
func outboundStreams(t *testing.T, p *relayPair, target string, pieces chan string) {
	body, w := io.Pipe()
	go func() {
		for i := range 3 {
			fmt.Fprintf(w, "piece %d", i)
			if got := <-pieces; got != fmt.Sprintf("piece %d", i) {
				t.Errorf("%q at the origin", got)
			}
		}
		w.Close()
	}()
	res, err := p.client.Do(p.request(t.Context(), "POST", target, body))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	lines := bufio.NewReader(res.Body)
	for i := range 3 {
		line, err := lines.ReadString('\n')
		if err != nil || line != fmt.Sprintf("data: %d\n", i) {
			t.Fatalf("%q, %v", line, err)
		}
		lines.ReadString('\n')
		pieces <- "seen"
	}
	if rest, err := io.ReadAll(lines); len(rest) > 0 || err != nil {
		t.Errorf("%q, %v", rest, err)
	}
}

// scaled is a size or count of an acceptance run, or a small one.
func scaled[T int | int64](full, normal T) T {
	if os.Getenv("SLUICE_SCALE") == "full" {
		return full
	}
	return normal
}

// noise is an endless stream that is cheap to make and differs everywhere.
type noise struct{ at uint64 }

func (n *noise) Read(p []byte) (int, error) {
	for i := range p {
		at := n.at + uint64(i)
		p[i] = byte((at>>3 + 1) * 0x9e3779b97f4a7c15 >> (at & 7 * 8))
	}
	n.at += uint64(len(p))
	return len(p), nil
}

// Bulk passes byte for byte, both ways.
func TestAcceptOutboundBulk(t *testing.T) {
	size := scaled[int64](1<<30, 64<<20)
	sum := func(r io.Reader) (string, int64) {
		h := sha256.New()
		n, err := io.Copy(h, r)
		if err != nil {
			t.Error(err)
		}
		return fmt.Sprintf("%x", h.Sum(nil)), n
	}
	p := startRelayPair(t, pairOptions{origin: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == "GET" {
			io.CopyN(w, new(noise), size)
			return
		}
		digest, n := sum(r.Body)
		fmt.Fprintf(w, "%s %d", digest, n)
	})})
	want, _ := sum(io.LimitReader(new(noise), size))
	res, err := p.client.Get("http://" + outHost + "/")
	if err != nil {
		t.Fatal(err)
	}
	got, n := sum(res.Body)
	res.Body.Close()
	if n != size || got != want {
		t.Errorf("download of %d: %d bytes, equal %v", size, n, got == want)
	}
	a := p.do("POST", "/", struct{ io.Reader }{io.LimitReader(new(noise), size)})
	if a.body != fmt.Sprintf("%s %d", want, size) {
		t.Errorf("upload of %d: %s", size, a.body)
	}
	r := p.request(t.Context(), "POST", "/", io.NopCloser(io.LimitReader(new(noise), size)))
	r.ContentLength = size
	if a, err := p.try(r); err != nil || a.body != fmt.Sprintf("%s %d", want, size) {
		t.Errorf("upload of declared length %d: %s, %v", size, a.body, err)
	}
}

func TestOutboundToken(t *testing.T) {
	p := startRelayPair(t, pairOptions{origin: http.HandlerFunc(mirror), domain: map[string]any{"outbound_token": "let me in"}})
	p.do("GET", "/", nil).wantRefusal(t, 401, "unauthorized", "")
	p.do("GET", "/", nil, "X-MTE-Outbound-Token: let me").wantRefusal(t, 401, "unauthorized", "")
	if a := p.do("GET", "/", nil, "X-MTE-Outbound-Token: let me in"); a.status != 200 || a.header.Get("X-Got-X-Mte-Outbound-Token") != "" {
		t.Errorf("%+v", a)
	}
}

func TestOutboundCaps(t *testing.T) {
	const cap = 1 << 20
	body := func(n int, declared bool) io.Reader {
		b := bytes.NewReader(make([]byte, n))
		if declared {
			return b
		}
		return struct{ io.Reader }{b}
	}
	var reached atomic.Int64
	origin := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		reached.Add(1)
		n, _ := io.Copy(io.Discard, r.Body)
		fmt.Fprint(w, n)
	})
	// Ours: nothing is sent of a body over it.
	p := startRelayPair(t, pairOptions{origin: origin, out: []string{"MAX_REQUEST_BODY_MIB=1", "CLIENT_BUFFER_BYTES=1500000"}})
	for _, declared := range []bool{true, false} {
		if a := p.do("POST", "/", body(cap, declared)); a.body != fmt.Sprint(cap) {
			t.Errorf("exactly the cap: %d %s", a.status, a.body)
		}
		n := reached.Load()
		p.do("POST", "/", body(cap+1, declared)).wantRefusal(t, 481, "body_too_large", "")
		if reached.Load() != n {
			t.Error("the origin got some of a body over the cap")
		}
	}
	// The other relay's.
	p = startRelayPair(t, pairOptions{origin: origin, in: []string{"MAX_REQUEST_BODY_MIB=1"}})
	if a := p.do("POST", "/", body(cap, true)); a.body != fmt.Sprint(cap) {
		t.Errorf("exactly the other's cap: %d %s", a.status, a.body)
	}
	p.do("POST", "/", body(cap+1, true)).wantRefusal(t, 481, "body_too_large", "")
	p.do("POST", "/", body(cap+1, false)).wantRefusal(t, 481, "body_too_large", "")

	// Headers.
	long := strings.Repeat("f", 62000)
	if e := p.do("GET", "/", nil, "X-Fat: "+long).wantRefusal(t, 490, "invalid_request", ""); !strings.Contains(strings.ToLower(e.Message), "x-fat") {
		t.Errorf("message %q", e.Message)
	}
	if e := p.do("GET", "/", nil, "A: "+long[:31000], "B: "+long[:31000]).wantRefusal(t, 490, "invalid_request", ""); !strings.Contains(e.Message, "620") {
		t.Errorf("message %q", e.Message)
	}
}

// The other relay's cap is the one of our last authentication, for pairs of before
// too: a body over it is not sent.
func TestOutboundCapChanges(t *testing.T) {
	p := startRelayPair(t, pairOptions{wired: true, in: []string{"TOKEN_MAX_AGE_SECONDS=2"},
		origin: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			n, _ := io.Copy(io.Discard, r.Body)
			fmt.Fprint(w, n)
		})})
	body := make([]byte, 1001)
	send := func(declared bool) answer {
		if declared {
			return p.do("POST", "/", bytes.NewReader(body))
		}
		return p.do("POST", "/", struct{ io.Reader }{bytes.NewReader(body)})
	}
	if a := send(true); a.body != "1001" {
		t.Fatalf("without a cap: %d %s", a.status, a.body)
	}
	p.wire.play(p.wire.altering(t, "/api/mte-relay", func(b []byte) []byte {
		lower := bytes.Replace(b, []byte(`"maxRequestBodyBytes":0`), []byte(`"maxRequestBodyBytes":1000`), 1)
		if len(lower) == len(b) {
			t.Errorf("no cap of 0 in %s", b)
		}
		return lower
	}))
	if !poll(func() bool { return send(true).status == 481 }) {
		t.Fatal("a lower cap of the other relay is never learned")
	}
	for _, declared := range []bool{true, false} {
		e := send(declared).wantRefusal(t, 481, "body_too_large", "")
		if !strings.Contains(e.Message, "the relay takes 1000") {
			t.Errorf("declared %v: %q", declared, e.Message)
		}
	}
}

// What is sent fits the other relay's bounds, whatever ours are.
func TestOutboundOtherBounds(t *testing.T) {
	p := startRelayPair(t, pairOptions{origin: http.HandlerFunc(mirror),
		in: []string{"MAX_FRAME_BYTES=8192", "MAX_METADATA_BYTES_MKE=2000", "MAX_METADATA_BYTES_MTE=512"}})
	for _, size := range []int{8000, 8192, 9000, 100000} {
		want := make([]byte, size)
		rand.Read(want)
		if a := p.do("POST", "/x", bytes.NewReader(want)); a.status != 200 || a.body != string(want) {
			t.Errorf("%d bytes: %d, %d bytes", size, a.status, len(a.body))
		}
	}
	if a := p.do("GET", "/x", nil, "X-Fat: "+strings.Repeat("f", 500)); a.status != 200 {
		t.Errorf("%d %s", a.status, a.body)
	}
	e := p.do("GET", "/x", nil, "X-Fat: "+strings.Repeat("f", 2000)).wantRefusal(t, 490, "invalid_request", "")
	if !strings.Contains(e.Message, "2000") {
		t.Errorf("message %q", e.Message)
	}
	for _, reason := range []string{"frame_too_large", "metadata_invalid"} {
		code := map[string]string{"frame_too_large": "481", "metadata_invalid": "482"}[reason]
		if n := p.in.metric(`mte_relay_refusals_total{code="` + code + `",reason="` + reason + `"}`); n != 0 {
			t.Errorf("%v refusals %s", n, reason)
		}
	}
}

// Buffered bodies share CLIENT_BUFFER_BYTES. Which of two at once is refused
// depends on whose bytes come last; a second that is done before the first has
// come needs no refusal, and the two are sent again.
func TestOutboundBuffer(t *testing.T) {
	origin := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		fmt.Fprint(w, n)
	})
	p := startRelayPair(t, pairOptions{origin: origin, out: []string{"MAX_REQUEST_BODY_MIB=1", "CLIENT_BUFFER_BYTES=1500000"}})
	send := func() (again bool) {
		r, w := io.Pipe()
		first := make(chan answer, 1)
		go func() {
			a := p.do("POST", "/", r)
			r.CloseWithError(io.ErrClosedPipe) // a refusal may leave the rest unread
			first <- a
		}()
		w.Write(make([]byte, 900000))
		second := p.do("POST", "/", struct{ io.Reader }{bytes.NewReader(make([]byte, 900000))})
		w.Close()
		got := 0
		for _, a := range []answer{second, <-first} {
			if a.status == 200 && a.body == "900000" {
				continue
			}
			a.wantRefusal(t, 485, "upstream_capacity", "")
			got++
		}
		if got > 1 {
			t.Error("both bodies were refused")
		}
		return got == 0
	}
	if !poll(func() bool { return !send() }) {
		t.Fatal("two buffered bodies of more than CLIENT_BUFFER_BYTES are never refused")
	}
	if a := p.do("POST", "/", struct{ io.Reader }{bytes.NewReader(make([]byte, 900000))}); a.body != "900000" {
		t.Errorf("afterwards: %+v", a)
	}
}

// A body that CLIENT_BUFFER_BYTES has room for is not refused for the room its
// buffer would like, and counts as any other.
func TestOutboundBufferFits(t *testing.T) {
	p := startRelayPair(t, pairOptions{origin: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		fmt.Fprint(w, n)
	}), out: []string{"MAX_REQUEST_BODY_MIB=1", "CLIENT_BUFFER_BYTES=100000"}})
	sent := 0
	for _, size := range []int{65536, 65537, 99999, 100000, 100001, 100000} {
		a := p.do("POST", "/", struct{ io.Reader }{bytes.NewReader(make([]byte, size))})
		if size > 100000 {
			a.wantRefusal(t, 485, "upstream_capacity", "")
			continue
		}
		sent += size
		if a.body != fmt.Sprint(size) {
			t.Errorf("%d bytes: %d %s", size, a.status, a.body)
		}
	}
	p.out.untilMetric(`mte_relay_bytes_total{direction="request"}`, float64(sent))
}

// A gathered body counts against CLIENT_BUFFER_BYTES until the other relay has
// taken it.
func TestOutboundBufferUnsent(t *testing.T) {
	p := startRelayPair(t, pairOptions{wired: true, origin: http.HandlerFunc(mirror),
		out: []string{"MAX_REQUEST_BODY_MIB=5", "CLIENT_BUFFER_BYTES=5500000"}})
	send := func(size int) answer {
		return p.do("POST", "/", struct{ io.Reader }{bytes.NewReader(make([]byte, size))})
	}
	send(1) // there are pairs
	arrived, release := make(chan struct{}), make(chan struct{})
	released := sync.OnceFunc(func() { close(release) })
	t.Cleanup(released)
	var begun atomic.Bool
	p.wire.play(func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path != "/" || begun.Swap(true) {
			return false
		}
		close(arrived)
		<-release // reads nothing of it, and the kernel takes less than all
		return cut(w)
	})
	first := make(chan answer, 1)
	go func() { first <- send(5 << 20) }()
	<-arrived
	send(300000).wantRefusal(t, 485, "upstream_capacity", "")
	released()
	if a := <-first; a.status != 502 {
		t.Errorf("a request whose connection was cut: %d %s", a.status, a.body)
	}
	body := strings.Repeat("not all alike", 3<<20/13)
	if a := p.do("POST", "/", struct{ io.Reader }{strings.NewReader(body)}); a.body != body {
		t.Errorf("afterwards: %d, %d bytes, not those that were sent", a.status, len(a.body))
	}
}

var errSource = errors.New("the source fails")

// A caller that leaves retires its pair once it matters, and only then.
func TestOutboundCallerLeaves(t *testing.T) {
	arrived, goOn := make(chan string, 10), make(chan struct{}, 10)
	p := startRelayPair(t, pairOptions{origin: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		arrived <- r.URL.Path
		switch r.URL.Path {
		case "/silent":
			<-r.Context().Done()
		case "/stream":
			io.WriteString(w, "begin")
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		case "/upload":
			io.Copy(io.Discard, r.Body)
		}
		goOn <- struct{}{}
	})})
	retired := func() float64 { return p.out.metric("mte_relay_pairs_retired_total") }
	f := func(name string, retires float64, target string, body io.Reader) {
		t.Helper()
		before := retired()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		done := make(chan error)
		go func() {
			res, err := p.client.Do(p.request(ctx, "POST", target, body))
			if err == nil {
				_, err = io.ReadFull(res.Body, make([]byte, 5))
				cancel()
				res.Body.Close()
			}
			done <- err
		}()
		if got := <-arrived; got != target {
			t.Fatalf("%s arrived", got)
		}
		if target == "/silent" {
			cancel()
		}
		<-done
		<-goOn // the origin has seen it go
		p.out.untilMetric(`mte_relay_outbound_pairs{state="in_use"}`, 0)
		if got := retired() - before; got != retires {
			t.Errorf("%s: %v pairs retired, want %v", name, got, retires)
		}
		if a := p.do("GET", "/after", nil); a.status != 200 {
			t.Errorf("%s: then %d %s", name, a.status, a.body)
		}
		<-arrived
		<-goOn
	}
	f("before the answer", 0, "/silent", nil)
	f("in the answer", 1, "/stream", nil)
	f("in the request", 1, "/upload", io.MultiReader(strings.NewReader("some"), iotest.ErrReader(errSource)))
}

// The end of a drain cuts what is left, visibly.
func TestOutboundDrain(t *testing.T) {
	p := startRelayPair(t, pairOptions{origin: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "begin")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})})
	res, err := p.client.Get("http://" + outHost + "/")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if _, err := io.ReadFull(res.Body, make([]byte, 5)); err != nil {
		t.Fatal(err)
	}
	p.out.g.Drain()
	if rest, err := io.ReadAll(res.Body); err == nil {
		t.Errorf("the answer looks complete after %q", rest)
	}
}
