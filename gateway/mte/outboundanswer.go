package mte

import (
	"sluice/codec/frame"
	"sluice/codec/http1"
	"sluice/gateway/client"
	"sluice/gateway/edge"
	"sluice/gateway/metric"
)

// gatheredPiece is up to which size pieces of one read are copied together before
// they are written: a copy costs less than a system call.
const gatheredPiece = 16 << 10

// An outboundSink is an outbound request as the other relay's answer sees it.
type outboundSink outbound

// OnHead implements originSink: 200 has frames, everything else refuses.
func (k *outboundSink) OnHead(_ *originCall, r *http1.Response) {
	x := (*outbound)(k)
	if r.Status == 200 {
		return
	}
	x.refused.begin(r)
	x.setState(outboundRefused)
}

// OnData implements originSink.
func (k *outboundSink) OnData(_ *originCall, b []byte) {
	x := (*outbound)(k)
	switch x.state {
	case outboundRefused:
		if len(x.refused.body)+len(b) <= maxRefusalPage {
			x.refused.body = append(x.refused.body, b...)
			return
		}
		x.refused.body = nil // whatever it is, it is no ERROR frame
		x.cancel()
		x.judge()
	case outboundTrailing:
		x.cancel() // bytes behind END
		x.setState(outboundOver)
	default:
		x.take(b)
	}
}

// OnEnd implements originSink.
func (k *outboundSink) OnEnd(*originCall) {
	x := (*outbound)(k)
	switch x.state {
	case outboundRefused:
		x.endCall()
		x.judge()
	case outboundTrailing:
		x.endCall()
		x.setState(outboundOver)
	default:
		x.endCall()
		x.fail(refusal{reason: frame.UpstreamResponseFailed, message: "the other relay's answer ends before its END"})
	}
}

// endCall lets go of a call whose answer is complete.
func (x *outbound) endCall() {
	if x.exchange.Ended() {
		x.call.End()
		x.call = nil
	} else {
		x.cancel()
	}
}

// OnFail implements originSink.
func (k *outboundSink) OnFail(_ *originCall, f originFailure) {
	x := (*outbound)(k)
	x.call = nil
	switch {
	case x.state == outboundTrailing:
		x.setState(outboundOver)
	case x.state == outboundRefused:
		x.refused.body = nil // its head says enough
		x.judge()
	case f.kind == failConnect:
		x.log("the other relay was not reached", f.detail)
		x.giveBack(x.unsent())
		x.refuse(refusalOf(f))
	default:
		x.log("a request to the other relay failed", f.detail)
		x.fail(refusalOf(f))
	}
}

// OnDrain implements originSink: the other relay takes bytes again, or wants no
// more.
func (k *outboundSink) OnDrain(o *originCall) {
	x := (*outbound)(k)
	if x.request.unsent && o == x.call {
		x.endRequest()
		return
	}
	if x.request.backed {
		x.request.backed = false
		x.c.ResumeBody()
	}
}

// OnDrain implements edge.Exchange: the caller takes bytes again.
func (x *outbound) OnDrain(*edge.HTTPConn) {
	if x.call != nil {
		x.call.Resume()
	}
}

// log writes a line about the request.
func (x *outbound) log(text, detail string) {
	if log := x.s.role.limit.Line(logOutbound, x.s.l.Now()); log != nil {
		log.Warn(text, "peer", x.c.Remote().String(), "host", x.h.host, "pair", x.pair.id.String(), "detail", detail)
	}
}

// judge acts on a refusal (contract, mte-relay §9, registry).
func (x *outbound) judge() {
	r := x.refused.refusal()
	x.refused = refusedAnswer{}
	q := &x.request
	held := x.exchange.Ended() && !q.over && r.RetryAfter <= maxResendWait
	v := x.exchange.Refused(r, x.resent, held)
	if v.Resend {
		x.setState(outboundResting)
		x.startTimer(max(r.RetryAfter, resendWait))
		return
	}
	x.log("the other relay refused", r.Error())
	if v.Repair {
		x.h.repair(x.pair.of, r, x.s.l.Now())
	}
	switch {
	case !v.Replace:
		x.giveBack(pairKept)
	case r.Code == frame.PairNotFound.Code():
		x.giveBack(pairGone)
	default:
		x.giveBack(pairRetired)
	}
	x.refuse(refusalBy(r))
}

