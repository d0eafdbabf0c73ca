package ws

import "testing"

// The sizes of payloads as they come: a key stroke, a hello, a screen, a file's block.
var maskTimingSizes = []struct {
	name  string
	bytes int
}{
	{"stroke", 64},
	{"hello", 200},
	{"screen", 1 << 10},
	{"page", 16 << 10},
	{"block", 64 << 10},
}

func BenchmarkMask(b *testing.B) {
	for _, size := range maskTimingSizes {
		buf := make([]byte, size.bytes)
		b.Run(size.name, func(b *testing.B) {
			b.SetBytes(int64(size.bytes))
			key := uint32(0x01020304)
			for b.Loop() {
				key = Mask(buf, key)
			}
		})
	}
}

// BenchmarkMaskWords shows where the vector path begins to win.
func BenchmarkMaskWords(b *testing.B) {
	for _, size := range maskTimingSizes {
		buf := make([]byte, size.bytes)
		b.Run(size.name, func(b *testing.B) {
			b.SetBytes(int64(size.bytes))
			for b.Loop() {
				maskWords(buf, buf, 0x01020304)
			}
		})
	}
}

// BenchmarkMaskCompact moves a payload over the four bytes its header is too long.
func BenchmarkMaskCompact(b *testing.B) {
	for _, size := range maskTimingSizes {
		buf := make([]byte, size.bytes+4)
		b.Run(size.name, func(b *testing.B) {
			b.SetBytes(int64(size.bytes))
			for b.Loop() {
				MaskCopy(buf, buf[4:], 0x01020304)
			}
		})
	}
}
