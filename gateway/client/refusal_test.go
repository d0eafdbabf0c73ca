package client

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"sluice/codec/frame"
)

func TestActions(t *testing.T) {
	f := func(name string, script []frame.Reason, wantErr frame.Reason, sent, pairs int) {
		t.Helper()
		s := startRelay(t)
		var hashes [][32]byte
		var ids []frame.PairID
		s.handle = func(q *relayRequest) {
			q.readAll()
			if string(q.meta.Path) != "scripted" {
				q.respond(200, true)
				return
			}
			hashes, ids = append(hashes, q.hash), append(ids, q.id)
			if i := len(hashes) - 1; i < len(script) {
				r := refusal(script[i])
				if r.untouched() {
					q.undo()
					q.pair.strict = r.Action() == frame.RetrySame || r.Action() == frame.RetryOnceThenReplace
				}
				q.refuse(r)
				return
			}
			q.respond(200, true)
		}
		c := newClient(t, s, func(o *Options) { o.MaxPairs, o.Batch = 1, 1 })
		_, _, err := do(t, c, &Request{Head: Head{Method: "POST", Path: "scripted"}, Body: strings.NewReader("body")})
		got := frame.NoReason
		if r, ok := err.(*Refusal); ok {
			got, _ = frame.ReasonOf(r.Code, r.Reason)
		}
		if got != wantErr || len(hashes) != sent {
			t.Errorf("%s: %v after %d times, want %v after %d", name, err, len(hashes), wantErr, sent)
		}
		for _, h := range hashes {
			if h != hashes[0] {
				t.Errorf("%s: other bytes were sent again", name)
			}
		}
		for range 3 {
			if err := get(t, c, "afterwards"); err != nil {
				t.Errorf("%s: afterwards: %v", name, err)
			}
		}
		total := 0
		for _, n := range s.pairings {
			total += n
		}
		if total != pairs {
			t.Errorf("%s: %d pairs made, want %d", name, total, pairs)
		}
	}
	f("busy once", []frame.Reason{frame.PairBusy}, 0, 2, 1)
	f("busy twice", []frame.Reason{frame.PairBusy, frame.PairBusy}, frame.PairBusy, 2, 2)
	f("store away twice", []frame.Reason{frame.StateStoreUnavailable, frame.StateStoreUnavailable}, 0, 3, 1)
	f("store away for ever", []frame.Reason{frame.StateStoreUnavailable, frame.StateStoreUnavailable, frame.StateStoreUnavailable}, frame.StateStoreUnavailable, 3, 2)
	f("store does not write", []frame.Reason{frame.StateStoreWriteFailed}, frame.StateStoreWriteFailed, 1, 2)
	f("not found", []frame.Reason{frame.PairNotFound}, frame.PairNotFound, 1, 2)
	f("cannot be decoded", []frame.Reason{frame.DecodeFailed}, frame.DecodeFailed, 1, 2)
	f("broken body", []frame.Reason{frame.EOFBeforeEnd}, frame.EOFBeforeEnd, 1, 2)
	f("metadata", []frame.Reason{frame.MetadataInvalid}, frame.MetadataInvalid, 1, 1)
	f("replay", []frame.Reason{frame.ReplayRejected}, frame.ReplayRejected, 1, 1)
	f("body over the cap", []frame.Reason{frame.BodyTooLarge}, frame.BodyTooLarge, 1, 1)
	f("origin away", []frame.Reason{frame.UpstreamConnectFailed}, frame.UpstreamConnectFailed, 1, 1)
	f("not the owner", []frame.Reason{frame.NotOwner}, frame.NotOwner, 1, 1)
	f("client not known", []frame.Reason{frame.InvalidClientID}, frame.InvalidClientID, 1, 2)
	f("token not valid", []frame.Reason{frame.InvalidToken}, frame.InvalidToken, 1, 2)
}

func TestFullRepair(t *testing.T) {
	s := startRelay(t)
	c := newClient(t, s)
	if err := get(t, c, ""); err != nil {
		t.Fatal(err)
	}
	s.locked(func() { s.clients = map[frame.ClientID]map[frame.PairID]*relayPair{} }) // the relay restarts
	if err := get(t, c, ""); err == nil || err.(*Refusal).Action() != frame.FullRepair {
		t.Fatalf("%v", err)
	}
	if err := get(t, c, ""); err != nil {
		t.Fatalf("after the repair: %v", err)
	}
	if len(s.auths) != 2 || s.auths[1] != (authCall{}) {
		t.Errorf("auths %v", s.auths)
	}
}

