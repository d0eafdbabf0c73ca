package loop

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

const tick = int64(1) << tickShift

// A clocked timer knows what the model says about it.
type clocked struct {
	Timer
	m     *wheelModel
	id    int
	set   bool  // runs, says the model
	due   int64 // the tick from which on it must have fired
	fired int
	then  func(now int64) // in its handler, once
}

func (c *clocked) OnTimer(now int64) {
	if !c.set {
		c.m.t.Errorf("timer %d fired though it does not run", c.id)
	}
	if c.Active() {
		c.m.t.Errorf("timer %d still runs while it fires", c.id)
	}
	if now < c.when {
		c.m.t.Errorf("timer %d, due at %d, fired early at %d", c.id, c.when, now)
	}
	c.set = false
	c.fired++
	if then := c.then; then != nil {
		c.then = nil
		then(now)
	}
}

// wheelModel runs a wheel as a loop does, beside the plainest of all models: a
// list of timers that is looked through.
type wheelModel struct {
	t      testing.TB
	l      *Loop
	timers []*clocked
}

func newWheelModel(t testing.TB, now int64, timers int) *wheelModel {
	m := &wheelModel{t: t, l: &Loop{now: now}}
	m.l.wheel.init(now)
	for i := range timers {
		m.timers = append(m.timers, &clocked{m: m, id: i})
	}
	return m
}

func ceilTick(ns int64) int64 {
	if ns%tick > 0 {
		return ns/tick + 1
	}
	return ns / tick
}

func (m *wheelModel) start(c *clocked, when int64) {
	m.l.StartTimer(&c.Timer, when, c)
	c.set = true
	// Never early, a tick late at the most; what is due already waits for the
	// next tick.
	c.due = max(ceilTick(when), m.l.now/tick+1)
}

func (m *wheelModel) stop(c *clocked) {
	c.Stop()
	c.set = false
}

// pass lets time pass until now, with a turn wherever the wheel asks for one.
func (m *wheelModel) pass(now int64) {
	for m.l.now < now {
		m.l.now = min(now, max(m.l.wheel.next(), m.l.now+1))
		m.turn()
	}
}

// jump lets the loop be busy until now, or not be woken, and then turn.
func (m *wheelModel) jump(now int64) {
	m.l.now = now
	m.turn()
}

// turn is what Loop.turn does about timers, and the comparison with the model.
func (m *wheelModel) turn() {
	now := m.l.now
	if now >= m.l.wheel.next() {
		m.l.wheel.advance(now)
	}
	next := int64(never)
	for _, c := range m.timers {
		switch {
		case c.set != c.Active():
			m.t.Fatalf("at %d timer %d runs: %v, want %v", now, c.id, c.Active(), c.set)
		case !c.set:
		case c.due <= now/tick:
			m.t.Fatalf("at %d (tick %d) timer %d has not fired, set for %d, due in tick %d", now, now/tick, c.id, c.when, c.due)
		default:
			next = min(next, c.due)
		}
	}
	if m.l.wheel.next()/tick > next {
		m.t.Fatalf("at %d the wheel sleeps until tick %d, but a timer is due in tick %d", now, m.l.wheel.next()/tick, next)
	}
	if m.l.wheel.next() <= now {
		m.t.Fatalf("at %d the wheel asks for a turn at %d, again", now, m.l.wheel.next())
	}
}

// play takes steps from bytes: which timer, what to do with it, how far away.
func (m *wheelModel) play(script []byte) {
	// distance makes a byte and a half of a duration: all scales from a
	// nanosecond to years alike.
	distance := func(a, b byte) int64 {
		return int64(a&0xf|1) << (b % 56)
	}
	// The clock counts nanoseconds since the process started: it ends in 292
	// years, and so do the scripts, well before it would run over.
	const end = 1 << 61
	for ; len(script) >= 4 && m.l.now < end; script = script[4:] {
		op, i, a, b := script[0], script[1], script[2], script[3]
		c := m.timers[int(i)%len(m.timers)]
		d := distance(a, b)
		switch op % 8 {
		case 0, 1, 2:
			m.start(c, m.l.now+d)
		case 3:
			m.stop(c)
		case 4: // sets itself again
			m.start(c, m.l.now+d)
			c.then = func(now int64) { m.start(c, now+d/2) }
		case 5: // its handler stops another and sets a third
			other, third := m.timers[int(a)%len(m.timers)], m.timers[int(b)%len(m.timers)]
			m.start(c, m.l.now+d)
			c.then = func(now int64) {
				m.stop(other)
				m.start(third, now-d)
			}
		case 6:
			m.pass(m.l.now + d)
		case 7:
			m.jump(m.l.now + d)
		}
	}
}

