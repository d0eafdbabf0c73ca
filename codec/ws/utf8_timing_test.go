package ws

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func BenchmarkValidText(b *testing.B) {
	f := func(name, unit string) {
		text := []byte(strings.Repeat(unit, 16<<10/len(unit)))
		if !utf8.Valid(text) {
			b.Fatal("not text")
		}
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				if !ValidText(text) {
					b.Fatal("refused")
				}
			}
		})
	}
	f("ascii", "plain ")
	f("mixed", "plain text with some κόσμε in it, and 日本語 ")
	f("dense", "日本語κόσμε𝄞")
}
