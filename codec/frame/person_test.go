package frame

import (
	"bytes"
	"strings"
	"testing"
)

func TestPersonVectors(t *testing.T) {
	transports := map[string]Transport{"http": HTTP, "ws": WebSocket, "tcp": TCP}
	type row struct {
		Name, Transport, Value, Error string
		Pad                           []any
	}
	for _, row := range rows[row](t, "personalization", "cases") {
		value := row.Value
		if row.Pad != nil {
			value += strings.Repeat(row.Pad[0].(string), int(row.Pad[1].(float64)))
		}
		if err := CheckPerson(transports[row.Transport], []byte(value)); vectorName(err) != row.Error {
			t.Errorf("%s: %v, want %q", row.Name, err, row.Error)
		}
	}
	var file struct {
		Min      int `json:"randomness_min_bytes"`
		Max      int `json:"max_bytes"`
		Prefixes map[string]string
	}
	readJSON(t, "personalization.json", &file)
	if file.Min != MinRandomnessBytes || file.Max != MaxPersonBytes {
		t.Errorf("bounds %d and %d", file.Min, file.Max)
	}
	for name, want := range file.Prefixes {
		if got := PersonPrefix(transports[name]); got != want {
			t.Errorf("prefix of %s: %q", name, got)
		}
	}
}

// Each rule by itself and in the order of the contract, for every transport.
func TestPersonOrder(t *testing.T) {
	for _, transport := range []Transport{HTTP, WebSocket, TCP} {
		prefix := PersonPrefix(transport)
		f := func(name, value string, want error) {
			t.Helper()
			if got := CheckPerson(transport, []byte(value)); got != want {
				t.Errorf("%s: %v, want %v", name, got, want)
			}
		}
		long := strings.Repeat("r", MinRandomnessBytes)
		f("the shortest", prefix+long, nil)
		f("the longest", prefix+long+"/"+strings.Repeat("h", MaxPersonBytes-len(prefix)-len(long)-1), nil)
		f("everything is wrong", "\x00"+strings.Repeat("h", MaxPersonBytes), PersonTooLarge)
		f("all but the size", "\x00", PersonWrongPrefix)
		f("all but size and prefix", prefix+long[1:]+"/\x00", PersonRandomness)
		f("a control character", prefix+long+"/\x1f", PersonControl)
		f("DEL", prefix+long+"\x7f", PersonControl)
		f("what is none", prefix+long+"/ \x80~", nil)
		f("a prefix alone", prefix[:len(prefix)-1], PersonWrongPrefix)
		f("nothing", "", PersonWrongPrefix)
	}
}

// FuzzPerson compares with the rules of the contract (relay §5), one by one.
func FuzzPerson(f *testing.F) {
	for _, s := range []string{"mte-relay/2/http/0123456789012345678901", "mte-relay/2/ws/0123456789012345678901/host", "mte-relay/2/http/short/x", "mte-relay/2/tcp/0123456789012345678901\x7f", ""} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, person []byte) {
		for transport, name := range map[Transport]string{HTTP: "http", WebSocket: "ws", TCP: "tcp"} {
			rest, prefixed := strings.CutPrefix(string(person), "mte-relay/2/"+name+"/")
			var want error
			switch {
			case len(person) > 1024:
				want = PersonTooLarge
			case !prefixed:
				want = PersonWrongPrefix
			case len(strings.SplitN(rest, "/", 2)[0]) < 22:
				want = PersonRandomness
			case bytes.ContainsFunc(person, func(r rune) bool { return r < 0x20 || r == 0x7f }):
				want = PersonControl
			}
			if got := CheckPerson(transport, person); got != want {
				t.Errorf("%q for %s: %v, want %v", person, name, got, want)
			}
		}
	})
}
