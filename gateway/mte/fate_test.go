package mte

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"sluice/codec/frame"
	"sluice/codec/open"
)

// bothStores runs a test over a store that answers at once and one that does not.
func bothStores(t *testing.T, f func(t *testing.T, later bool)) {
	t.Run("at once", func(t *testing.T) { f(t, false) })
	t.Run("later", func(t *testing.T) { f(t, true) })
}

// TestRefusals goes through the refusals of the data path: code, reason, cause and
// header, and what becomes of the pair.
func TestRefusals(t *testing.T) {
	bothStores(t, func(t *testing.T, later bool) {
		r := startRelay(t, relayOptions{later: later}, "MAX_FRAME_BYTES=16384", "MAX_METADATA_BYTES_MKE=8192", "MAX_METADATA_BYTES_MTE=1024")
		c := r.client()
		c.pair() // keeps the client known
		f := func(name string, build func(p *testPair) []byte, reason, cause frame.Reason, want fate) {
			t.Helper()
			for _, typ := range []open.Type{open.MKE, open.MTE} {
				p := c.pair()
				p.use(typ)
				b := build(p)
				a := c.post(b)
				if a.status != reason.Code() {
					t.Errorf("%s (%s): %d %s", name, typ, a.status, a.header.Get(frame.ErrorHeader))
					continue
				}
				a.wantRefusal(t, reason, cause)
				p.want(want)
			}
		}
		// untouched takes the encoder back behind bytes that were never decoded.
		untouched := func(build func(p *testPair) []byte) func(p *testPair) []byte {
			return func(p *testPair) []byte {
				back := p.snapshot()
				defer back()
				return build(p)
			}
		}
		const none = frame.NoReason

		// Before the decode of the REQUEST.
		f("nothing", func(*testPair) []byte { return nil }, frame.InvalidFrame, none, inStep)
		f("half an envelope", func(*testPair) []byte { return []byte{0x89, 'M', 'T'} }, frame.InvalidFrame, none, inStep)
		f("no frame", func(*testPair) []byte { return []byte("nothing like a frame") }, frame.InvalidFrame, none, inStep)
		f("version 1", func(*testPair) []byte { return []byte("MTE012345678") }, frame.FrameVersionUnsupported, none, inStep)
		f("half a REQUEST", untouched(func(p *testPair) []byte { b := p.get("x"); return b[:len(b)-1] }), frame.InvalidFrame, none, inStep)
		f("DATA first", untouched(func(p *testPair) []byte { return p.data(frame.FlagEnd, nil) }), frame.InvalidFrame, none, inStep)
		f("flags", untouched(func(p *testPair) []byte { return p.request(frame.FlagMore, 0, metadata("GET", "x")) }), frame.InvalidFrame, none, inStep)
		f("frame too large", func(*testPair) []byte { return frame.AppendEnvelope(nil, frame.KindRequest, 1, 16385) }, frame.FrameTooLarge, none, inStep)
		f("no token", untouched(func(p *testPair) []byte { return p.requestFrom(nil, 1, 0, p.encode(metadata("GET", "x"))) }), frame.InvalidFrame, none, inStep)
		f("forged token", untouched(func(p *testPair) []byte {
			token := p.c.token
			token[39] ^= 1
			return p.requestFrom(token[:], 1, 0, p.encode(metadata("GET", "x")))
		}), frame.InvalidToken, none, inStep)
		f("not its pair", untouched(func(p *testPair) []byte {
			other := *p
			other.id = frame.NewPairID()
			return other.get("x")
		}), frame.PairNotFound, none, inStep)
		f("undecodable", untouched(func(p *testPair) []byte { b := p.get("x"); b[len(b)-1] ^= 1; return b }), frame.DecodeFailed, none, inStep)

		// By the REQUEST, with and without a body behind it.
		large := 900 << 10
		if raceEnabled {
			large = 100 << 10 // the test's own encoding is slow then
		}
		for _, body := range []int{-1, 0, 100, large} {
			behind := func(p *testPair, b []byte) []byte {
				if body < 0 {
					return b
				}
				size := 16000
				if p.enc.Type() == open.MTE {
					size = 2000
				}
				return append(b, p.body(make([]byte, body), size)...)
			}
			end := frame.Flags(0)
			if body < 0 {
				end = frame.FlagEnd
			}
			f("dot segment", func(p *testPair) []byte { return behind(p, p.request(end, 1, metadata("POST", "../x"))) }, frame.MetadataInvalid, none, inStep)
			f("method mismatch", func(p *testPair) []byte { return behind(p, p.request(end, 0, metadata("POST", "x"))) }, frame.HeaderMismatch, none, inStep)
			f("CONNECT", func(p *testPair) []byte { return behind(p, p.request(end, 8, metadata("CONNECT", "x"))) }, frame.MetadataInvalid, none, inStep)
			f("TRACE", func(p *testPair) []byte { return behind(p, p.request(end, 255, metadata("TRACE", "x"))) }, frame.MetadataInvalid, none, inStep)
			f("no JSON", func(p *testPair) []byte { return behind(p, p.request(end, 255, []byte("{"))) }, frame.MetadataInvalid, none, inStep)
			f("metadata too large", func(p *testPair) []byte {
				return behind(p, p.request(end, 1, metadata("POST", "x", "x-pad", strings.Repeat("p", map[open.Type]int{open.MKE: 8192, open.MTE: 1024}[p.enc.Type()]))))
			}, frame.MetadataInvalid, none, inStep)
		}

		// In the body.
		f("no END", func(p *testPair) []byte { return append(p.post("x"), p.data(0, []byte("half"))...) }, frame.EOFBeforeEnd, none, gone)
		f("no body at all", func(p *testPair) []byte { return p.post("x") }, frame.EOFBeforeEnd, none, gone)
		f("half a DATA", func(p *testPair) []byte { b := append(p.post("x"), p.data(1, []byte("y"))...); return b[:len(b)-1] }, frame.EOFBeforeEnd, none, gone)
		f("undecodable DATA", func(p *testPair) []byte {
			b := append(p.post("x"), p.data(1, []byte("y"))...)
			b[len(b)-1] ^= 1
			return b
		}, frame.EOFBeforeEnd, frame.DecodeFailed, gone)
		f("DATA twice", func(p *testPair) []byte {
			b, d := p.post("x"), p.data(0, []byte("y"))
			return append(append(b, d...), d...)
		}, frame.EOFBeforeEnd, frame.ReplayRejected, gone)
		f("mismatched DATA", func(p *testPair) []byte {
			return append(p.post("x"), rawFrame(frame.KindData, 1, p.encode(frame.AppendData(nil, 0, []byte("y"))))...)
		}, frame.EOFBeforeEnd, frame.HeaderMismatch, gone)
		f("DATA too large", func(p *testPair) []byte {
			return append(p.post("x"), frame.AppendEnvelope(nil, frame.KindData, 0, 16385)...)
		}, frame.EOFBeforeEnd, frame.FrameTooLarge, gone)
		f("PING in the body", func(p *testPair) []byte { return append(p.post("x"), rawFrame(frame.KindPing, 0, make([]byte, 8))...) }, frame.EOFBeforeEnd, frame.InvalidFrame, gone)
		f("empty DATA with END", func(p *testPair) []byte { return append(p.post("x"), rawFrame(frame.KindData, 1, nil)...) }, frame.EOFBeforeEnd, frame.InvalidFrame, gone)
		f("refused, and no END", func(p *testPair) []byte { return append(p.post("../x"), p.data(0, []byte("half"))...) }, frame.EOFBeforeEnd, frame.MetadataInvalid, gone)
		f("refused, and too much", func(p *testPair) []byte {
			return append(p.post("../x"), p.body(make([]byte, 1<<20+1), 2000)...)
		}, frame.EOFBeforeEnd, frame.MetadataInvalid, gone)
		f("bytes behind END", func(p *testPair) []byte { return append(p.get("x"), 0) }, frame.InvalidFrame, none, inStep)
		f("a frame behind END", func(p *testPair) []byte {
			b := append(append(p.post("x"), p.data(1, []byte("y"))...), rawFrame(frame.KindData, 0, nil)...)
			return b
		}, frame.InvalidFrame, none, inStep)
		if strings.Contains(r.log.String(), testSecret) {
			t.Error("the secret is in the log")
		}
	})
}

