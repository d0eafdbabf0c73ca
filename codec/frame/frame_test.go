package frame

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"math/rand/v2"
	"os"
	"testing"
)

// The vectors in testdata are samples of the contract's rules; *.full.json hold other rows of the
// same lists, with null for those that are not given.

func readJSON(t testing.TB, name string, v any) {
	t.Helper()
	data, err := os.ReadFile("testdata/" + name)
	if err == nil {
		err = json.Unmarshal(data, v)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// rows reads a list of both files of a set, without the nulls.
func rows[T any](t testing.TB, set, list string) (all []T) {
	t.Helper()
	for _, name := range []string{set + ".json", set + ".full.json"} {
		if _, err := os.Stat("testdata/" + name); err != nil {
			continue
		}
		var file map[string]json.RawMessage
		readJSON(t, name, &file)
		var some []*T
		if file[list] == nil {
			continue
		}
		if err := json.Unmarshal(file[list], &some); err != nil {
			t.Fatalf("%s, %s: %v", name, list, err)
		}
		for _, row := range some {
			if row != nil {
				all = append(all, *row)
			}
		}
	}
	if len(all) == 0 {
		t.Fatalf("no rows in %s of %s", list, set)
	}
	return all
}

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// vectorNames are how the vectors name faults.
var vectorNames = map[error]string{
	Short: "short", LegacySignature: "legacy_signature", BadSignature: "signature", BadVersion: "version",
	BadReserved: "reserved", BadKind: "kind", TooLarge: "too_large", MessageLength: "message_length",
	BadFlags: "payload", BadPayload: "payload", FlagsMismatch: "flags_mismatch", EmptyInRun: "empty_in_run",
	TextChanged: "text_changed", PersonTooLarge: "too_large", PersonWrongPrefix: "prefix",
	PersonRandomness: "randomness", PersonControl: "control",
}

func vectorName(err error) string {
	if f, ok := err.(Fault); ok && f.Reason() == MetadataInvalid {
		return "metadata"
	}
	return vectorNames[err]
}

func TestEnvelopeVectors(t *testing.T) {
	type row struct {
		Name, Hex, Error string
		Version, Kind    int
		Flags            int
		Length           uint32
	}
	for _, row := range rows[row](t, "envelope", "cases") {
		in := unhex(t, row.Hex)
		e, n, err := ParseEnvelope(in)
		if n == 0 && err == nil {
			err = Short // to one who expects no more
		}
		if vectorName(err) != row.Error {
			t.Errorf("%s: %v, want %s", row.Name, err, row.Error)
			continue
		}
		if row.Error != "" {
			continue
		}
		if want := (Envelope{Kind(row.Kind), Flags(row.Flags), row.Length}); e != want || n != len(in) {
			t.Errorf("%s: %+v, %d bytes, want %+v", row.Name, e, n, want)
		}
		if got := AppendEnvelope([]byte("x"), e.Kind, e.Flags, int(e.Length)); !bytes.Equal(got[1:], in) {
			t.Errorf("%s: written %x, want %x", row.Name, got[1:], in)
		}
		put := make([]byte, EnvelopeBytes+1)
		if PutEnvelope(put, e.Kind, e.Flags, int(e.Length)); !bytes.Equal(put[:EnvelopeBytes], in) || put[EnvelopeBytes] != 0 {
			t.Errorf("%s: put %x, want %x", row.Name, put, in)
		}
	}
}

func TestEnvelopeFailure(t *testing.T) {
	f := func(name, in string, want error, reason Reason) {
		t.Helper()
		b := unhex(t, in)
		_, n, err := ParseEnvelope(b)
		if err != want || n != 0 {
			t.Errorf("%s: %v, want %v", name, err, want)
		}
		if got := want.(Fault).Reason(); got != reason {
			t.Errorf("%s: reason %v, want %v", name, got, reason)
		}
		for i := range b { // a prefix needs more, whatever it holds
			if _, n, err := ParseEnvelope(b[:i]); n != 0 || err != nil {
				t.Errorf("%s: %d bytes: %v", name, i, err)
			}
		}
	}
	// each row breaks every rule after its own as well
	f("the old signature", "4d5445010bff010100000000", LegacySignature, FrameVersionUnsupported)
	f("no signature", "884d54010bff010100000000", BadSignature, InvalidFrame)
	f("another version", "894d54010bff010100000000", BadVersion, FrameVersionUnsupported)
	f("reserved flags", "894d54020b40000000000000", BadReserved, InvalidFrame)
	f("reserved bytes", "894d54020b00000100000000", BadReserved, InvalidFrame)
	f("an unknown kind", "894d54020b00000000000000", BadKind, InvalidFrame)
}

func TestRequestVectors(t *testing.T) {
	type row struct {
		Name, Hex, Error, PairID, Token, Metadata string
		MteType, Method                           int
		Connection                                bool
	}
	for _, row := range rows[row](t, "request", "cases") {
		in := unhex(t, row.Hex)
		r, err := ParseRequest(in)
		if vectorName(err) != row.Error {
			t.Errorf("%s: %v, want %q", row.Name, err, row.Error)
			continue
		}
		if row.Error != "" {
			continue
		}
		if int(r.Type) != row.MteType || int(r.Method) != row.Method || hex.EncodeToString(r.Pair[:]) != row.PairID ||
			hex.EncodeToString(r.Token) != row.Token || hex.EncodeToString(r.Metadata) != row.Metadata {
			t.Errorf("%s: %+v", row.Name, r)
		}
		if connection := len(r.Token) == 0; connection != row.Connection {
			t.Errorf("%s: on a connection: %v", row.Name, connection)
		}
		got := append(AppendRequestHead(nil, r.Type, r.Method, r.Pair, r.Token, len(r.Metadata)), r.Metadata...)
		if !bytes.Equal(got, in) {
			t.Errorf("%s: written %x, want %x", row.Name, got, in)
		}
		for i := range in {
			if _, err := ParseRequest(in[:i]); err != BadPayload {
				t.Errorf("%s: cut to %d: %v", row.Name, i, err)
			}
		}
	}
}

func TestRequestFailure(t *testing.T) {
	good := append(AppendRequestHead(nil, TypeMKE, 1, PairID{1}, make([]byte, TokenBytes), 3), 1, 2, 3)
	if len(good) != RequestHeadBytes+3 {
		t.Fatalf("a head of %d bytes, want %d", len(good)-3, RequestHeadBytes)
	}
	f := func(name string, change func(p []byte) []byte) {
		t.Helper()
		if r, err := ParseRequest(change(bytes.Clone(good))); err != BadPayload {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
	}
	f("type 2", func(p []byte) []byte { p[0] = 2; return p })
	f("method 9", func(p []byte) []byte { p[1] = 9; return p })
	f("method 254", func(p []byte) []byte { p[1] = 254; return p })
	f("a token of 41 bytes", func(p []byte) []byte { p[19] = 41; return append(p, 0) })
	f("a token of 65535 bytes", func(p []byte) []byte { p[18], p[19] = 255, 255; return p })
	f("a byte more", func(p []byte) []byte { return append(p, 0) })
	f("a length of 4 GiB", func(p []byte) []byte { copy(p[60:], "\xff\xff\xff\xff"); return p })
	f("no metadata", func(p []byte) []byte { p[63] = 0; return p[:64] })
}

func TestMethodBytes(t *testing.T) {
	var file struct {
		MethodBytes map[string]byte `json:"method_bytes"`
	}
	readJSON(t, "registry.json", &file)
	if len(file.MethodBytes) != len(methods) {
		t.Errorf("%d methods, want %d", len(methods), len(file.MethodBytes))
	}
	for name, want := range file.MethodBytes {
		if got := MethodByte(name); got != want || MethodName(want) != name {
			t.Errorf("%s is %d, and %d is %q", name, got, want, MethodName(want))
		}
	}
	for _, name := range []string{"", "get", "PROPFIND", "GETS"} {
		if got := MethodByte([]byte(name)); got != OtherMethod {
			t.Errorf("%q is %d", name, got)
		}
	}
	if MethodName(9) != "" || MethodName(OtherMethod) != "" {
		t.Error("a method byte without a method has a name")
	}
}

func TestResponseVectors(t *testing.T) {
	type row struct {
		Name, Hex, Error, Metadata string
		Status                     int
	}
	for _, row := range rows[row](t, "response", "cases") {
		in := unhex(t, row.Hex)
		r, err := ParseResponse(in)
		if vectorName(err) != row.Error {
			t.Errorf("%s: %v, want %q", row.Name, err, row.Error)
			continue
		}
		if row.Error != "" {
			continue
		}
		if r.Status != row.Status || hex.EncodeToString(r.Metadata) != row.Metadata {
			t.Errorf("%s: %+v", row.Name, r)
		}
		if got := append(AppendResponseHead(nil, r.Status, len(r.Metadata)), r.Metadata...); !bytes.Equal(got, in) {
			t.Errorf("%s: written %x, want %x", row.Name, got, in)
		}
		for i := range in {
			if _, err := ParseResponse(in[:i]); err != BadPayload {
				t.Errorf("%s: cut to %d: %v", row.Name, i, err)
			}
		}
	}
	for _, status := range []int{0, 99, 600, 65535} {
		if _, err := ParseResponse(append(AppendResponseHead(nil, status, 1), 0)); err != BadPayload {
			t.Errorf("status %d: %v", status, err)
		}
	}
	for _, status := range []int{100, 599} {
		if r, err := ParseResponse(append(AppendResponseHead(nil, status, 1), 0)); err != nil || r.Status != status {
			t.Errorf("status %d: %+v, %v", status, r, err)
		}
	}
}

func TestDataVectors(t *testing.T) {
	type build struct {
		Name, App, Plaintext string
		Flags                Flags
	}
	for _, row := range rows[build](t, "data", "build") {
		if got := AppendData(nil, row.Flags, unhex(t, row.App)); hex.EncodeToString(got) != row.Plaintext {
			t.Errorf("%s: %x, want %s", row.Name, got, row.Plaintext)
		}
	}
	type split struct {
		Name, App, Plaintext, Error string
		Want                        Flags
	}
	for _, row := range rows[split](t, "data", "split") {
		app, err := SplitData(unhex(t, row.Plaintext), row.Want)
		if vectorName(err) != row.Error || hex.EncodeToString(app) != row.App {
			t.Errorf("%s: %x, %v", row.Name, app, err)
		}
	}
}

// Any kind, flags and length survive writing and reading, however the bytes arrive.
func TestEnvelopeRoundTrip(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for range 1000 {
		want := Envelope{Kind(r.IntN(int(kinds))), Flags(r.IntN(16)), r.Uint32()}
		b := AppendEnvelope(nil, want.Kind, want.Flags, int(want.Length))
		if got, n, err := ParseEnvelope(append(b, 0xff)); err != nil || n != EnvelopeBytes || got != want {
			t.Fatalf("%+v, %d bytes, %v, want %+v", got, n, err, want)
		}
	}
}

func FuzzEnvelope(f *testing.F) {
	f.Add(AppendEnvelope(nil, KindData, FlagEnd, 5))
	f.Add([]byte("MTE\x01\x00\x00\x00\x00\x00\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		e, n, err := ParseEnvelope(b)
		if n == 0 {
			return
		}
		if err != nil || !bytes.Equal(AppendEnvelope(nil, e.Kind, e.Flags, int(e.Length)), b[:n]) {
			t.Errorf("%x read as %+v, %v", b, e, err)
		}
	})
}

func FuzzRequest(f *testing.F) {
	f.Add(append(AppendRequestHead(nil, TypeMKE, 1, PairID{1}, make([]byte, TokenBytes), 3), 1, 2, 3))
	f.Add(append(AppendRequestHead(nil, TypeMTE, 255, PairID{}, nil, 1), 9))
	f.Fuzz(func(t *testing.T, p []byte) {
		r, err := ParseRequest(p)
		if err == nil && !bytes.Equal(append(AppendRequestHead(nil, r.Type, r.Method, r.Pair, r.Token, len(r.Metadata)), r.Metadata...), p) {
			t.Errorf("%x read as %+v", p, r)
		}
		s, err := ParseResponse(p)
		if err == nil && !bytes.Equal(append(AppendResponseHead(nil, s.Status, len(s.Metadata)), s.Metadata...), p) {
			t.Errorf("%x read as %+v", p, s)
		}
	})
}

func TestFrameAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	payload := append(AppendRequestHead(nil, TypeMKE, 1, PairID{1}, make([]byte, TokenBytes), 3), 1, 2, 3)
	buf := make([]byte, 0, 200)
	if got := testing.AllocsPerRun(100, func() {
		b := AppendEnvelope(buf, KindRequest, FlagEnd, len(payload))
		e, _, err := ParseEnvelope(b)
		r, err2 := ParseRequest(payload)
		if err != nil || err2 != nil || int(e.Length) != len(payload) {
			t.Fatal(err, err2)
		}
		AppendRequestHead(buf, r.Type, r.Method, r.Pair, r.Token, 3)
		SplitData(AppendData(buf, FlagEnd, r.Metadata), FlagEnd)
		binary.BigEndian.Uint16(payload)
	}); got != 0 {
		t.Errorf("%v allocations", got)
	}
}
