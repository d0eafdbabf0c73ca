package frame

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestErrorVectors(t *testing.T) {
	type row struct {
		Name, JSON, Hex, Reason, Message, Error, Canonical string
		Code                                               int
		Cause                                              *Cause
	}
	for _, row := range rows[row](t, "error", "cases") {
		in := binary.BigEndian.AppendUint16(nil, uint16(row.Code))
		in = append(in, row.JSON...)
		if row.Hex != "" {
			in = unhex(t, row.Hex)
		}
		e, err := ParseError(in)
		if vectorName(err) != row.Error {
			t.Errorf("%s: %v, want %q", row.Name, err, row.Error)
			continue
		}
		if row.Error != "" {
			continue
		}
		want := ErrorPayload{Code: row.Code, Reason: row.Reason, Message: row.Message}
		if row.Cause != nil {
			want.Cause = *row.Cause
		}
		if e != want {
			t.Errorf("%s: %+v, want %+v", row.Name, e, want)
		}
		if row.Canonical == "" {
			row.Canonical = row.JSON
		}
		if got := e.AppendPayload(nil); string(got[2:]) != row.Canonical || int(binary.BigEndian.Uint16(got)) != row.Code {
			t.Errorf("%s: written %s, want %s", row.Name, got[2:], row.Canonical)
		}
	}
}

func TestParseErrorFailure(t *testing.T) {
	f := func(name, json string) {
		t.Helper()
		if e, err := ParseError(append([]byte{1, 0xd9}, json...)); err != BadPayload {
			t.Errorf("%s: %+v, %v", name, e, err)
		}
	}
	f("nothing", "")
	f("two values", `{"reason":"a"}{}`)
	f("a reason of another form", `{"reason":"Pair-Not-Found"}`)
	f("a reason that is no string", `{"reason":1}`)
	f("a message that is no string", `{"message":null,"reason":"a"}`)
	f("a message too long", `{"message":"`+strings.Repeat("m", MaxMessageBytes+1)+`","reason":"a"}`)
	f("a cause that is no object", `{"cause":"a","reason":"a"}`)
	f("a cause without a code", `{"cause":{"hop":0,"reason":"a"},"reason":"a"}`)
	f("a cause without a reason", `{"cause":{"code":470,"hop":0},"reason":"a"}`)
	f("a cause with a negative hop", `{"cause":{"code":470,"hop":-1,"reason":"a"},"reason":"a"}`)
	good := `{"cause":{"code":470,"hop":2,"reason":"pair_not_found"},"message":"m","reason":"upstream_response_failed"}`
	for i := range good {
		f("a cut", good[:i])
	}
	if e, err := ParseError(append([]byte{0, 0}, `{"message":"`+strings.Repeat("m", MaxMessageBytes)+`","reason":"a"}`...)); err != nil || len(e.Message) != MaxMessageBytes {
		t.Errorf("the longest message: %v", err)
	}
}

func TestErrorFrame(t *testing.T) {
	f := func(r Reason, message string, cause Cause, want string) {
		t.Helper()
		b := AppendErrorFrame([]byte("before"), r, message, cause)[len("before"):]
		e, n, err := ParseEnvelope(b)
		if err != nil || e.Kind != KindError || e.Flags != 0 || int(e.Length) != len(b)-n {
			t.Fatalf("%v: envelope %+v, %v", r, e, err)
		}
		if got := string(b[n+2:]); got != want || int(binary.BigEndian.Uint16(b[n:])) != r.Code() {
			t.Errorf("%v: %s, want %s", r, got, want)
		}
		p, err := ParseError(b[n:])
		if err != nil || p.Code != r.Code() || p.Reason != r.String() || p.Cause != cause {
			t.Errorf("%v: read %+v, %v", r, p, err)
		}
		if again := p.AppendPayload(nil); !bytes.Equal(again, b[n:]) {
			t.Errorf("%v: again %s", r, again)
		}
	}
	f(DecodeFailed, "", Cause{}, `{"reason":"decode_failed"}`)
	f(EOFBeforeEnd, "", CauseOf(BodyTooLarge), `{"cause":{"code":481,"hop":0,"reason":"body_too_large"},"reason":"eof_before_end"}`)
	f(RateLimited, "too many \"requests\"\n", Cause{}, `{"message":"too many \"requests\"\n","reason":"rate_limited"}`)
	f(InvalidRequest, strings.Repeat("m", 5000), Cause{}, `{"message":"`+strings.Repeat("m", MaxMessageBytes)+`","reason":"invalid_request"}`)

	if got := string(AppendErrorHeader(nil, PairBusy)); got != "486 pair_busy" {
		t.Errorf("header %q", got)
	}
	if got := string(AppendErrorJSON(nil, NotFound, "no such path", Cause{})); got != `{"code":404,"message":"no such path","reason":"not_found"}` {
		t.Errorf("plain %s", got)
	}
	if got := string(AppendErrorJSON(nil, UpstreamResponseFailed, "", Cause{470, 2, "pair_not_found"})); got != `{"cause":{"code":470,"hop":2,"reason":"pair_not_found"},"code":502,"message":"","reason":"upstream_response_failed"}` {
		t.Errorf("plain %s", got)
	}
}

// A message over the bound ends at a character.
func TestCut(t *testing.T) {
	for pad := range 5 {
		s := strings.Repeat("x", pad) + strings.Repeat("é😀", 1000)
		got := cut(s)
		if !utf8.ValidString(got) || len(got) > MaxMessageBytes || len(got) < MaxMessageBytes-3 || !strings.HasPrefix(s, got) {
			t.Errorf("cut to %d bytes", len(got))
		}
	}
	if got := cut("a\xffb"); got != "a" {
		t.Errorf("%q", got)
	}
}

func FuzzError(f *testing.F) {
	f.Add([]byte("\x01\xd9{\"cause\":{\"code\":470,\"hop\":2,\"reason\":\"a\"},\"message\":\"m\",\"reason\":\"b\"}"))
	f.Fuzz(func(t *testing.T, p []byte) {
		e, err := ParseError(p)
		if err != nil {
			return
		}
		again, err := ParseError(e.AppendPayload(nil))
		if err != nil || again != e {
			t.Errorf("%+v became %+v, %v", e, again, err)
		}
	})
}
