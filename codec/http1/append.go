package http1

import (
	"strconv"
	"time"
)

// CRLF ends lines and the data of a chunk.
const CRLF = "\r\n"

// LastChunk ends a chunked body, without trailers.
const LastChunk = "0\r\n\r\n"

// AppendStatusLine appends an HTTP/1.1 status line with the usual reason phrase,
// or an empty one if the status has none.
func AppendStatusLine(dst []byte, status int) []byte {
	if status == 200 {
		return append(dst, "HTTP/1.1 200 OK\r\n"...)
	}
	if status < 100 || status > 999 {
		panic("BUG: http1: status is not three digits")
	}
	dst = append(dst, "HTTP/1.1 "...)
	dst = AppendUint(dst, uint64(status))
	dst = append(dst, ' ') // also before an empty phrase, RFC 9112 §4
	dst = append(dst, StatusText(status)...)
	return append(dst, CRLF...)
}

// AppendRequestLine appends an HTTP/1.1 request line. Method and target must
// come from a parsed request, or have been checked alike.
func AppendRequestLine(dst []byte, method, target []byte) []byte {
	dst = append(dst, method...)
	dst = append(dst, ' ')
	dst = append(dst, target...)
	return append(dst, " HTTP/1.1\r\n"...)
}

// AppendField appends a field line. Name and value are written as they are:
// what did not come from a parsed head must pass ValidToken and ValidValue.
func AppendField[N, V ~string | ~[]byte](dst []byte, name N, value V) []byte {
	dst = append(dst, name...)
	dst = append(dst, ": "...)
	dst = append(dst, value...)
	return append(dst, CRLF...)
}

// AppendContentLength appends a Content-Length line.
func AppendContentLength(dst []byte, n uint64) []byte {
	dst = append(dst, "Content-Length: "...)
	dst = AppendUint(dst, n)
	return append(dst, CRLF...)
}

// AppendUint appends n in decimal.
func AppendUint(dst []byte, n uint64) []byte { return strconv.AppendUint(dst, n, 10) }

// AppendDate appends a Date line (RFC 9110 §5.6.7). It costs more than all the
// rest of a small head: keep the result for a second.
func AppendDate(dst []byte, now time.Time) []byte {
	dst = append(dst, "Date: "...)
	dst = now.UTC().AppendFormat(dst, "Mon, 02 Jan 2006 15:04:05 GMT")
	return append(dst, CRLF...)
}

// AppendChunkHeader appends the size line of a chunk of n bytes, at most 18
// bytes. The data and a CRLF must follow. n must not be 0, since that would end
// the body.
func AppendChunkHeader(dst []byte, n int) []byte {
	if n <= 0 {
		panic("BUG: http1: empty chunk")
	}
	dst = strconv.AppendUint(dst, uint64(n), 16)
	return append(dst, CRLF...)
}

// StatusText returns the reason phrase of a status (RFC 9110 §15), "" if it has
// none.
func StatusText(status int) string {
	switch status {
	case 100:
		return "Continue"
	case 101:
		return "Switching Protocols"
	case 200:
		return "OK"
	case 201:
		return "Created"
	case 202:
		return "Accepted"
	case 204:
		return "No Content"
	case 206:
		return "Partial Content"
	case 301:
		return "Moved Permanently"
	case 302:
		return "Found"
	case 303:
		return "See Other"
	case 304:
		return "Not Modified"
	case 307:
		return "Temporary Redirect"
	case 308:
		return "Permanent Redirect"
	case 400:
		return "Bad Request"
	case 401:
		return "Unauthorized"
	case 403:
		return "Forbidden"
	case 404:
		return "Not Found"
	case 405:
		return "Method Not Allowed"
	case 408:
		return "Request Timeout"
	case 409:
		return "Conflict"
	case 411:
		return "Length Required"
	case 413:
		return "Content Too Large"
	case 414:
		return "URI Too Long"
	case 417:
		return "Expectation Failed"
	case 421:
		return "Misdirected Request"
	case 426:
		return "Upgrade Required"
	case 429:
		return "Too Many Requests"
	case 431:
		return "Request Header Fields Too Large"
	case 500:
		return "Internal Server Error"
	case 501:
		return "Not Implemented"
	case 502:
		return "Bad Gateway"
	case 503:
		return "Service Unavailable"
	case 504:
		return "Gateway Timeout"
	case 505:
		return "HTTP Version Not Supported"
	}
	return ""
}