// TestWheelModel plays thousands of random steps.
func TestWheelModel(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 5))
		script := make([]byte, 4*400)
		for i := range script {
			script[i] = byte(r.Uint32())
		}
		newWheelModel(t, r.Int64N(1<<50), 1+r.IntN(40)).play(script)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func FuzzWheel(f *testing.F) {
	f.Add([]byte{0, 0, 1, 30, 6, 0, 1, 40})
	f.Add([]byte{4, 1, 9, 22, 5, 2, 3, 25, 7, 0, 15, 50, 3, 1, 0, 0, 6, 0, 1, 33})
	f.Fuzz(func(t *testing.T, script []byte) {
		if len(script) > 4*500 {
			return
		}
		newWheelModel(t, 12345678901, 9).play(script)
	})
}

// TestWheelLevels sets one timer around each end of each level, from ticks with
// every alignment, and waits for it in as few turns as there are levels.
func TestWheelLevels(t *testing.T) {
	for _, begin := range []int64{0, 1, 63, 64, 65, 4095, 4096, 1<<18 - 1, 1<<30 - 1, 1 << 30, 1<<30 + 12345} {
		for level := 0; level <= wheelLevels; level++ {
			for d := int64(-2); d <= 2; d++ {
				for _, fraction := range []int64{0, 1, tick / 2, tick - 1} {
					ticks := int64(1)<<(level*wheelBits) + d
					m := newWheelModel(t, begin*tick+fraction, 1)
					c := m.timers[0]
					m.start(c, m.l.now+ticks*tick)
					turns := 0
					for c.set && turns < 100 {
						m.jump(max(m.l.wheel.next(), m.l.now+1))
						turns++
					}
					// The furthest may be looked at once a round.
					if c.fired != 1 || turns > wheelLevels+3 {
						t.Fatalf("from tick %d over %d ticks: fired %d times after %d turns", begin, ticks, c.fired, turns)
					}
					if m.l.wheel.next() != never {
						t.Fatalf("from tick %d over %d ticks: an empty wheel asks for a turn at %d", begin, ticks, m.l.wheel.next())
					}
				}
			}
		}
	}
}

// TestWheelFar: a deadline beyond the wheel comes in its time, and never does
// not come, nor does a clock that stood for years hold up the loop.
func TestWheelFar(t *testing.T) {
	year := int64(365 * 24 * time.Hour)
	m := newWheelModel(t, 1e9, 3)
	m.start(m.timers[0], 10*year)
	m.start(m.timers[1], never)
	m.pass(10*year - 1)
	want(t, "it does not come early", m.timers[0].fired == 0)
	m.pass(10*year + tick)
	want(t, "it comes in its time", m.timers[0].fired == 1)
	m.jump(100 * year)
	want(t, "never does not come", m.timers[1].fired == 0 && m.timers[1].Active())

	m.stop(m.timers[1])
	m.jump(200 * year)
	m.start(m.timers[2], 200*year+5)
	m.pass(200*year + 2*tick)
	want(t, "a wheel that was empty for a century works", m.timers[2].fired == 1)
}

