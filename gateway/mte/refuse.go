package mte

import (
	"strconv"
	"time"

	"sluice/codec/frame"
	"sluice/codec/http1"
	"sluice/gateway/edge"
	"sluice/gateway/metric"
)

const (
	typeFrames = "application/octet-stream"
	typeJSON   = "application/json"

	// retryAfter is what a refusal that carries the header says when nothing
	// better is known, in seconds.
	retryAfter = 5
)

// Refusals lists every refusal of the role in the order of its counters, for
// metric.NewMTE.
func Refusals() (list []metric.Refusal) {
	frame.Reasons(func(r frame.Reason) {
		list = append(list, metric.Refusal{Code: r.Code(), Reason: r.String()})
	})
	return list
}

// counterOf is the index of a reason in Refusals.
func counterOf(r frame.Reason) int { return int(r) - 1 }

// An addressee is who an answer goes to, as far as each answer says it: what the
// domain adds for the request's origin, and the route header.
type addressee struct {
	dress    *dress
	route    [frame.RouteBytes]byte
	hasRoute bool
}

var plainDress = new(dress)

// addresseeOf reads it from a request. Until a token says better, the route is
// the one that was sent, if it is well formed (contract, mte-relay §3).
func addresseeOf(d *domain, req *http1.Request) (to addressee) {
	to.dress = plainDress
	if d != nil {
		to.dress = d.cors.of(req)
	}
	if v, ok := req.Lookup("x-mte-relay-route"); ok && frame.ValidRoute(v) {
		to.hasRoute = true
		copy(to.route[:], v)
	}
	return to
}

// is makes the route that of a client.
func (to *addressee) is(id frame.ClientID) {
	id.AppendRoute(to.route[:0])
	to.hasRoute = true
}

// headers are the header lines of an answer: extra, and what every one carries.
func (to *addressee) headers(extra ...edge.Header) []edge.Header {
	if to.hasRoute {
		extra = append(extra, edge.Header{Name: frame.RouteHeader, Value: string(to.route[:])})
	}
	return append(extra, to.dress.headers...)
}

// A refusal is what the relay says instead of an answer.
type refusal struct {
	reason  frame.Reason
	message string        // empty: the reason's own
	cause   frame.Cause   // of code 0: none
	wait    time.Duration // Retry-After, where the reason has one; 0: a default
}

// refuse answers a request with a refusal and counts it: an ERROR frame, or JSON
// for the reasons that are ordinary HTTP.
func (s *shard) refuse(c *edge.HTTPConn, to *addressee, no refusal) {
	contentType, headers := s.word(to, no)
	c.Reply(no.reason.Code(), contentType, s.scratch, headers...)
}

// refuseOpen is refuse for a request whose body is still coming and read: the
// answer goes out whole, but is not ended.
func (s *shard) refuseOpen(c *edge.HTTPConn, to *addressee, no refusal) {
	contentType, headers := s.word(to, no)
	lines := http1.AppendField(nil, "Content-Type", contentType)
	for _, h := range headers {
		lines = http1.AppendField(lines, h.Name, h.Value)
	}
	c.StartResponse(edge.Response{Status: no.reason.Code(), Fields: lines, Length: int64(len(s.scratch))})
	c.Write(s.scratch)
}

// word counts a refusal and puts its body into the shard's scratch.
func (s *shard) word(to *addressee, no refusal) (contentType string, headers []edge.Header) {
	s.role.metrics.Refused(counterOf(no.reason))
	if no.message == "" {
		no.message = messageOf(no.reason)
	}
	if !no.reason.Framed() {
		s.scratch = frame.AppendErrorJSON(s.scratch[:0], no.reason, no.message, no.cause)
		return typeJSON, to.headers()
	}
	s.scratch = frame.AppendErrorFrame(s.scratch[:0], no.reason, no.message, no.cause)
	return typeFrames, to.headers(refusalHeaders(no)...)
}

// refusalHeaders are the lines of the refusal itself.
func refusalHeaders(no refusal) []edge.Header {
	h := []edge.Header{{Name: frame.ErrorHeader, Value: string(frame.AppendErrorHeader(nil, no.reason))}}
	if no.reason.RetryAfter() {
		seconds := int((no.wait + time.Second - 1) / time.Second)
		if no.wait == 0 {
			seconds = retryAfter
		}
		h = append(h, edge.Header{Name: "Retry-After", Value: strconv.Itoa(max(seconds, 1))})
	}
	return h
}

