package ws

import (
	"bytes"
	"strings"
	"testing"
)

func TestParseCloseSuccess(t *testing.T) {
	f := func(payload string, wantCode uint16, wantReason string) {
		t.Helper()
		code, reason, err := ParseClose([]byte(payload))
		if err != nil || code != wantCode || string(reason) != wantReason {
			t.Errorf("ParseClose(%q) = %d, %q, %v", payload, code, reason, err)
		}
	}
	f("", CloseNoStatus, "")
	f("\x03\xe8", CloseNormal, "")
	f("\x03\xe9bye ✓", CloseGoingAway, "bye ✓")
	f("\x13\x87"+strings.Repeat("x", 123), 4999, strings.Repeat("x", 123))
}

func TestParseCloseFailure(t *testing.T) {
	f := func(payload string, want *Error) {
		t.Helper()
		if code, reason, err := ParseClose([]byte(payload)); err != want || code != 0 || reason != nil {
			t.Errorf("ParseClose(%q) = %d, %q, %v, want %q", payload, code, reason, err, want.Reason)
		}
	}
	// half a code
	f("\x03", ErrClosePayload)
	// illegal codes: none, below, reserved, local only, unassigned, above
	f("\x00\x00", ErrCloseCode)
	f("\x03\xe7", ErrCloseCode)
	f("\x03\xec", ErrCloseCode)
	f("\x03\xed", ErrCloseCode)
	f("\x03\xee", ErrCloseCode)
	f("\x03\xf7", ErrCloseCode)
	f("\x13\x88", ErrCloseCode)
	// a bad code is reported before a bad reason
	f("\x03\xec\xff", ErrCloseCode)
	// reasons that are not text, or stop inside a rune
	f("\x03\xe8\xff", ErrCloseReason)
	f("\x03\xe8abc\xe2\x82", ErrCloseReason)
	f("\x03\xe8\xed\xa0\x80", ErrCloseReason)
}

func TestValidWireCode(t *testing.T) {
	f := func(from, to uint16, want bool) {
		t.Helper()
		for code := int(from); code <= int(to); code++ {
			if got := ValidWireCode(uint16(code)); got != want {
				t.Errorf("ValidWireCode(%d) = %v", code, got)
			}
		}
	}
	f(0, 999, false)
	f(1000, 1003, true)
	f(1004, 1006, false)
	f(1007, 1014, true)
	f(1015, 2999, false)
	f(3000, 4999, true)
	f(5000, 65535, false)
}

func TestAppendClose(t *testing.T) {
	f := func(code uint16, reason, want string) {
		t.Helper()
		if got := AppendClose([]byte("x"), code, reason); string(got) != "x"+want {
			t.Errorf("AppendClose(%d, %q) = %q, want %q", code, reason, got[1:], want)
		}
	}
	f(CloseServiceRestart, "Service restart", "\x88\x11\x03\xf4Service restart")
	f(CloseNormal, "", "\x88\x02\x03\xe8")
	// no status: no payload, hence no reason either
	f(CloseNoStatus, "dropped", "\x88\x00")
	// a reason that just fits, one byte more, and runes of every length across the border
	long := strings.Repeat("a", 130)
	f(4000, long[:123], "\x88\x7d\x0f\xa0"+long[:123])
	f(4000, long[:124], "\x88\x7d\x0f\xa0"+long[:123])
	f(4000, long[:122]+"é", "\x88\x7c\x0f\xa0"+long[:122])
	f(4000, long[:121]+"é", "\x88\x7d\x0f\xa0"+long[:121]+"é")
	f(4000, long[:121]+"日", "\x88\x7b\x0f\xa0"+long[:121])
	f(4000, long[:120]+"𝄞", "\x88\x7a\x0f\xa0"+long[:120])
	f(4000, long[:119]+"𝄞b", "\x88\x7d\x0f\xa0"+long[:119]+"𝄞")
}

func TestAppendCloseIllegalCode(t *testing.T) {
	for _, code := range []uint16{0, 999, 1004, CloseAbnormal, CloseTLSHandshake, 2999, 5000} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("AppendClose(%d) did not panic", code)
				}
			}()
			AppendClose(nil, code, "")
		}()
	}
}

func FuzzParseClose(f *testing.F) {
	f.Add([]byte(""))
	f.Add([]byte("\x03"))
	f.Add([]byte("\x03\xe8bye ✓"))
	f.Add([]byte("\x03\xec\xff"))
	f.Fuzz(func(t *testing.T, payload []byte) {
		code, reason, err := ParseClose(payload)
		if err != nil || len(payload) > maxControlPayload {
			return
		}
		frame := AppendClose(nil, code, string(reason))
		if !bytes.Equal(frame[2:], payload) || int(frame[1]) != len(payload) {
			t.Fatalf("close payload %x comes back as %x", payload, frame)
		}
	})
}
