// Package open is the codec of the encrypting relay: the interface that a codec profile implements,
// and the open profile "mte/open-1" made from standard parts (contract, open codec profile).
//
// A pair is two directions. A direction has one state (a root key, the next sequence number and, at
// the decoding end, a window of what was seen) and two types of encoding that share it. An instance
// (Encoder, Decoder) is one end of a direction keyed for one type. It changes type by handing its
// state to an instance of the other type.
//
// An instance belongs to one goroutine at a time and never to two requests at once. Encoding and
// decoding allocate nothing; Restore does, because crypto/aes and crypto/hmac take a key only at
// their making. Our own copies of keys, states and plaintext are zeroed by Wipe. What the standard
// library keeps of them (expanded AES keys, GHASH tables, HMAC midstates) is only let go of.
package open

// A Type is how a message is encoded. The values are the wire's mteType.
type Type uint8

const (
	// MTE replaces every byte by an 8-byte token that authenticates the whole message. It cannot
	// carry an empty message.
	MTE Type = 0
	// MKE encrypts and authenticates a message of any length as one.
	MKE Type = 1

	types = 2
)

func (t Type) String() string {
	switch t {
	case MTE:
		return "MTE"
	case MKE:
		return "MKE"
	}
	return "unknown type"
}

// HeadBytes is how far behind the end of dst a plaintext may start that AppendEncode is to encode in
// place.
const HeadBytes = 8

// An Encoder is the sending end of a direction, keyed for one type.
type Encoder interface {
	Type() Type
	// AppendEncode appends the encoded form of plaintext to dst: one operation, one sequence number.
	// plaintext may lie in dst's own array, starting exactly HeadBytes after dst's end; otherwise the
	// two must not overlap. The only error is EncodeFailed, and then nothing was appended and no
	// sequence number used.
	AppendEncode(dst, plaintext []byte) ([]byte, error)
	// AppendState appends the state, which is secret: who holds it can read and forge.
	AppendState(dst []byte) []byte
	// Restore keys the instance from a state, whatever it was before. It keeps no reference to state.
	// The only error is StateInvalid, and then the instance is not keyed.
	Restore(state []byte) error
	// Wipe zeroes the instance. It must be restored before it is used again.
	Wipe()
}

// A Decoder is the receiving end of a direction, keyed for one type.
type Decoder interface {
	Type() Type
	// Decode decodes buf in place: buf's content is lost in any case, the plaintext is a part of it.
	// Errors are DecodeFailed and ReplayRejected; after them the state is what it was before.
	Decode(buf []byte) (plaintext []byte, err error)
	// AppendState, Restore and Wipe: as Encoder's.
	AppendState(dst []byte) []byte
	Restore(state []byte) error
	Wipe()
}

// A Profile is a way to encode that both ends of a pair have agreed on at pairing. It makes
// instances and knows their sizes. It is constant and may be used from anywhere. A licensed library
// is put behind this interface; its clients pair by its own profile string.
type Profile interface {
	// String is the mteProfile of discovery and pairing.
	String() string
	// Match compares the profile string of a peer: whether the two can work together, and whether
	// their probes, the fingerprint of an implementation, are the same too.
	Match(peer string) (agree, sameProbe bool)

	// EncodedBytes is the exact encoded length of n bytes of plaintext, -1 where the type cannot
	// carry them.
	EncodedBytes(t Type, n int) int
	// PlaintextBytes is the length of the longest plaintext whose encoded form has at most n bytes,
	// -1 if there is none.
	PlaintextBytes(t Type, n int) int
	// StateBytes is the length of the longest state.
	StateBytes() int
	// AppendInitialState appends the state of a new direction: entropy is the shared secret of the
	// key exchange, nonce has its top bit clear.
	AppendInitialState(dst []byte, entropy *[32]byte, nonce uint64, personalization []byte) []byte

	// NewEncoder and NewDecoder make an instance that is not keyed yet.
	NewEncoder(t Type) Encoder
	NewDecoder(t Type) Decoder
}

// An Error is why an operation of a codec was refused. Its text is the reason on the wire, where
// the registry has one.
type Error uint8

const (
	// EncodeFailed: the direction is used up, or the type cannot carry the message.
	EncodeFailed Error = iota + 1
	// DecodeFailed: no encoder of this direction made these bytes, or they lie too far ahead.
	DecodeFailed
	// ReplayRejected: the bytes are genuine and were decoded before, or are too old to tell.
	ReplayRejected
	// StateInvalid: a stored state that this profile did not write.
	StateInvalid
)

func (e Error) Error() string {
	switch e {
	case EncodeFailed:
		return "encode_failed"
	case DecodeFailed:
		return "decode_failed"
	case ReplayRejected:
		return "replay_rejected"
	case StateInvalid:
		return "state_invalid"
	}
	return "unknown codec error"
}
