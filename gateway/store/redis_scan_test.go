package store

import (
	"strings"
	"testing"
)

// TestScannerSuccess: values are counted, however they are cut.
func TestScannerSuccess(t *testing.T) {
	f := func(stream string, want int64) {
		t.Helper()
		for cut := range len(stream) + 1 {
			var s scanner
			if !s.scan([]byte(stream[:cut])) || !s.scan([]byte(stream[cut:])) || s.values.Load() != want || s.deep != 0 || s.line != 0 {
				t.Fatalf("%q cut at %d: %d values, want %d", stream, cut, s.values.Load(), want)
			}
		}
		var s scanner
		for i := range len(stream) {
			s.scan([]byte{stream[i]})
		}
		if s.values.Load() != want {
			t.Errorf("%q bytewise: %d values", stream, s.values.Load())
		}
	}
	f("+OK\r\n", 1)
	f("-ERR with -5 $3\r\n:-12\r\n", 2)
	f("$5\r\na\r\nbc\r\n$0\r\n\r\n$-1\r\n", 3)
	f("*3\r\n:1\r\n*2\r\n$1\r\nx\r\n+\r\n_\r\n*0\r\n*-1\r\n", 3)
	f("%2\r\n+a\r\n:1\r\n+b\r\n*1\r\n#t\r\n,1.5\r\n(123456789012345678901234567890\r\n", 3)
	f("=7\r\ntxt:abc\r\n~1\r\n:1\r\n!3\r\nabc\r\n", 3)
	// Pushes and attributes stand for no answer.
	f(">2\r\n+invalidate\r\n*1\r\n$1\r\nk\r\n", 0)
	f("|1\r\n+ttl\r\n:3\r\n:7\r\n", 1)
	f(">0\r\n+OK\r\n", 1)
}

func TestScannerFailure(t *testing.T) {
	f := func(stream string) {
		t.Helper()
		var s scanner
		if s.scan([]byte(stream)) {
			t.Errorf("%.40q was taken", stream)
		}
		if s.scan([]byte("+OK\r\n")) {
			t.Errorf("%.40q: well again", stream)
		}
	}
	f("HTTP/1.1 400\r\n")
	f("\x00")
	f("*-7\r\n")
	f("$-2\r\n")
	f("$\r\n")
	f("$x\r\n")
	f("$1-\r\n")
	f("$999999999999999999\r\n")
	f("*16777217\r\n")
	f("$16777217\r\n")
	f("%524289\r\n")
	f(strings.Repeat("*1\r\n", guardDepth+1))
	f("+" + strings.Repeat("x", guardLine))
}

// TestScannerAllocates: nothing.
func TestScannerAllocates(t *testing.T) {
	b := []byte("*2\r\n$5\r\ntaken\r\n$200\r\n" + strings.Repeat("x", 200) + "\r\n")
	var s scanner
	if n := testing.AllocsPerRun(100, func() { s.scan(b) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
