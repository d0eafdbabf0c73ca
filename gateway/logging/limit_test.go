package logging

import (
	"bytes"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

type reason uint8

const (
	slow reason = iota
	rude
	reasons
)

func (r reason) String() string { return [...]string{"slow", "rude"}[r] }

// Each step is one line wanted of slow, at a time in milliseconds; what came out is compared.
func TestLimiter(t *testing.T) {
	var b bytes.Buffer
	l := NewLimiter(New(&b, "info", "text"), reasons)
	ms := func(n int64) int64 { return n * int64(time.Millisecond) }
	line := func(r reason, at int64) bool {
		log := l.Line(r, ms(at))
		if log != nil {
			log.Warn("event", "reason", r.String())
		}
		return log != nil
	}
	want := func(what string, lines ...string) {
		t.Helper()
		got := regexp.MustCompile(`time=\S+ `).ReplaceAllString(b.String(), "")
		if strings.TrimSpace(got) != strings.Join(lines, "\n") {
			t.Errorf("%s: %q, want %q", what, got, lines)
		}
		b.Reset()
	}
	event := "level=WARN msg=event reason=slow"

	for i := range int64(10) {
		line(slow, i*50)
	}
	want("ten at once", event, event, event, event, event, event, event, event, event, event)
	for i := range int64(7) {
		if line(slow, 500+i) {
			t.Error("an eleventh line in one second")
		}
	}
	want("nothing more in this second")
	l.Flush(ms(999))
	want("not even their count")
	line(rude, 600)
	want("another reason has its own ten", "level=WARN msg=event reason=rude")
	line(slow, 1000)
	want("the next line tells them", "level=WARN msg=event left_out=7 reason=slow")
	// The ten lines were 50 ms apart, so is the room that comes free.
	if line(slow, 1049) || !line(slow, 1050) || line(slow, 1051) {
		t.Error("the second does not slide")
	}
	b.Reset()
	l.Flush(ms(1100))
	want("a count of its own uses a line", `level=WARN msg="lines left out" reason=slow left_out=1`)
	l.Flush(ms(9000))
	want("nothing is told twice")
	for range 15 {
		line(slow, 9000)
	}
	b.Reset()
	l.Flush(math.MaxInt64)
	want("at the end the rest is told", `level=WARN msg="lines left out" reason=slow left_out=5`)
	// A caller whose clock is a little behind does no harm.
	if line(slow, 8990) {
		t.Error("a line too many for the past")
	}
}

// In no second of a long random flood are there more than ten lines, and none is forgotten.
func TestLimiterAnySecond(t *testing.T) {
	var b bytes.Buffer
	l := NewLimiter(New(&b, "info", "text"), reasons)
	var written []int64
	asked, x, now := 0, uint32(1), int64(0)
	for range 20000 {
		x = x*1664525 + 1013904223
		now += int64(x>>24) * int64(time.Millisecond) / 8
		asked++
		if log := l.Line(rude, now); log != nil {
			log.Info("x")
			written = append(written, now)
		}
	}
	for i := linesPerSecond; i < len(written); i++ {
		if written[i]-written[i-linesPerSecond] < int64(time.Second) {
			t.Fatalf("eleven lines in the second from %d", written[i-linesPerSecond])
		}
	}
	l.Flush(math.MaxInt64)
	told := len(written)
	for _, m := range regexp.MustCompile(`left_out=(\d+)`).FindAllStringSubmatch(b.String(), -1) {
		n, _ := strconv.Atoi(m[1])
		told += n
	}
	if told != asked {
		t.Errorf("%d lines accounted for, %d asked", told, asked)
	}
}

func TestLimiterConcurrent(t *testing.T) {
	var b bytes.Buffer
	l := NewLimiter(New(&b, "info", "text"), reasons)
	var wg sync.WaitGroup
	var lines atomic.Int64
	for range 4 {
		wg.Go(func() {
			for range 1000 {
				if log := l.Line(slow, 5); log != nil {
					log.Info("x")
					lines.Add(1)
				}
				l.Flush(5)
			}
		})
	}
	wg.Wait()
	l.Flush(math.MaxInt64)
	if n := lines.Load(); n != linesPerSecond || !strings.Contains(b.String(), fmt.Sprint("left_out=", 4000-n)) {
		t.Errorf("%d lines of 4000:\n%s", n, b.String())
	}
}

func TestLimiterAllocates(t *testing.T) {
	l := NewLimiter(New(&bytes.Buffer{}, "info", "text"), reasons)
	if n := testing.AllocsPerRun(100, func() { l.Line(slow, 5) }); n != 0 {
		t.Errorf("%v allocations for a line left out", n)
	}
}
