package gateway

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sluice/gateway/config"
	"sluice/gateway/metric"
)

// planeAt is the client of a control plane at url.
func planeAt(t *testing.T, url string, roots *x509.CertPool, tokenFile string) *controlPlane {
	p := newControlPlane(&config.Source{ControlPlaneURL: url, ControlPlaneToken: tokenFile}, roots)
	t.Cleanup(p.stop)
	return p
}

// rawPlane answers every connection with these bytes and closes it; hold leaves
// it open until the client has gone.
func rawPlane(t *testing.T, answer string, hold bool) (url string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				r := bufio.NewReader(c)
				if _, err := http.ReadRequest(r); err != nil {
					return
				}
				c.Write([]byte(answer))
				if hold {
					r.ReadByte()
				}
			}()
		}
	}()
	return "http://" + ln.Addr().String()
}

func zipped(b []byte) string {
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	z.Write(b)
	z.Close()
	return out.String()
}

func TestControlPlaneFetchSuccess(t *testing.T) {
	t.Parallel()
	const doc = `{"MAX_REQUEST_BODY_MIB": 3}`
	f := func(name, answer, want string) {
		t.Helper()
		text, changed, no := planeAt(t, rawPlane(t, answer, false), nil, "").fetch()
		if no != nil || !changed || string(text) != want {
			t.Errorf("%s: %.40q, %v, %v", name, text, changed, no)
		}
	}
	full := strings.Repeat(" ", config.MaxDocument-len(doc)) + doc
	f("a length", fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(doc), doc), doc)
	f("chunks", fmt.Sprintf("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", len(doc), doc), doc)
	f("gzip", fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%s", len(zipped([]byte(doc))), zipped([]byte(doc))), doc)
	f("JSON up to the end of the connection", "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"+doc, doc)
	f("YAML with a length", "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\na: ", "a: ")
	f("an interim answer before", "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", "{}")
	f("exactly 1 MiB", fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(full), full), full)
	f("exactly 1 MiB, zipped", fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%s", len(zipped([]byte(full))), zipped([]byte(full))), full)
}

func TestControlPlaneFetchFailure(t *testing.T) {
	t.Parallel()
	f := func(name, url string, want metric.PollFailure) {
		t.Helper()
		text, changed, no := planeAt(t, url, nil, "").fetch()
		if no == nil || no.cause != want || changed || text != nil {
			t.Errorf("%s: %.40q, %v, %+v; want %v", name, text, changed, no, want)
		}
	}
	raw := func(answer string) string { return rawPlane(t, answer, false) }
	big := strings.Repeat("x", config.MaxDocument+1)
	f("nobody there", "http://127.0.0.1:1", metric.PollUnreachable)
	f("no answer", raw(""), metric.PollUnreachable)
	f("half a head", raw("HTTP/1.1 200 OK\r\nContent-"), metric.PollUnreachable)
	f("no HTTP", raw("SSH-2.0-OpenSSH_9.2\r\n"), metric.PollUnreachable)
	f("a head without end", raw("HTTP/1.1 200 OK\r\n"+strings.Repeat("A: "+strings.Repeat("b", 1000)+"\r\n", 40)+"\r\n"), metric.PollUnreachable)
	f("500", raw("HTTP/1.1 500 Oh\r\nContent-Length: 2\r\n\r\n{}"), metric.PollStatus)
	f("204", raw("HTTP/1.1 204 No Content\r\n\r\n"), metric.PollStatus)
	f("304 nobody asked for", raw("HTTP/1.1 304 Not Modified\r\n\r\n"), metric.PollStatus)
	f("401", raw("HTTP/1.1 401 No\r\nContent-Length: 2\r\n\r\n{}"), metric.PollUnauthorized)
	f("403", raw("HTTP/1.1 403 No\r\nContent-Length: 2\r\n\r\n{}"), metric.PollUnauthorized)
	f("a redirect", raw("HTTP/1.1 302 Found\r\nLocation: "+raw("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")+"\r\nContent-Length: 0\r\n\r\n"), metric.PollRedirect)
	f("less than its length", raw("HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n{}"), metric.PollTruncated)
	f("cut in a chunk", raw("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n20\r\n{}"), metric.PollTruncated)
	f("cut after a chunk", raw("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n"), metric.PollTruncated)
	f("YAML that may be cut", raw("HTTP/1.1 200 OK\r\n\r\nMAX_REQUEST_BODY_MIB: 3\n"), metric.PollTruncated)
	f("too long, declared", raw(fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(big), big)), metric.PollTooLarge)
	f("too long, in chunks", raw(fmt.Sprintf("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", len(big), big)), metric.PollTooLarge)
	f("too long, up to the end", raw("HTTP/1.1 200 OK\r\n\r\n"+big), metric.PollTooLarge)
	bomb := zipped(make([]byte, 64<<20))
	f("too long, decompressed", raw(fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%s", len(bomb), bomb)), metric.PollTooLarge)
	f("no gzip", raw("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}"), metric.PollEncoding)
	cut := zipped([]byte("{}"))[:20]
	f("cut gzip", raw(fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%s", len(cut), cut)), metric.PollEncoding)
	f("another coding", raw("HTTP/1.1 200 OK\r\nContent-Encoding: br\r\nContent-Length: 2\r\n\r\n{}"), metric.PollEncoding)
	// Nobody whom the system trusts vouches for it.
	secure := httptest.NewUnstartedServer(http.NotFoundHandler())
	secure.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)
	secure.StartTLS()
	t.Cleanup(secure.Close)
	f("a stranger's certificate", secure.URL, metric.PollTLS)
	f("plain text where TLS belongs", "https"+strings.TrimPrefix(raw("HTTP/1.1 400 No\r\n\r\n"), "http"), metric.PollTLS)
}

// One that answers slowly, in whatever part, is given up after a fixed time.
func TestControlPlaneSlow(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]string{
		"nothing":      "",
		"part of head": "HTTP/1.1 200 OK\r\n",
		"part of body": "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			start := time.Now()
			_, _, no := planeAt(t, rawPlane(t, answer, true), nil, "").fetch()
			if no == nil || no.cause != metric.PollTimeout {
				t.Errorf("%+v", no)
			}
			if took := time.Since(start); took > 10*controlPlaneTime {
				t.Errorf("took %v", took)
			}
		})
	}
}

