package ws

import "testing"

// The codec runs once per frame; none of it may allocate.
func TestNoAllocation(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	f := func(name string, fn func()) {
		t.Helper()
		if n := testing.AllocsPerRun(100, fn); n != 0 {
			t.Errorf("%s allocates %v times", name, n)
		}
	}
	head := clientHeader(true, OpBinary, 70000, 0x04030201)
	bad := []byte{0x81, 0x00}
	small, large := make([]byte, 64), make([]byte, 64<<10)
	out := make([]byte, 0, 256)
	key := []byte("dGhlIHNhbXBsZSBub25jZQ==")
	closing := []byte("\x03\xe8bye ✓")
	var h Header
	var u UTF8

	f("ParseHeader", func() { ParseHeader(head, false, &h) })
	f("ParseHeader of a fault", func() { ParseHeader(bad, false, &h) })
	f("AppendHeader", func() { out = AppendHeader(out[:0], true, OpText, 70000) })
	f("Mask of words", func() { Mask(small, 7) })
	f("Mask of blocks", func() { Mask(large, 7) })
	f("MaskCopy, close overlap", func() { MaskCopy(large, large[4:], 7) })
	f("MaskCopy, wide overlap", func() { MaskCopy(large[:32<<10], large[32<<10:], 7) })
	f("UTF8.Write", func() { u.Write(large) })
	f("ParseClose", func() { ParseClose(closing) })
	f("AppendClose", func() { out = AppendClose(out[:0], CloseGoingAway, "Client disconnected") })
	f("AppendAccept", func() { out = AppendAccept(out[:0], key) })
}
