package client

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/iotest"

	"sluice/codec/frame"
	"sluice/codec/open"
)

// ends makes a client's pair and the relay's half of it, without a key exchange.
func ends(t testing.TB, limits func(*frame.Discovery)) (*Pair, *relayPair) {
	t.Helper()
	d := relayOffline(t).relay
	d.FrameVersions, d.SequenceWindow = []int{2}, frame.SequenceWindow
	if limits != nil {
		limits(&d)
	}
	relay, err := newRelay(d)
	if err != nil {
		t.Fatal(err)
	}
	p := relay.Profile
	state := func(b byte) []byte { return p.AppendInitialState(nil, &[32]byte{b}, uint64(b), []byte("person")) }
	other := &relayPair{enc: p.NewEncoder(open.MKE), dec: p.NewDecoder(open.MKE)}
	other.enc.Restore(state(2))
	other.dec.Restore(state(1))
	return newPair(frame.PairID{7}, relay, frame.Token{8}, state(1), state(2)), other
}

// answerBytes is an answer of a relay: its frames one after the other.
func (p *relayPair) answerBytes(body []byte, size int) []byte {
	var w frame.MetadataWriter
	w.Add([]byte("X-A"), []byte("1"))
	meta, _ := p.enc.AppendEncode(nil, w.AppendResponse(nil, 201))
	b := frame.AppendEnvelope(nil, frame.KindResponse, 0, frame.ResponseHeadBytes+len(meta))
	b = append(frame.AppendResponseHead(b, 201, len(meta)), meta...)
	for last := false; !last; {
		n := min(size, len(body))
		last = n == len(body)
		var flags frame.Flags
		if last {
			flags = frame.FlagEnd
		}
		data, _ := p.enc.AppendEncode(nil, frame.AppendData(nil, flags, body[:n]))
		body = body[n:]
		b = append(frame.AppendEnvelope(b, frame.KindData, flags, len(data)), data...)
		b = frame.AppendEnvelope(b, frame.KindData, 0, 0) // means nothing
		if last {
			b = b[:len(b)-frame.EnvelopeBytes]
		}
	}
	return b
}

// feedAll feeds an answer in pieces and returns its body.
func feedAll(x *Exchange, pieces [][]byte) (body []byte, heads, end int, err error) {
	for _, b := range pieces {
		for len(b) > 0 {
			ev, data, n, err := x.Feed(b)
			if err != nil {
				return body, heads, end, err
			}
			b = b[n:]
			body = append(body, data...)
			switch ev {
			case GotHead:
				heads++
			case GotEnd:
				end++
			case NeedMore:
				if len(b) > 0 {
					return body, heads, end, fmt.Errorf("%d bytes left", len(b))
				}
			}
		}
	}
	return body, heads, end, nil
}

// However an answer is cut, the same comes out.
func TestFeedPieces(t *testing.T) {
	for _, typ := range []open.Type{open.MTE, open.MKE} {
		pair, relay := ends(t, nil)
		r := rand.New(rand.NewPCG(1, uint64(typ)))
		relay.use(pair.relay.Profile, typ)
		for round := range 60 {
			want := make([]byte, r.IntN(2000))
			for i := range want {
				want[i] = byte(r.Uint32())
			}
			var x Exchange
			x.Begin(pair, typ)
			sent, err := x.AppendHead(nil, &Head{Method: "GET"}, false)
			if err != nil {
				t.Fatal(err)
			}
			if req, err := frame.ParseRequest(sent[frame.EnvelopeBytes:]); err != nil {
				t.Fatal(err)
			} else if _, err := relay.dec.Decode(req.Metadata); err != nil {
				t.Fatal(err)
			}
			all := relay.answerBytes(want, 1+r.IntN(600))
			var pieces [][]byte
			for len(all) > 0 {
				n := len(all)
				switch round % 3 {
				case 0:
					n = 1
				case 1:
					n = 1 + r.IntN(min(n, 100))
				}
				pieces = append(pieces, bytes.Clone(all[:n]))
				all = all[n:]
			}
			got, heads, end, err := feedAll(&x, pieces)
			if err != nil || heads != 1 || end != 1 || !bytes.Equal(got, want) || !x.InStep() {
				t.Fatalf("%v round %d: %d bytes, %d heads, %d ends, %v", typ, round, len(got), heads, end, err)
			}
			if x.Status() != 201 || len(x.Header()) != 1 || string(x.Header()[0].Name) != "x-a" {
				t.Fatalf("%v round %d: status %d, %d headers", typ, round, x.Status(), len(x.Header()))
			}
			if _, _, _, err := x.Feed(frame.AppendEnvelope(nil, frame.KindData, 0, 0)); !errors.Is(err, frame.BadKind) || x.InStep() {
				t.Fatalf("%v round %d: a frame behind END: %v", typ, round, err)
			}
		}
	}
}