// TestReplayLeavesThePair: 479 and a warning, and the pair goes on.
func TestReplayLeavesThePair(t *testing.T) {
	r := startRelay(t, relayOptions{})
	p := r.client().pair()
	b := p.get("x")
	p.read(p.c.post(b))
	p.c.post(b).wantRefusal(t, frame.ReplayRejected, frame.NoReason)
	p.want(inStep)
	if log := r.log.String(); !strings.Contains(log, "replay_rejected") || !strings.Contains(log, "peer=127.0.0.1:") {
		t.Errorf("no warning: %s", log)
	}
}

// TestOriginFailures: 502 with the pair in step, however much body was behind it.
func TestOriginFailures(t *testing.T) {
	f := func(name string, o relayOptions, path string, reason frame.Reason) {
		t.Run(name, func(t *testing.T) {
			r := startRelay(t, o, "MAX_RESPONSE_SECONDS=1")
			c := r.client()
			c.pair()
			for _, n := range []int{0, 10, 300 << 10} {
				p := c.pair()
				c.post(append(p.post(path), p.body(make([]byte, n), 60000)...)).wantRefusal(t, reason, frame.NoReason)
				if !o.dead {
					p.want(inStep)
				}
			}
		})
	}
	failing := http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		switch req.URL.Path {
		case "/close":
			panic(http.ErrAbortHandler)
		case "/late":
			io.Copy(io.Discard, req.Body)
			<-req.Context().Done()
		case "/large":
			io.Copy(io.Discard, req.Body)
			w.Header().Set("X-Large", strings.Repeat("l", 62000))
		case "/switch":
			io.Copy(io.Discard, req.Body)
			conn, _, _ := w.(http.Hijacker).Hijack()
			io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
			conn.Close()
		default:
			digestOrigin(w, req)
		}
	})
	f("nobody listens", relayOptions{dead: true}, "x", frame.UpstreamConnectFailed)
	f("closes", relayOptions{origin: failing}, "close", frame.UpstreamResponseFailed)
	f("too slow", relayOptions{origin: failing}, "late", frame.UpstreamResponseFailed)
	f("headers too large", relayOptions{origin: failing}, "large", frame.UpstreamResponseFailed)
	f("101", relayOptions{origin: failing}, "switch", frame.UpstreamResponseFailed)
}

