package gateway_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// plainGet asks for a plain path and sends the answer. It closes the channel, also
// when there is none.
func plainGet(n *mteNode, path string) <-chan answer {
	got := make(chan answer, 1)
	go func() {
		defer close(got)
		got <- httpDo(n.t, n.addr, "GET", path, "Host:localhost")
	}()
	return got
}

// A drain waits for requests that are passed through, as for those through pairs.
func TestDrainAwaitsPassedThrough(t *testing.T) {
	goOn := make(chan struct{})
	release := sync.OnceFunc(func() { close(goOn) })
	n := startMTEBehind(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		<-goOn
		io.WriteString(w, "in time")
	}), "DRAIN_SECONDS=60")
	t.Cleanup(release)
	got := plainGet(n, "/plain/x")
	if !poll(func() bool { return n.g.Relayed() == 1 }) {
		t.Fatalf("%d requests under way", n.g.Relayed())
	}
	drained := make(chan struct{})
	go func() { defer close(drained); n.g.Drain() }()
	if !poll(func() bool { return len(n.log.with(`"to":"draining"`)) == 1 }) {
		t.Fatal("never draining")
	}
	release()
	if a := <-got; a.status != 200 || a.body != "in time" {
		t.Errorf("%+v", a)
	}
	<-drained
	if lines := n.log.with(`"msg":"drained"`); len(lines) != 1 || !strings.Contains(lines[0], `"closed":1,"of":1,"reset":0`) {
		t.Errorf("logged: %q", lines)
	}
}

// What is passed through at the end of a drain is refused, or cut so that nobody
// takes it for complete.
func TestDrainEndsPassedThrough(t *testing.T) {
	n := startMTEBehind(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/plain/stream" {
			io.WriteString(w, "begin")
			w.(http.Flusher).Flush()
		}
		<-r.Context().Done()
	}))
	r, _ := http.NewRequest("GET", "http://"+n.addr+"/plain/stream", nil)
	r.Host = "localhost"
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if _, err := io.ReadFull(res.Body, make([]byte, 5)); err != nil {
		t.Fatal(err)
	}
	silent := plainGet(n, "/plain/silent")
	if !poll(func() bool { return n.g.Relayed() == 2 }) {
		t.Fatalf("%d requests under way", n.g.Relayed())
	}
	n.g.Drain()
	if rest, err := io.ReadAll(res.Body); err == nil {
		t.Errorf("the answer looks complete after %q", rest)
	}
	if a := <-silent; a.status != 502 || !strings.Contains(a.body, "the relay shuts down") {
		t.Errorf("%+v", a)
	}
}

// A drain is not over while a client still takes its answer, although the request
// is done with. Meanwhile nothing new comes in: connections are refused, and those
// that wait for a request are closed.
func TestDrainAwaitsClients(t *testing.T) {
	answer := strings.Repeat("answer", 50<<10)
	n := startMTEBehind(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, answer)
	}), "DRAIN_SECONDS=60", "TCP_SEND_BUFFER_BYTES=4194304")
	n.g.NoLastAnswers()
	get := func(fields string) (*net.TCPConn, *bufio.Reader) {
		conn, err := net.Dial("tcp", n.addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		c := conn.(*net.TCPConn)
		c.SetReadBuffer(64 << 10)
		c.SetDeadline(time.Now().Add(patience))
		fmt.Fprintf(c, "GET /plain/x HTTP/1.1\r\nHost: localhost\r\n%s\r\n", fields)
		return c, bufio.NewReader(c)
	}
	read := func(r *bufio.Reader) {
		t.Helper()
		res, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		if body, err := io.ReadAll(res.Body); err != nil || string(body) != answer {
			t.Errorf("%d bytes of %d, %v", len(body), len(answer), err)
		}
	}
	_, idle := get("")
	read(idle)
	slow, late := get("Connection: close\r\n")
	if !poll(func() bool { return n.g.Leaving() == 1 && n.g.Relayed() == 0 }) {
		t.Fatalf("%d answers are on their way, %d requests", n.g.Leaving(), n.g.Relayed())
	}
	drained := make(chan struct{})
	go func() { defer close(drained); n.g.Drain() }()
	if _, err := idle.ReadByte(); err != io.EOF {
		t.Errorf("an idle connection: %v", err)
	}
	if c, err := net.Dial("tcp", n.addr); err == nil {
		c.Close()
		t.Error("a connection is accepted")
	}
	for range 3 { // looks of the drain
		n.g.Leaving()
	}
	select {
	case <-drained:
		t.Error("the drain is over before the client has its answer")
	default:
	}
	read(late)
	slow.Close()
	<-drained
}
