package mte

import (
	"time"

	"sluice/codec/http1"
	"sluice/gateway/edge"
	"sluice/gateway/metric"
	"sluice/loop"
)

const (
	// halfCloseGrace is how long a client that has ended its stream may still
	// wait for an answer. Nearly all that do so have left, and their origin
	// should not work on; a few only shut down their side.
	halfCloseGrace = 250 * time.Millisecond

	// bodyGrace is how long a client that is read may say nothing in the middle of
	// its body when the answer to it is complete. Most have stopped sending then.
	bodyGrace = time.Second

	// smallRest is a rest of a body, in bytes, that the edge is sure to read and
	// drop behind an answer.
	smallRest = 32 << 10
)

// A proxyRoute is where a plain request goes, and what is added on the way.
type proxyRoute struct {
	up      *upstream
	domain  *domain   // for the log
	request dress     // added to the request, in place of lines of the same names
	trusted bool      // the peer is in TRUSTED_PROXIES
	scheme  string    // of our listener
	to      addressee // what is added to the answer, likewise
	refuser proxyRefuser
}

// A proxyRefuser answers a request whose origin failed before it had answered.
type proxyRefuser interface {
	refuseFailed(c *edge.HTTPConn, r *proxyRoute, f originFailure)
	// cutFailed is told of a failure behind an answer that has begun to leave.
	cutFailed(c *edge.HTTPConn, r *proxyRoute, f originFailure)
}

type proxiedState uint8

const (
	// proxyAsking: no answer has begun. A failure can still be refused. Leaves to
	// proxyAnswering, proxyOver.
	proxyAsking proxiedState = iota
	// proxyAnswering: the answer's head is out, so a failure cuts it short.
	// Leaves to proxyEnding, proxyOver.
	proxyAnswering
	// proxyEnding: the origin has answered completely while the client's body is
	// under way. The answer's end is held back, since with it the client would
	// lose the connection, and the origin goes on getting the body. Leaves to
	// proxyOver when the body is complete, the origin takes no more, or the
	// client, while it is read, says nothing for bodyGrace.
	proxyEnding
	proxyOver
)

// A proxied is one plain request on its way through: the client's exchange and,
// as a proxiedSink, what the origin answers into.
type proxied struct {
	p     *originPool
	c     *edge.HTTPConn
	o     *originCall
	route proxyRoute

	state     proxiedState
	bodyDone  bool // the client's body was passed on whole
	completed bool // the answer went out with its last data
	wait      loop.Timer

	prev, next *proxied // in the pool's list of those under way; next in the free one
}

// proxy passes a plain request on, and its answer back, both as streams: what one
// side does not take stops the other. The method is not CONNECT or TRACE, and the
// target has a path.
func (p *originPool) proxy(c *edge.HTTPConn, req *http1.Request, route *proxyRoute) {
	b := append(p.fields[:0], route.up.base...)
	b = req.AppendOriginForm(b)
	target := len(b)
	b = appendPlainRequest(b, req, route.trusted, route.request.headers)
	b = appendForwarded(b, c, req, route.trusted, route.scheme)
	b = append(b, route.request.lines...)
	p.fields = b

	x := p.newProxied()
	x.c, x.route = c, *route
	length := c.BodyLength()
	x.bodyDone = length == 0
	c.Take(x)
	x.o = p.call(route.up, &originHead{Method: req.Method, Target: b[:target], Fields: b[target:], Length: length}, (*proxiedSink)(x))
	if length != 0 {
		c.ReadBody()
	}
}

func (p *originPool) newProxied() *proxied {
	x := p.freeProxied
	if x == nil {
		x = new(proxied)
	} else {
		p.freeProxied = x.next
	}
	*x = proxied{p: p, next: p.proxied}
	if x.next != nil {
		x.next.prev = x
	}
	p.proxied = x
	p.passing.Add(1)
	return x
}

// over ends the exchange. Neither side calls it any more.
func (x *proxied) over() {
	if x.state == proxyOver {
		panic("BUG: mte: proxied request ended twice")
	}
	x.wait.Stop()
	p := x.p
	if x.prev != nil {
		x.prev.next = x.next
	} else {
		p.proxied = x.next
	}
	if x.next != nil {
		x.next.prev = x.prev
	}
	p.passing.Add(-1)
	*x = proxied{p: p, state: proxyOver, next: p.freeProxied}
	p.freeProxied = x
}

// shutDown ends the request because the process does: it is refused, or its answer
// cut short so that nobody takes it for complete.
func (x *proxied) shutDown() {
	c, route := x.c, x.route
	c.CloseAfter()
	switch x.state {
	case proxyAsking:
		x.o.Cancel()
		x.over()
		route.refuser.refuseFailed(c, &route, originFailure{kind: failShutdown, detail: messageShutdown})
	case proxyAnswering:
		x.o.Cancel()
		x.over()
		c.Abort()
	case proxyEnding:
		x.finish()
	default:
		panic("BUG: mte: a request that is over is under way")
	}
}