// fail ends a request for what the other relay sent, or did not. The pair is of
// no more use. An answer that has begun is cut short, so that nobody takes it for
// complete.
func (x *outbound) fail(no refusal) {
	c := x.c
	begun := x.state == outboundAnswering && !x.headHeld
	x.cancel()
	x.giveBack(pairRetired)
	if begun {
		x.setState(outboundOver)
		c.Abort()
		return
	}
	x.refuse(no)
}

// take decodes a part of the answer and passes it on, in as few writes as its
// pieces allow.
func (x *outbound) take(b []byte) {
	s := x.s
	out := s.gathered[:0]
	for len(b) > 0 {
		ev, data, n, err := x.exchange.Feed(b)
		b = b[n:]
		switch {
		case err != nil:
			x.takeFault(err)
			return
		case ev == client.GotHead:
			if x.exchange.Status() < 200 {
				x.takeFault(frame.BadKind)
				return
			}
			x.setState(outboundAnswering)
			x.head, x.headHeld = x.composeHead(), true
			if x.exchange.Over() {
				x.finish(nil, len(b) > 0)
				return
			}
		case ev == client.GotEnd:
			if len(out) > 0 {
				out = append(out, data...)
				s.gathered, data = out, out
			}
			x.finish(data, len(b) > 0)
			return
		case len(data) > gatheredPiece:
			x.write(out)
			x.write(data)
			out = out[:0]
		default:
			out = append(out, data...)
		}
	}
	s.gathered = out
	x.write(out)
}

// takeFault ends an answer that is none, or an ERROR.
func (x *outbound) takeFault(err error) {
	x.log("the other relay's answer cannot be used", err.Error())
	if r, ok := err.(*client.Refusal); ok {
		x.fail(refusalBy(r))
		return
	}
	x.fail(refusal{reason: frame.UpstreamResponseFailed, message: messageBroken})
}

// composeHead makes the head of the answer. It is good as long as the shard's
// scratch is.
func (x *outbound) composeHead() edge.Response {
	r := edge.Response{Status: x.exchange.Status(), Length: edge.Chunked}
	lines := x.s.scratch[:0]
	for _, f := range x.exchange.Header() {
		r.OwnDate = r.OwnDate || string(f.Name) == "date"
		lines = http1.AppendField(lines, f.Name, f.Value)
	}
	x.s.scratch, r.Fields = lines, lines
	if r.Status == 204 || r.Status == 304 || x.request.isHead() {
		r.Length = edge.NoBody
	}
	return r
}

// start sends the head of the answer, if it was not. length is the body's if all
// of it is here, else Chunked.
func (x *outbound) start(length int64) {
	if !x.headHeld {
		return
	}
	if x.headHeld = false; x.head.Length != edge.NoBody {
		x.head.Length = length
	}
	if x.c.BodyLength() != 0 {
		x.c.CloseAfter() // the other relay has answered before it had all of it
	}
	x.c.StartResponse(x.head)
	x.head = edge.Response{}
}

// write passes a part of the answer on, and stops the other relay if the caller
// does not keep up.
func (x *outbound) write(data []byte) {
	x.start(edge.Chunked)
	if len(data) == 0 {
		return
	}
	x.count(metric.DirectionResponse, len(data))
	if x.c.Write(data) {
		x.call.Pause()
	}
}

// finish completes the answer. trailing says that bytes follow its END, which is
// a fault, though none of the answer's.
func (x *outbound) finish(data []byte, trailing bool) {
	c, complete := x.c, x.exchange.Ended()
	fate := pairKept
	if !x.exchange.InStep() || trailing {
		fate = pairRetired
	}
	x.giveBack(fate)
	x.count(metric.DirectionResponse, len(data))
	x.start(int64(len(data)))
	if c.BodyLength() == 0 {
		c.Finish(data)
	} else {
		c.Write(data)
		x.s.dropBody(c)
	}
	x.left.Stop()
	x.setState(outboundTrailing)
	if trailing || !complete {
		x.cancel()
		x.setState(outboundOver)
	}
}
