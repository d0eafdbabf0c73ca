package gateway_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"sluice/gateway/client"
)

// An eventOrigin sends a server-sent event for each word it is given, and else
// what a moodyOrigin does.
type eventOrigin struct {
	moodyOrigin
	words chan string
}

func (o *eventOrigin) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/events" {
		o.moodyOrigin.ServeHTTP(w, r)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	http.NewResponseController(w).Flush()
	for word := range o.words {
		fmt.Fprintf(w, "data: %s\n\n", word)
		http.NewResponseController(w).Flush()
	}
}

const (
	// eventBound is the acceptance's for an event's way from the origin to the
	// client. Where other tests share the machine ten times that is asked of each.
	eventBound = 50 * time.Millisecond
	events     = 10
)

// eventDelays sends events through the relay beside other traffic, and returns
// what each took, in order of length.
func eventDelays(t *testing.T) []time.Duration {
	origin := &eventOrigin{moodyOrigin: moodyOrigin{t: t}, words: make(chan string)}
	n := startMTEBehind(t, origin)
	c := newMTEClient(t, n, "localhost")

	stop := make(chan struct{})
	var traffic sync.WaitGroup
	defer traffic.Wait()
	defer close(stop)
	for i := range 8 {
		m := &mixer{origin: &origin.moodyOrigin, c: c, rng: rand.New(rand.NewPCG(1, uint64(i)))}
		var err error
		if m.p, err = c.pair(); err != nil {
			t.Fatal(err)
		}
		traffic.Go(func() {
			defer m.hangUp(false)
			for {
				select {
				case <-stop:
					return
				default:
				}
				if err := m.exchange(m.draw("sink"), 200); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}

	p, err := c.pair()
	if err != nil {
		t.Fatal(err)
	}
	conn, err := n.dial()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(3 * patience))
	b := p.request("GET", "events", false)
	conn.Write(append(c.frameHead(len(b)), b...))
	a, err := conn.answer(p)
	if err != nil {
		t.Fatal(err)
	}
	delays := make([]time.Duration, 0, events)
	for i := range events {
		word := "event " + strconv.Itoa(i)
		text := make([]byte, len("data: \n\n")+len(word))
		start := time.Now()
		origin.words <- word
		if _, err := io.ReadFull(a, text); err != nil {
			t.Fatal(err)
		}
		delays = append(delays, time.Since(start))
		if string(text) != "data: "+word+"\n\n" {
			t.Fatalf("event %q", text)
		}
	}
	close(origin.words)
	if rest, err := io.ReadAll(a); len(rest) != 0 || err != nil {
		t.Errorf("behind the events: %q %v", rest, err)
	}
	slices.Sort(delays)
	t.Logf("delays %v", delays)
	return delays
}

// An event is at the client at once, whatever else the relay does.
func TestEventsFlow(t *testing.T) {
	if d := eventDelays(t); d[events-1] > 10*eventBound {
		t.Errorf("an event took %v", d[events-1])
	}
}

// A mover is an origin that takes and makes long bodies, and says at the end what
// it took.
type mover struct{ t testing.TB }

// longPiece is what long bodies consist of.
var longPiece = func() []byte {
	b := make([]byte, 1<<20)
	seeded(7).Read(b)
	return b
}()

// A longBody is that piece, again and again.
type longBody struct{ at, n int64 }

func (l *longBody) Read(b []byte) (int, error) {
	if l.at == l.n {
		return 0, io.EOF
	}
	k := copy(b[:min(int64(len(b)), l.n-l.at)], longPiece[l.at%int64(len(longPiece)):])
	l.at += int64(k)
	return k, nil
}

// isLong compares a reader with a longBody.
func isLong(r io.Reader, n int64) error {
	b := make([]byte, 64<<10)
	var at int64
	for {
		k, err := r.Read(b)
		for got := b[:k]; len(got) > 0; {
			want := longPiece[at%int64(len(longPiece)):]
			want = want[:min(len(want), len(got))]
			if !bytes.Equal(got[:len(want)], want) {
				return fmt.Errorf("other bytes behind %d", at)
			}
			got = got[len(want):]
			at += int64(len(want))
		}
		if err == io.EOF && at != n {
			return fmt.Errorf("%d bytes of %d", at, n)
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (m mover) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	n, err := strconv.ParseInt(r.URL.Query().Get("n"), 10, 64)
	if err != nil {
		m.t.Errorf("the origin was asked for %q", r.RequestURI)
	}
	if r.Method == "GET" {
		io.Copy(w, &longBody{n: n})
		return
	}
	if err := isLong(r.Body, n); err != nil {
		m.t.Errorf("upload: %v", err)
		http.Error(w, err.Error(), http.StatusTeapot)
	}
}

// memoryBound is how much the process may grow while a body of any length goes
// through it. Client and origin are in the same process, and count.
const memoryBound = 64 << 20

// watchMemory samples the process's resident memory until stop is called, which
// returns the most it has grown.
func watchMemory(t testing.TB) (stop func() int64) {
	runtime.GC()
	debug.FreeOSMemory()
	before, most := resident(t), int64(0)
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-quit:
				return
			case <-tick.C:
				most = max(most, resident(t)-before)
			}
		}
	}()
	return func() int64 {
		close(quit)
		<-done
		return most
	}
}

// longBodies sends n bytes up and n bytes down through a pair, by the Go client.
func longBodies(t *testing.T, n int64, bound int64) {
	node := startMTEBehind(t, mover{t})
	c, err := client.New(client.Options{URL: "http://" + node.addr, Host: "localhost"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	do := func(what, method string, n int64, body io.Reader) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		r := &client.Request{Head: client.Head{Method: method, Path: fmt.Sprintf("long?n=%d", n)}, Body: body}
		start := time.Now()
		res, err := c.Do(ctx, r)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		defer res.Body.Close()
		if method == "GET" {
			err = isLong(res.Body, n)
		} else {
			_, err = io.Copy(io.Discard, res.Body)
		}
		if err != nil || res.Status != 200 {
			t.Fatalf("%s: %d %v", what, res.Status, err)
		}
		t.Logf("%s: %s in %v", what, mib(n), time.Since(start).Round(time.Millisecond))
	}
	// What is made once, by client, relay and origin, is no growth.
	const first = 8 << 20
	do("first upload", "POST", first, &longBody{n: first})
	do("first download", "GET", first, nil)
	grown := watchMemory(t)
	do("upload", "POST", n, &longBody{n: n})
	do("download", "GET", n, nil)
	if g := grown(); g > bound {
		t.Errorf("memory grew by %s", mib(g))
	} else {
		t.Logf("memory grew by %s", mib(g))
	}
}

// Bodies pass through without being gathered.
func TestLongBodies(t *testing.T) {
	n := int64(64 << 20)
	if raceEnabled {
		n = 16 << 20
	}
	longBodies(t, n, memoryBound/2)
}