// A stop does not wait for an answer.
func TestControlPlaneStop(t *testing.T) {
	t.Parallel()
	p := planeAt(t, rawPlane(t, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{", true), nil, "")
	done := make(chan *pollFailure)
	go func() {
		_, _, no := p.fetch()
		done <- no
	}()
	p.stop()
	if no := <-done; no == nil || no.cause != metric.PollUnreachable {
		t.Errorf("%+v", no)
	}
}

func TestControlPlaneConditional(t *testing.T) {
	t.Parallel()
	var asked []string
	etag, modified := `"one"`, ""
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.Header.Get("If-None-Match")+"|"+r.Header.Get("If-Modified-Since"))
		if etag != "" {
			w.Header().Set("ETag", etag)
		}
		if modified != "" {
			w.Header().Set("Last-Modified", modified)
		}
		if etag+modified != "" && (r.Header.Get("If-None-Match") == etag && etag != "" || r.Header.Get("If-Modified-Since") == modified && modified != "") {
			w.WriteHeader(304)
			return
		}
		w.Write([]byte("{}"))
	}))
	t.Cleanup(s.Close)
	p := planeAt(t, s.URL, nil, "")
	f := func(wantChanged bool, wantAsked string) {
		t.Helper()
		_, changed, no := p.fetch()
		if no != nil || changed != wantChanged || asked[len(asked)-1] != wantAsked {
			t.Errorf("changed %v, %v, asked %q; want %v, %q", changed, no, asked[len(asked)-1], wantChanged, wantAsked)
		}
	}
	f(true, "|")
	f(false, `"one"|`)
	f(false, `"one"|`)
	etag = `W/"two"`
	f(true, `"one"|`)
	f(false, `W/"two"|`)
	etag, modified = "", "Sat, 29 Oct 1994 19:43:31 GMT"
	f(true, `W/"two"|`)
	f(false, "|"+modified)
	etag, modified = "", ""
	f(true, "|Sat, 29 Oct 1994 19:43:31 GMT")
	f(true, "|")
}

func TestControlPlaneToken(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "token")
	var seen string
	asked := 0
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		seen = r.Header.Get("Authorization")
		w.Write([]byte("{}"))
	}))
	t.Cleanup(s.Close)
	roots := x509.NewCertPool()
	roots.AddCert(s.Certificate())
	p := planeAt(t, s.URL, roots, file)
	f := func(content, want string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		before := asked
		_, _, no := p.fetch()
		switch {
		case want == "" && (no == nil || no.cause != metric.PollToken || asked != before):
			t.Errorf("%.20q: %+v, asked %v", content, no, asked != before)
		case want == "" && len(content) > 4 && strings.Contains(no.text, strings.TrimSpace(content)):
			t.Errorf("the token is told: %s", no.text)
		case want != "" && (no != nil || seen != want):
			t.Errorf("%q: %v, sent %q", content, no, seen)
		}
	}
	f("t0ken", "Bearer t0ken")
	// read anew each time, with or without a line's end
	f("another\n", "Bearer another")
	f("third\r\n", "Bearer third")
	// nothing to send
	f("", "")
	f("\n", "")
	f("two words", "")
	f("two\nlines", "")
	f("t\u00f6ken", "")
	f(strings.Repeat("x", maxToken+1), "")
	os.Remove(file)
	if _, _, no := p.fetch(); no == nil || no.cause != metric.PollToken {
		t.Errorf("without the file: %+v", no)
	}
	if err := unix.Mkfifo(file, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, no := p.fetch(); no == nil || no.cause != metric.PollToken {
		t.Errorf("with a pipe that nobody writes to: %+v", no)
	}
}

func TestPollDelay(t *testing.T) {
	f := func(interval time.Duration, failures int, random float64, want time.Duration) {
		t.Helper()
		if got := pollDelay(interval, failures, random); got != want {
			t.Errorf("pollDelay(%v, %d, %v) = %v, want %v", interval, failures, random, got, want)
		}
	}
	const s = time.Second
	// with answers: within the interval
	f(15*s, 0, 0, 15*s)
	f(15*s, 0, 1, 13500*time.Millisecond)
	// the first failure changes nothing, then it takes longer
	f(15*s, 1, 0, 15*s)
	f(15*s, 2, 0, 30*s)
	f(15*s, 3, 0, 60*s)
	f(15*s, 4, 0, 120*s)
	f(15*s, 1000, 1, 108*s)
	// never longer than five minutes, or the interval
	f(60*s, 1000, 0, 300*s)
	f(3600*s, 1000, 0, 3600*s)
}
