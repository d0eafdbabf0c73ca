package mte

import (
	"sluice/codec/frame"
	"sluice/codec/http1"
	"sluice/gateway/client"
)

const (
	// maxControlAnswer bounds the answer of a control call in bytes: the secrets of
	// as many pairs as a call can ask for, and room to spare.
	maxControlAnswer = 16 << 20
	// maxRefusalPage bounds the body of a refusal in bytes.
	maxRefusalPage = 64 << 10
)

// A relayCall is one call of a control endpoint of the other relay and its
// answer: an originSink. It belongs to the loop of the host's home.
type relayCall struct {
	control *control
	call    *originCall
	answer  refusedAnswer
}

// A refusedAnswer is an answer of the other relay that is taken whole, as
// refusals are.
type refusedAnswer struct {
	status      int
	errorHeader string
	retryAfter  string
	body        []byte
}

// begin takes the head.
func (a *refusedAnswer) begin(r *http1.Response) {
	v, _ := r.Lookup("x-mte-relay-error")
	w, _ := r.Get(http1.FieldRetryAfter)
	*a = refusedAnswer{status: r.Status, errorHeader: string(v), retryAfter: string(w)}
}

// refusal reads what was refused.
func (a *refusedAnswer) refusal() *client.Refusal {
	return client.NewRefusal(a.status, a.errorHeader, a.retryAfter, a.body)
}

// send makes the call. It is over with one of the control's answered, refused and
// fail.
func (x *relayCall) send(h *outboundHost, call *client.Call) {
	x.answer = refusedAnswer{}
	var fields []byte
	for _, f := range call.Header {
		fields = http1.AppendField(fields, f.Name, f.Value)
	}
	x.call = h.home.origins.call(h.up, &originHead{
		Method: []byte(call.Method), Target: []byte(call.Target), Fields: fields, Length: int64(len(call.Body)),
	}, x)
	if len(call.Body) > 0 {
		x.call.Write(call.Body)
		x.call.End()
	}
}

// OnHead implements originSink.
func (x *relayCall) OnHead(_ *originCall, r *http1.Response) { x.answer.begin(r) }

// OnData implements originSink.
func (x *relayCall) OnData(o *originCall, b []byte) {
	limit := maxControlAnswer
	if x.answer.status != 200 {
		limit = maxRefusalPage
	}
	if len(x.answer.body)+len(b) > limit {
		o.Cancel()
		x.control.fail(refusal{reason: frame.UpstreamResponseFailed, message: "the other relay's answer to a control call is too large"}, refillRetry)
		return
	}
	x.answer.body = append(x.answer.body, b...)
}

// OnEnd implements originSink.
func (x *relayCall) OnEnd(o *originCall) {
	o.End()
	a := x.answer
	x.answer = refusedAnswer{}
	if a.status == 200 {
		x.control.answered(a.body)
	} else {
		x.control.refused(a.refusal())
	}
}

// OnFail implements originSink.
func (x *relayCall) OnFail(_ *originCall, f originFailure) {
	x.control.failFor(refusalOf(f), f.detail, refillRetry)
}

// OnDrain implements originSink.
func (x *relayCall) OnDrain(*originCall) {}
