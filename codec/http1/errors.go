package http1

// An Error is a peer's fault in the syntax or framing of a message. All values
// are package variables and compare by address. It is deliberately no error:
// it is something to put on the wire, and nobody can wrap it by accident.
type Error struct {
	// Status is the answer a request with this fault gets. For a fault in a
	// response it has no meaning: there the caller answers 502 on its own.
	Status int

	// Reason is one line for the answer's text and for the log. It never
	// contains bytes of the peer.
	Reason string
}

// Faults of any message head.
var (
	// A line that ends in LF alone: some readers take it for a line end and
	// some do not, which is half of all request smuggling.
	ErrBareLF = &Error{400, "bare LF in head"}
	// A field line that begins with blank or tab: an obsolete continuation
	// line (RFC 9112 §5.2), or white space in front of the first field.
	ErrFold = &Error{400, "folded field line"}
	// No colon, an empty name, white space or any other byte that is no token
	// character in the name, white space before the colon included.
	ErrFieldName = &Error{400, "malformed field name"}
	// A control byte in a value: NUL, bare CR, DEL, …
	ErrFieldValue = &Error{400, "control byte in field value"}
	// HeadBytes passed behind the first line.
	ErrHeadTooLarge = &Error{431, "header fields too large"}
	// More field lines than Limits.Fields.
	ErrTooManyFields = &Error{431, "too many header fields"}
)

// Faults of a request line.
var (
	ErrEmptyLines      = &Error{400, "too many empty lines before the request line"}
	ErrRequestLine     = &Error{400, "malformed request line"}
	ErrMethod          = &Error{400, "malformed method"}
	ErrTarget          = &Error{400, "malformed request target"}
	ErrTargetForm      = &Error{400, "request target does not fit the method"}
	ErrTargetAuthority = &Error{400, "malformed authority in request target"}
	// LineBytes passed.
	ErrLineTooLong = &Error{414, "request line too long"}
	// A well-formed HTTP/x.y that is neither 1.0 nor 1.1.
	ErrVersion = &Error{505, "HTTP version not supported"}
)

// Faults found once the whole head of a request is there.
var (
	ErrHostMissing  = &Error{400, "missing Host"}
	ErrHostRepeated = &Error{400, "repeated Host"}
	ErrHost         = &Error{400, "malformed Host"}
	// An expectation other than 100-continue (RFC 9110 §10.1.1).
	ErrExpect = &Error{417, "unknown expectation"}
)

// Faults of framing, in requests and responses.
var (
	// Not 1*DIGIT, or over 2^63−1. Lists are malformed too, equal ones included.
	ErrLength = &Error{400, "malformed Content-Length"}
	// More than one line, whether or not they agree.
	ErrLengthRepeated = &Error{400, "repeated Content-Length"}
	// The two ways of framing at once: whoever stands behind us may believe
	// the other one.
	ErrLengthAndCoding = &Error{400, "Content-Length together with Transfer-Encoding"}
	// Not a list of tokens, or chunked anywhere but once and at the end.
	ErrCoding = &Error{400, "malformed Transfer-Encoding"}
	// A coding that we do not know; we know chunked.
	ErrCodingUnknown = &Error{501, "unknown transfer coding"}
	// HTTP/1.0 has no transfer codings (RFC 9112 §6.1).
	ErrCodingVersion = &Error{400, "Transfer-Encoding in HTTP/1.0"}
)

// Faults of a chunked body and of a body's end.
var (
	ErrChunkSize      = &Error{400, "malformed chunk size"}
	ErrChunkTooLarge  = &Error{400, "chunk size out of range"}
	ErrChunkExtension = &Error{400, "malformed chunk extension"}
	// More than maxExtensionDebt.
	ErrChunkOverhead = &Error{400, "too many bytes of chunk extensions"}
	// No CRLF where the chunk's data must end.
	ErrChunkEnd = &Error{400, "chunk data longer than its size"}
	// A CR that no LF follows, or an LF that no CR precedes, in a chunk line
	// or in the trailer section.
	ErrChunkLine = &Error{400, "malformed line end in chunked body"}
	// The trailer section passed HeadBytes.
	ErrTrailerTooLarge = &Error{431, "trailer fields too large"}
	// The peer went away before the body was complete.
	ErrBodyCut = &Error{400, "body ended early"}
)

// Faults of a status line.
var (
	ErrStatusLine = &Error{400, "malformed status line"}
	// Three digits, but not 100 to 599 (RFC 9110 §15).
	ErrStatus = &Error{400, "status code out of range"}
)
