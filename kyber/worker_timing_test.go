package kyber

import (
	"syscall"
	"testing"
	"time"

	"github.com/cloudflare/circl/kem/mlkem/mlkem1024"
)

func BenchmarkEncapsulate(b *testing.B) {
	var e Engine
	s := Strength1024
	ek, c, key := make([]byte, s.EncapsulationKeyBytes()), make([]byte, s.CiphertextBytes()), make([]byte, SharedKeyBytes)
	e.GenerateKey(s, ek)
	// Rejection sampling branches on the key: with one key the processor learns them all and the
	// figure is a third too good. So many keys, as in pairing.
	const keys = 200
	eks := make([]byte, keys*len(ek))
	for i := range keys {
		e.GenerateKey(s, at(eks, i, len(ek)))
	}
	b.Run("bare circl", func(b *testing.B) {
		b.ReportAllocs()
		seed := make([]byte, messageBytes)
		var pk mlkem1024.PublicKey
		used := cpuTime()
		for i := 0; b.Loop(); i++ {
			if err := pk.Unpack(at(eks, i%keys, len(ek))); err != nil {
				b.Fatal(err)
			}
			pk.EncapsulateTo(c, key, seed)
		}
		b.ReportMetric(float64(cpuTime()-used)/float64(b.N), "cpu-ns/encapsulation")
	})
	b.Run("engine", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			e.Encapsulate(s, c, key, at(eks, i%keys, len(ek)))
		}
	})
	b.Run("check", func(b *testing.B) {
		for b.Loop() {
			CheckKey(s, ek)
		}
	})
	b.Run("generate", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			e.GenerateKey(s, ek)
		}
	})
}

// cpuTime is what the process has used. On a machine with other work the wall clock says little.
func cpuTime() time.Duration {
	var u syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// A pairing batch of 100 pairs on every core, and on one.
func BenchmarkBatch100(b *testing.B) {
	f := func(name string, workers int) {
		b.Run(name, func(b *testing.B) {
			p := NewPool(workers, 1<<20)
			defer p.Stop()
			var e Engine
			done := make(chan struct{})
			batch := &Batch{OnDone: func(*Batch) { done <- struct{}{} }}
			batch.Reset(Strength1024, 200)
			for i := range batch.Len() {
				e.GenerateKey(Strength1024, batch.Key(i))
			}
			start, used := time.Now(), cpuTime()
			for b.Loop() {
				p.Submit(batch, batch.Len())
				<-done
			}
			count := float64(b.N * batch.Len())
			b.ReportMetric(count/time.Since(start).Seconds(), "encapsulations/s")
			b.ReportMetric(float64(cpuTime()-used)/count, "cpu-ns/encapsulation")
		})
	}
	f("one worker", 1)
	f("all cores", 0)
}
