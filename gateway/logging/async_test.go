package logging

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A writer that is stuck must not stop who logs: Write returns, lines beyond
// the bound are left out, and afterwards their number is told.
func TestAsyncStuck(t *testing.T) {
	r, w := io.Pipe()
	a := NewAsync(w, "json")
	line := []byte(strings.Repeat("x", 1023) + "\n")
	const lines = 4 * asyncBytes / 1024
	for range lines {
		if n, err := a.Write(line); n != len(line) || err != nil {
			t.Fatalf("Write = %d, %v", n, err)
		}
	}
	got := make(chan []byte)
	go func() {
		b, _ := io.ReadAll(r)
		got <- b
	}()
	a.Close()
	w.Close()
	b := <-got
	if n := bytes.Count(b, line); n == 0 || n >= lines {
		t.Errorf("%d of %d lines written, want some and not all", n, lines)
	}
	if !bytes.Contains(b, []byte(`"left_out":`)) {
		t.Error("nothing tells of the lines left out")
	}
}

// A writer that is stuck for ever must not keep the process from its end: Close
// returns, and so does who logs afterwards.
func TestAsyncStuckAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w := io.Pipe()
		a := NewAsync(w, "json")
		a.Write([]byte("taken by nobody\n"))
		began := time.Now()
		a.Close()
		if took := time.Since(began); took != closeTime {
			t.Errorf("closed after %v", took)
		}
		a.Write([]byte("late\n"))
		r.Close()
	})
}

// Lines come out whole and in order, and all of them by the end of Close.
func TestAsyncOrder(t *testing.T) {
	var out bytes.Buffer
	a := NewAsync(&out, "text")
	var want bytes.Buffer
	for i := range 1000 {
		line := []byte(strings.Repeat("y", i%50) + "\n")
		want.Write(line)
		a.Write(line)
	}
	a.Close()
	if !bytes.Equal(out.Bytes(), want.Bytes()) {
		t.Error("lines are missing or out of order")
	}
	a.Write([]byte("late\n"))
	if !bytes.HasSuffix(out.Bytes(), []byte("late\n")) {
		t.Error("a line after Close is lost")
	}
}
