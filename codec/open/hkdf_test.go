package open

import (
	"bytes"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"testing"
)

func TestHKDFAgainstStandardLibrary(t *testing.T) {
	data := make([]byte, 2000)
	rand.Read(data)
	for n := range len(data) {
		key, message := data[:n%(sha256.BlockSize+1)], data[len(data)-n:]
		h := hmac.New(sha256.New, key)
		h.Write(message)
		if got := hmacSum(key, message[:n/3], message[n/3:]); !bytes.Equal(got[:], h.Sum(nil)) {
			t.Fatalf("HMAC of %d bytes under a key of %d differs", n, len(key))
		}
		size := 1 + n%300
		want, err := hkdf.Expand(sha256.New, data[:32], string(message), size)
		if err != nil {
			t.Fatal(err)
		}
		got := make([]byte, size)
		if hkdfExpand(got, data[:32], message); !bytes.Equal(got, want) {
			t.Fatalf("HKDF-Expand of %d bytes to %d differs", n, size)
		}
	}
}

func TestInitialStateAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	var entropy [32]byte
	state := make([]byte, 0, stateBytes)
	person := []byte("mte-relay/2/http/0123456789012345678901/relay.example.com")
	if got := testing.AllocsPerRun(100, func() { appendInitialState(state, &entropy, 1, person) }); got != 0 {
		t.Errorf("%v allocations for an initial state", got)
	}
}

func BenchmarkInitialState(b *testing.B) {
	var entropy [32]byte
	state := make([]byte, 0, stateBytes)
	person := []byte("mte-relay/2/http/0123456789012345678901/relay.example.com")
	b.ReportAllocs()
	for b.Loop() {
		appendInitialState(state, &entropy, 1, person)
	}
}