func TestUndecoded(t *testing.T) {
	s := startRelay(t)
	refusals := 0
	s.handle = func(q *relayRequest) {
		q.readAll()
		q.pair.strict = false
		if refusals > 0 {
			refusals--
			q.undo()
			q.refuse(refusal(frame.NotOwner))
			return
		}
		q.respond(200, true)
	}
	c := newClient(t, s, func(o *Options) { o.MaxPairs, o.Batch = 1, 1 })
	f := func(n, pairings int) {
		t.Helper()
		refusals = n
		for range n {
			if err := get(t, c, ""); err == nil {
				t.Fatal("not refused")
			}
		}
		if err := get(t, c, ""); err != nil || len(s.pairings) != pairings {
			t.Fatalf("after %d operations: %v, %d pairings", n, err, len(s.pairings))
		}
	}
	f(63, 1)
	f(63, 1) // counted from the last that was decoded
	f(64, 2)
}

func TestErrorBehindResponse(t *testing.T) {
	s := startRelay(t)
	s.handle = func(q *relayRequest) {
		q.readAll()
		q.respond(200, false)
		q.data([]byte("some"), false)
		if string(q.meta.Path) == "error" {
			e := refusal(frame.UpstreamResponseFailed)
			q.write(frame.KindError, 0, e.AppendPayload(nil))
			q.drop()
			return
		}
		q.data(nil, true)
	}
	c := newClient(t, s, func(o *Options) { o.MaxPairs, o.Batch = 1, 1 })
	_, body, err := do(t, c, &Request{Head: Head{Path: "error"}})
	r, ok := err.(*Refusal)
	if !ok || r.Reason != "upstream_response_failed" || string(body) != "some" {
		t.Fatalf("%q, %v", body, err)
	}
	if err := get(t, c, "good"); err != nil || len(s.pairings) != 2 {
		t.Errorf("afterwards: %v, %d pairings", err, len(s.pairings))
	}
}

func TestBrokenAnswers(t *testing.T) {
	s := startRelay(t)
	var act func(q *relayRequest)
	s.handle = func(q *relayRequest) {
		q.readAll()
		if string(q.meta.Path) == "good" {
			q.respond(200, true)
			return
		}
		q.drop()
		act(q)
	}
	c := newClient(t, s, func(o *Options) { o.MaxPairs, o.Batch = 1, 1 })
	f := func(name string, want error, how func(q *relayRequest)) {
		t.Helper()
		act = how
		_, _, err := do(t, c, &Request{Head: Head{Path: "bad"}})
		if err == nil || want != nil && !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", name, err, want)
		}
		if err := get(t, c, "good"); err != nil {
			t.Errorf("%s: afterwards: %v", name, err)
		}
	}
	f("nothing", io.ErrUnexpectedEOF, func(q *relayRequest) { q.w.WriteHeader(200) })
	f("no answer", nil, func(q *relayRequest) { q.abort() })
	f("no frame", frame.BadSignature, func(q *relayRequest) { io.WriteString(q.w, "<html>not a relay</html>") })
	f("cut before END", io.ErrUnexpectedEOF, func(q *relayRequest) { q.respond(200, false); q.data([]byte("x"), false) })
	f("cut inside a frame", io.ErrUnexpectedEOF, func(q *relayRequest) {
		q.respond(200, false)
		q.w.Write(frame.AppendEnvelope(nil, frame.KindData, 0, 100))
	})
	f("aborted", nil, func(q *relayRequest) { q.respond(200, false); q.data([]byte("x"), false); q.abort() })
	f("DATA first", frame.BadKind, func(q *relayRequest) { q.data(nil, true) })
	f("two RESPONSE", frame.BadKind, func(q *relayRequest) { q.respond(200, false); q.respond(200, true) })
	f("a REQUEST", frame.BadKind, func(q *relayRequest) { q.respond(200, false); q.write(frame.KindRequest, 0, []byte("x")) })
	f("flags of a WebSocket", frame.BadFlags, func(q *relayRequest) { q.respond(200, false); q.write(frame.KindData, frame.FlagMore, []byte("x")) })
	f("flags that differ", frame.FlagsMismatch, func(q *relayRequest) {
		q.respond(200, false)
		b, _ := q.pair.enc.AppendEncode(nil, []byte{0, 'x'})
		q.write(frame.KindData, frame.FlagEnd, b)
	})
	f("bytes that are not the pair's", nil, func(q *relayRequest) { q.respond(200, false); q.write(frame.KindData, 0, make([]byte, 40)) })
	f("another status inside", frame.MissingMember, func(q *relayRequest) {
		meta, _ := q.pair.enc.AppendEncode(nil, []byte(`{"status":201,"v":2}`))
		q.write(frame.KindResponse, 0, append(frame.AppendResponseHead(nil, 200, len(meta)), meta...))
	})
	f("a frame over the bound", frame.TooLarge, func(q *relayRequest) {
		q.respond(200, false)
		q.w.Write(frame.AppendEnvelope(nil, frame.KindData, 0, 1<<30))
	})
	f("an ERROR alone", nil, func(q *relayRequest) { e := refusal(frame.Internal); q.write(frame.KindError, 0, e.AppendPayload(nil)) })
	f("an empty DATA is nothing", io.ErrUnexpectedEOF, func(q *relayRequest) { q.respond(200, false); q.write(frame.KindData, 0, nil) })
}

