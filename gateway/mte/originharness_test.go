package mte

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"sluice/codec/http1"
	"sluice/gateway/edge"
	"sluice/loop"
)

// originPatience bounds every wait of a test; passing tests never come near it.
const originPatience = 20 * time.Second

func testOriginConfig() originConfig {
	return originConfig{
		MaxIdle: 256, Idle: originPatience, Connect: originPatience, Response: originPatience,
		Body: originPatience, WriteStall: originPatience, Limits: http1.DefaultLimits,
	}
}

// testPool is a pool on a loop of its own, for tests that play the client.
type testPool struct {
	*originPool
	t testing.TB
}

func startPool(t testing.TB, cfg originConfig) *testPool {
	t.Helper()
	l, err := loop.New(0, loop.Config{Spin: -1})
	if err != nil {
		t.Fatal(err)
	}
	p := &testPool{newOriginPool(l, cfg), t}
	go l.Run()
	t.Cleanup(func() {
		l.Stop()
		<-l.Done()
	})
	return p
}

// on runs f on the loop and waits for it.
func (p *testPool) on(f func()) {
	done := make(chan struct{})
	p.l.Post(loop.Func(func(*loop.Loop) { f(); close(done) }))
	<-done
}

// await waits until f, which runs on the loop, returns true.
func (p *testPool) await(what string, f func() bool) {
	p.t.Helper()
	for end := time.Now().Add(originPatience); ; {
		var ok bool
		p.on(func() { ok = f() })
		if ok {
			return
		}
		if time.Now().After(end) {
			p.t.Fatalf("waited in vain: %s", what)
		}
		time.Sleep(time.Millisecond) // between two looks, not for the event
	}
}

// wantIdle waits until n connections to up are idle and none is in use.
func (p *testPool) wantIdle(up *upstream, n int) {
	p.t.Helper()
	p.await(fmt.Sprintf("%d idle connections and no other", n), func() bool {
		h := p.hosts[up.key]
		return h != nil && h.idles == n && h.uses == n
	})
}

// testCall is a call whose user only collects. Its fields are the loop's until
// done is closed.
type testCall struct {
	p *testPool
	o *originCall

	status  int
	heads   int
	fields  string
	body    bytes.Buffer
	pieces  int
	drains  int
	ended   bool
	failure *originFailure

	onHead func() // on the loop
	onData func(b []byte)
	onEnd  func()
	done   chan struct{}
	headed chan struct{}
}

func (c *testCall) OnHead(_ *originCall, r *http1.Response) {
	c.heads++
	c.status = r.Status
	for _, f := range r.Fields {
		c.fields += string(http1.AppendField(nil, f.Name, f.Value))
	}
	if c.onHead != nil {
		c.onHead()
	}
	close(c.headed)
}

func (c *testCall) OnData(_ *originCall, b []byte) {
	c.pieces++
	c.body.Write(b)
	if c.onData != nil {
		c.onData(b)
	}
}

func (c *testCall) OnEnd(*originCall) {
	c.ended = true
	if c.onEnd != nil {
		c.onEnd()
	}
	close(c.done)
}

func (c *testCall) OnFail(_ *originCall, f originFailure) {
	c.failure = &f
	close(c.done)
}

func (c *testCall) OnDrain(*originCall) { c.drains++ }

func newTestCall(p *testPool) *testCall {
	return &testCall{p: p, done: make(chan struct{}), headed: make(chan struct{})}
}

// start begins a call; setup, which may be nil, runs on the loop before it.
func (p *testPool) start(up *upstream, method, target string, length int64, setup func(c *testCall)) *testCall {
	c := newTestCall(p)
	p.on(func() {
		if setup != nil {
			setup(c)
		}
		c.o = p.call(up, &originHead{Method: []byte(method), Target: []byte(target), Fields: []byte("X-A: 1\r\n"), Length: length}, c)
	})
	return c
}

func (c *testCall) wait() *testCall {
	c.p.t.Helper()
	select {
	case <-c.done:
	case <-time.After(originPatience):
		c.p.t.Fatal("the call neither ended nor failed")
	}
	return c
}

// wantAnswer waits for a complete response.
func (c *testCall) wantAnswer(status int, body string) *testCall {
	c.p.t.Helper()
	c.wait()
	if c.failure != nil {
		c.p.t.Fatalf("failed (%d): %s", c.failure.kind, c.failure.detail)
	}
	if got := c.body.String(); c.status != status || got != body {
		c.p.t.Fatalf("got %d %.60q (%d bytes), want %d %.60q (%d bytes)", c.status, got, len(got), status, body, len(body))
	}
	return c
}

// wantFailure waits for a failure whose detail contains text.
func (c *testCall) wantFailure(kind originFailureKind, text string) {
	c.p.t.Helper()
	c.wait()
	if c.failure == nil {
		c.p.t.Fatalf("got %d %q, want a failure: %s", c.status, c.body.String(), text)
	}
	if c.failure.kind != kind || !strings.Contains(c.failure.detail, text) {
		c.p.t.Fatalf("failed (%d) with %q, want (%d) %q", c.failure.kind, c.failure.detail, kind, text)
	}
}

// A rawOrigin is an origin that is played by hand.
type rawOrigin struct {
	t  testing.TB
	ln net.Listener
	up *upstream

	ended chan struct{} // closed when the test is over

	mu    sync.Mutex
	conns int
	serve func(c *originPeer)
}

