package mte

import (
	"time"

	"sluice/kyber"
	"sluice/loop"
)

// parseHere is up to how many bytes a control body is parsed on the loop, in a few
// tens of microseconds. A larger one is a worker's, where it holds up nobody.
const parseHere = 16 << 10

// offloadRetry is how soon work is offered again that no worker had room for, when
// none of the same loop, whose end would tell, is with them.
const offloadRetry = 5 * time.Millisecond

// A task is work of a control call that is not for the loop.
type task struct {
	call  *controlCall
	job   kyber.Job
	steps int
}

// offload hands work to the workers as far as they take it: their queue is bounded,
// and the rest waits here, in order, where each call holds a connection. What was
// handed over ends with a call of landed.
func (s *shard) offload(t task) {
	s.waiting = append(s.waiting, t)
	s.submit()
}

func (s *shard) submit() {
	for len(s.waiting) > 0 {
		t := s.waiting[0]
		switch {
		case t.call.stage == callLeft:
			t.call.done()
		case s.role.kem.Submit(t.job, t.steps):
			s.l.Lend(1)
		default:
			if !s.retry.Active() {
				s.l.StartTimer(&s.retry, s.l.Now()+int64(offloadRetry), (*retryTimer)(s))
			}
			return
		}
		s.waiting[0] = task{}
		s.waiting = s.waiting[1:]
	}
	s.waiting = nil
}

type retryTimer shard

func (t *retryTimer) OnTimer(int64) { (*shard)(t).submit() }

// landed is called when a job came back, and reports whether its call is still
// wanted; if not, the call is done.
func (s *shard) landed(call *controlCall) bool {
	s.l.Lend(-1)
	left := call.stage == callLeft
	if left {
		call.done()
	}
	s.submit()
	return !left
}

// parsing is the job of reading a call's body.
type parsing controlCall

// Step implements kyber.Job. It runs on a worker.
func (j *parsing) Step(*kyber.Engine, int) { j.end.parse() }

// Done implements kyber.Job.
func (j *parsing) Done() { j.s.l.Post((*parsed)(j)) }

type parsed controlCall

// Deliver goes on with a call whose body was read.
func (m *parsed) Deliver(*loop.Loop) {
	if x := (*controlCall)(m); x.s.landed(x) {
		x.end.serve()
	}
}
