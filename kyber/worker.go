package kyber

import (
	"runtime"
	"sync"
)

// A Job is a number of independent steps of ML-KEM work, such as the encapsulations of one pairing
// batch.
type Job interface {
	// Step does step i with the worker's own engine. Steps run in any order, several at once, each
	// exactly once; two of them must not write to the same memory.
	Step(e *Engine, i int)
	// Done is called once, after the last step has returned and seeing all they wrote. It runs on a
	// worker and must not block: a caller that lives on an event loop posts to it from here.
	Done()
}

// A Pool runs jobs on its own goroutines, so that no event loop ever computes ML-KEM.
//
// Jobs start in the order they came; the steps of one are spread over all workers, which is what
// makes a single batch as fast as the machine allows. Every method may be called from anywhere.
type Pool struct {
	workers int
	limit   int // of waiting steps; a job is taken while fewer wait

	mu       sync.Mutex
	work     sync.Cond
	queue    []*task // those with steps nobody has claimed, oldest first
	free     []*task
	waiting  int // unclaimed steps in queue
	stopping bool

	exited sync.WaitGroup
}

// task is a job in work. Its fields are guarded by Pool.mu.
type task struct {
	job   Job
	steps int
	next  int // first step not claimed
	left  int // steps not finished
}

// NewPool starts a pool of that many workers (0: one for each core that Go may use). limit is the
// bound of its queue in steps: Submit refuses a job when so many are waiting before it. At the
// strongest setting a core does about 20,000 encapsulations a second (distinct keys; 34,000 with one
// key, whose rejection sampling the processor learns), so the limit also bounds the time a job waits.
func NewPool(workers, limit int) *Pool {
	if workers <= 0 {
		workers = runtime.GOMAXPROCS(0)
	}
	p := &Pool{workers: workers, limit: limit}
	p.work.L = &p.mu
	p.exited.Add(workers)
	for range workers {
		go p.run()
	}
	return p
}

// Submit queues a job of that many steps (at least 1). False means that the queue is full or the
// pool is stopping: the job was not taken and none of its methods will be called. A job may be
// larger than the queue's limit; it is taken when the queue has room at all, so that no legal batch
// is refused for ever.
func (p *Pool) Submit(job Job, steps int) bool {
	if steps < 1 {
		panic("BUG: an ML-KEM job without steps")
	}
	p.mu.Lock()
	if p.stopping || p.waiting >= p.limit {
		p.mu.Unlock()
		return false
	}
	t := p.newTask()
	t.job, t.steps, t.next, t.left = job, steps, 0, steps
	p.queue = append(p.queue, t)
	p.waiting += steps
	p.mu.Unlock()
	if steps == 1 {
		p.work.Signal()
	} else {
		p.work.Broadcast()
	}
	return true
}

// Waiting is the number of steps that no worker has taken yet, for a gauge.
func (p *Pool) Waiting() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.waiting
}

// Stop refuses new jobs, waits until all that were taken are done, and ends the workers. It must not
// be called from a job. A second call waits as well.
func (p *Pool) Stop() {
	p.mu.Lock()
	p.stopping = true
	p.mu.Unlock()
	p.work.Broadcast()
	p.exited.Wait()
}

func (p *Pool) run() {
	defer p.exited.Done()
	e := new(Engine)
	p.mu.Lock()
	for {
		for len(p.queue) == 0 {
			if p.stopping {
				p.mu.Unlock()
				return
			}
			p.work.Wait()
		}
		t := p.queue[0]
		i := p.claim(t)
		p.mu.Unlock()

		t.job.Step(e, i)
		// A step is some 50 µs of arithmetic. Without this line an event loop that wakes up while every
		// core computes would wait for the scheduler's preemption, 10 ms.
		runtime.Gosched()

		p.mu.Lock()
		t.left--
		if t.left == 0 {
			job := t.job
			t.job = nil
			p.free = append(p.free, t)
			p.mu.Unlock()
			job.Done()
			p.mu.Lock()
		}
	}
}

// claim takes the next step of the oldest task, under the lock. One at a time: the lock costs a
// thousandth of a step, and a batch of two still runs on two cores.
func (p *Pool) claim(t *task) int {
	i := t.next
	t.next++
	p.waiting--
	if t.next == t.steps {
		last := len(p.queue) - 1
		copy(p.queue, p.queue[1:])
		p.queue[last] = nil
		p.queue = p.queue[:last]
	}
	return i
}

func (p *Pool) newTask() *task {
	if last := len(p.free) - 1; last >= 0 {
		t := p.free[last]
		p.free = p.free[:last]
		return t
	}
	return new(task)
}