// TestTimerHandlers: what a handler may do to its own timer and to others.
func TestTimerHandlers(t *testing.T) {
	m := newWheelModel(t, 0, 4)
	a, b, c, d := m.timers[0], m.timers[1], m.timers[2], m.timers[3]

	// a fires first and stops b, which is due in the same tick
	m.start(a, tick)
	m.start(b, tick)
	a.then = func(int64) { m.stop(b) }
	// c sets itself again for a time that has passed: not in the same pass
	m.start(c, tick)
	c.then = func(now int64) {
		m.start(c, now-5)
		c.then = func(now int64) { m.start(c, now+100*tick) }
	}
	m.jump(tick)
	want(t, "a timer stopped in another's handler does not fire", a.fired == 1 && b.fired == 0)
	want(t, "one that sets itself again fires once a pass", c.fired == 1)
	m.jump(2 * tick)
	want(t, "the second time a tick later", c.fired == 2 && c.Active())

	// d is moved while it waits in the slot that is being emptied
	m.start(a, 10*tick)
	m.start(d, 10*tick)
	a.then = func(now int64) { m.start(d, now+tick) }
	m.jump(10 * tick)
	want(t, "a moved timer does not fire in the old place", d.fired == 0)
	m.jump(11 * tick)
	want(t, "but in the new one", d.fired == 1)

	c.Stop()
	c.Stop()
	want(t, "a stopped timer may be stopped again", !c.Active())
	c.set = false
	m.jump(1000 * tick)
	want(t, "it does not fire", c.fired == 2)
}

// TestTimerAllocs: setting, moving, stopping and firing need no memory.
func TestTimerAllocs(t *testing.T) {
	if raceEnabled {
		t.Skip("under the race detector everything allocates")
	}
	m := newWheelModel(t, 0, 3)
	a, b, c := m.timers[0], m.timers[1], m.timers[2]
	n := testing.AllocsPerRun(1000, func() {
		m.start(a, m.l.now+3*tick)
		m.start(b, m.l.now+90*tick)
		m.start(c, m.l.now+5*tick)
		m.stop(c)
		m.pass(m.l.now + 100*tick)
	})
	if n != 0 {
		t.Errorf("%v allocations a round, want none", n)
	}
	want(t, "they fired", a.fired > 1000 && b.fired > 1000)
}

// TestDeadline: a connection's own timer on a live loop.
func TestDeadline(t *testing.T) {
	l := start(t, 1, Config{})[0]
	type firing struct{ when, now int64 }
	fired := make(chan firing, 8)
	var when int64
	h := &script{t: t}
	h.timer = func(c *Conn) {
		want(t, "while it fires no deadline is set", c.Deadline() == 0)
		fired <- firing{when, l.Now()}
	}
	c, _ := pair(t, l, h, nil)
	on(t, l, func() {
		want(t, "none is set at first", c.Deadline() == 0)
		when = l.Now() + int64(20*time.Millisecond)
		c.SetDeadline(l.Now() + int64(time.Hour))
		c.SetDeadline(when)
		c.SetDeadline(when)
		want(t, "the last one counts", c.Deadline() == when)
	})
	f := await(t, "the deadline", fired)
	want(t, "it does not come early", f.now >= f.when)
	on(t, l, func() {
		c.SetDeadline(l.Now() + int64(8*time.Millisecond))
		c.SetDeadline(0)
		want(t, "0 takes it away", c.Deadline() == 0)
		c.SetDeadline(l.Now() - int64(time.Hour))
	})
	await(t, "one in the past comes too", fired)

	// A closed connection's deadline does not come.
	var other Timer
	later := make(chan struct{})
	on(t, l, func() {
		c.SetDeadline(l.Now() + int64(time.Millisecond))
		c.Close()
		c.SetDeadline(l.Now() + int64(time.Millisecond))
		want(t, "a closed connection takes none", c.Deadline() == 0)
		l.StartTimer(&other, l.Now()+int64(20*time.Millisecond), timerFunc(func(int64) { close(later) }))
	})
	await(t, "a later timer", later)
	want(t, "nothing else came", len(fired) == 0)
}

type timerFunc func(now int64)

func (f timerFunc) OnTimer(now int64) { f(now) }

func BenchmarkTimer(b *testing.B) {
	for _, d := range []time.Duration{5 * time.Second, time.Minute} {
		b.Run(fmt.Sprint("move/", d), func(b *testing.B) {
			m := newWheelModel(b, 0, 1)
			h := timerFunc(func(int64) {})
			for i := range b.N {
				m.l.now = int64(i) * 100
				m.l.StartTimer(&m.timers[0].Timer, m.l.now+int64(d), h)
			}
		})
	}
}
