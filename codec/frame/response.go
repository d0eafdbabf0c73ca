package frame

import "encoding/binary"

// ResponseHeadBytes is what stands before the encoded metadata of a RESPONSE:
// uint16 status · uint32 metadata length.
const ResponseHeadBytes = 2 + 4

// A Response is the payload of a RESPONSE. Metadata points into the payload.
type Response struct {
	Status   int    // 100-599
	Metadata []byte // encoded, at least a byte
}

// ParseResponse reads a whole payload. The error is BadPayload.
func ParseResponse(p []byte) (r Response, err error) {
	if len(p) < ResponseHeadBytes {
		return r, BadPayload
	}
	r.Status = int(binary.BigEndian.Uint16(p))
	if !validStatus(r.Status) {
		return Response{}, BadPayload
	}
	if r.Metadata, err = sized(p[2:]); err != nil {
		return Response{}, err
	}
	return r, nil
}

// AppendResponseHead appends all of a RESPONSE payload but the encoded metadata, which is to follow
// with exactly that length.
func AppendResponseHead(dst []byte, status, metadata int) []byte {
	dst = binary.BigEndian.AppendUint16(dst, uint16(status))
	return binary.BigEndian.AppendUint32(dst, uint32(metadata))
}

func validStatus(n int) bool { return n >= 100 && n <= 599 }
