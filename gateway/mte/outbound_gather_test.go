package mte

import (
	"bytes"
	"testing"
)

// A body of unknown length is kept where it was put: it is not moved as it grows,
// and has little more room than it needs.
func TestGatherInPieces(t *testing.T) {
	role := new(Role)
	role.cfg.Client.BufferBytes = 64 << 20
	x := &outbound{s: &shard{role: role}}
	x.request.limit = 8<<20 + 5
	var want []byte
	var first []*byte
	for n := 1; int64(len(want)) < x.request.limit; n = n*7%65521 + 1 {
		data := bytes.Repeat([]byte{byte(n)}, min(n, int(x.request.limit)-len(want)))
		want = append(want, data...)
		x.gather(data)
		q := &x.request
		for i, piece := range q.body {
			if i == len(first) {
				first = append(first, &piece[0])
			}
			if first[i] != &piece[0] {
				t.Fatalf("piece %d was moved at %d bytes", i, len(want))
			}
		}
		if q.gathered != int64(len(want)) || q.reserved > q.gathered+gatherPiece+4<<10 || q.reserved != role.buffered.Load() {
			t.Fatalf("%d bytes: %d gathered, %d reserved of %d", len(want), q.gathered, q.reserved, role.buffered.Load())
		}
	}
	if len(first) > 30 || !bytes.Equal(bytes.Join(x.request.body, nil), want) {
		t.Errorf("%d pieces, or not what was gathered", len(first))
	}
	x.request.free(x.s)
	if n := role.buffered.Load(); n != 0 {
		t.Errorf("%d bytes are kept", n)
	}
}
