package gateway_test

import (
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
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
