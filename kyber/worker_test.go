package kyber

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
)

// stepJob records what a pool did with it.
type stepJob struct {
	step func(i int)
	runs []atomic.Int32
	done chan struct{}
}

func newStepJob(steps int, step func(i int)) *stepJob {
	return &stepJob{step: step, runs: make([]atomic.Int32, steps), done: make(chan struct{})}
}

func (j *stepJob) Step(_ *Engine, i int) {
	if j.step != nil {
		j.step(i)
	}
	j.runs[i].Add(1)
}

func (j *stepJob) Done() { close(j.done) } // a second call panics

func (j *stepJob) check(t *testing.T) {
	t.Helper()
	<-j.done
	for i := range j.runs {
		if got := j.runs[i].Load(); got != 1 {
			t.Errorf("step %d ran %d times", i, got)
		}
	}
}

func TestPoolRunsEveryStepOnce(t *testing.T) {
	for _, workers := range []int{1, 2, 7} {
		p := NewPool(workers, 1<<20)
		var jobs []*stepJob
		var mu sync.Mutex
		var submitters sync.WaitGroup
		for range 4 {
			submitters.Go(func() {
				for i := range 50 {
					j := newStepJob(1+i%9, nil)
					if !p.Submit(j, len(j.runs)) {
						t.Error("refused with room in the queue")
						return
					}
					mu.Lock()
					jobs = append(jobs, j)
					mu.Unlock()
				}
			})
		}
		submitters.Wait()
		for _, j := range jobs {
			j.check(t)
		}
		p.Stop()
		if p.Waiting() != 0 {
			t.Errorf("%d steps wait in an idle pool", p.Waiting())
		}
	}
}

func TestPoolRefusesWhenFull(t *testing.T) {
	p := NewPool(1, 3)
	defer p.Stop()
	hold, held := make(chan struct{}), make(chan struct{})
	first := newStepJob(1, func(int) { close(held); <-hold })
	if !p.Submit(first, 1) {
		t.Fatal("refused by an idle pool")
	}
	<-held // the only worker is busy, nothing waits
	a, b := newStepJob(2, nil), newStepJob(50, nil)
	if !p.Submit(a, 2) {
		t.Fatal("refused with room for two steps")
	}
	if !p.Submit(b, 50) {
		t.Fatal("a job larger than the queue was refused with room in it")
	}
	if p.Waiting() != 52 {
		t.Errorf("%d steps wait, want 52", p.Waiting())
	}
	if p.Submit(newStepJob(1, nil), 1) {
		t.Fatal("taken by a full queue")
	}
	close(hold)
	first.check(t)
	a.check(t)
	b.check(t)
	c := newStepJob(1, nil)
	if !p.Submit(c, 1) {
		t.Fatal("refused after the queue ran empty")
	}
	c.check(t)
}

func TestPoolStopDrains(t *testing.T) {
	p := NewPool(2, 1000)
	hold := make(chan struct{})
	var jobs []*stepJob
	for range 20 {
		j := newStepJob(5, func(int) { <-hold })
		if !p.Submit(j, 5) {
			t.Fatal("refused with room in the queue")
		}
		jobs = append(jobs, j)
	}
	stopped := make(chan struct{})
	go func() { p.Stop(); close(stopped) }()
	for p.Submit(newStepJob(1, nil), 1) { // until Stop has said so
		runtime.Gosched()
	}
	select {
	case <-stopped:
		t.Fatal("stopped with work left")
	default:
	}
	close(hold)
	<-stopped
	for _, j := range jobs {
		j.check(t)
	}
	p.Stop()
}

// Submitting, claiming and finishing allocate nothing once the pool has been in use.
func TestPoolAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	p := NewPool(1, 1000)
	defer p.Stop()
	j := &countJob{done: make(chan struct{}, 1)}
	if got := testing.AllocsPerRun(200, func() {
		if !p.Submit(j, 4) {
			t.Fatal("refused by an idle pool")
		}
		<-j.done
	}); got != 0 {
		t.Errorf("%v allocations for a job", got)
	}
}

type countJob struct{ done chan struct{} }

func (j *countJob) Step(*Engine, int) {}
func (j *countJob) Done()             { j.done <- struct{}{} }

func TestEngineAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	var e Engine
	s := Strength1024
	work := newWork(&e, s, 5)
	dk := e.GenerateKey(s, work[0].EK)
	if got := testing.AllocsPerRun(50, func() { e.Encapsulate(s, work...) }); got != 0 {
		t.Errorf("%v allocations for encapsulations", got)
	}
	if got := testing.AllocsPerRun(50, func() { dk.Decapsulate(work[0].Key, work[0].C) }); got != 0 {
		t.Errorf("%v allocations for a decapsulation", got)
	}
	if got := testing.AllocsPerRun(50, func() { CheckKey(s, work[0].EK) }); got != 0 {
		t.Errorf("%v allocations for a check", got)
	}
}
