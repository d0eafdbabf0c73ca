package ws

import (
	"bytes"
	"testing"
)

func BenchmarkAppendAccept(b *testing.B) {
	key := []byte("dGhlIHNhbXBsZSBub25jZQ==")
	dst := make([]byte, 0, 64)
	for b.Loop() {
		dst = AppendAccept(dst[:0], key)
	}
	if !bytes.HasSuffix(dst, []byte("=")) {
		b.Fatal("no digest")
	}
}
