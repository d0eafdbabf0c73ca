// Package ws is the server's half of RFC 6455 as pure functions: frame headers, masks, UTF-8, close
// payloads and the handshake's key. It works on bytes the caller lends for the length of a call and
// keeps none of them; it knows no socket and no clock and allocates nothing.
package ws

import "encoding/binary"

// Opcode is the four-bit frame type of RFC 6455 §5.2.
type Opcode byte

const (
	OpContinuation Opcode = 0
	OpText         Opcode = 1
	OpBinary       Opcode = 2
	OpClose        Opcode = 8
	OpPing         Opcode = 9
	OpPong         Opcode = 10
)

// IsControl reports whether op belongs to the control frames (RFC 6455 §5.5), known or reserved.
func (op Opcode) IsControl() bool { return op&8 != 0 }

// Bits of the first two bytes of a frame (RFC 6455 §5.2).
const (
	bitFin     = 0x80
	bitsRsv    = 0x70
	bitsOpcode = 0x0f

	bitMask    = 0x80
	bitsLength = 0x7f

	length16 = 126 // the length is in the next two bytes
	length64 = 127 // the length is in the next eight bytes

	maxControlPayload = 125 // RFC 6455 §5.5
)

// MaxHeaderLen is the size in bytes of the longest frame header: two fixed bytes, a 64-bit length
// and a mask key.
const MaxHeaderLen = 14

// Header is one frame header as a client sent it.
type Header struct {
	Fin    bool
	Rsv    byte // RSV1..RSV3 as bits 2..0; ParseHeader accepts only 0
	Op     Opcode
	Masked bool   // ParseHeader accepts only true
	Mask   uint32 // the mask key, first byte lowest, as Mask takes it
	Length uint64 // payload bytes; the top bit is clear
}

// ParseHeader reads one frame header from the start of b and fills h. n is the header's size in
// bytes; n = 0 without an error means that b holds only a part of it, and h is then untouched.
//
// fragmented says that a fragmented message is under way on this connection. A rule that the
// bytes at hand prove to be broken is reported at once, also when the rest of the header is
// missing, so that a peer cannot hold a connection open behind half a bad header. Nothing
// limits Length but its own form: the ceiling on messages is the caller's. Source: RFC 6455 §5.2.
func ParseHeader(b []byte, fragmented bool, h *Header) (n int, err *Error) {
	if len(b) < 2 {
		if len(b) == 1 {
			return 0, checkFirst(b[0], fragmented)
		}
		return 0, nil
	}
	first, second := b[0], b[1]
	if err := checkFirst(first, fragmented); err != nil {
		return 0, err
	}
	if err := checkSecond(first, second); err != nil {
		return 0, err
	}

	var length uint64
	switch code := second & bitsLength; code {
	case length16:
		if err := checkLength16(b[2:]); err != nil {
			return 0, err
		}
		n = 8
		if len(b) < n {
			return 0, nil
		}
		length = uint64(binary.BigEndian.Uint16(b[2:]))
	case length64:
		if err := checkLength64(b[2:]); err != nil {
			return 0, err
		}
		n = MaxHeaderLen
		if len(b) < n {
			return 0, nil
		}
		length = binary.BigEndian.Uint64(b[2:])
	default:
		n = 6
		if len(b) < n {
			return 0, nil
		}
		length = uint64(code)
	}
	h.Fin = first&bitFin != 0
	h.Rsv = first & bitsRsv >> 4
	h.Op = Opcode(first & bitsOpcode)
	h.Masked = true
	h.Mask = binary.LittleEndian.Uint32(b[n-4:])
	h.Length = length
	return n, nil
}

// HeaderLen returns the size in bytes of an unmasked header in front of length payload bytes: 2, 4
// or 10.
func HeaderLen(length int) int {
	switch {
	case length <= maxControlPayload:
		return 2
	case length <= 0xffff:
		return 4
	default:
		return 10
	}
}

// PutHeader writes the header of an unfragmented, unmasked frame to the start of b and returns its
// size. b must have room for HeaderLen(length) bytes.
func PutHeader(b []byte, op Opcode, length int) int {
	return putHeader(b, bitFin|byte(op), length)
}

// AppendHeader appends the header of an unmasked frame to dst. A server never masks (RFC 6455 §5.1).
func AppendHeader(dst []byte, fin bool, op Opcode, length int) []byte {
	first := byte(op)
	if fin {
		first |= bitFin
	}
	var b [10]byte
	n := putHeader(b[:], first, length)
	return append(dst, b[:n]...)
}

func putHeader(b []byte, first byte, length int) int {
	switch n := HeaderLen(length); n {
	case 2:
		b[1] = byte(length)
		b[0] = first
		return n
	case 4:
		binary.BigEndian.PutUint16(b[2:], uint16(length))
		b[1] = length16
		b[0] = first
		return n
	default:
		binary.BigEndian.PutUint64(b[2:], uint64(length))
		b[1] = length64
		b[0] = first
		return n
	}
}
