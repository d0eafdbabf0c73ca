package frame

import (
	"bytes"
	"encoding/hex"
	"strings"
	"testing"
)

var transportNames = map[string]Transport{"http": HTTP, "ws": WebSocket, "tcp": TCP}

func TestFlagVectors(t *testing.T) {
	type row struct {
		Kind      Kind
		Flags     Flags
		Length    uint32
		Transport string
		Error     string
	}
	for _, row := range rows[row](t, "connection", "flags") {
		if legal := LegalFlags(transportNames[row.Transport], row.Kind, row.Flags, row.Length); legal != (row.Error == "") {
			t.Errorf("%v with flags %d and %d bytes on %s: %v", row.Kind, row.Flags, row.Length, row.Transport, legal)
		}
	}
}

// The rule by tables: for every combination.
func TestFlags(t *testing.T) {
	legal := map[Transport]map[Kind]Flags{
		HTTP:      {KindRequest: FlagEnd, KindResponse: FlagEnd, KindData: FlagEnd},
		WebSocket: {KindData: FlagMore | FlagText},
		TCP:       {KindRequest: FlagEnd, KindResponse: FlagEnd, KindData: FlagEnd | FlagHalf},
	}
	for transport, kindsOf := range legal {
		for kind := range Kind(kinds) {
			for flags := range Flags(16) {
				for _, length := range []uint32{0, 1, 1 << 31} {
					want := flags&^kindsOf[kind] == 0 && (length > 0 || flags == 0 || kind != KindData)
					if got := LegalFlags(transport, kind, flags, length); got != want {
						t.Errorf("%v with flags %d and %d bytes on transport %d: %v", kind, flags, length, transport, got)
					}
				}
			}
		}
	}
}

func TestMessageVectors(t *testing.T) {
	type row struct {
		Name, Hex, Payload, Error string
		Kind                      Kind
		Flags                     Flags
		Length                    uint32
		Max                       int `json:"max_frame_bytes"`
	}
	for _, row := range rows[row](t, "connection", "messages") {
		if row.Max == 0 {
			row.Max = 65536
		}
		e, payload, err := ParseMessage(unhex(t, row.Hex), row.Max)
		if vectorName(err) != row.Error {
			t.Errorf("%s: %v, want %q", row.Name, err, row.Error)
			continue
		}
		if err == nil && (e != Envelope{row.Kind, row.Flags, row.Length} || hex.EncodeToString(payload) != row.Payload) {
			t.Errorf("%s: %+v %x", row.Name, e, payload)
		}
	}
}

func TestRunVectors(t *testing.T) {
	type row struct {
		Frames []struct {
			Flags Flags
			App   string
		}
		App, Error string
		Text       bool
		Fragments  int
	}
	for i, row := range rows[row](t, "connection", "runs") {
		var run Run
		var app []byte
		var last bool
		var err error
		for _, f := range row.Frames {
			if last {
				t.Fatalf("run %d: a frame after the last", i)
			}
			some := unhex(t, f.App)
			if last, err = run.Add(f.Flags, len(some)); err != nil {
				break
			}
			app = append(app, some...)
		}
		if vectorName(err) != row.Error {
			t.Errorf("run %d: %v, want %q", i, err, row.Error)
			continue
		}
		if err == nil && (!last || hex.EncodeToString(app) != row.App || run.Text() != row.Text || run.Fragments() != row.Fragments) {
			t.Errorf("run %d: last %v, %x, text %v, %d fragments", i, last, app, run.Text(), run.Fragments())
		}
	}
}

func TestCloseVectors(t *testing.T) {
	type code struct{ Code, Close int }
	for _, row := range rows[code](t, "connection", "close_for_code") {
		if got := CloseCode(row.Code); got != row.Close {
			t.Errorf("close code for %d: %d, want %d", row.Code, got, row.Close)
		}
	}
	type class struct {
		Close, Code int
		Cls         string
	}
	for _, row := range rows[class](t, "connection", "close_class") {
		if got, code := ClassOfClose(row.Close); got.String() != row.Cls || code != row.Code {
			t.Errorf("close code %d: %v %d, want %s %d", row.Close, got, code, row.Cls, row.Code)
		}
	}
}

