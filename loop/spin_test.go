package loop

import (
	"testing"
	"time"
)

func TestSpinner(t *testing.T) {
	s := spinner{limit: int64(20 * time.Microsecond)}
	short, long := s.limit, s.limit+1
	f := func(sentence string, wait int64, times int, worth bool) {
		t.Helper()
		for range times {
			s.waited(wait)
		}
		if s.worth() != worth {
			t.Errorf("%s: worth a spin %v, want %v", sentence, s.worth(), worth)
		}
	}
	f("a new loop blocks", 0, 0, false)
	f("after one short wait it spins", short, 1, true)
	f("after a long one it does not", long, 1, false)
	f("a busy loop spins", short, 100, true)
	f("some long waits do not stop it", long, 3, true)
	f("as many as it remembers do", long, 1, false)
	f("a loop that was idle for long needs some short waits", long, 100, false)
	f("before it spins", short, spinScore, false)
	f("again", short, 1, true)

	s = spinner{limit: -1}
	f("with spinning off no wait turns it on", -5, 100, false)
	s = spinner{}
	f("nor with a limit of nothing", 0, 100, false)
}
