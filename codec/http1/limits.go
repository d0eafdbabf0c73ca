package http1

// Limits bound one message head. They are enforced on unfinished heads too, so
// that a peer cannot make a reader keep more than HeadBytes.
type Limits struct {
	// HeadBytes is the most a head may take in bytes, from its first byte
	// (empty lines in front of a request line included) to the end of the
	// empty line behind the fields. It bounds the trailer section of a chunked
	// body as well. Over it: 431.
	HeadBytes int

	// LineBytes is the longest request line in bytes, its CRLF included.
	// 0 means HeadBytes. Over it: 414.
	LineBytes int

	// Fields is the most field lines a head or a trailer section may have.
	// Over it: 431.
	Fields int
}

// DefaultLimits are the contract's defaults of HTTP_MAX_HEAD_BYTES and
// HTTP_MAX_HEADERS, for readers that have no settings, as the Go client. A test of
// the settings holds the two homes together.
var DefaultLimits = Limits{HeadBytes: 65536, Fields: 128}

func (lim *Limits) lineBytes() int {
	if lim.LineBytes <= 0 || lim.LineBytes > lim.HeadBytes {
		return lim.HeadBytes
	}
	return lim.LineBytes
}

const (
	// maxEmptyLines is how many empty lines may stand in front of a request
	// line. RFC 9112 §2.2 asks for at least one: some clients end a body with a
	// CRLF that its length does not count.
	maxEmptyLines = 2

	// maxChunkDigits is the longest chunk size in hex digits, leading zeros
	// included: what fits 64 bits.
	maxChunkDigits = 16

	// maxExtensionDebt is how many bytes of chunk extensions a body may carry
	// beyond one byte per payload byte. Nobody uses extensions; without this
	// bound one-byte chunks would make us read thousands of bytes for each
	// byte that any other limit counts.
	maxExtensionDebt = 16384
)
