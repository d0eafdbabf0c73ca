package frame

import "encoding/binary"

// Values of Request.Type: how metadata and DATA of the exchange are encoded, in both directions.
const (
	TypeMTE = 0
	TypeMKE = 1
)

// RequestHeadBytes is what stands before the encoded metadata of a REQUEST that has a token:
// mteType · method · pairId (16) · uint16 token length · token (40) · uint32 metadata length.
const RequestHeadBytes = 1 + 1 + IDBytes + 2 + TokenBytes + 4

// OtherMethod is the method byte of a method that has none of its own.
const OtherMethod = 255

var methods = [...]string{"GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "TRACE", "CONNECT"}

// MethodByte is how a REQUEST names a method.
func MethodByte[T ~string | ~[]byte](method T) byte {
	for i, m := range methods {
		if string(method) == m {
			return byte(i)
		}
	}
	return OtherMethod
}

// MethodName is the method a byte stands for; "" for OtherMethod and what is none.
func MethodName(b byte) string {
	if int(b) < len(methods) {
		return methods[b]
	}
	return ""
}

// A Request is the payload of a REQUEST. Token and Metadata point into the payload.
type Request struct {
	Type     byte // TypeMTE or TypeMKE
	Method   byte
	Pair     PairID
	Token    []byte // TokenBytes, or nothing on a connection
	Metadata []byte // encoded, at least a byte
}

// ParseRequest reads a whole payload. The error is BadPayload.
func ParseRequest(p []byte) (r Request, err error) {
	const fixed = 1 + 1 + IDBytes + 2
	if len(p) < fixed {
		return r, BadPayload
	}
	r.Type, r.Method = p[0], p[1]
	if r.Type > TypeMKE || int(r.Method) >= len(methods) && r.Method != OtherMethod {
		return Request{}, BadPayload
	}
	r.Pair = PairID(p[2:])
	token := int(binary.BigEndian.Uint16(p[2+IDBytes:]))
	p = p[fixed:]
	if token != 0 && token != TokenBytes || len(p) < token+4 {
		return Request{}, BadPayload
	}
	r.Token, p = p[:token:token], p[token:]
	if r.Metadata, err = sized(p); err != nil {
		return Request{}, err
	}
	return r, nil
}

// AppendRequestHead appends all of a REQUEST payload but the encoded metadata, which is to follow
// with exactly that length. token is TokenBytes long, or empty on a connection.
func AppendRequestHead(dst []byte, typ, method byte, pair PairID, token []byte, metadata int) []byte {
	dst = append(dst, typ, method)
	dst = append(dst, pair[:]...)
	dst = binary.BigEndian.AppendUint16(dst, uint16(len(token)))
	dst = append(dst, token...)
	return binary.BigEndian.AppendUint32(dst, uint32(metadata))
}

// sized reads a uint32 length of at least 1 and as many bytes, which must be all of p.
func sized(p []byte) ([]byte, error) {
	if len(p) < 4+1 || uint64(binary.BigEndian.Uint32(p)) != uint64(len(p)-4) {
		return nil, BadPayload
	}
	return p[4:], nil
}