// play has further connections served by f.
func (o *rawOrigin) play(f func(c *originPeer)) {
	o.mu.Lock()
	o.serve = f
	o.mu.Unlock()
}

// originPeer is one connection that the origin has accepted.
type originPeer struct {
	*net.TCPConn
	t     testing.TB
	r     *bufio.Reader
	ended chan struct{}
}

// hold keeps the connection as it is until released is closed, or the test is
// over: one that failed must not wait for the release that it never came to.
func (c *originPeer) hold(released chan struct{}) {
	select {
	case <-released:
	case <-c.ended:
	}
}

// listenRaw starts an origin that plays serve on each connection and closes it
// behind that.
func listenRaw(t testing.TB, serve func(c *originPeer)) *rawOrigin {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	up, err := newUpstream("http://" + ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	o := &rawOrigin{t: t, ln: ln, up: up, ended: make(chan struct{}), serve: serve}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			o.mu.Lock()
			o.conns++
			serve := o.serve
			o.mu.Unlock()
			conn.SetDeadline(time.Now().Add(2 * originPatience))
			all.Go(func() {
				serve(&originPeer{conn.(*net.TCPConn), t, bufio.NewReader(conn), o.ended})
				conn.Close()
			})
		}
	})
	t.Cleanup(func() {
		close(o.ended)
		ln.Close()
		all.Wait()
	})
	return o
}

// accepted returns how many connections were made.
func (o *rawOrigin) accepted() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.conns
}

// request reads one request, whole. ok is false when the peer is gone.
func (c *originPeer) request() (r *http.Request, body string, ok bool) {
	r, err := http.ReadRequest(c.r)
	if err != nil {
		return nil, "", false
	}
	b, err := io.ReadAll(r.Body)
	if err != nil {
		return r, string(b), false
	}
	return r, string(b), true
}

// head reads one request head, raw.
func (c *originPeer) head() (string, bool) {
	var head strings.Builder
	for !strings.HasSuffix(head.String(), "\r\n\r\n") {
		line, err := c.r.ReadString('\n')
		if err != nil {
			return "", false
		}
		head.WriteString(line)
	}
	return head.String(), true
}

func (c *originPeer) send(s string) { io.WriteString(c, s) }

// reset closes the connection with RST.
func (c *originPeer) reset() {
	c.SetLinger(0)
	c.Close()
}

// answerAll answers every request of a connection alike.
func answerAll(answer string) func(c *originPeer) {
	return func(c *originPeer) {
		for {
			if _, _, ok := c.request(); !ok {
				return
			}
			c.send(answer)
		}
	}
}

// wantGone waits for the end of what the peer sends.
func (c *originPeer) wantGone() {
	if _, err := io.Copy(io.Discard, c.r); err != nil && !strings.Contains(err.Error(), "reset") {
		c.t.Errorf("waiting for the end: %v", err)
	}
}

// testGateway is an edge server whose app proxies every request to one upstream.
type testGateway struct {
	t     testing.TB
	loops []*loop.Loop
	pools []*originPool
	addr  string
	route proxyRoute
}

func (g *testGateway) OnRequest(c *edge.HTTPConn, r *http1.Request) {
	g.pools[c.Loop().ID()].proxy(c, r, &g.route)
}

func (g *testGateway) refuseFailed(c *edge.HTTPConn, _ *proxyRoute, f originFailure) {
	c.Reply(502, "text/plain", []byte(f.detail))
}

func (g *testGateway) cutFailed(*edge.HTTPConn, *proxyRoute, originFailure) {}

func startGateway(t testing.TB, addr string, cfg originConfig, up *upstream, loops int) *testGateway {
	t.Helper()
	g := &testGateway{t: t}
	g.route = proxyRoute{up: up, scheme: "http", to: addressee{dress: new(dress)}, refuser: g}
	for i := range loops {
		l, err := loop.New(i, loop.Config{Spin: -1})
		if err != nil {
			t.Fatal(err)
		}
		g.loops = append(g.loops, l)
		g.pools = append(g.pools, newOriginPool(l, cfg))
	}
	ln, err := loop.Listen(addr, loop.SocketOptions{})
	if err != nil {
		t.Fatal(err)
	}
	g.addr = ln.Addr().String()
	srv := edge.NewServer(edge.Config{
		Limits: http1.DefaultLimits, IdleTimeout: time.Minute, WriteStall: originPatience, MaxConnections: 10000,
	}, g, g.loops)
	for _, l := range g.loops {
		if err := l.Accept(ln, srv); err != nil {
			t.Fatal(err)
		}
	}
	return g
}

func (g *testGateway) run() {
	for _, l := range g.loops {
		go l.Run()
	}
	g.t.Cleanup(func() {
		for _, l := range g.loops {
			l.Stop()
			<-l.Done()
		}
	})
}

// closeIdle closes all idle connections. Call it on the pool's loop.
func (p *originPool) closeIdle() {
	for _, h := range p.hosts {
		for h.idle != nil {
			h.idle.close()
		}
	}
}

// closeIdle closes the idle connections to the origin, and waits for that.
func (g *testGateway) closeIdle() {
	done := make(chan struct{})
	g.pools[0].l.Post(loop.Func(func(*loop.Loop) { g.pools[0].closeIdle(); close(done) }))
	<-done
}
