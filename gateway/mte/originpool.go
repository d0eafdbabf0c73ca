package mte

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/netip"
	"sync/atomic"
	"time"

	"sluice/codec/http1"
	"sluice/gateway/metric"
	"sluice/gateway/tlsconn"
	"sluice/loop"
)

// originConfig bounds what origins may do. All durations and counts are positive.
type originConfig struct {
	MaxIdle int           // idle connections kept per loop and origin (ORIGIN_MAX_IDLE)
	Idle    time.Duration // how long each is kept (ORIGIN_IDLE_SECONDS)

	// Connect bounds everything before a connection can be used: the name, all
	// addresses, TLS (ORIGIN_CONNECT_TIMEOUT_MS).
	Connect time.Duration
	// Response bounds the time from the request's last byte to the end of the
	// response's head; each interim response restarts it (MAX_RESPONSE_SECONDS).
	Response time.Duration
	// Body bounds the silence between two reads of a response's body
	// (MAX_REQUEST_SECONDS).
	Body time.Duration
	// WriteStall is how long an origin may take no byte while output waits
	// (WRITE_STALL_SECONDS).
	WriteStall time.Duration

	// Limits bound a response's head and trailers (HTTP_MAX_HEAD_BYTES,
	// HTTP_MAX_HEADERS).
	Limits http1.Limits

	TLS     *tlsconn.Engine // for https origins; nil makes one of the pool's own
	RootCAs *x509.CertPool  // likewise; nil is the system's
	Metrics *metric.MTE     // nil counts nothing
}

const (
	// originRead is the most bytes read from an origin at once, and so the most
	// that OnData brings in one turn.
	originRead = 64 << 10

	// maxHosts is how many origins a pool remembers before it forgets those that
	// nothing goes to: DOMAIN_MAP is live and may name ever new ones.
	maxHosts = 1024
)

// An originPool is one loop's connections to origins. It belongs to that loop's
// goroutine, one counter apart: a request that is relayed does not leave the loop
// of its client.
//
// An idle connection owns no buffer of ours; what crypto/tls keeps for itself,
// a buffer of up to one record, stays with it.
type originPool struct {
	l   *loop.Loop
	cfg originConfig

	hosts map[string]*originHost // by upstream.key
	bufs  loop.Buffers

	resp    http1.Response // of the head parsed last
	scratch []byte         // a request head being written
	small   []byte         // a chunk's size line
	fields  []byte         // field lines being passed on

	held   []*originCall // have a head that waits for the end of the turn
	late   []*originCall // have something to tell, see Deliver
	posted bool
	over   *originCall // ended in this turn
	free   *originCall

	proxied     *proxied // under way, linked through next
	freeProxied *proxied
	passing     atomic.Int64 // how many are under way; sampled from anywhere
}

// newOriginPool makes a loop's pool. Call it before the loop runs, or on it.
func newOriginPool(l *loop.Loop, cfg originConfig) *originPool {
	p := &originPool{l: l, cfg: cfg, hosts: make(map[string]*originHost), bufs: newBuffers()}
	l.AddHook(p)
	return p
}

// secure returns what the pool speaks TLS with.
func (p *originPool) secure() *tlsconn.Engine {
	if p.cfg.TLS == nil {
		p.cfg.TLS = tlsconn.New([]*loop.Loop{p.l}, tlsconn.Limits{})
	}
	return p.cfg.TLS
}

// An originHost is what a pool knows of one origin.
type originHost struct {
	up    *upstream
	tls   *tls.Config // nil for http
	uses  int         // calls and connections that refer to it
	idle  *originConn // used last first
	idles int
	names nameCache // originname.go
}

// call begins a request and returns at once; it never fails from within. Method,
// Target and Fields are copied or sent before it returns. A request without a
// body, or all of whose body is written within the turn, leaves in one write.
//
// It must not be called from a turn hook, where the end of the turn that sends
// a held head may have passed.
func (p *originPool) call(up *upstream, h *originHead, x originSink) *originCall {
	o := p.newCall()
	o.host = p.hostOf(up)
	o.host.uses++
	o.sink = x
	o.method = http1.ParseMethod(h.Method)
	o.left = h.Length
	if h.Length == 0 {
		o.send = sendDone
	}
	head := p.appendHead(p.scratch[:0], up, h, o.method)
	p.scratch = head
	if c := o.host.take(); c != nil {
		c.begin(o)
		if h.Length == 0 {
			o.transmit(head, nil, nil)
			if o.state == callOpen && !o.waits() && !c.broken {
				o.requestSent()
			}
		} else {
			o.out = p.bufs.Grow(nil, head)
			p.held = append(p.held, o)
		}
		return o
	}
	o.out = p.bufs.Grow(nil, head)
	p.connect(o)
	return o
}

func (p *originPool) appendHead(b []byte, up *upstream, h *originHead, m http1.Method) []byte {
	b = http1.AppendRequestLine(b, h.Method, h.Target)
	b = append(b, up.hostLine...)
	b = append(b, h.Fields...)
	switch {
	case h.Length > 0:
		b = http1.AppendContentLength(b, uint64(h.Length))
	case h.Length < 0:
		b = append(b, "Transfer-Encoding: chunked\r\n"...)
	case m == http1.MethodPost || m == http1.MethodPut || m == http1.MethodPatch:
		b = append(b, "Content-Length: 0\r\n"...) // RFC 9110 §8.6: else some wait for a body
	}
	return append(b, http1.CRLF...)
}