// methodNotAllowed answers 405.
func (s *shard) methodNotAllowed(c *edge.HTTPConn, to *addressee, allow string) {
	s.role.metrics.Refused(counterOf(frame.MethodNotAllowed))
	s.scratch = frame.AppendErrorJSON(s.scratch[:0], frame.MethodNotAllowed, "allowed here: "+allow, frame.Cause{})
	c.Reply(405, typeJSON, s.scratch, to.headers(edge.Header{Name: "Allow", Value: allow})...)
}

const (
	messageRate     = "too many requests"
	messageDraining = "this relay is draining and takes no new pairs"
	messageShutdown = "the relay shuts down"
	messageStall    = "the body gained nothing for too long (MAX_REQUEST_SECONDS)"
	messageShort    = "the body ends before a whole REQUEST"
	messageTrailing = "bytes after END"
	messageNoToken  = "a REQUEST over HTTP needs a token and a pair id"
	messageMetadata = "metadata over maxMetadataBytes (MAX_METADATA_BYTES_MKE, MAX_METADATA_BYTES_MTE)"
	messageBody     = "body over maxRequestBodyBytes (MAX_REQUEST_BODY_MIB)"
	messageControl  = "control body over MAX_CONTROL_BODY_MIB"
	messageHeaders  = "the origin's headers do not fit maxMetadataBytes (MAX_METADATA_BYTES_MKE, MAX_METADATA_BYTES_MTE)"
	messageHead     = "the origin's headers are too large or too many (HTTP_MAX_HEAD_BYTES, HTTP_MAX_HEADERS, MAX_METADATA_BYTES_MKE, MAX_METADATA_BYTES_MTE)"
	messageMethod   = "CONNECT and TRACE are not relayed"
)

// messageOf is what a refusal says for people. It names the setting to change.
func messageOf(r frame.Reason) string {
	switch r {
	case frame.PairNotFound:
		return "no such pair; it may have idled for longer than SESSION_TIMEOUT_SECONDS"
	case frame.DecoderRestoreFailed, frame.EncoderRestoreFailed:
		return "the stored state of the pair cannot be used"
	case frame.DecodeFailed:
		return "the bytes are not of this pair, or too far ahead"
	case frame.EncodeFailed:
		return "the pair is used up"
	case frame.InvalidClientID:
		return "this relay holds no pair of the client"
	case frame.InvalidToken:
		return "the token is not valid here"
	case frame.PoolExhausted:
		return "as many pairs as MAX_PAIRS are held"
	case frame.EOFBeforeEnd:
		return "the body was not carried to its END"
	case frame.ReplayRejected:
		return "the bytes were decoded before"
	case frame.NoDomainForHost:
		return "the Host is not in DOMAIN_MAP"
	case frame.FrameTooLarge:
		return frame.TooLarge.Error()
	case frame.HeaderMismatch:
		return frame.FlagsMismatch.Error()
	case frame.PairBusy:
		return "another request holds the pair"
	case frame.NotOwner:
		return "another replica has the client (LOCAL_STATE_CACHE needs sticky routing)"
	case frame.RateLimited:
		return messageRate
	case frame.PairExists:
		return "the client holds a pair of this id"
	case frame.PairLimit:
		return "more pairs than maxPairsPerClient (MAX_PAIRS_PER_CLIENT)"
	case frame.ProfileMismatch:
		return "the codec profile is not this relay's mteProfile"
	case frame.UpstreamConnectFailed:
		return "the origin cannot be reached"
	case frame.UpstreamResponseFailed:
		return "the origin broke off, was too slow (MAX_RESPONSE_SECONDS), or its answer cannot be relayed"
	case frame.StateStoreUnavailable:
		return "the store of pairs does not answer; nothing was done"
	case frame.StateStoreWriteFailed:
		return "the store did not take the pair's new state"
	case frame.NotFound:
		return "not served here"
	case frame.BadRequest:
		return "the path has dot segments"
	case frame.MethodNotAllowed:
		return messageMethod
	}
	return ""
}
