package ws

import (
	"encoding/base64"
	"testing"
)

func TestAppendAccept(t *testing.T) {
	f := func(key, want string) {
		t.Helper()
		if got := AppendAccept([]byte("x"), []byte(key)); string(got) != "x"+want {
			t.Errorf("AppendAccept(%q) = %q, want %q", key, got[1:], want)
		}
	}
	// RFC 6455 §1.3
	f("dGhlIHNhbXBsZSBub25jZQ==", "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=")
	// a second known pair
	f("x3JJHMbDL1EzLkh9GBhXDw==", "HSmrc0sMlYUkAGmm5OPpG2HaGWk=")
}

func TestAppendAcceptUncheckedKey(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("an unchecked key did not panic")
		}
	}()
	AppendAccept(nil, []byte("short"))
}

func TestValidKey(t *testing.T) {
	f := func(key string, want bool) {
		t.Helper()
		if got := ValidKey([]byte(key)); got != want {
			t.Errorf("ValidKey(%q) = %v", key, got)
		}
	}
	f("dGhlIHNhbXBsZSBub25jZQ==", true)
	f("++++++++++//////////AA==", true)
	// unused bits of the last character
	f("dGhlIHNhbXBsZSBub25jZR==", true)
	f("", false)
	// no padding, half of it, too much of it
	f("dGhlIHNhbXBsZSBub25jZQ", false)
	f("dGhlIHNhbXBsZSBub25jZQ=", false)
	f("dGhlIHNhbXBsZSBub25jZQ===", false)
	f("dGhlIHNhbXBsZSBub25jZ===", false)
	// 15, 17 and 18 bytes
	f(base64.StdEncoding.EncodeToString(make([]byte, 15)), false)
	f(base64.StdEncoding.EncodeToString(make([]byte, 17)), false)
	f(base64.StdEncoding.EncodeToString(make([]byte, 18)), false)
	// the URL alphabet, white space, other bytes
	f("dGhlIHNhbXBsZSBub25-ZQ==", false)
	f("dGhlIHNhbXBsZSBub2_jZQ==", false)
	f(" GhlIHNhbXBsZSBub25jZQ==", false)
	f("dGhlIHNhbXBsZSBub25jZQ= ", false)
	f("dGhlIHNhbXBs\nSBub25jZQ==", false)
	f("dGhlIHNhbXBs\xffSBub25jZQ==", false)
}

// A key is valid exactly when the standard decoder finds 16 bytes in it.
func FuzzValidKey(f *testing.F) {
	f.Add("dGhlIHNhbXBsZSBub25jZQ==")
	f.Add("dGhlIHNhbXBsZSBub25jZ===")
	f.Add("dGhlIHNhbXBs\nSBub25jZQ==")
	f.Fuzz(func(t *testing.T, key string) {
		raw, err := base64.StdEncoding.DecodeString(key)
		// the standard decoder skips line ends
		want := err == nil && len(raw) == 16 && len(key) == keyLen
		if ValidKey([]byte(key)) != want {
			t.Fatalf("ValidKey(%q) = %v", key, !want)
		}
	})
}
