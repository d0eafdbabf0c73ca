package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"sluice/codec/frame"
	"sluice/codec/http1"
	"sluice/codec/open"
	"sluice/gateway/client"
	"sluice/kyber"
)

// relayedHost is the domain of the encrypting role in all scenarios.
const relayedHost = "localhost"

// startRelay runs the encrypting role in front of an origin: frames and plain
// requests to any path but / are proxied to it.
func (l *lab) startRelay(origin int, settings ...string) (*server, error) {
	return l.startDomains(map[string]any{relayedHost: relayedDomain(origin)}, settings...)
}

// controlTimeout bounds one call of a control endpoint.
const controlTimeout = 30 * time.Second

var control = &http.Client{Timeout: controlTimeout}

// callRelay sends a control call and returns the body of its 200.
func callRelay(port int, call client.Call) ([]byte, error) {
	r, err := http.NewRequest(call.Method, fmt.Sprintf("http://127.0.0.1:%d%s", port, call.Target), bytes.NewReader(call.Body))
	if err != nil {
		return nil, err
	}
	r.Host = relayedHost
	for _, h := range call.Header {
		r.Header.Set(h.Name, h.Value)
	}
	res, err := control.Do(r)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != 200 {
		err = fmt.Errorf("%s %s: %s %q", call.Method, call.Target, res.Status, res.Header.Get(frame.ErrorHeader))
	}
	return body, err
}

// authenticate makes a session with the relay on a port.
func authenticate(port int) (*client.Session, error) {
	s := client.NewSession("", relayedHost)
	body, err := callRelay(port, s.Auth())
	if err != nil {
		return nil, err
	}
	return s, s.Authed(body, time.Now())
}

// makePairs makes n pairs, at most one batch.
func makePairs(port int, s *client.Session, n int) ([]*client.Pair, error) {
	p := s.NewPairing(n)
	var e kyber.Engine
	for i := range p.Steps() {
		p.Step(&e, i)
	}
	body, err := callRelay(port, p.Call())
	if err != nil {
		return nil, err
	}
	if err := p.Answered(body); err != nil {
		return nil, err
	}
	for i := range p.Steps() {
		p.Step(&e, i)
	}
	return p.Pairs()
}

// originAnswer is what the origin answers to everything.
var originAnswer = bytes.Repeat([]byte{'x'}, 1024)

// A talker is one side of a connection: it makes requests, of which one is in
// flight at a time, and judges each byte of the answers.
type talker interface {
	appendRequest(dst []byte) ([]byte, error)
	// take gets a piece of the answer's body, which it may write to.
	take(b []byte) error
	// ended judges the answer at the end of its body.
	ended() error
}

// plainTalker posts a body to a pass-through route.
type plainTalker struct {
	request []byte
	got     int
}

func newPlainTalker(host string, body []byte) *plainTalker {
	b := http1.AppendRequestLine(nil, []byte("POST"), []byte("/plain"))
	b = http1.AppendField(b, "Host", host)
	b = http1.AppendField(b, "Content-Type", "application/octet-stream")
	b = http1.AppendContentLength(b, uint64(len(body)))
	b = append(b, http1.CRLF...)
	return &plainTalker{request: append(b, body...)}
}

func (t *plainTalker) appendRequest(dst []byte) ([]byte, error) {
	t.got = 0
	return append(dst, t.request...), nil
}

func (t *plainTalker) take(b []byte) error {
	if t.got+len(b) > len(originAnswer) || !bytes.Equal(b, originAnswer[t.got:t.got+len(b)]) {
		return fmt.Errorf("the answer is not the origin's, from byte %d on", t.got)
	}
	t.got += len(b)
	return nil
}

func (t *plainTalker) ended() error {
	if t.got != len(originAnswer) {
		return fmt.Errorf("the answer has %d bytes", t.got)
	}
	return nil
}

// encryptedTalker posts the same through a pair of its own.
type encryptedTalker struct {
	pair   *client.Pair
	route  []byte // the route header's value
	body   []byte
	x      client.Exchange
	frames []byte
	plain  plainTalker // judges what the frames hold
}

var (
	relayedMethod = []byte("POST")
	relayedPath   = []byte("plain")
	contentType   = []byte("content-type")
	octetStream   = []byte("application/octet-stream")
)

func (t *encryptedTalker) appendRequest(dst []byte) ([]byte, error) {
	t.plain.got = 0
	t.x.Begin(t.pair, open.MKE)
	err := t.x.AddHeader(contentType, octetStream)
	if err == nil {
		t.frames, err = t.x.AppendRequest(t.frames[:0], relayedMethod, relayedPath, true)
	}
	if err == nil {
		t.frames, err = t.x.AppendData(t.frames, t.body, true)
	}
	dst = append(dst, "POST / HTTP/1.1\r\nHost: "+relayedHost+"\r\nContent-Type: application/octet-stream\r\n"...)
	dst = http1.AppendField(dst, frame.RouteHeader, t.route)
	dst = append(dst, "Content-Length: "...)
	dst = strconv.AppendInt(dst, int64(len(t.frames)), 10)
	dst = append(dst, "\r\n\r\n"...)
	return append(dst, t.frames...), err
}

func (t *encryptedTalker) take(b []byte) error {
	for {
		ev, data, n, err := t.x.Feed(b)
		if err != nil {
			return err
		}
		if ev == client.GotHead && t.x.Status() != 200 {
			return fmt.Errorf("the origin's status came as %d", t.x.Status())
		}
		if err := t.plain.take(data); err != nil {
			return err
		}
		if b = b[n:]; ev == client.NeedMore {
			return nil
		}
	}
}

func (t *encryptedTalker) ended() error {
	if !t.x.InStep() {
		return fmt.Errorf("the HTTP answer ended before END")
	}
	return t.plain.ended()
}