func TestRetryAfter(t *testing.T) {
	f := func(header string, want time.Duration) {
		t.Helper()
		if r := NewRefusal(488, "488 rate_limited", header, nil); r.RetryAfter != want {
			t.Errorf("%q: %v, want %v", header, r.RetryAfter, want)
		}
	}
	f("", 0)
	f("7", 7*time.Second)
	f("0", 0)
	f("-7", 0)
	f("soon", 0)
	f("86400", 24*time.Hour)
	f("86401", 24*time.Hour)
	f("9223372036854775807", 24*time.Hour)
	f("9223372036854775808", 0)
}

func TestForeignAnswer(t *testing.T) {
	s := startRelay(t)
	decoded := false
	s.handle = func(q *relayRequest) {
		q.readAll()
		q.pair.strict = false
		if string(q.meta.Path) == "good" {
			q.respond(200, true)
			return
		}
		if !decoded {
			q.undo()
		}
		http.Error(q.w, "bad gateway", 502)
	}
	c := newClient(t, s, func(o *Options) { o.MaxPairs, o.Batch = 1, 1 })
	for range 4 {
		decoded = !decoded
		err := get(t, c, "bad")
		if r, ok := err.(*Refusal); !ok || r.Code != 502 || r.Reason != "unknown" {
			t.Errorf("%v", err)
		}
		if err := get(t, c, "good"); err != nil || len(s.pairings) != 1 {
			t.Errorf("afterwards: %v, %d pairings", err, len(s.pairings))
		}
	}
}

func TestEarlyRefusal(t *testing.T) {
	s := startRelay(t)
	s.early = true
	s.handle = func(q *relayRequest) {
		if string(q.meta.Path) == "good" {
			q.readAll()
			q.respond(200, true)
			return
		}
		q.next()
		q.w.Header().Set("Connection", "close")
		q.refuse(refusal(frame.EOFBeforeEnd))
		q.drop()
	}
	c := newClient(t, s, func(o *Options) { o.MaxPairs, o.Batch = 1, 1 })
	block := make(chan struct{})
	defer close(block)
	for name, body := range map[string]io.Reader{
		"endless": endless{}, "blocked": io.MultiReader(strings.NewReader("x"), blocked{block}),
	} {
		_, _, err := do(t, c, &Request{Head: Head{Method: "POST"}, Body: body})
		if r, ok := err.(*Refusal); !ok || r.Reason != "eof_before_end" {
			t.Errorf("%s body: %v", name, err)
		}
		if err := get(t, c, "good"); err != nil {
			t.Errorf("%s body: afterwards: %v", name, err)
		}
	}
}

// An answer that does not wait for the body is not lost, whatever the body does.
func TestEarlyAnswer(t *testing.T) {
	s := startRelay(t)
	s.early = true
	s.handle = func(q *relayRequest) {
		if string(q.meta.Path) == "good" {
			q.readAll()
			q.respond(200, true)
			return
		}
		q.next()
		q.w.Header().Set("Connection", "close")
		q.respond(413, false)
		q.data([]byte("too much"), true)
		q.drop()
	}
	c := newClient(t, s, func(o *Options) { o.MaxPairs, o.Batch = 1, 1 })
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for name, body := range map[string]io.Reader{
		"endless": endless{}, "blocked": io.MultiReader(strings.NewReader("x"), blocked{ctx.Done()}),
	} {
		res, text, err := do(t, c, &Request{Head: Head{Method: "POST"}, Body: body})
		if err != nil || res.Status != 413 || string(text) != "too much" || ctx.Err() != nil {
			t.Errorf("%s body: %+v, %q, %v", name, res, text, err)
		}
		if err := get(t, c, "good"); err != nil {
			t.Errorf("%s body: afterwards: %v", name, err)
		}
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

type blocked struct{ until <-chan struct{} }

func (b blocked) Read([]byte) (int, error) { <-b.until; return 0, io.EOF }
