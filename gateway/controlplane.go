package gateway

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"time"

	"github.com/valyala/fasthttp"

	"sluice/gateway/config"
	"sluice/gateway/metric"
	"sluice/gateway/textfile"
)

const (
	// controlPlaneTime bounds one poll, from the look-up of the name to the last
	// byte of the answer.
	controlPlaneTime = 5 * time.Second
	// controlPlaneHead bounds the head of an answer.
	controlPlaneHead = 16 << 10
	// maxToken bounds what is read of CONTROL_PLANE_TOKEN_FILE.
	maxToken = 8 << 10
)

// A controlPlane asks CONTROL_PLANE_URL for settings. It belongs to one goroutine;
// stop may be called from another.
//
// Each poll has a connection of its own, so that a name that moved or a
// certificate that was renewed is seen. Redirects are not followed: the token
// must not travel to where a redirect points.
type controlPlane struct {
	url    string
	origin string // what logs may show of it: the query may hold a secret
	token  string // path of the token's file, empty for none
	client *fasthttp.HostClient

	ctx  context.Context // ends with stop
	stop context.CancelFunc
	poll context.Context // of the poll under way

	// Of the version that was fetched last, whatever came of it.
	etag, modified string
}

// A pollFailure is why a poll brought no answer to judge. Its text is the same as
// long as the cause is, and never holds the token.
type pollFailure struct {
	cause metric.PollFailure
	text  string
}

func (e *pollFailure) Error() string { return e.text }

func pollFailed(cause metric.PollFailure, format string, args ...any) *pollFailure {
	return &pollFailure{cause, fmt.Sprintf(format, args...)}
}

// newControlPlane makes the client of a source with a ControlPlaneURL; roots are
// the trusted certificates, nil for the system's.
func newControlPlane(s *config.Source, roots *x509.CertPool) *controlPlane {
	p := &controlPlane{url: s.ControlPlaneURL, token: s.ControlPlaneToken}
	p.ctx, p.stop = context.WithCancel(context.Background())
	var u fasthttp.URI
	if err := u.Parse(nil, []byte(p.url)); err != nil {
		panic("BUG: CONTROL_PLANE_URL was not checked: " + err.Error())
	}
	secure := string(u.Scheme()) == "https"
	host, port := string(u.Host()), "80"
	if secure {
		port = "443"
	}
	if h, given, err := net.SplitHostPort(host); err == nil {
		host, port = h, given
	}
	host = strings.Trim(host, "[]")
	p.origin = string(u.Scheme()) + "://" + string(u.Host())
	p.client = &fasthttp.HostClient{
		Addr:                      net.JoinHostPort(host, port),
		IsTLS:                     secure,
		Name:                      "sluice/" + Version,
		MaxConns:                  1,
		ReadBufferSize:            controlPlaneHead,
		MaxIdemponentCallAttempts: 1,
		DisablePathNormalizing:    true,
		Dial: func(addr string) (net.Conn, error) {
			c, err := new(net.Dialer).DialContext(p.poll, "tcp", addr)
			if err != nil {
				return nil, err
			}
			// The poll's end is the connection's, whatever it is at.
			context.AfterFunc(p.poll, func() { c.Close() })
			if !secure {
				return c, nil
			}
			t := tls.Client(c, &tls.Config{ServerName: host, RootCAs: roots, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}})
			if err := t.HandshakeContext(p.poll); err != nil {
				c.Close()
				return nil, &handshakeError{err}
			}
			return t, nil
		},
	}
	return p
}

// A handshakeError tells a failed TLS handshake from a failed connection.
type handshakeError struct{ err error }

func (e *handshakeError) Error() string { return e.err.Error() }
func (e *handshakeError) Unwrap() error { return e.err }

