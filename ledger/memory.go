package ledger

import "time"

// shedPause is how long nothing is shed after a round: freed memory takes time
// to show.
const shedPause = 2 * time.Second

// A Watermark decides about resident memory. It belongs to the goroutine that
// samples; Mark 0 turns it off. Contract, relay §5, memory watermark.
type Watermark struct {
	Mark int64 // bytes

	pressed bool
	resting int64 // nothing is shed before this time
}

// Pressure is the decision about one sample.
type Pressure struct {
	Stop bool  // admission is stopped
	Shed int64 // bytes to bring free by closing sockets; 0 sheds nobody
}

// Sample judges resident memory of rss bytes at the time now. Above the mark
// admission stops and sockets are to be shed for what lies above 90 % of it;
// below 90 % admission resumes.
func (w *Watermark) Sample(rss, now int64) Pressure {
	if w.Mark == 0 {
		return Pressure{}
	}
	low := w.Mark / 10 * 9
	switch {
	case rss > w.Mark:
		w.pressed = true
	case rss < low:
		w.pressed = false
	}
	p := Pressure{Stop: w.pressed}
	if rss > w.Mark && now >= w.resting {
		p.Shed = rss - low
		w.resting = now + int64(shedPause)
	}
	return p
}
