package frame

// A Reason is why the relay refused, or what a peer relay said. It fixes the code, the word on the
// wire, what a client does about it, and it is the label of the refusal counters (contract, relay
// §7). The set is closed; a word of a newer relay that is not in it is handled by ActionOf.
type Reason uint8

const (
	// NoReason is the zero value: nothing was refused.
	NoReason Reason = iota

	// PairNotFound: the client holds pairs here, but not this one. It expired, was retired, or its
	// state was lost with a store.
	PairNotFound
	// DecoderRestoreFailed and EncoderRestoreFailed: the stored state of a pair is of no use; a
	// store was damaged or written by another version.
	DecoderRestoreFailed
	EncoderRestoreFailed
	// DecodeFailed: the bytes are not the pair's. They were damaged, forged, or made too far ahead.
	DecodeFailed
	// EncodeFailed: a direction has used up its sequence numbers.
	EncodeFailed
	// InvalidClientID: this relay holds no pair of the client. It restarted, or routing is not sticky.
	InvalidClientID
	// InvalidToken: forged, aged, made for another domain or under another secret.
	InvalidToken
	// UnknownKey: a connection's key is not known (connections only).
	UnknownKey
	// PoolExhausted: the store is at its number of pairs.
	PoolExhausted
	// InvalidFrame: what stands where a frame must be is none, or not one that is legal there.
	InvalidFrame
	// EOFBeforeEnd: a body cannot be carried on. The first refusal, if there was one, is its cause.
	EOFBeforeEnd
	// FrameVersionUnsupported: a peer of frame version 1, or of a newer one.
	FrameVersionUnsupported
	// ReplayRejected: bytes that were decoded before. A proxy in between repeated a request, or an
	// attacker did.
	ReplayRejected
	// NoDomainForHost: the Host header names no domain; mostly a proxy that rewrites it.
	NoDomainForHost
	// FrameTooLarge, BodyTooLarge, MessageTooLarge: over MAX_FRAME_BYTES, over the body cap of a
	// request or a control body, over the message bound of a connection.
	FrameTooLarge
	BodyTooLarge
	MessageTooLarge
	// MetadataInvalid: the decoded metadata breaks a rule; a fault of the client's library.
	MetadataInvalid
	// HeaderMismatch: what stands outside the encryption contradicts what stands inside: somebody
	// changed it on the way.
	HeaderMismatch
	// TargetForbidden, PortOutOfRange, AuthzRevoked: of connections to a target.
	TargetForbidden
	PortOutOfRange
	AuthzRevoked
	// UpstreamCapacity: no free pair to the other relay within the waiting time.
	UpstreamCapacity
	// PairBusy: another request holds the pair; a client that shares one, or a request it gave up on.
	PairBusy
	// NotOwner: another replica holds the lease on the client's state.
	NotOwner
	// RekeyOverdue: a connection's keys are over their budget.
	RekeyOverdue
	// ConnectionLimit and RateLimited: too many connections, too many control requests.
	ConnectionLimit
	RateLimited
	// TargetReset: the target of a connection reset it.
	TargetReset
	// InvalidRequest: a control body, or an outbound request, that cannot be served as it is.
	InvalidRequest
	// PairExists, PairLimit: an id the client already holds; more pairs than a client may hold.
	PairExists
	PairLimit
	// ProfileMismatch: the client's codec is another than ours.
	ProfileMismatch
	// Internal and Configuration: our own fault, the operator's.
	Internal
	Configuration
	// UpstreamConnectFailed: the origin (or other relay) was not reached.
	UpstreamConnectFailed
	// UpstreamResponseFailed: it was, and broke off, was too slow, or its answer cannot be relayed.
	UpstreamResponseFailed
	// StateStoreUnavailable: the store did not answer and nothing was executed.
	StateStoreUnavailable
	// StateStoreWriteFailed: the store did not take the new state of a pair.
	StateStoreWriteFailed

	// The four below are ordinary HTTP answers with a JSON body and no ERROR frame. They are not in
	// the protocol's registry.

	// BadRequest: a pass-through path with dot segments, and the like.
	BadRequest
	// Unauthorized: an outbound domain's token is missing or wrong.
	Unauthorized
	// NotFound: a path that is not served here.
	NotFound
	// MethodNotAllowed: a method that its path does not have.
	MethodNotAllowed

	reasons // their number
)

// An Action is what a client does about a refusal.
type Action uint8

const (
	// Surface: report it to the caller; the pair is in step.
	Surface Action = iota
	// SurfaceSecurity: the same, and somebody should look at it.
	SurfaceSecurity
	// ReplacePair: the pair is of no more use, take another.
	ReplacePair
	// FullRepair: authenticate again without the old id and build new pairs.
	FullRepair
	// Stop: do not come again with this.
	Stop
	// BackOff: wait, as long as Retry-After says or longer, with jitter; keep the pairs.
	BackOff
	// BackOffNotOwner: the same, for another replica may answer.
	BackOffNotOwner
	// RetrySame: nothing was executed; the same bytes may be sent again, at most twice.
	RetrySame
	// RetryOnceThenReplace: the same bytes may be sent again once; then the pair is replaced.
	RetryOnceThenReplace
	// Reconnect: open a new connection.
	Reconnect
)

func (a Action) String() string {
	switch a {
	case Surface:
		return "surface"
	case SurfaceSecurity:
		return "surface_security"
	case ReplacePair:
		return "replace_pair"
	case FullRepair:
		return "full_repair"
	case Stop:
		return "stop"
	case BackOff:
		return "back_off"
	case BackOffNotOwner:
		return "back_off_not_owner"
	case RetrySame:
		return "retry_same"
	case RetryOnceThenReplace:
		return "retry_once_then_replace"
	case Reconnect:
		return "reconnect"
	}
	return "unknown action"
}

