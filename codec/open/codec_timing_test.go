package open

import (
	"crypto/aes"
	"crypto/cipher"
	"testing"
	"time"
)

const bulk = 64 << 10

// Bulk encoding and decoding cost at most 15 % more than bare AES-256-GCM. The rounds of the three
// alternate and the best of each counts, so that a busy machine disturbs them alike.
func TestBulkSpeed(t *testing.T) {
	if raceEnabled || testing.Short() {
		t.Skip("timing")
	}
	s := newEnds(t, MinWindow)
	e, d := encoderOf(t, s.p, MKE, s.enc), decoderOf(t, s.p, MKE, s.dec)
	block, _ := aes.NewCipher(make([]byte, 32))
	gcm, _ := cipher.NewGCM(block)
	nonce := make([]byte, gcm.NonceSize())
	buf := make([]byte, HeadBytes+bulk, s.p.EncodedBytes(MKE, bulk))
	sealed := make([]byte, bulk, bulk+gcm.Overhead())

	const rounds, each = 60, 20
	best := [4]time.Duration{1 << 62, 1 << 62, 1 << 62, 1 << 62}
	for range rounds {
		var bareSeal, bareOpen, encode, decode time.Duration
		for range each {
			start := time.Now()
			out := gcm.Seal(sealed[:0], nonce, sealed, nil)
			bareSeal += time.Since(start)
			start = time.Now()
			if _, err := gcm.Open(out[:0], nonce, out, nil); err != nil {
				t.Fatal(err)
			}
			bareOpen += time.Since(start)
			start = time.Now()
			encoded, err := e.AppendEncode(buf[:0], buf[HeadBytes:])
			encode += time.Since(start)
			if err != nil {
				t.Fatal(err)
			}
			start = time.Now()
			if _, err = d.Decode(encoded); err != nil {
				t.Fatal(err)
			}
			decode += time.Since(start)
		}
		for i, took := range []time.Duration{bareSeal, encode, bareOpen, decode} {
			best[i] = min(best[i], took)
		}
	}
	f := func(name string, bare, ours time.Duration) {
		t.Helper()
		ratio := float64(bare) / float64(ours)
		t.Logf("%s: %.2f GB/s, %.0f %% of bare AES-256-GCM", name, bulk*each/ours.Seconds()/1e9, 100*ratio)
		if ratio < 0.85 {
			t.Errorf("%s at %.0f %% of bare AES-256-GCM, want 85", name, 100*ratio)
		}
	}
	f("encode", best[0], best[1])
	f("decode", best[2], best[3])
}

func BenchmarkCodec(b *testing.B) {
	sizes := []struct {
		name string
		n    int
	}{{"key stroke", 16}, {"metadata", 500}, {"screen", 4096}, {"frame", 65000}}
	for x := range Type(types) {
		for _, size := range sizes {
			if x == MTE && size.n > 8191 {
				size.n = 8191
			}
			s := newEnds(b, MinWindow)
			e, d := encoderOf(b, s.p, x, s.enc), decoderOf(b, s.p, x, s.dec)
			plaintext := make([]byte, size.n)
			buf := make([]byte, 0, s.p.EncodedBytes(x, size.n))
			b.Run(x.String()+"/"+size.name, func(b *testing.B) {
				b.SetBytes(int64(size.n))
				b.ReportAllocs()
				for b.Loop() {
					out, err := e.AppendEncode(buf, plaintext)
					if err != nil {
						b.Fatal(err)
					}
					if _, err := d.Decode(out); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
	b.Run("restore", func(b *testing.B) {
		s := newEnds(b, MinWindow)
		b.ReportAllocs()
		e := s.p.NewEncoder(MKE)
		for b.Loop() {
			e.Restore(s.enc)
		}
	})
}