// TestOriginHeadTooLarge: a head that is not even read to its end is told like one
// that does not fit the metadata, with its size in the log.
func TestOriginHeadTooLarge(t *testing.T) {
	r := startRelay(t, relayOptions{origin: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		switch req.URL.Path {
		case "/large":
			w.Header().Set("X-Large", strings.Repeat("l", 70000))
		case "/many":
			for i := range 1025 {
				w.Header().Set(fmt.Sprintf("X-%d", i), "m")
			}
		default:
			digestOrigin(w, req)
		}
	})})
	c := r.client()
	p := c.pair()
	for i, path := range []string{"large", "many"} {
		if e := c.post(p.get(path)).wantRefusal(t, frame.UpstreamResponseFailed, frame.NoReason); e.Message != messageHead {
			t.Errorf("%s: message %q", path, e.Message)
		}
		log := r.log.String()
		if n := strings.Count(log, "an origin's headers do not fit"); n != i+1 {
			t.Errorf("%s: %d lines: %s", path, n, log)
		}
	}
	if log := r.log.String(); strings.Count(log, "bytes=") < 2 || strings.Contains(log, "bytes=0") || !strings.Contains(log, "HTTP_MAX_HEADERS") {
		t.Errorf("no size, or no setting: %s", log)
	}
	p.want(inStep)
}

