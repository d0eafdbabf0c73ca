package edge

import (
	"testing"
	"time"
)

func TestDateLine(t *testing.T) {
	var d dateLine
	first := string(d.at(0))
	if len(first) != len("Date: Tue, 03 Feb 2026 03:05:06 GMT\r\n") {
		t.Fatalf("%q", first)
	}
	if d.until <= 0 || d.until > int64(time.Second) {
		t.Fatalf("valid until %d", d.until)
	}
	d.line[6] = '?'
	if got := d.at(d.until - 1); got[6] != '?' {
		t.Fatal("made anew within the second")
	}
	if got := d.at(d.until); got[6] == '?' {
		t.Fatal("not made anew after the second")
	}
}
