package mte

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"testing"

	"sluice/codec/frame"
)

// TestStalledUpload: a body that gains nothing for MAX_REQUEST_SECONDS is refused,
// and the pair retired; before a whole REQUEST the pair is untouched.
func TestStalledUpload(t *testing.T) {
	bothStores(t, func(t *testing.T, later bool) {
		r := startRelay(t, relayOptions{later: later, origin: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			if req.URL.Path != "/stall" {
				digestOrigin(w, req)
				return
			}
			if _, err := io.ReadAll(req.Body); err == nil {
				t.Error("the origin took a cut body for a whole one")
			}
		})}, "MAX_REQUEST_SECONDS=1")
		c := r.client()
		c.pair() // keeps the client known
		f := func(name string, sent func(p *testPair) []byte, reason, cause frame.Reason, fate fate) {
			t.Helper()
			p := c.pair()
			back := p.snapshot()
			b := sent(p)
			conn := c.dial()
			fmt.Fprintf(conn, "%s%s", c.head("POST", "/", "Content-Type: "+typeFrames, "Content-Length: "+strconv.Itoa(len(b)+100)), b)
			a, err := readReply(conn, "POST")
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			a.wantRefusal(t, reason, cause)
			if !a.close {
				t.Errorf("%s: the connection stays", name)
			}
			if fate == inStep {
				back()
			}
			p.want(fate)
		}
		f("in a DATA", func(p *testPair) []byte {
			b := append(p.post("stall"), p.data(0, []byte("half of what was to come"))...)
			return b[:len(b)-3]
		}, frame.EOFBeforeEnd, frame.NoReason, gone)
		f("between two", func(p *testPair) []byte { return append(p.post("stall"), p.data(0, []byte("half"))...) }, frame.EOFBeforeEnd, frame.NoReason, gone)
		if later {
			return // each case takes its second
		}
		f("behind a refusal", func(p *testPair) []byte { return append(p.post("../x"), p.data(0, []byte("half"))...) }, frame.EOFBeforeEnd, frame.MetadataInvalid, gone)
		f("in the REQUEST", func(p *testPair) []byte { b := p.post("stall"); return b[:len(b)-3] }, frame.InvalidFrame, frame.NoReason, inStep)
	})
}

// TestStalledClient: a client that takes no byte for WRITE_STALL_SECONDS while its
// answer waits is reset, its pair retired, and the origin let go.
func TestStalledClient(t *testing.T) {
	ended := make(chan bool, 1)
	r := startRelay(t, relayOptions{origin: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path != "/endless" {
			digestOrigin(w, req)
			return
		}
		b := make([]byte, 64<<10)
		for {
			if _, err := w.Write(b); err != nil {
				ended <- true
				return
			}
		}
	})}, "WRITE_STALL_SECONDS=1")
	c := r.client()
	c.pair()
	p := c.pair()
	b := p.get("endless")
	conn := c.dial()
	fmt.Fprintf(conn, "%s%s", c.head("POST", "/", "Content-Type: "+typeFrames, "Content-Length: "+strconv.Itoa(len(b))), b)
	<-ended
	r.await("the stall is counted", func() bool { return r.front.Stats.WriteStalls.Load() == 1 })
	p.want(gone)
	if a, err := readReply(conn, "POST"); err == nil && !a.cut {
		t.Error("the answer looks complete")
	}
}