// TestErrorInStream: an origin that breaks off behind its head ends the stream in
// an ERROR frame and the HTTP body normally, and retires the pair.
func TestErrorInStream(t *testing.T) {
	bothStores(t, func(t *testing.T, later bool) {
		r := startRelay(t, relayOptions{later: later, origin: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			io.WriteString(w, "part one")
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		})})
		c := r.client()
		p := c.pairs(2)[0]
		e := p.read(c.post(p.get("x")))
		if e.status != 200 || string(e.body) != "part one" || e.err == nil || e.err.Code != 502 {
			t.Fatalf("answer %+v", e)
		}
		c.post(p.get("x")).wantRefusal(t, frame.PairNotFound, frame.NoReason)
	})
}

// TestBodyCap: exactly the cap passes, one byte more is drained and refused, and
// far more breaks off; the origin never sees a whole request.
func TestBodyCap(t *testing.T) {
	whole := make(chan int, 16)
	r := startRelay(t, relayOptions{origin: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		b, err := io.ReadAll(req.Body)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		whole <- len(b)
		io.WriteString(w, strconv.Itoa(len(b)))
	})}, "MAX_REQUEST_BODY_MIB=1")
	c := r.client()
	c.pair()
	p := c.pair()
	send := func(n int) reply { return c.post(append(p.post("x"), p.body(make([]byte, n), 50000)...)) }
	if e := p.read(send(1 << 20)); string(e.body) != "1048576" {
		t.Fatalf("at the cap: %+v", e)
	}
	<-whole
	send(1<<20+1).wantRefusal(t, frame.BodyTooLarge, frame.NoReason)
	send(2<<20).wantRefusal(t, frame.BodyTooLarge, frame.NoReason)
	if e := p.read(send(5)); string(e.body) != "5" {
		t.Fatalf("after a refusal: %+v", e)
	}
	<-whole
	r.role.maxBody.Store(0) // live
	if e := p.read(send(2<<20 + 1)); string(e.body) != "2097153" {
		t.Fatalf("without a cap: %+v", e)
	}
	<-whole
	r.role.maxBody.Store(1 << 20)
	send(2<<20+1).wantRefusal(t, frame.EOFBeforeEnd, frame.BodyTooLarge)
	p.want(gone)
	select {
	case n := <-whole:
		t.Fatalf("the origin saw a whole body of %d bytes", n)
	default:
	}
}

// TestClientGone: what becomes of pair and origin when the client leaves.
func TestClientGone(t *testing.T) {
	bothStores(t, func(t *testing.T, later bool) {
		began, ended := make(chan bool, 8), make(chan bool, 8)
		r := startRelay(t, relayOptions{later: later, origin: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			switch req.URL.Path {
			case "/upload":
				began <- true
				io.Copy(io.Discard, req.Body)
				ended <- true
			case "/wait":
				io.Copy(io.Discard, req.Body) // or net/http does not see the end
				began <- true
				<-req.Context().Done()
				ended <- true
			case "/endless":
				for req.Context().Err() == nil {
					io.WriteString(w, "tick\n")
					w.(http.Flusher).Flush()
					select {
					case began <- true:
					default:
					}
					time.Sleep(5 * time.Millisecond)
				}
				ended <- true
			default:
				digestOrigin(w, req)
			}
		})})
		c := r.client()
		c.pair()
		f := func(when string, build func(p *testPair) []byte, length int, want fate) {
			t.Helper()
			for len(began) > 0 {
				<-began
			}
			p := c.pair()
			b := build(p)
			conn := c.dial()
			fmt.Fprintf(conn, "%s%s", c.head("POST", "/", "Content-Type: "+typeFrames, "Content-Length: "+strconv.Itoa(len(b)+length)), b)
			<-began
			if when == "answer" {
				conn.Read(make([]byte, 1)) // the answer is under way
			}
			conn.Close()
			<-ended
			p.want(want)
		}
		f("upload", func(p *testPair) []byte { return append(p.post("upload"), p.data(0, []byte("some"))...) }, 1000, gone)
		f("between", func(p *testPair) []byte { return p.get("wait") }, 0, inStep)
		f("between, with a body", func(p *testPair) []byte { return append(p.post("wait"), p.data(1, []byte("all"))...) }, 0, inStep)
		f("answer", func(p *testPair) []byte { return p.get("endless") }, 0, gone)
	})
}

