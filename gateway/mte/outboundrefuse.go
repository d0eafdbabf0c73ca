package mte

import (
	"errors"

	"sluice/codec/frame"
	"sluice/codec/http1"
	"sluice/gateway/client"
	"sluice/gateway/edge"
)

const (
	messageCapacity  = "no pair to the other relay within CLIENT_PAIR_ACQUIRE_WAIT_MS (CLIENT_MAX_PAIRS)"
	messageBuffer    = "request bodies of undeclared length fill CLIENT_BUFFER_BYTES"
	messageToken     = "this host demands X-MTE-Outbound-Token"
	messageTarget    = "a request target that cannot be relayed: two leading slashes, or over 16384 bytes"
	messageUnreached = "the other relay cannot be reached (outbound in DOMAIN_MAP); the log says why"
	messageBroken    = "the other relay broke off, was too slow (MAX_RESPONSE_SECONDS), or its answer makes no sense"
	messageForeign   = "an answer that is not the other relay's, perhaps of a proxy in front of it"
)

// hopOfOther is how far away the refusals of the other relay arise, as a cause.
const hopOfOther = 2

// refusalBy is what the caller is told of a refusal by the other relay (contract,
// mte-relay §9).
func refusalBy(r *client.Refusal) refusal {
	no := refusal{reason: frame.UpstreamResponseFailed, message: messageForeign}
	if !r.Foreign() {
		no.message = "the other relay refused"
		if r.Message != "" {
			no.message += ": " + r.Message
		}
		no.cause = frame.Cause{Code: r.Code, Hop: hopOfOther, Reason: r.Reason}
	}
	switch r.Action() {
	case frame.BackOff, frame.BackOffNotOwner:
		no.reason, no.wait = frame.UpstreamCapacity, r.RetryAfter
	}
	return no
}

// refusalOf is what the caller is told of a call to the other relay that failed.
func refusalOf(f originFailure) refusal {
	if f.kind == failConnect {
		return refusal{reason: frame.UpstreamConnectFailed, message: messageUnreached}
	}
	return refusal{reason: frame.UpstreamResponseFailed, message: messageBroken}
}

// refusalFor is what the caller is told of a request that the client's core does
// not send.
func refusalFor(err error) refusal {
	var body *client.RequestTooLarge
	if errors.As(err, &body) {
		return refusal{reason: frame.BodyTooLarge, message: err.Error()}
	}
	var head *client.HeadTooLarge
	if errors.As(err, &head) {
		return refusal{reason: frame.InvalidRequest, message: err.Error()}
	}
	var fault frame.Fault
	if errors.As(err, &fault) {
		return refusal{reason: frame.InvalidRequest, message: messageTarget}
	}
	return refusal{reason: frame.UpstreamResponseFailed, message: "the pair cannot encode any more"}
}

// refusePlain answers a plain caller with a refusal and counts it. reading says
// that the request's body is being read and has not ended.
func (s *shard) refusePlain(c *edge.HTTPConn, no refusal, reading bool) {
	s.role.metrics.Refused(counterOf(no.reason))
	if no.message == "" {
		no.message = messageOf(no.reason)
	}
	s.scratch = frame.AppendErrorJSON(s.scratch[:0], no.reason, no.message, no.cause)
	var headers []edge.Header
	if no.reason.Framed() {
		headers = refusalHeaders(no)
	}
	if !reading {
		c.Reply(no.reason.Code(), typeJSON, s.scratch, headers...)
		return
	}
	lines := http1.AppendField(nil, "Content-Type", typeJSON)
	for _, h := range headers {
		lines = http1.AppendField(lines, h.Name, h.Value)
	}
	c.CloseAfter()
	c.StartResponse(edge.Response{Status: no.reason.Code(), Fields: lines, Length: int64(len(s.scratch))})
	c.Write(s.scratch)
	s.dropBody(c)
}
