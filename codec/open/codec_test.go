package open

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
)

// vectors are the known answers of an independent implementation.
type vectors struct {
	Direction struct{ Entropy, Nonce, Personalization, Root, MKE, MTE string }
	Ops       []struct {
		Seq                      uint64
		Type, Plaintext, Encoded string
	}
	Large struct {
		Seq           uint64
		Type          string
		EncodedSHA256 string `json:"encoded_sha256"`
		EncodedLength int    `json:"encoded_length"`
	}
	StateAfterOps string `json:"state_after_ops"`
	Windows       []struct {
		Window int
		Order  []uint64
		Result []string
		State  string
	}
	Probe string
}

func load(t testing.TB) (v vectors) {
	t.Helper()
	readJSON(t, "testdata/open-codec.json", &v)
	return v
}

func readJSON(t testing.TB, name string, v any) {
	t.Helper()
	data, err := os.ReadFile(name)
	if err == nil {
		err = json.Unmarshal(data, v)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func typeOf(t testing.TB, name string) Type {
	t.Helper()
	for x := range Type(types) {
		if x.String() == name {
			return x
		}
	}
	t.Fatalf("no type %q", name)
	return 0
}

func profileFor(t testing.TB, window int) Profile {
	t.Helper()
	p, err := New(1024, window)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// initial is the state of the vectors' direction before anything was said.
func (v *vectors) initial(t testing.TB, p Profile) []byte {
	t.Helper()
	nonce, err := strconv.ParseUint(v.Direction.Nonce, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return p.AppendInitialState(nil, (*[32]byte)(unhex(t, v.Direction.Entropy)), nonce, []byte(v.Direction.Personalization))
}

func encoderOf(t testing.TB, p Profile, x Type, state []byte) Encoder {
	t.Helper()
	e := p.NewEncoder(x)
	if err := e.Restore(state); err != nil {
		t.Fatal(err)
	}
	return e
}

func decoderOf(t testing.TB, p Profile, x Type, state []byte) Decoder {
	t.Helper()
	d := p.NewDecoder(x)
	if err := d.Restore(state); err != nil {
		t.Fatal(err)
	}
	return d
}

// ends are both ends of one direction, in both types, kept in step through their states.
type ends struct {
	t        testing.TB
	p        Profile
	enc, dec []byte
}

func newEnds(t testing.TB, window int) *ends {
	t.Helper()
	p := profileFor(t, window)
	v := load(t)
	s := v.initial(t, p)
	return &ends{t: t, p: p, enc: s, dec: bytes.Clone(s)}
}

func (s *ends) encode(x Type, plaintext []byte) ([]byte, error) {
	s.t.Helper()
	e := encoderOf(s.t, s.p, x, s.enc)
	out, err := e.AppendEncode(nil, plaintext)
	s.enc = e.AppendState(s.enc[:0])
	return out, err
}

func (s *ends) decode(x Type, encoded []byte) ([]byte, error) {
	s.t.Helper()
	d := decoderOf(s.t, s.p, x, s.dec)
	out, err := d.Decode(bytes.Clone(encoded))
	s.dec = d.AppendState(s.dec[:0])
	return out, err
}

func TestKnownAnswers(t *testing.T) {
	v := load(t)
	p := profileFor(t, MinWindow)
	s := v.initial(t, p)
	if want := append(append([]byte{1}, unhex(t, v.Direction.Root)...), make([]byte, 16)...); !bytes.Equal(s, want) {
		t.Fatalf("initial state %x, want %x", s, want)
	}
	d := direction{}
	if err := d.restore(s, true); err != nil {
		t.Fatal(err)
	}
	key := make([]byte, 36)
	if d.derive(key, "mke"); hex.EncodeToString(key) != v.Direction.MKE {
		t.Errorf("mke key %x, want %s", key, v.Direction.MKE)
	}
	key = make([]byte, 64)
	if d.derive(key, "mte"); hex.EncodeToString(key) != v.Direction.MTE {
		t.Errorf("mte keys %x, want %s", key, v.Direction.MTE)
	}

	both := &ends{t: t, p: p, enc: s, dec: bytes.Clone(s)}
	for _, op := range v.Ops {
		x, plaintext := typeOf(t, op.Type), unhex(t, op.Plaintext)
		got, err := both.encode(x, plaintext)
		if err != nil || hex.EncodeToString(got) != op.Encoded {
			t.Fatalf("operation %d (%s): %x (%v), want %s", op.Seq, op.Type, got, err, op.Encoded)
		}
		if back, err := both.decode(x, got); err != nil || !bytes.Equal(back, plaintext) {
			t.Fatalf("operation %d (%s): decoded %x (%v), want %x", op.Seq, op.Type, back, err, plaintext)
		}
	}
	big := make([]byte, 65536)
	for i := range big {
		big[i] = byte(31*i + 7)
	}
	got, err := both.encode(typeOf(t, v.Large.Type), big)
	if sum := sha256.Sum256(got); err != nil || len(got) != v.Large.EncodedLength || hex.EncodeToString(sum[:]) != v.Large.EncodedSHA256 {
		t.Errorf("large operation: %d bytes, hash %x (%v)", len(got), sum, err)
	}
	if back, err := both.decode(MKE, got); err != nil || !bytes.Equal(back, big) {
		t.Errorf("large operation: decoded %d bytes (%v)", len(back), err)
	}
	if got := hex.EncodeToString(both.enc); got != v.StateAfterOps {
		t.Errorf("state after all operations %s, want %s", got, v.StateAfterOps)
	}
}

// Sizes, round trips and in-place encoding for every length around the groups of both types.
func TestRoundTripAllLengths(t *testing.T) {
	s := newEnds(t, MinWindow)
	random := rand.NewChaCha8([32]byte{2})
	for _, x := range []Type{MTE, MKE} {
		e, d := encoderOf(t, s.p, x, s.enc), decoderOf(t, s.p, x, s.dec)
		for n := range 700 {
			plaintext := make([]byte, n)
			random.Read(plaintext)
			size := s.p.EncodedBytes(x, n)
			if size < 0 {
				if _, err := e.AppendEncode(nil, plaintext); x != MTE || n != 0 || err != EncodeFailed {
					t.Fatalf("%v of %d bytes: %v", x, n, err)
				}
				continue
			}
			if longest := s.p.PlaintextBytes(x, size); longest != n {
				t.Fatalf("%v: %d bytes carry %d, want %d", x, size, longest, n)
			}
			head := []byte("head")
			out, err := e.AppendEncode(head, plaintext)
			if err != nil || len(out) != len(head)+size || !bytes.Equal(out[:len(head)], head) {
				t.Fatalf("%v of %d bytes: %d bytes appended (%v), want %d", x, n, len(out)-len(head), err, size)
			}
			if back, err := d.Decode(out[len(head):]); err != nil || !bytes.Equal(back, plaintext) {
				t.Fatalf("%v of %d bytes: decoded %x (%v), want %x", x, n, back, err, plaintext)
			}
			// in place: the plaintext HeadBytes behind the end of what is appended to
			buf := make([]byte, len(head)+HeadBytes+n, len(head)+HeadBytes+size)
			copy(buf, head)
			copy(buf[len(head)+HeadBytes:], plaintext)
			out, err = e.AppendEncode(buf[:len(head)], buf[len(head)+HeadBytes:])
			if err != nil || &out[0] != &buf[0] {
				t.Fatalf("%v of %d bytes in place: moved, or %v", x, n, err)
			}
			if back, err := d.Decode(out[len(head):]); err != nil || !bytes.Equal(back, plaintext) {
				t.Fatalf("%v of %d bytes in place: decoded %x (%v), want %x", x, n, back, err, plaintext)
			}
			// in place without room: the answer moves
			tight := slices.Clip(append(bytes.Repeat([]byte{9}, HeadBytes), plaintext...))
			if out, err = e.AppendEncode(tight[:0], tight[HeadBytes:]); err != nil {
				t.Fatalf("%v of %d bytes without room: %v", x, n, err)
			}
			if back, err := d.Decode(out); err != nil || !bytes.Equal(back, plaintext) {
				t.Fatalf("%v of %d bytes without room: decoded %x (%v), want %x", x, n, back, err, plaintext)
			}
		}
		s.enc, s.dec = e.AppendState(s.enc[:0]), d.AppendState(s.dec[:0])
	}
}

// Sequences of both types, with the state saved and restored at random places, equal one long-lived
// pair of ends.
func TestRandomWalk(t *testing.T) {
	for seed := range byte(20) {
		s := newEnds(t, MinWindow)
		random := rand.NewChaCha8([32]byte{seed})
		r := rand.New(random)
		for i := range 60 {
			x := Type(r.IntN(types))
			plaintext := make([]byte, 1+r.IntN(1<<r.IntN(12)))
			random.Read(plaintext)
			out, err := s.encode(x, plaintext)
			if err != nil {
				t.Fatal(err)
			}
			if r.IntN(4) == 0 {
				continue // lost on the way
			}
			if back, err := s.decode(x, out); err != nil || !bytes.Equal(back, plaintext) {
				t.Fatalf("seed %d operation %d: %v", seed, i, err)
			}
			if _, err := s.decode(x, out); err != ReplayRejected {
				t.Fatalf("seed %d operation %d again: %v", seed, i, err)
			}
		}
	}
}

// Every cut, every flipped bit, the other type and another direction are refused and change nothing.
func TestDecodeFailure(t *testing.T) {
	s := newEnds(t, MinWindow)
	for range 3 { // not the first number
		out, _ := s.encode(MKE, nil)
		s.decode(MKE, out)
	}
	before := bytes.Clone(s.dec)
	f := func(name string, x Type, encoded []byte) {
		t.Helper()
		out, err := s.decode(x, encoded)
		if err != DecodeFailed || out != nil {
			t.Fatalf("%s: %x, %v", name, out, err)
		}
		if !bytes.Equal(s.dec, before) {
			t.Fatalf("%s: changed the state", name)
		}
	}
	for _, x := range []Type{MTE, MKE} {
		good, err := s.encode(x, []byte("seventeen letters"))
		if err != nil {
			t.Fatal(err)
		}
		for i := range good {
			f("cut to "+strconv.Itoa(i), x, good[:i])
			for bit := range 8 {
				bad := bytes.Clone(good)
				bad[i] ^= 1 << bit
				f("a flipped bit in "+strconv.Itoa(i), x, bad)
			}
		}
		f("a byte more", x, append(bytes.Clone(good), 0))
		f("eight bytes more", x, append(bytes.Clone(good), make([]byte, 8)...))
		f("the other type", 1-x, good)
		if back, err := s.decode(x, good); err != nil || string(back) != "seventeen letters" {
			t.Fatalf("after all refusals: %q, %v", back, err)
		}
		before = bytes.Clone(s.dec)
	}
	for n := range 80 {
		f("zeros", MKE, make([]byte, n))
		f("zeros", MTE, make([]byte, n))
	}
	// another direction: each input of the root matters
	v := load(t)
	var entropy [32]byte
	copy(entropy[:], unhex(t, v.Direction.Entropy))
	nonce, _ := strconv.ParseUint(v.Direction.Nonce, 10, 64)
	person := []byte(v.Direction.Personalization)
	for name, state := range map[string][]byte{
		"nonce":           s.p.AppendInitialState(nil, &entropy, nonce+1, person),
		"personalization": s.p.AppendInitialState(nil, &entropy, nonce, append(person, 'x')),
		"entropy":         s.p.AppendInitialState(nil, &[32]byte{}, nonce, person),
	} {
		out, err := encoderOf(t, s.p, MKE, state).AppendEncode(nil, []byte("x"))
		if err != nil {
			t.Fatal(err)
		}
		f("another "+name, MKE, out)
	}
}

func TestSequenceEnds(t *testing.T) {
	s := newEnds(t, MinWindow)
	v := load(t)
	last := v.initial(t, s.p)
	copy(last[33:41], []byte{0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff})
	seen := bytes.Clone(last)
	copy(seen[33:], []byte{0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 1})
	for _, x := range []Type{MTE, MKE} {
		s.enc, s.dec = bytes.Clone(last), bytes.Clone(seen)
		out, err := s.encode(x, []byte("the last"))
		if err != nil {
			t.Fatalf("%v: the last number: %v", x, err)
		}
		if back, err := s.decode(x, out); err != nil || string(back) != "the last" {
			t.Fatalf("%v: the last number: %q, %v", x, back, err)
		}
		for range 2 {
			if out, err := s.encode(x, []byte("one more")); err != EncodeFailed || len(out) != 0 {
				t.Fatalf("%v: after the last number: %x, %v", x, out, err)
			}
		}
	}
}

func TestRestoreFailure(t *testing.T) {
	p := profileFor(t, MinWindow)
	v := load(t)
	good := v.initial(t, p)
	f := func(name string, state []byte, encoder, decoder error) {
		t.Helper()
		for x := range Type(types) {
			if err := p.NewEncoder(x).Restore(state); err != encoder {
				t.Errorf("%v encoder from %s: %v", x, name, err)
			}
			if err := p.NewDecoder(x).Restore(state); err != decoder {
				t.Errorf("%v decoder from %s: %v", x, name, err)
			}
		}
	}
	with := func(next, seen byte) []byte {
		s := bytes.Clone(good)
		s[40], s[48] = next, seen
		return s
	}
	f("a new state", good, nil, nil)
	f("an encoder's state", with(9, 0), nil, StateInvalid)
	f("a decoder's state", with(9, 0x11), StateInvalid, nil)
	f("a decoder's full state", with(8, 0xff), StateInvalid, nil)
	f("a state that saw what was not sent", with(3, 0x0f), StateInvalid, StateInvalid)
	f("a state that saw before the start", with(0, 1), StateInvalid, StateInvalid)
	for n := range good {
		f("a cut", good[:n], StateInvalid, StateInvalid)
	}
	f("a byte more", append(bytes.Clone(good), 0), StateInvalid, StateInvalid)
	other := bytes.Clone(good)
	other[0] = 2
	f("another version", other, StateInvalid, StateInvalid)
	far := bytes.Clone(good)
	far[36] = 2
	far[48] = 1
	f("a number past the end", far, StateInvalid, StateInvalid)

	e := p.NewEncoder(MKE)
	mustPanic(t, "an instance without a key encoded", func() { e.AppendEncode(nil, nil) })
	d := p.NewDecoder(MTE)
	mustPanic(t, "an instance without a key decoded", func() { d.Decode(make([]byte, 20)) })
}

func mustPanic(t *testing.T, name string, f func()) {
	t.Helper()
	defer func() {
		if recover() == nil {
			t.Error(name)
		}
	}()
	f()
}

// Nothing of a key, a state or a message is left in our memory after Wipe.
func TestWipe(t *testing.T) {
	p := profileFor(t, MinWindow)
	v := load(t)
	s := v.initial(t, p)
	for x := range Type(types) {
		e, d := encoderOf(t, p, x, s), decoderOf(t, p, x, s)
		out, err := e.AppendEncode(nil, bytes.Repeat([]byte("secret"), 50))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := d.Decode(out); err != nil {
			t.Fatal(err)
		}
		e.Wipe()
		d.Wipe()
		var same bool
		switch e := e.(type) {
		case *mteEncoder:
			same = isZero(e.root[:]) && e.next == 0 && wiped(&e.mteKeys)
		case *mkeEncoder:
			same = isZero(e.root[:]) && e.next == 0 && e.mkeKeys == mkeKeys{}
		}
		if !same {
			t.Errorf("%v encoder keeps something", x)
		}
		switch d := d.(type) {
		case *mteDecoder:
			same = isZero(d.root[:]) && d.next == 0 && d.seen == 0 && wiped(&d.mteKeys) && d.size == MinWindow
		case *mkeDecoder:
			same = isZero(d.root[:]) && d.next == 0 && d.seen == 0 && d.mkeKeys == mkeKeys{} && d.size == MinWindow
		}
		if !same {
			t.Errorf("%v decoder keeps something", x)
		}
		if err := e.Restore(s); err != nil {
			t.Errorf("%v encoder after Wipe: %v", x, err)
		}
	}
}

func isZero(b []byte) bool { return bytes.Count(b, []byte{0}) == len(b) }

func wiped(k *mteKeys) bool {
	return k.auth == nil && k.enc == ctr{} && k.tag == ctr{} &&
		isZero(k.t[:]) && isZero(k.seq[:]) && isZero(k.r[:]) && isZero(k.some[:])
}

func TestAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	for x := range Type(types) {
		if x == MTE && !haveAES {
			continue // named in ctr.go
		}
		s := newEnds(t, MinWindow)
		e, d := encoderOf(t, s.p, x, s.enc), decoderOf(t, s.p, x, s.dec)
		plaintext := make([]byte, 1000)
		buf := make([]byte, 0, s.p.EncodedBytes(x, len(plaintext)))
		state := make([]byte, 0, s.p.StateBytes())
		if got := testing.AllocsPerRun(200, func() {
			out, err := e.AppendEncode(buf, plaintext)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := d.Decode(out); err != nil {
				t.Fatal(err)
			}
			if _, err := d.Decode(out); err == nil {
				t.Fatal("decoded twice")
			}
			d.AppendState(e.AppendState(state[:0])[:0])
		}); got != 0 {
			t.Errorf("%v: %v allocations for an operation at both ends", x, got)
		}
	}
}

func FuzzDecode(f *testing.F) {
	v := load(f)
	for _, op := range v.Ops {
		f.Add(typeOf(f, op.Type) == MKE, unhex(f, op.Encoded))
	}
	f.Add(false, make([]byte, 12))
	f.Fuzz(func(t *testing.T, mke bool, encoded []byte) {
		s := newEnds(t, MinWindow)
		x := MTE
		if mke {
			x = MKE
		}
		for _, op := range v.Ops { // only what the encoder made is accepted
			if op.Encoded == hex.EncodeToString(encoded) && typeOf(t, op.Type) == x {
				return
			}
		}
		if out, err := s.decode(x, encoded); err != DecodeFailed || out != nil {
			t.Errorf("%x decoded as %x (%v)", encoded, out, err)
		}
	})
}

// FuzzRestore: a state is taken if an instance could have written it, and then it comes back; a
// decoder or an encoder made of it works.
func FuzzRestore(f *testing.F) {
	p, err := New(1024, MinWindow)
	if err != nil {
		f.Fatal(err)
	}
	var entropy [32]byte
	f.Add(p.AppendInitialState(nil, &entropy, 1, []byte("x")))
	f.Add(append([]byte{1}, make([]byte, stateBytes-1)...))
	f.Add([]byte{2})
	f.Fuzz(func(t *testing.T, state []byte) {
		for _, x := range []Type{MKE, MTE} {
			e, d := p.NewEncoder(x), p.NewDecoder(x)
			if e.Restore(state) == nil {
				if got := e.AppendState(nil); !bytes.Equal(got, state) {
					t.Fatalf("%x came back as %x from an encoder", state, got)
				}
				out, err := e.AppendEncode(nil, []byte("text"))
				if err != nil && err != EncodeFailed {
					t.Fatalf("encode: %v", err)
				}
				if d.Restore(state) == nil && err == nil {
					if text, err := d.Decode(out); err != nil || string(text) != "text" {
						t.Fatalf("%x: %q, %v", state, text, err)
					}
				}
			}
			if d.Restore(state) == nil {
				if got := d.AppendState(nil); !bytes.Equal(got, state) {
					t.Fatalf("%x came back as %x from a decoder", state, got)
				}
				if _, err := d.Decode([]byte("nothing that was encoded")); err != DecodeFailed {
					t.Fatalf("decode: %v", err)
				}
			}
		}
	})
}
