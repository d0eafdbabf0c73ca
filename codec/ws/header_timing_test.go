package ws

import "testing"

func BenchmarkParseHeader(b *testing.B) {
	f := func(name string, length uint64) {
		head := clientHeader(true, OpBinary, length, 0x01020304)
		b.Run(name, func(b *testing.B) {
			var h Header
			for b.Loop() {
				if n, err := ParseHeader(head, false, &h); n == 0 || err != nil {
					b.Fatal("not a header")
				}
			}
		})
	}
	f("stroke", 64)
	f("screen", 1<<10)
	f("file", 1<<20)
}
