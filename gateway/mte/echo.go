package mte

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// An echoOrigin is the origin of the built-in localhost domain: a server on a
// loopback port that shows what reached it, so that a first request needs nothing
// else to be running. It is for development and has no limits but Go's own.
//
//	any request with a body    the body, up to 16 MiB, with its Content-Type
//	/events?n=5&ms=500         n server-sent events, ms milliseconds apart
//	/status/418                that status
//	anything else              what was asked, as JSON: method, target, headers
//
// Every answer names the request in X-Echo-Method and X-Echo-Target.
//
// It may be used from anywhere.
type echoOrigin struct {
	ln  net.Listener
	srv *http.Server
}

// echoBytes bounds the body that is echoed; over it: 413.
const echoBytes = 16 << 20

// startEcho starts the server on a free port of 127.0.0.1.
func startEcho() (*echoOrigin, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("the echo origin: %w", err)
	}
	e := &echoOrigin{ln: ln, srv: &http.Server{Handler: http.HandlerFunc(echo), ReadHeaderTimeout: 10 * time.Second}}
	go e.srv.Serve(ln)
	return e, nil
}

// URL is what the domain's upstream is.
func (e *echoOrigin) URL() string { return "http://" + e.ln.Addr().String() }

// Close ends the server and its connections.
func (e *echoOrigin) Close() { e.srv.Close() }

func echo(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("X-Echo-Method", r.Method)
	w.Header().Set("X-Echo-Target", r.RequestURI)
	if r.ContentLength == 0 {
		if r.URL.Path == "/events" {
			echoEvents(w, r)
			return
		}
		if code, ok := strings.CutPrefix(r.URL.Path, "/status/"); ok {
			echoStatus(w, code)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		out := json.NewEncoder(w)
		out.SetIndent("", "  ")
		out.SetEscapeHTML(false)
		out.Encode(struct {
			Method  string      `json:"method"`
			Target  string      `json:"target"`
			Host    string      `json:"host"`
			Headers http.Header `json:"headers"`
		}{r.Method, r.RequestURI, r.Host, r.Header})
		return
	}
	// The body is read before the answer begins: an encrypted answer starts when
	// the request has ended, so an echo on the way would wait for itself.
	body, err := io.ReadAll(io.LimitReader(r.Body, echoBytes+1))
	switch {
	case err != nil:
		panic(http.ErrAbortHandler)
	case len(body) > echoBytes:
		http.Error(w, fmt.Sprintf("the echo origin takes bodies of up to %d MiB", echoBytes>>20), http.StatusRequestEntityTooLarge)
		return
	}
	if t := r.Header.Get("Content-Type"); t != "" {
		w.Header().Set("Content-Type", t)
	} else {
		w.Header().Set("Content-Type", "application/octet-stream")
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.Write(body)
}

func echoEvents(w http.ResponseWriter, r *http.Request) {
	number := func(name string, fallback, most int) int {
		n, err := strconv.Atoi(r.URL.Query().Get(name))
		if err != nil || n < 0 || n > most {
			return fallback
		}
		return n
	}
	n, pause := number("n", 5, 10000), time.Duration(number("ms", 500, 60000))*time.Millisecond
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-cache")
	rc := http.NewResponseController(w)
	for i := range n {
		if i > 0 {
			select {
			case <-r.Context().Done():
				return
			case <-time.After(pause):
			}
		}
		fmt.Fprintf(w, "id: %d\ndata: {\"event\":%d,\"of\":%d}\n\n", i, i, n)
		rc.Flush()
	}
}

func echoStatus(w http.ResponseWriter, text string) {
	code, err := strconv.Atoi(text)
	if err != nil || code < 200 || code > 599 {
		http.Error(w, "a status from 200 to 599 is needed", http.StatusBadRequest)
		return
	}
	w.WriteHeader(code)
	if code != 204 && code != 304 {
		fmt.Fprintf(w, "%d %s\n", code, http.StatusText(code))
	}
}
