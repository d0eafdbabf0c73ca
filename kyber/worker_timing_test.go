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
	// Rejection sampling branches on the key: with one key the processor learns them all and the
	// figure is a third too good. So many keys, as in pairing.
	const keys = 400
	work := newWork(&e, s, keys)
	b.Run("bare circl", func(b *testing.B) {
		b.ReportAllocs()
		seed := make([]byte, messageBytes)
		var pk mlkem1024.PublicKey
		used := cpuTime()
		for i := 0; b.Loop(); i++ {
			w := &work[i%keys]
			if err := pk.Unpack(w.EK); err != nil {
				b.Fatal(err)
			}
			pk.EncapsulateTo(w.C, w.Key, seed)
		}
		b.ReportMetric(float64(cpuTime()-used)/float64(b.N), "cpu-ns/encapsulation")
	})
	f := func(name string, group int) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			used := cpuTime()
			for i := 0; b.Loop(); i += group {
				e.Encapsulate(s, work[i%keys:][:group]...)
			}
			b.ReportMetric(float64(cpuTime()-used)/float64(group*b.N), "cpu-ns/encapsulation")
		})
	}
	f("engine, one by one", 1)
	f("engine, by fours", lanes)
	b.Run("check", func(b *testing.B) {
		for b.Loop() {
			CheckKey(s, work[0].EK)
		}
	})
	b.Run("generate", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			e.GenerateKey(s, work[0].EK)
		}
	})
}

// cpuTime is what the process has used. On a machine with other work the wall clock says little.
func cpuTime() time.Duration {
	var u syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// A batch is a job of encapsulations, four a step.
type batch struct {
	work []Encapsulation
	done chan struct{}
}

func (b *batch) Step(e *Engine, i int) { e.Encapsulate(Strength1024, b.work[lanes*i:][:lanes]...) }
func (b *batch) Done()                 { b.done <- struct{}{} }

// A pairing batch of 100 pairs on every core, and on one.
func BenchmarkBatch100(b *testing.B) {
	var e Engine
	job := &batch{newWork(&e, Strength1024, 200), make(chan struct{})}
	f := func(name string, workers int) {
		b.Run(name, func(b *testing.B) {
			p := NewPool(workers, 1<<20)
			defer p.Stop()
			start, used := time.Now(), cpuTime()
			for b.Loop() {
				p.Submit(job, len(job.work)/lanes)
				<-job.done
			}
			count := float64(b.N * len(job.work))
			b.ReportMetric(count/time.Since(start).Seconds(), "encapsulations/s")
			b.ReportMetric(float64(cpuTime()-used)/count, "cpu-ns/encapsulation")
		})
	}
	f("one worker", 1)
	f("all cores", 0)
}