// registry holds the reasons by number. The first row of a code has the action of a reason that
// only a newer relay knows.
var registry = [reasons]struct {
	code   int
	word   string
	action Action
}{
	NoReason: {0, "", Surface},

	PairNotFound:            {470, "pair_not_found", ReplacePair},
	DecoderRestoreFailed:    {471, "decoder_restore_failed", ReplacePair},
	EncoderRestoreFailed:    {472, "encoder_restore_failed", ReplacePair},
	DecodeFailed:            {473, "decode_failed", ReplacePair},
	EncodeFailed:            {474, "encode_failed", ReplacePair},
	InvalidClientID:         {475, "invalid_client_id", FullRepair},
	InvalidToken:            {475, "invalid_token", FullRepair},
	UnknownKey:              {475, "unknown_key", Stop},
	PoolExhausted:           {476, "pool_exhausted", BackOff},
	InvalidFrame:            {477, "invalid_frame", Surface},
	EOFBeforeEnd:            {477, "eof_before_end", ReplacePair},
	FrameVersionUnsupported: {478, "frame_version_unsupported", Surface},
	ReplayRejected:          {479, "replay_rejected", SurfaceSecurity},
	NoDomainForHost:         {480, "no_domain_for_host", Surface},
	FrameTooLarge:           {481, "frame_too_large", Surface},
	BodyTooLarge:            {481, "body_too_large", Surface},
	MessageTooLarge:         {481, "message_too_large", ReplacePair},
	MetadataInvalid:         {482, "metadata_invalid", Surface},
	HeaderMismatch:          {483, "header_mismatch", SurfaceSecurity},
	TargetForbidden:         {484, "target_forbidden", Stop},
	PortOutOfRange:          {484, "port_out_of_range", Surface},
	AuthzRevoked:            {484, "authz_revoked", Stop},
	UpstreamCapacity:        {485, "upstream_capacity", BackOff},
	PairBusy:                {486, "pair_busy", RetryOnceThenReplace},
	NotOwner:                {486, "not_owner", BackOffNotOwner},
	RekeyOverdue:            {487, "rekey_overdue", Reconnect},
	ConnectionLimit:         {488, "connection_limit", BackOff},
	RateLimited:             {488, "rate_limited", BackOff},
	TargetReset:             {489, "target_reset", Surface},
	InvalidRequest:          {490, "invalid_request", Surface},
	PairExists:              {490, "pair_exists", Surface},
	PairLimit:               {490, "pair_limit", Surface},
	ProfileMismatch:         {490, "profile_mismatch", Surface},
	Internal:                {500, "internal", Surface},
	Configuration:           {500, "configuration", Surface},
	UpstreamConnectFailed:   {502, "upstream_connect_failed", Surface},
	UpstreamResponseFailed:  {502, "upstream_response_failed", Surface},
	StateStoreUnavailable:   {503, "state_store_unavailable", RetrySame},
	StateStoreWriteFailed:   {503, "state_store_write_failed", ReplacePair},

	BadRequest:       {400, "bad_request", Surface},
	Unauthorized:     {401, "unauthorized", Surface},
	NotFound:         {404, "not_found", Surface},
	MethodNotAllowed: {405, "method_not_allowed", Surface},
}

// Reasons calls f for every reason, for the counters that exist from the start.
func Reasons(f func(Reason)) {
	for r := NoReason + 1; r < reasons; r++ {
		f(r)
	}
}

// Code is the HTTP status and the code of the ERROR frame.
func (r Reason) Code() int { return registry[r].code }

// String is the word on the wire.
func (r Reason) String() string { return registry[r].word }

// Action is what a client does about it.
func (r Reason) Action() Action { return registry[r].action }

// Framed tells whether the refusal is an ERROR frame and has the X-MTE-Relay-Error header; the
// others are ordinary HTTP answers.
func (r Reason) Framed() bool { return r != NoReason && r < BadRequest }

// RetryAfter tells whether the refusal carries that header.
func (r Reason) RetryAfter() bool {
	switch r.Code() {
	case 476, 485, 488, 503:
		return true
	}
	return r == NotOwner
}

// ReasonOf finds a reason of the protocol's registry by code and word.
func ReasonOf(code int, word string) (Reason, bool) {
	for r := NoReason + 1; r < BadRequest; r++ {
		if registry[r].code == code && registry[r].word == word {
			return r, true
		}
	}
	return NoReason, false
}

// ActionOf is what a client does about a refusal as it came: the reason's action, else that of the
// code, else Surface.
func ActionOf(code int, word string) Action {
	first, found := Surface, false
	for r := NoReason + 1; r < BadRequest; r++ {
		row := &registry[r]
		switch {
		case row.code != code:
		case row.word == word:
			return row.action
		case !found:
			first, found = row.action, true
		}
	}
	return first
}

const maxReasonBytes = 64

// ValidReason tells whether a word has the form of a reason: a lower-case letter, then up to 63
// lower-case letters, digits and underscores.
func ValidReason[T ~string | ~[]byte](word T) bool {
	if len(word) == 0 || len(word) > maxReasonBytes || word[0] < 'a' || word[0] > 'z' {
		return false
	}
	for i := 1; i < len(word); i++ {
		switch c := word[i]; {
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9', c == '_':
		default:
			return false
		}
	}
	return true
}