// fetch polls once. Without a change since the last fetch it returns nothing and
// no failure.
func (p *controlPlane) fetch() (text []byte, changed bool, no *pollFailure) {
	ctx, cancel := context.WithTimeout(p.ctx, controlPlaneTime)
	defer cancel()
	p.poll = ctx
	req, res := fasthttp.AcquireRequest(), fasthttp.AcquireResponse()
	defer fasthttp.ReleaseRequest(req)
	defer fasthttp.ReleaseResponse(res)
	req.SetRequestURI(p.url)
	req.SetConnectionClose()
	req.SetTimeout(controlPlaneTime)
	req.Header.Set("Accept", "application/json, application/yaml")
	req.Header.Set("Accept-Encoding", "gzip")
	if p.token != "" {
		token, err := readToken(p.token)
		if err != nil {
			return nil, false, pollFailed(metric.PollToken, "CONTROL_PLANE_TOKEN_FILE: %v", err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
	}
	if p.etag != "" {
		req.Header.Set("If-None-Match", p.etag)
	}
	if p.modified != "" {
		req.Header.Set("If-Modified-Since", p.modified)
	}
	res.StreamBody = true // the reader below keeps the bounds
	if err := p.client.Do(req, res); err != nil {
		return nil, false, p.broken(ctx, err)
	}
	defer res.CloseBodyStream()
	switch status := res.StatusCode(); {
	case status == 304 && p.etag+p.modified != "":
		return nil, false, nil
	case status == 401 || status == 403:
		return nil, false, pollFailed(metric.PollUnauthorized, "status %d: look at CONTROL_PLANE_TOKEN_FILE", status)
	case 300 <= status && status < 400 && status != 304:
		return nil, false, pollFailed(metric.PollRedirect, "status %d: redirects are not followed, name the place itself", status)
	case status != 200:
		return nil, false, pollFailed(metric.PollStatus, "status %d", status)
	}
	if text, no = p.body(ctx, res); no != nil {
		return nil, false, no
	}
	p.etag = string(res.Header.Peek("ETag"))
	p.modified = string(res.Header.Peek("Last-Modified"))
	return text, true, nil
}

// body reads a whole answer within its bounds.
func (p *controlPlane) body(ctx context.Context, res *fasthttp.Response) ([]byte, *pollFailure) {
	declared := res.Header.ContentLength()
	if declared > config.MaxDocument {
		return nil, pollFailed(metric.PollTooLarge, "%d bytes, at most 1 MiB is taken", declared)
	}
	text, err := io.ReadAll(io.LimitReader(res.BodyStream(), config.MaxDocument+1))
	switch {
	case len(text) > config.MaxDocument:
		return nil, pollFailed(metric.PollTooLarge, "over 1 MiB")
	case err != nil:
		if no := p.broken(ctx, err); no.cause != metric.PollUnreachable {
			return nil, no
		}
		return nil, pollFailed(metric.PollTruncated, "it ended after %d bytes", len(text))
	case declared >= 0 && len(text) < declared:
		return nil, pollFailed(metric.PollTruncated, "it ended after %d bytes of %d", len(text), declared)
	}
	switch encoding := string(res.Header.ContentEncoding()); {
	case encoding == "" || strings.EqualFold(encoding, "identity"):
	case strings.EqualFold(encoding, "gzip"):
		z, err := gzip.NewReader(bytes.NewReader(text))
		if err == nil {
			text, err = io.ReadAll(io.LimitReader(z, config.MaxDocument+1))
		}
		if len(text) > config.MaxDocument {
			return nil, pollFailed(metric.PollTooLarge, "over 1 MiB when decompressed")
		}
		if err != nil {
			return nil, pollFailed(metric.PollEncoding, "damaged gzip: %v", err)
		}
	default:
		return nil, pollFailed(metric.PollEncoding, "a Content-Encoding other than gzip")
	}
	// The end of an answer without a length is the end of its connection, which
	// may have come early. Of JSON the parser tells; YAML that was cut may look
	// whole and lack domains.
	if start := bytes.TrimLeft(text, " \t\r\n"); declared < -1 && len(start) > 0 && start[0] != '{' {
		return nil, pollFailed(metric.PollTruncated, "YAML without Content-Length or chunks: a cut answer would look whole")
	}
	return text, nil
}

// broken classifies the failure of a connection.
func (p *controlPlane) broken(ctx context.Context, err error) *pollFailure {
	if p.ctx.Err() != nil {
		return pollFailed(metric.PollUnreachable, "given up, the process stops")
	}
	var slow net.Error
	if ctx.Err() != nil || errors.Is(err, fasthttp.ErrTimeout) || errors.As(err, &slow) && slow.Timeout() {
		return pollFailed(metric.PollTimeout, "no whole answer within %v", controlPlaneTime)
	}
	if e, ok := errors.AsType[*handshakeError](err); ok {
		return pollFailed(metric.PollTLS, "TLS: %v", e)
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return pollFailed(metric.PollUnreachable, "the connection ended without an answer")
	}
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return pollFailed(metric.PollUnreachable, "%v", errno) // without our port, which is another each time
	}
	return pollFailed(metric.PollUnreachable, "%v", err)
}

// readToken reads the token, which is one line of what a header may carry. The
// error holds nothing of it.
func readToken(file string) (string, error) {
	b, err := textfile.Read(file, maxToken)
	if err != nil {
		return "", err
	}
	token := strings.TrimSpace(string(b))
	if token == "" {
		return "", fmt.Errorf("%s is empty", file)
	}
	for i := range len(token) {
		if c := token[i]; c <= ' ' || c > '~' {
			return "", fmt.Errorf("%s holds more than one line of printable ASCII without blanks", file)
		}
	}
	return token, nil
}