func TestControlVectors(t *testing.T) {
	type closeRow struct {
		Hex, Reason, Error string
		Code               int
	}
	for _, row := range rows[closeRow](t, "control", "close") {
		in := unhex(t, row.Hex)
		code, reason, err := ParseClose(in)
		if vectorName(err) != row.Error || code != row.Code || string(reason) != row.Reason {
			t.Errorf("CLOSE %s: %d %q, %v", row.Hex, code, reason, err)
		}
		if err == nil && !bytes.Equal(AppendClose(nil, code, string(reason)), in) {
			t.Errorf("CLOSE %s is written otherwise", row.Hex)
		}
	}
	type pingRow struct{ Hex, Error string }
	for _, row := range rows[pingRow](t, "control", "ping") {
		if err := CheckPing(unhex(t, row.Hex)); vectorName(err) != row.Error {
			t.Errorf("PING %s: %v", row.Hex, err)
		}
	}
	type openRow struct{ Input, Canonical, Error string }
	var o Open
	for _, row := range rows[openRow](t, "control", "open") {
		err := o.ParseOpen([]byte(row.Input))
		if vectorName(err) != row.Error {
			t.Errorf("OPEN %s: %v", row.Input, err)
		} else if got := string(o.AppendOpen(nil)); err == nil && got != row.Canonical {
			t.Errorf("OPEN %s: %s, want %s", row.Input, got, row.Canonical)
		}
	}
	for _, row := range rows[openRow](t, "control", "open_ack") {
		err := o.ParseOpenAck([]byte(row.Input))
		if vectorName(err) != row.Error {
			t.Errorf("OPEN_ACK %s: %v", row.Input, err)
		} else if got := string(o.AppendOpenAck(nil)); err == nil && got != row.Canonical {
			t.Errorf("OPEN_ACK %s: %s, want %s", row.Input, got, row.Canonical)
		}
	}
}

func TestConnectionFailure(t *testing.T) {
	if _, _, err := ParseClose(append([]byte{3, 0xe8}, strings.Repeat("r", 124)...)); err != BadPayload {
		t.Errorf("a reason of 124 bytes: %v", err)
	}
	if _, reason, err := ParseClose(append([]byte{3, 0xe8}, strings.Repeat("r", 123)...)); err != nil || len(reason) != 123 {
		t.Errorf("a reason of 123 bytes: %v", err)
	}
	if _, _, err := ParseClose([]byte{3, 0xe8, 0xff}); err != BadPayload {
		t.Errorf("a reason that is no text: %v", err)
	}
	var o Open
	f := func(in string) {
		t.Helper()
		if err := o.ParseOpen([]byte(in)); err != BadPayload {
			t.Errorf("%s: %v", in, err)
		}
	}
	f(``)
	f(`[]`)
	f(`{"clientId":1,"host":"h","pair":{}}`)
	f(`{"clientId":"c","host":"h","pair":[]}`)
	f(`{"clientId":"c","host":"h","pair":{"a":1,"a":2}}`)
	f(`{"clientId":"c","host":"h","pair":{}} x`)
	text := `{"clientId":"c","host":"h","pair":{"a":"\u00e9"},"future":[1]}`
	for i := range text {
		f(text[:i])
	}
	if err := o.ParseOpen([]byte(text)); err != nil || string(o.AppendOpen(nil)) != `{"clientId":"c","host":"h","pair":{"a":"é"}}` {
		t.Errorf("%v", err)
	}
}

func FuzzConnection(f *testing.F) {
	f.Add(unhex(f, "894d5402020600000000000368656c"))
	f.Add([]byte(`{"clientId":"c","host":"h","pair":{}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if e, payload, err := ParseMessage(b, 1000); err == nil {
			if again := append(AppendEnvelope(nil, e.Kind, e.Flags, len(payload)), payload...); !bytes.Equal(again, b) {
				t.Errorf("%x read as %+v", b, e)
			}
		}
		if code, reason, err := ParseClose(b); err == nil && !bytes.Equal(AppendClose(nil, code, string(reason)), b) {
			t.Errorf("%x read as %d %q", b, code, reason)
		}
		var o, again Open
		if o.ParseOpen(b) == nil {
			text := o.AppendOpen(nil)
			if err := again.ParseOpen(text); err != nil || !bytes.Equal(again.AppendOpen(nil), text) {
				t.Errorf("%q became %q, %v", b, text, err)
			}
		}
	})
}
