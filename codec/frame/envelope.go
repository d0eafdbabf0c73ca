// Package frame is the wire format of the encrypting relay, frame version 2: one home for each of
// its rules (contract, mte-relay §1-§5, §7). It is bytes to values and back; it knows no socket and no
// clock.
//
// Parsers work on borrowed bytes: what they return points into their input (or into the scratch of
// the value that was filled) and is good until either changes. On the data path nothing here
// allocates once its scratch has grown. Numbers on the wire are big endian.
package frame

import "encoding/binary"

// EnvelopeBytes is the length of what stands before every payload:
// 89 4D 54 · version · kind · flags · 2 reserved bytes · uint32 payload length.
const EnvelopeBytes = 12

// Version is the frame version.
const Version = 2

// A Kind is what a frame is.
type Kind uint8

const (
	KindRequest Kind = iota
	KindResponse
	KindData
	KindError
	KindOpen
	KindOpenAck
	KindClose
	KindPing
	KindPong
	KindGoAway
	KindRekeyRequest

	kinds
)

func (k Kind) String() string {
	names := [kinds]string{"REQUEST", "RESPONSE", "DATA", "ERROR", "OPEN", "OPEN_ACK", "CLOSE", "PING", "PONG", "GOAWAY", "REKEY_REQUEST"}
	if k < kinds {
		return names[k]
	}
	return "unknown kind"
}

// Flags are the low four bits of the flags byte; LegalFlags says which may stand where.
type Flags uint8

const (
	// FlagEnd: the direction ends with this frame.
	FlagEnd Flags = 1 << iota
	// FlagMore: the message goes on in the next DATA (WebSocket).
	FlagMore
	// FlagText: the message is text (WebSocket).
	FlagText
	// FlagHalf: the direction is shut down, the other goes on (TCP).
	FlagHalf

	reservedFlags = 0xf0
)

// An Envelope is the head of one frame.
type Envelope struct {
	Kind   Kind
	Flags  Flags
	Length uint32 // of the payload
}

// ParseEnvelope reads the envelope at the start of b. n is 0 and err nil while b is shorter than
// one; otherwise n is EnvelopeBytes or err a Fault. Nothing is said about the length and the flags:
// the length has a bound of the receiver's, the flags depend on the transport.
func ParseEnvelope(b []byte) (e Envelope, n int, err error) {
	if len(b) < EnvelopeBytes {
		return e, 0, nil
	}
	switch {
	case b[0] == 'M' && b[1] == 'T' && b[2] == 'E':
		return e, 0, LegacySignature
	case b[0] != 0x89 || b[1] != 'M' || b[2] != 'T':
		return e, 0, BadSignature
	case b[3] != Version:
		return e, 0, BadVersion
	case b[5]&reservedFlags != 0 || b[6] != 0 || b[7] != 0:
		return e, 0, BadReserved
	case Kind(b[4]) >= kinds:
		return e, 0, BadKind
	}
	return Envelope{Kind: Kind(b[4]), Flags: Flags(b[5]), Length: binary.BigEndian.Uint32(b[8:])}, EnvelopeBytes, nil
}

// AppendEnvelope appends the head of a frame.
func AppendEnvelope(dst []byte, k Kind, f Flags, length int) []byte {
	return append(dst, 0x89, 'M', 'T', Version, byte(k), byte(f), 0, 0,
		byte(length>>24), byte(length>>16), byte(length>>8), byte(length))
}

// PutEnvelope writes the head of a frame over the first EnvelopeBytes of b, for one whose payload is
// already in place.
func PutEnvelope(b []byte, k Kind, f Flags, length int) {
	AppendEnvelope(b[:0:EnvelopeBytes], k, f, length)
}

// A Fault is what is wrong with a frame or its content. Its text names the rule that was broken, its
// Reason is what the peer is told.
type Fault uint8

const (
	// Of the envelope, in the order in which they are looked for.

	Short           Fault = iota + 1 // the input ends inside an envelope
	LegacySignature                  // a frame of version 1
	BadSignature
	BadVersion
	BadReserved
	BadKind

	// TooLarge: the payload is over the receiver's bound, decided before it is read.
	TooLarge
	// MessageLength: a WebSocket message that is not exactly one frame.
	MessageLength
	// BadFlags: flags that the kind may not carry on this transport.
	BadFlags
	// BadPayload: a payload that does not have its kind's form.
	BadPayload
	// FlagsMismatch: the flags inside the encryption are not the envelope's.
	FlagsMismatch
	// EmptyInRun and TextChanged: of a message in several DATA.
	EmptyInRun
	TextChanged

	// Of decoded metadata.

	BadJSON
	DuplicateKey
	BadMetadataVersion
	BadMember
	BadHeader
	BadPath
	MissingMember
	// MethodMismatch: the method byte and the metadata's method disagree.
	MethodMismatch

	faults
)

var faultTexts = [faults]string{
	Short:              "the input ends inside an envelope",
	LegacySignature:    "a frame of version 1",
	BadSignature:       "no frame signature",
	BadVersion:         "frame version not supported",
	BadReserved:        "reserved bits are set",
	BadKind:            "unknown frame kind",
	TooLarge:           "payload over maxFrameBytes (MAX_FRAME_BYTES)",
	MessageLength:      "a message is not exactly one frame",
	BadFlags:           "flags not allowed here",
	BadPayload:         "malformed payload",
	FlagsMismatch:      "flags differ inside and outside the encryption",
	EmptyInRun:         "an empty DATA inside a message",
	TextChanged:        "text and binary in one message",
	BadJSON:            "metadata is not one JSON object in UTF-8",
	DuplicateKey:       "metadata has a key twice",
	BadMetadataVersion: "metadata member v is not 2",
	BadMember:          "a metadata member has a wrong type or value",
	BadHeader:          "a metadata header has an illegal name or value",
	BadPath:            "metadata path is illegal",
	MissingMember:      "metadata lacks a required member",
	MethodMismatch:     "the method differs inside and outside the encryption",
}

func (f Fault) Error() string { return faultTexts[f] }

// Reason is what the peer is told, with its code.
func (f Fault) Reason() Reason {
	switch f {
	case LegacySignature, BadVersion:
		return FrameVersionUnsupported
	case TooLarge:
		return FrameTooLarge
	case FlagsMismatch, MethodMismatch:
		return HeaderMismatch
	case BadJSON, DuplicateKey, BadMetadataVersion, BadMember, BadHeader, BadPath, MissingMember:
		return MetadataInvalid
	}
	return InvalidFrame
}
