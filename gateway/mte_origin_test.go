package gateway_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// seeded is the stream of bytes that a seed determines: both ends can make it.
func seeded(seed uint64) *rand.ChaCha8 {
	var s [32]byte
	for i := range 8 {
		s[i] = byte(seed >> (8 * i))
	}
	return rand.NewChaCha8(s)
}

// sameStream compares n bytes of r, and that no more come, with a seed's.
func sameStream(r io.Reader, seed uint64, n int64) error {
	want, a, b := seeded(seed), make([]byte, 16<<10), make([]byte, 16<<10)
	var got int64
	for {
		k, err := r.Read(a)
		want.Read(b[:k])
		if !bytes.Equal(a[:k], b[:k]) {
			return fmt.Errorf("bytes differ between %d and %d of %d", got, got+int64(k), n)
		}
		got += int64(k)
		if err == io.EOF && got != n {
			return fmt.Errorf("%d bytes, expected %d", got, n)
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// A moodyOrigin does what the path asks: m/<mode>?seed=&up=&down=. What it gets
// must be the stream of the seed, what it answers is that of the seed plus one.
type moodyOrigin struct {
	t       testing.TB
	hanging atomic.Int64

	mu     sync.Mutex
	awaits map[uint64]chan struct{} // by seed
}

// expect returns a channel that is closed when the request of a seed has got as
// far as its mode goes: to the origin, or to where it hangs.
func (o *moodyOrigin) expect(seed uint64) <-chan struct{} {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.awaits == nil {
		o.awaits = map[uint64]chan struct{}{}
	}
	o.awaits[seed] = make(chan struct{})
	return o.awaits[seed]
}

func (o *moodyOrigin) reached(seed uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if c := o.awaits[seed]; c != nil {
		close(c)
		delete(o.awaits, seed)
	}
}

func (o *moodyOrigin) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	number := func(name string) int64 {
		n, err := strconv.ParseInt(r.URL.Query().Get(name), 10, 64)
		if err != nil {
			o.t.Errorf("the origin was asked for %q", r.RequestURI)
		}
		return n
	}
	seed, up, down := uint64(number("seed")), number("up"), number("down")
	mode := r.URL.Path[len("/m/"):]
	hangUp := func() {
		if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
			conn.Close()
		}
	}
	switch mode {
	case "early":
		w.Header().Set("Connection", "close")
		w.WriteHeader(http.StatusRequestEntityTooLarge)
		io.CopyN(w, seeded(seed+1), down)
		return
	case "refuse": // without having read
		hangUp()
		return
	case "echo":
		o.echo(w, r)
		return
	}
	if mode == "sink" {
		o.reached(seed)
	}
	if err := sameStream(r.Body, seed, up); err != nil {
		if r.Context().Err() == nil && !errors.Is(err, io.ErrUnexpectedEOF) {
			o.t.Errorf("the origin got another body (%s): %v", r.RequestURI, err)
		}
		panic(http.ErrAbortHandler) // it was cut, and told so
	}
	rng := rand.New(rand.NewPCG(seed, 0))
	switch mode {
	case "drop":
		hangUp()
		return
	case "hanghead":
		o.hang(r, seed)
		return
	case "cut":
		w.Header().Set("Content-Length", strconv.FormatInt(down+1, 10))
	case "sink":
		if rng.IntN(2) == 0 {
			w.Header().Set("Content-Length", strconv.FormatInt(down, 10))
		}
	}
	w.WriteHeader(http.StatusOK)
	answer := seeded(seed + 1)
	for left := down; left > 0; {
		n := min(left, 1+rng.Int64N(40000))
		io.CopyN(w, answer, n)
		left -= n
		if rng.IntN(3) == 0 || left == 0 {
			http.NewResponseController(w).Flush()
		}
	}
	switch mode {
	case "cut":
		http.NewResponseController(w).Flush()
		hangUp()
	case "hang":
		http.NewResponseController(w).Flush()
		o.hang(r, seed)
	}
}

// hang waits for the relay to cancel the request.
func (o *moodyOrigin) hang(r *http.Request, seed uint64) {
	o.hanging.Add(1)
	o.reached(seed)
	defer o.hanging.Add(-1)
	select {
	case <-r.Context().Done():
	case <-time.After(patience):
		o.t.Errorf("the client has left, and the origin's request is not cancelled: %s", r.RequestURI)
	}
	panic(http.ErrAbortHandler)
}

func (o *moodyOrigin) echo(w http.ResponseWriter, r *http.Request) {
	rc := http.NewResponseController(w)
	rc.EnableFullDuplex()
	b := make([]byte, 16<<10)
	for {
		n, err := r.Body.Read(b)
		w.Write(b[:n])
		rc.Flush()
		if err == io.EOF {
			return
		}
		if err != nil {
			panic(http.ErrAbortHandler)
		}
	}
}
