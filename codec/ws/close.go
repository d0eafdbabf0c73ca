package ws

import (
	"encoding/binary"
	"unicode/utf8"
)

// Close codes of RFC 6455 §7.4.1 and the IANA registry.
const (
	CloseNormal             = 1000
	CloseGoingAway          = 1001
	CloseProtocolError      = 1002
	CloseUnsupportedData    = 1003
	CloseNoStatus           = 1005 // local only: the peer's close frame had no code
	CloseAbnormal           = 1006 // local only: there was no close frame
	CloseInvalidPayload     = 1007
	ClosePolicyViolation    = 1008
	CloseTooBig             = 1009
	CloseMandatoryExtension = 1010
	CloseInternalError      = 1011
	CloseServiceRestart     = 1012
	CloseTryAgainLater      = 1013
	CloseBadGateway         = 1014
	CloseTLSHandshake       = 1015 // local only: TLS failed
)

// maxCloseReason is what a control payload leaves beside the code, in bytes.
const maxCloseReason = maxControlPayload - 2

// ValidWireCode reports whether code may stand in a close frame: the registered codes but those
// that are only local, and 3000 to 4999, which belong to libraries and applications. 1004 is
// reserved, and 1016 to 2999 are for the protocol's future (RFC 6455 §7.4).
func ValidWireCode(code uint16) bool {
	switch {
	case code < 1000:
		return false
	case code <= CloseUnsupportedData:
		return true
	case code < CloseInvalidPayload:
		return false
	case code <= CloseBadGateway:
		return true
	default:
		return 3000 <= code && code <= 4999
	}
}

// ParseClose reads the unmasked payload of a close frame. An empty one gives CloseNoStatus. reason
// is a part of payload. The errors are ErrClosePayload, ErrCloseCode and ErrCloseReason.
func ParseClose(payload []byte) (code uint16, reason []byte, err *Error) {
	switch len(payload) {
	case 0:
		return CloseNoStatus, nil, nil
	case 1:
		return 0, nil, ErrClosePayload
	}
	code, reason = binary.BigEndian.Uint16(payload), payload[2:]
	if !ValidWireCode(code) {
		return 0, nil, ErrCloseCode
	}
	if !ValidText(reason) {
		return 0, nil, ErrCloseReason
	}
	return code, reason, nil
}

// AppendClose appends a whole unmasked close frame to dst. CloseNoStatus gives an empty payload, and
// reason is then not sent; any other code that is not legal on the wire panics. reason must be
// UTF-8; what does not fit the 123 bytes a frame has for it is cut off between two runes.
func AppendClose(dst []byte, code uint16, reason string) []byte {
	if code == CloseNoStatus {
		return AppendHeader(dst, true, OpClose, 0)
	}
	if !ValidWireCode(code) {
		panic("BUG: ws.AppendClose with a code that must not be sent")
	}
	if len(reason) > maxCloseReason {
		end := maxCloseReason
		for end > 0 && !utf8.RuneStart(reason[end]) {
			end--
		}
		reason = reason[:end]
	}
	dst = AppendHeader(dst, true, OpClose, 2+len(reason))
	dst = binary.BigEndian.AppendUint16(dst, code)
	return append(dst, reason...)
}