func (p *originPool) hostOf(up *upstream) *originHost {
	h := p.hosts[up.key]
	if h == nil {
		if len(p.hosts) >= maxHosts {
			p.forget()
		}
		h = &originHost{up: up}
		if up.tls {
			h.tls = originTLSConfig(up, p.cfg.RootCAs)
		}
		p.hosts[up.key] = h
	}
	return h
}

// forget drops the origins that nothing goes to.
func (p *originPool) forget() {
	for key, h := range p.hosts {
		if h.uses == 0 {
			delete(p.hosts, key)
		}
	}
}

// take returns an idle connection, or nil. One that the kernel has something to
// tell about is left alone: the loop is about to look at it.
func (h *originHost) take() *originConn {
	for c := h.idle; c != nil; c = c.next {
		if !c.sock.HungUp() && !c.sock.Readable() && c.writable() {
			h.remove(c)
			return c
		}
	}
	return nil
}

func (h *originHost) add(c *originConn) {
	if c.next = h.idle; c.next != nil {
		c.next.prev = c
	}
	h.idle = c
	h.idles++
}

func (h *originHost) remove(c *originConn) {
	if c.prev != nil {
		c.prev.next = c.next
	} else {
		h.idle = c.next
	}
	if c.next != nil {
		c.next.prev = c.prev
	}
	c.next, c.prev = nil, nil
	h.idles--
}

// OnTurn sends heads that found no company and takes back calls that are over.
func (p *originPool) OnTurn(*loop.Loop) {
	for i, o := range p.held {
		p.held[i] = nil
		if o.state == callOpen && o.send == sendHeld {
			o.flush()
		}
	}
	p.held = p.held[:0]
	for o := p.over; o != nil; o = p.over {
		p.over = o.next
		if o.queued {
			continue // Deliver still has it; the garbage collector gets it
		}
		p.recycle(o)
	}
}

// later has o's deliver called when nobody is on the stack.
func (p *originPool) later(o *originCall) {
	if o.queued {
		return
	}
	o.queued = true
	p.late = append(p.late, o)
	if !p.posted {
		p.posted = true
		p.l.Post(p)
	}
}

// Deliver tells calls' users what was put off.
func (p *originPool) Deliver(*loop.Loop) {
	p.posted = false
	list := p.late
	p.late = nil
	for _, o := range list {
		o.queued = false
		if o.state == callOver {
			continue
		}
		o.deliver()
	}
}

func (p *originPool) newCall() *originCall {
	o := p.free
	if o == nil {
		return &originCall{p: p}
	}
	p.free = o.next
	o.next = nil
	o.state, o.send, o.recv = callConnecting, sendHeld, recvHead
	return o
}

// finished takes note that a call is over. It can still be touched in this turn.
func (p *originPool) finished(o *originCall) {
	o.host.uses--
	o.next = p.over
	p.over = o
}

func (p *originPool) recycle(o *originCall) {
	*o = originCall{p: p, state: callOver, next: p.free}
	p.free = o
}

// originFailText makes one line of why no connection came about.
func originFailText(up *upstream, err error) string {
	return fmt.Sprintf("%s: %v", up.key, err)
}

var errConnectTime = errors.New("no connection within ORIGIN_CONNECT_TIMEOUT_MS")

// connect gets o a connection: the name first, then one address after the other.
func (p *originPool) connect(o *originCall) {
	o.connectBy = p.l.Now() + int64(p.cfg.Connect)
	o.tries = 0
	if o.host.up.addr.IsValid() {
		p.dial(o, nil)
		return
	}
	if addrs, ok := o.host.names.fresh(p.l.Now()); ok {
		o.addrs = addrs
		p.dial(o, nil)
		return
	}
	p.resolve(o)
}

// dial tries the addresses that are left, each with its share of the time that
// is left. why is what was wrong with the last one.
func (p *originPool) dial(o *originCall, why error) {
	for {
		addr, left := o.nextAddr()
		if left == 0 {
			if why == nil {
				why = errors.New("the name has no address")
			}
			o.failLater(failConnect, originFailText(o.host.up, why))
			return
		}
		now := p.l.Now()
		if now >= o.connectBy {
			o.failLater(failConnect, originFailText(o.host.up, errConnectTime))
			return
		}
		c := &originConn{p: p, host: o.host, state: originDialing, call: o}
		sock, err := p.l.Dial(addr, c)
		if err != nil {
			why = err
			continue
		}
		o.host.uses++
		c.sock = sock
		o.conn = c
		c.readBy = now + (o.connectBy-now)/int64(left)
		c.arm()
		return
	}
}

// nextAddr returns the next address to try and how many are left with it.
func (o *originCall) nextAddr() (addr netip.AddrPort, left int) {
	if a := o.host.up.addr; a.IsValid() {
		if o.tries > 0 {
			return netip.AddrPort{}, 0
		}
		o.tries++
		return a, 1
	}
	if o.tries == len(o.addrs) {
		return netip.AddrPort{}, 0
	}
	addr, left = o.addrs[o.tries], len(o.addrs)-o.tries
	o.tries++
	return addr, left
}
