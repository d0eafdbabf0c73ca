package client

import (
	"bytes"
	"testing"

	"sluice/codec/frame"
	"sluice/codec/open"
)

// A batch is what the relay takes at once, and what fits a control body: a call
// of one pair more would not.
func TestMaxBatch(t *testing.T) {
	f := func(strength, batch int) int {
		t.Helper()
		profile, err := open.New(strength, frame.SequenceWindow)
		if err != nil {
			t.Fatal(err)
		}
		relay, err := newRelay(frame.Discovery{FrameVersions: []int{2}, SequenceWindow: frame.SequenceWindow,
			KyberStrength: strength, Profile: profile.String(), MaxPairsPerBatch: batch})
		if err != nil {
			t.Fatal(err)
		}
		s := NewSession("test", "")
		s.relay = relay
		return s.MaxBatch()
	}
	if got := f(1024, 100); got != 100 {
		t.Errorf("%d of a batch of 100", got)
	}
	if got := f(1024, 0); got != 1 {
		t.Errorf("%d of a relay that names no bound", got)
	}
	n := f(1024, 5000)
	if n < 850 || n >= 950 {
		t.Errorf("%d pairs in a control body", n)
	}
	size := func(pairs int) int {
		profile, _ := open.New(1024, frame.SequenceWindow)
		offers := make([]frame.PairOffer, pairs)
		for i := range offers {
			key := make([]byte, 1568)
			offers[i] = frame.PairOffer{EncoderKey: key, DecoderKey: key, EncoderPerson: personalization(""),
				DecoderPerson: personalization(""), Profile: []byte(profile.String())}
		}
		return len(frame.AppendPairRequest(nil, new(frame.Token), 1024, offers))
	}
	if size(n) > controlBytes || size(n+1) <= controlBytes {
		t.Errorf("%d pairs take %d bytes, one more %d", n, size(n), size(n+1))
	}
	if got := f(512, 5000); got <= n {
		t.Errorf("%d at the least strength", got)
	}
}

// Metadata that was made outside gives the same frame, and a request that was
// never sent leaves its pair usable as often as the relay's window bears.
func TestAppendMetadata(t *testing.T) {
	text := func(path string) []byte {
		var w frame.MetadataWriter
		w.Add([]byte("X-A"), []byte("1"))
		b, err := w.AppendRequest(nil, []byte("GET"), []byte(path))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	a, _ := ends(t, nil)
	b, _ := ends(t, nil)
	var x, y Exchange
	x.Begin(a, open.MKE)
	y.Begin(b, open.MKE)
	one, err1 := x.AppendHead(nil, &Head{Method: "GET", Path: "/p", Header: []Header{{"X-A", "1"}}}, false)
	two, err2 := y.AppendMetadata(nil, []byte("GET"), text("/p"), false)
	if err1 != nil || err2 != nil || !bytes.Equal(one, two) || !y.Ended() {
		t.Fatalf("%v, %v, equal %v", err1, err2, bytes.Equal(one, two))
	}
	c, _ := ends(t, func(d *frame.Discovery) { d.MaxMetadataMKE = 512 })
	y.Begin(c, open.MKE)
	_, err := y.AppendMetadata(nil, []byte("GET"), text("/"+string(bytes.Repeat([]byte("p"), 600))), false)
	if _, ok := err.(*HeadTooLarge); !ok {
		t.Errorf("%v", err)
	}

	for i := range 100 {
		x.Begin(a, open.MKE)
		if _, err := x.AppendMetadata(nil, []byte("GET"), text("/p"), false); err != nil {
			t.Fatal(err)
		}
		replace := x.NotSent()
		x.Clean()
		if over := i+1 > -frame.SequenceWindow; replace != over {
			t.Fatalf("replaced after %d requests that were not sent: %v", i+1, replace)
		}
	}
}

func TestForeign(t *testing.T) {
	f := func(status int, header string, foreign bool, action frame.Action) {
		t.Helper()
		r := NewRefusal(status, header, "", []byte("<html>"))
		if r.Foreign() != foreign || r.Action() != action {
			t.Errorf("%d %q: foreign %v, %v", status, header, r.Foreign(), r.Action())
		}
	}
	// Who answered decides whether the same bytes may be sent again.
	f(503, "503 state_store_unavailable", false, frame.RetrySame)
	f(503, "", true, frame.Surface)
	f(502, "", true, frame.Surface)
	f(470, "", true, frame.ReplacePair)
}