// OnBody passes a part of the client's body on.
func (x *proxied) OnBody(c *edge.HTTPConn, data []byte) {
	if m := x.p.cfg.Metrics; m != nil {
		m.Bytes(metric.DirectionRequest, len(data))
	}
	backed := x.o.Write(data)
	switch {
	case x.state == proxyEnding && x.o.Deaf():
		x.finish()
		return
	case x.state == proxyEnding:
		x.startWait(bodyGrace)
	}
	if backed {
		x.wait.Stop() // time in which it is not read is not its own
		c.PauseBody()
	}
}

// OnBodyEnd completes the request.
func (x *proxied) OnBodyEnd(*edge.HTTPConn) {
	x.bodyDone = true
	if x.state == proxyEnding {
		x.finish()
		return
	}
	x.o.End()
}

// OnDrain lets the origin go on: the client takes bytes again.
func (x *proxied) OnDrain(*edge.HTTPConn) { x.o.Resume() }

// OnPeerEOF gives a client that has probably left a moment for its answer.
func (x *proxied) OnPeerEOF(*edge.HTTPConn) {
	if x.bodyDone {
		x.startWait(halfCloseGrace)
	}
}

// OnAbort gives the request up.
func (x *proxied) OnAbort(_ *edge.HTTPConn, why edge.Abort) (answered bool) {
	if x.state == proxyEnding && !why.Final() {
		x.finish() // its answer is complete, whatever became of the rest
		return true
	}
	x.o.Cancel()
	x.over()
	return false
}

func (x *proxied) startWait(d time.Duration) {
	x.p.l.StartTimer(&x.wait, x.p.l.Now()+int64(d), x)
}

// OnTimer ends a wait for the client.
func (x *proxied) OnTimer(int64) {
	if x.state == proxyEnding {
		x.finish()
		return
	}
	c := x.c
	x.o.Cancel()
	x.over()
	c.Abort()
}

// finish completes the answer of an origin that has answered.
func (x *proxied) finish() {
	c := x.c
	if x.bodyDone {
		x.o.End()
	} else {
		x.o.Cancel()
	}
	x.over()
	c.EndResponse()
}

// A proxiedSink is a proxied as its origin sees it.
type proxiedSink proxied

// OnHead begins the answer.
func (k *proxiedSink) OnHead(_ *originCall, r *http1.Response) {
	x := (*proxied)(k)
	fields, hasDate := appendPlainAnswer(x.p.fields[:0], r, x.route.to.dress.headers)
	fields = append(fields, x.route.to.dress.lines...)
	x.p.fields = fields
	length := edge.Chunked
	switch {
	case r.Framing == http1.Length, r.Framing == http1.NoBody && r.Length >= 0 && r.Status != 204 && r.Status != 304:
		length = r.Length
	case r.Framing == http1.NoBody:
		length = edge.NoBody
	}
	x.state = proxyAnswering
	x.c.StartResponse(edge.Response{Status: r.Status, Fields: fields, OwnDate: hasDate, Length: length, Close: !x.endsSoon()})
}

// endsSoon reports whether what is left of the client's body is so little that it
// will be read whatever becomes of it. If not, an answer has to say that the
// connection ends with it: a client that learns it otherwise may have sent its
// next request already.
func (x *proxied) endsSoon() bool {
	left := x.c.BodyLength()
	return x.bodyDone || left >= 0 && left <= smallRest
}

// OnData passes a part of the answer on.
func (k *proxiedSink) OnData(o *originCall, b []byte) {
	x := (*proxied)(k)
	if m := x.p.cfg.Metrics; m != nil {
		m.Bytes(metric.DirectionResponse, len(b))
	}
	if o.Last() && x.bodyDone {
		x.completed = true
		x.c.Finish(b)
		return
	}
	if x.c.Write(b) {
		o.Pause()
	}
}

// OnEnd completes the answer, or waits for the rest of the client's body.
func (k *proxiedSink) OnEnd(o *originCall) {
	x := (*proxied)(k)
	switch {
	case x.completed:
		x.over()
	case x.bodyDone || o.Deaf():
		x.finish()
	default:
		x.state = proxyEnding
		if !o.backed {
			x.startWait(bodyGrace)
		}
	}
}

// OnFail refuses the request, or cuts its answer short so that nobody takes it
// for complete.
func (k *proxiedSink) OnFail(_ *originCall, f originFailure) {
	x := (*proxied)(k)
	c, route, answering := x.c, x.route, x.state != proxyAsking
	if answering && c.TakeBack() {
		answering = false // the fault came with the head: nobody has seen an answer
		c.CloseAfter()
	}
	if !answering && !x.endsSoon() {
		c.CloseAfter()
	}
	x.over()
	if answering {
		route.refuser.cutFailed(c, &route, f)
		c.Abort()
	} else {
		route.refuser.refuseFailed(c, &route, f)
	}
}

// OnDrain lets the client go on: the origin takes bytes again, or wants no more.
func (k *proxiedSink) OnDrain(o *originCall) {
	x := (*proxied)(k)
	if x.state == proxyEnding && o.Deaf() {
		x.finish()
		return
	}
	if x.state == proxyEnding {
		x.startWait(bodyGrace)
	}
	x.c.ResumeBody()
}