// Every cut of an answer is incomplete, and every damaged byte is found.
func TestFeedDamage(t *testing.T) {
	build := func() (*Exchange, []byte) {
		pair, relay := ends(t, nil)
		x := new(Exchange)
		x.Begin(pair, open.MKE)
		x.AppendHead(nil, &Head{Method: "GET"}, false)
		return x, relay.answerBytes([]byte("a body of an answer"), 7)
	}
	_, all := build()
	for i := range all {
		x, b := build()
		if _, _, end, err := feedAll(x, [][]byte{b[:i]}); err != nil || end != 0 || x.Over() || x.InStep() {
			t.Fatalf("cut to %d: %d ends, %v", i, end, err)
		}
		x, b = build()
		b[i] ^= 0x41
		if _, _, end, err := feedAll(x, [][]byte{b}); err == nil && end == 1 {
			t.Fatalf("byte %d does not matter", i)
		}
	}
}

// Bodies are cut into frames that the relay takes, and come out as they were.
func TestAppendData(t *testing.T) {
	for _, typ := range []open.Type{open.MTE, open.MKE} {
		for _, size := range []int{0, 1, 507, 4095, 4096, 20000} {
			pair, relay := ends(t, func(d *frame.Discovery) { d.MaxFrameBytes = 4096 })
			relay.use(pair.relay.Profile, typ)
			want := bytes.Repeat([]byte{3}, size)
			var x Exchange
			x.Begin(pair, typ)
			sent, err := x.AppendHead(nil, &Head{Method: "POST", Path: "p"}, true)
			if err != nil {
				t.Fatal(err)
			}
			for piece := range 3 {
				from, to := piece*size/3, (piece+1)*size/3
				if sent, err = x.AppendData(sent, want[from:to], piece == 2); err != nil {
					t.Fatal(err)
				}
			}
			if !x.Ended() {
				t.Error("no END")
			}
			q := &relayRequest{relay: &testRelay{t: t, relay: pair.relay.Discovery}, body: iotest.HalfReader(bytes.NewReader(sent)), pair: relay}
			e, payload, err := readFrame(q.body)
			if err != nil || e.Flags != 0 {
				t.Fatal(e, err)
			}
			req, _ := frame.ParseRequest(payload)
			if _, err := q.decode(req.Metadata); err != nil || req.Type != byte(typ) {
				t.Fatal(err)
			}
			if got, err := q.readAll(); err != nil || !bytes.Equal(got, want) {
				t.Errorf("%v: %d bytes became %d, %v", typ, size, len(got), err)
			}
		}
	}
}

// Type by type, one pair carries both: the numbers go on.
func TestTypesAlternate(t *testing.T) {
	pair, relay := ends(t, nil)
	for i := range 10 {
		typ := open.Type(i % 2)
		relay.use(pair.relay.Profile, typ)
		var x Exchange
		x.Begin(pair, typ)
		sent, err := x.AppendHead(nil, &Head{Method: "GET"}, false)
		if err != nil {
			t.Fatal(err)
		}
		req, _ := frame.ParseRequest(sent[frame.EnvelopeBytes:])
		if _, err := relay.dec.Decode(req.Metadata); err != nil {
			t.Fatalf("request %d: %v", i, err)
		}
		if got, _, end, err := feedAll(&x, [][]byte{relay.answerBytes([]byte("x"), 1)}); err != nil || end != 1 || string(got) != "x" {
			t.Fatalf("answer %d: %q, %v", i, got, err)
		}
	}
	if next := nextOf(relay.dec); next != 10 {
		t.Errorf("%d operations", next)
	}
}

func TestExchangeAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	pair, relay := ends(t, nil)
	var x Exchange
	method, path, name, value := []byte("POST"), []byte("a/b"), []byte("Accept"), []byte("*/*")
	body := make([]byte, 1000)
	var answers [][]byte
	for range 110 {
		answers = append(answers, relay.answerBytes(body, 400))
	}
	buf := make([]byte, 0, 4096)
	if got := testing.AllocsPerRun(100, func() {
		x.Begin(pair, open.MKE)
		if err := x.AddHeader(name, value); err != nil {
			t.Fatal(err)
		}
		b, err := x.AppendRequest(buf, method, path, true)
		if err == nil {
			_, err = x.AppendData(b, body, true)
		}
		in := answers[0]
		answers = answers[1:]
		for err == nil && !x.Over() {
			var n int
			_, _, n, err = x.Feed(in)
			in = in[n:]
		}
		if err != nil || !x.InStep() {
			t.Fatal(err)
		}
	}); got != 0 {
		t.Errorf("%v allocations for an exchange", got)
	}
}

// The frames of a large body are made room for once, not again and again.
func TestAppendDataAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	pair, _ := ends(t, func(d *frame.Discovery) { d.MaxFrameBytes = 4096 })
	body := make([]byte, 1<<20)
	if got := testing.AllocsPerRun(5, func() {
		var x Exchange
		x.Begin(pair, open.MKE)
		if _, err := x.AppendData(nil, body, true); err != nil {
			t.Fatal(err)
		}
	}); got > 2 { // the exchange and its frames
		t.Errorf("%v allocations", got)
	}
}

func TestNewRefusal(t *testing.T) {
	payload := (&frame.ErrorPayload{Code: 486, Reason: "pair_busy", Message: "m"}).AppendPayload(nil)
	whole := append(frame.AppendEnvelope(nil, frame.KindError, 0, len(payload)), payload...)
	f := func(name string, status int, header, retry string, body []byte, code int, reason string, action frame.Action) {
		t.Helper()
		r := NewRefusal(status, header, retry, body)
		if r.Code != code || r.Reason != reason || r.Action() != action {
			t.Errorf("%s: %v, %v", name, r, r.Action())
		}
		if (r.RetryAfter > 0) != (retry == "3") {
			t.Errorf("%s: Retry-After %v", name, r.RetryAfter)
		}
	}
	f("a frame", 486, "", "3", whole, 486, "pair_busy", frame.RetryOnceThenReplace)
	f("a frame that contradicts the status", 500, "500 internal", "", whole, 486, "pair_busy", frame.RetryOnceThenReplace)
	f("a header alone", 470, "470 pair_not_found", "x", nil, 470, "pair_not_found", frame.ReplacePair)
	f("a newer reason", 470, "470 something_new", "-1", nil, 470, "something_new", frame.ReplacePair)
	f("a header of another status", 502, "470 pair_not_found", "", nil, 502, "unknown", frame.Surface)
	f("a header of no form", 470, "470", "", nil, 470, "unknown", frame.ReplacePair)
	f("a proxy's page", 502, "", "3", []byte("<html>bad gateway</html>"), 502, "unknown", frame.Surface)
	for i := range whole {
		f("a cut frame", 502, "", "", whole[:i], 502, "unknown", frame.Surface)
	}
	f("a frame and more", 502, "", "", append(bytes.Clone(whole), 0), 502, "unknown", frame.Surface)
	r := NewRefusal(486, "", "", whole)
	r.Cause = frame.Cause{Code: 481, Reason: "body_too_large"}
	if want := "the relay refused: 486 pair_busy: m (because of 481 body_too_large at hop 0)"; r.Error() != want {
		t.Errorf("%q", r.Error())
	}
}

func FuzzFeed(f *testing.F) {
	_, relay := ends(f, nil)
	f.Add(relay.answerBytes([]byte("body"), 3))
	f.Add(frame.AppendErrorFrame(nil, frame.Internal, "m", frame.Cause{}))
	f.Fuzz(func(t *testing.T, in []byte) {
		var bodies [2][]byte
		var ends2 [2]int
		var errs [2]error
		for i, step := range []int{1, len(in) + 1} {
			pair, _ := ends(t, nil)
			x := new(Exchange)
			x.Begin(pair, open.MKE)
			x.AppendHead(nil, &Head{Method: "GET"}, false)
			var pieces [][]byte
			for at := 0; at < len(in); at += step {
				pieces = append(pieces, bytes.Clone(in[at:min(at+step, len(in))]))
			}
			bodies[i], _, ends2[i], errs[i] = feedAll(x, pieces)
		}
		if !bytes.Equal(bodies[0], bodies[1]) || ends2[0] != ends2[1] || fmt.Sprint(errs[0]) != fmt.Sprint(errs[1]) {
			t.Errorf("%x: %q %v in bytes, %q %v at once", in, bodies[0], errs[0], bodies[1], errs[1])
		}
	})
}