// TestPairBusy: a second request on a pair is refused and may be sent again.
func TestPairBusy(t *testing.T) {
	bothStores(t, func(t *testing.T, later bool) {
		began, release := make(chan bool), make(chan bool)
		r := startRelay(t, relayOptions{later: later, origin: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			if req.URL.Path == "/hold" {
				began <- true
				<-release
			}
			digestOrigin(w, req)
		})})
		c := r.client()
		p := c.pair()
		first, second := p.get("hold"), p.get("x")
		answer := make(chan reply)
		go func() { answer <- c.post(first) }()
		<-began
		c.post(second).wantRefusal(t, frame.PairBusy, frame.NoReason)
		release <- true
		p.read(<-answer)
		p.read(c.post(second))
		p.want(inStep)
	})
}

// TestEarlyAnswers: an origin that answers before the body has ended.
func TestEarlyAnswers(t *testing.T) {
	r := startRelay(t, relayOptions{origin: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		rc := http.NewResponseController(w)
		switch req.URL.Path {
		case "/refuse": // and is done
			w.WriteHeader(413)
			io.WriteString(w, "too much")
		case "/head": // and goes on reading
			rc.EnableFullDuplex()
			w.WriteHeader(201)
			rc.Flush()
			b, _ := io.ReadAll(req.Body)
			fmt.Fprint(w, len(b))
		default:
			digestOrigin(w, req)
		}
	})})
	c := r.client()
	c.pair()
	f := func(path string, n, status int, want string) {
		t.Helper()
		p := c.pair()
		e := p.read(c.post(append(p.post(path), p.body(make([]byte, n), 50000)...)))
		if e.status != status || string(e.body) != want {
			t.Fatalf("%s: %d %q", path, e.status, e.body)
		}
		p.want(inStep)
	}
	f("refuse", 3<<20, 413, "too much")
	f("head", 3<<20, 201, "3145728")
	f("head", 0, 201, "0")
}

// TestSlowClient: a client that does not read stops the origin, and memory stays
// bounded; when it reads everything comes.
func TestSlowClient(t *testing.T) {
	const size = 32 << 20
	sent := make(chan int, 1<<20)
	r := startRelay(t, relayOptions{origin: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Method == "POST" {
			digestOrigin(w, req)
			return
		}
		b := make([]byte, 64<<10)
		for n := 0; n < size; n += len(b) {
			if _, err := w.Write(b); err != nil {
				return
			}
			sent <- n
		}
	})})
	c := r.client()
	p := c.pair()
	b := p.get("x")
	conn := c.dial()
	io.WriteString(conn, c.head("POST", "/", "Content-Type: "+typeFrames, "Content-Length: "+strconv.Itoa(len(b)))+string(b))
	for before := -1; before != len(sent); time.Sleep(200 * time.Millisecond) {
		before = len(sent) // until the origin stands still
	}
	if n := len(sent) * 64 << 10; n >= size-64<<10 {
		t.Fatalf("the origin was not stopped: it sent %d bytes", n)
	}
	a, err := readReply(conn, "POST")
	if err != nil {
		t.Fatal(err)
	}
	if e := p.read(a); !bytes.Equal(e.body, make([]byte, size)) {
		t.Fatalf("%d bytes came", len(e.body))
	}
	p.want(inStep)
}
