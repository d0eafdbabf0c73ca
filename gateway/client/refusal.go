package client

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"sluice/codec/frame"
)

// ErrFrameVersion: the relay does not speak frame version 2.
var ErrFrameVersion = errors.New("the relay does not speak frame version 2")

// ErrClosed: the client was closed.
var ErrClosed = errors.New("the client is closed")

// A Refusal is what a relay answered instead of doing what it was asked: an ERROR frame, or a plain
// HTTP answer of something in between.
type Refusal struct {
	frame.ErrorPayload
	RetryAfter time.Duration // 0 if it named none

	foreign bool // not the relay's
}

func (r *Refusal) Error() string {
	text := fmt.Sprintf("the relay refused: %d %s", r.Code, r.Reason)
	if r.Message != "" {
		text += ": " + r.Message
	}
	if r.Cause.Code != 0 {
		text += fmt.Sprintf(" (because of %d %s at hop %d)", r.Cause.Code, r.Cause.Reason, r.Cause.Hop)
	}
	return text
}

// Action is what a client does about it (contract, registry). A 5xx of something in between is only
// reported: whether the relay has executed the request, and with it whether the same bytes may be
// sent again, such an answer does not tell. A 4xx of the registry comes from relays alone.
func (r *Refusal) Action() frame.Action {
	if r.foreign && r.Code >= 500 {
		return frame.Surface
	}
	return frame.ActionOf(r.Code, r.Reason)
}

// Foreign tells that the answer is not the relay's: a proxy in between has replaced it.
func (r *Refusal) Foreign() bool { return r.foreign }

// maxRetryAfter is the longest Retry-After that is believed. One that is longer, or no number of
// this world, must not stop a client for good.
const maxRetryAfter = 24 * time.Hour

// NewRefusal reads an answer that is not 200: its status, the values of X-MTE-Relay-Error and
// Retry-After, and its whole body. The frame in the body counts; without one the header does, then
// the status, since an answer may come from a proxy on the way.
func NewRefusal(status int, errorHeader, retryAfter string, body []byte) *Refusal {
	r := &Refusal{}
	if s, err := strconv.Atoi(retryAfter); err == nil && s > 0 {
		r.RetryAfter = time.Duration(min(s, int(maxRetryAfter/time.Second))) * time.Second
	}
	e, n, err := frame.ParseEnvelope(body)
	if err == nil && n > 0 && e.Kind == frame.KindError && uint64(e.Length) == uint64(len(body)-n) {
		if r.ErrorPayload, err = frame.ParseError(body[n:]); err == nil {
			return r
		}
	}
	r.Code = status
	if code, reason, ok := strings.Cut(errorHeader, " "); ok && code == strconv.Itoa(status) && frame.ValidReason(reason) {
		r.Reason = reason
		return r
	}
	r.foreign = true
	r.Reason = "unknown"
	r.Message = "an answer that is not the relay's"
	return r
}

// untouched tells whether the relay refused before it decoded anything: the REQUEST's sequence
// number, and those behind it, are still to come for it (contract, mte-relay §6, fate of the pair).
func (r *Refusal) untouched() bool {
	reason, _ := frame.ReasonOf(r.Code, r.Reason)
	switch reason {
	case frame.PairNotFound, frame.DecodeFailed, frame.ReplayRejected, frame.InvalidClientID, frame.InvalidToken,
		frame.FrameVersionUnsupported, frame.PairBusy, frame.NotOwner, frame.InvalidFrame, frame.FrameTooLarge,
		frame.NoDomainForHost, frame.RateLimited, frame.ConnectionLimit, frame.PoolExhausted, frame.StateStoreUnavailable:
		return true
	}
	return r.foreign // then nobody knows, and the window bears both
}

// A Verdict is what becomes of a pair and a request after a refusal.
type Verdict struct {
	// Resend: the same bytes may be sent once more, with the same pair.
	Resend bool
	// Replace: the pair is of no more use.
	Replace bool
	// Repair: no pair is, and the client authenticates anew.
	Repair bool
	// BackOff: nothing should be sent for RetryAfter, or a time of the client's choosing.
	BackOff bool
}

// How often the same bytes may be sent again, because nothing was executed.
const (
	maxResendSame = 2 // after retry_same
	maxResendBusy = 1 // after 486 pair_busy
)

// Refused judges a refusal that came instead of a RESPONSE. resent is how often the request was sent
// again before, held whether all its bytes still are.
func (x *Exchange) Refused(r *Refusal, resent int, held bool) (v Verdict) {
	switch r.Action() {
	case frame.ReplacePair:
		v.Replace = true
	case frame.FullRepair:
		v.Repair, v.Replace = true, true
	case frame.BackOff, frame.BackOffNotOwner:
		v.BackOff = true
	case frame.RetrySame:
		v.Resend = held && resent < maxResendSame
		v.Replace = !v.Resend
	case frame.RetryOnceThenReplace:
		v.Resend = held && resent < maxResendBusy
		v.Replace = !v.Resend
	}
	if v.Resend {
		return v
	}
	switch {
	case r.untouched():
		x.pair.undecoded += x.operations
		v.Replace = v.Replace || x.pair.worn()
	case !x.ended:
		v.Replace = true // the relay waits for an END that will not come
	default:
		x.pair.undecoded = 0
	}
	x.state = exchangeFailed
	return v
}
