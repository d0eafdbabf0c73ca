package ws

// Error is what a peer did wrong, as it goes on the wire: the close code and the reason. It is
// deliberately not an error value: nothing wraps it, and it is compared by identity with the
// variables below.
type Error struct {
	Code   uint16
	Reason string
}

// One value per rule. The first group is broken by a frame header, the second by a payload.
var (
	// ErrReserved: an RSV bit is set and no extension was negotiated (RFC 6455 §5.2). Seen from
	// clients that compress although we never accept the offer.
	ErrReserved = &Error{CloseProtocolError, "reserved bit set"}
	// ErrOpcode: an opcode of the reserved ranges (§5.2). Usually a stream that lost its framing.
	ErrOpcode = &Error{CloseProtocolError, "unknown opcode"}
	// ErrUnmasked: a client frame without a mask (§5.1). A server library used as a client.
	ErrUnmasked = &Error{CloseProtocolError, "frame is not masked"}
	// ErrControlFragmented: a control frame without FIN (§5.5).
	ErrControlFragmented = &Error{CloseProtocolError, "control frame is fragmented"}
	// ErrControlLength: a control frame of more than 125 bytes, or one whose length has one of the
	// long forms (§5.5).
	ErrControlLength = &Error{CloseProtocolError, "control frame is longer than 125 bytes"}
	// ErrContinuation: a continuation frame while no message is under way (§5.4).
	ErrContinuation = &Error{CloseProtocolError, "continuation without a message"}
	// ErrInterleaved: a new data frame before the fragmented message ended (§5.4). Two writers on
	// one client socket.
	ErrInterleaved = &Error{CloseProtocolError, "new message inside a fragmented one"}
	// ErrLengthForm: a length in more bytes than it needs (§5.2).
	ErrLengthForm = &Error{CloseProtocolError, "length is not in its shortest form"}
	// ErrLengthTopBit: a 64-bit length with its top bit set (§5.2).
	ErrLengthTopBit = &Error{CloseProtocolError, "length has its top bit set"}

	// ErrText: a text message that is not UTF-8 (§8.1).
	ErrText = &Error{CloseInvalidPayload, "text is not valid UTF-8"}
	// ErrClosePayload: a close payload of one byte, which is half a code (§5.5.1).
	ErrClosePayload = &Error{CloseProtocolError, "close payload of one byte"}
	// ErrCloseCode: a close code nobody may send (§7.4).
	ErrCloseCode = &Error{CloseProtocolError, "illegal close code"}
	// ErrCloseReason: a close reason that is not UTF-8 (§5.5.1, §8.1).
	ErrCloseReason = &Error{CloseInvalidPayload, "close reason is not valid UTF-8"}
)

// checkFirst judges the first byte of a frame by itself and by the message it would continue.
func checkFirst(first byte, fragmented bool) *Error {
	if first&bitsRsv != 0 {
		return ErrReserved
	}
	switch Opcode(first & bitsOpcode) {
	case OpText, OpBinary:
		if fragmented {
			return ErrInterleaved
		}
	case OpContinuation:
		if !fragmented {
			return ErrContinuation
		}
	case OpClose, OpPing, OpPong:
		// Control frames may come between fragments (§5.4) but are never fragments.
		if first&bitFin == 0 {
			return ErrControlFragmented
		}
	default:
		return ErrOpcode
	}
	return nil
}

// checkSecond judges the mask bit and the length code, given a first byte that passed.
func checkSecond(first, second byte) *Error {
	if second&bitMask == 0 {
		return ErrUnmasked
	}
	if second&bitsLength > maxControlPayload && Opcode(first&bitsOpcode).IsControl() {
		return ErrControlLength
	}
	return nil
}

// checkLength16 judges as much of a 16-bit length as b holds; what follows it may be in b too.
func checkLength16(b []byte) *Error {
	if len(b) >= 2 && b[0] == 0 && b[1] < length16 {
		return ErrLengthForm
	}
	return nil
}

// checkLength64 judges as much of a 64-bit length as b holds; what follows it may be in b too. The
// form is settled by the first six bytes: all zero, and the length would fit 16 bits.
func checkLength64(b []byte) *Error {
	if len(b) >= 1 && b[0]&0x80 != 0 {
		return ErrLengthTopBit
	}
	if len(b) >= 6 && b[0]|b[1]|b[2]|b[3]|b[4]|b[5] == 0 {
		return ErrLengthForm
	}
	return nil
}
