package ledger

import "testing"

func TestWatermark(t *testing.T) {
	const second = int64(1e9)
	w := Watermark{Mark: 1000}
	f := func(sentence string, at int64, rss int64, stop bool, shed int64) {
		t.Helper()
		if p := w.Sample(rss, at); p != (Pressure{stop, shed}) {
			t.Errorf("%s: %+v, want %+v", sentence, p, Pressure{stop, shed})
		}
	}
	at := int64(0)
	f("far below nothing happens", at, 10, false, 0)
	f("at the mark nothing happens", at, 1000, false, 0)
	f("above it admission stops and what lies above 90 % goes", at, 1001, true, 101)
	at += second / 4
	f("still above, but within the rest nothing is shed", at, 1500, true, 0)
	f("down at the mark admission stays stopped", at, 1000, true, 0)
	f("and at 90 %", at, 900, true, 0)
	at = 2*second - 1
	f("the rest lasts two seconds to the end", at, 1200, true, 0)
	at++
	f("then the next round sheds", at, 1200, true, 300)
	at += 2 * second
	f("between 90 % and the mark nobody is shed, though the rest is over", at, 950, true, 0)
	f("below 90 % admission resumes", at, 899, false, 0)
	f("and stays so up to the mark", at, 1000, false, 0)
	f("above it all begins again, with the rest long over", at, 1100, true, 200)
	at += second
	f("a dip below 90 % does not end the rest", at, 100, false, 0)
	f("as a new peak within it shows", at, 2000, true, 0)
	at += second
	f("and its end", at, 2000, true, 1100)
}

func TestWatermarkOff(t *testing.T) {
	var w Watermark
	want(t, "without a mark no size is too large", w.Sample(1<<62, 0) == Pressure{})
	want(t, "nor is none", w.Sample(0, 1) == Pressure{})
}
