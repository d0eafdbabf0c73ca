package gateway_test

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"sluice/codec/http1"
	"sluice/codec/open"
	"sluice/gateway/client"
	"sluice/kyber"
)

// quietOrigin answers every read with the same bytes, and allocates nothing.
func quietOrigin(t testing.TB, answer []byte) (url string) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				b := make([]byte, 32<<10)
				for {
					if _, err := conn.Read(b); err != nil {
						return
					}
					if _, err := conn.Write(answer); err != nil {
						return
					}
				}
			}()
		}
	}()
	t.Cleanup(func() { ln.Close(); <-done })
	return "http://" + ln.Addr().String()
}

// allocations is what the process allocates for each of a number of exchanges,
// clients and origins included. Whole exchanges only are counted; what ticks in the
// process meanwhile is taken off, and what is left of it spread over all of them.
func allocations(t testing.TB, measured int, exchange func() error) float64 {
	run := func(n int) {
		for range n {
			if err := exchange(); err != nil {
				t.Fatal(err)
			}
		}
	}
	run(measured / 2) // buffers and pools are made
	var before, after runtime.MemStats
	start := time.Now()
	runtime.ReadMemStats(&before)
	run(measured)
	runtime.ReadMemStats(&after)
	ticked := ticking * time.Since(start).Seconds()
	return max(0, float64(after.Mallocs-before.Mallocs)-ticked) / float64(measured)
}

// ticking is what the timers of two gateways (watchdog, memory, logs) allocate in
// a second, and some more. On a machine that is busy with other things a request
// may take a millisecond, and they would be taken for its own.
const ticking = 150

// allocationBound is for none: less than one in fifty requests.
const allocationBound = 0.02

// A request that is passed through allocates nothing, and neither does one through
// a pair.
func TestRelayedRequestAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	body := bytes.Repeat([]byte("0123456789abcdef"), 64)
	answer := fmt.Appendf(nil, "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	n := startMTE(t, "LOOPS=1", domainMap("localhost", quietOrigin(t, answer)))
	n.g.StopSampling()
	conn, err := n.dial()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(5 * patience))

	f := func(name string, exchange func() error) {
		t.Helper()
		if got := allocations(t, 5000, exchange); got > allocationBound {
			t.Errorf("%s: %.3f allocations per request", name, got)
		} else {
			t.Logf("%s: %.4f allocations per request", name, got)
		}
	}
	f("pass-through GET", plainExchange(conn, "GET /plain/x HTTP/1.1\r\nHost: localhost\r\n\r\n"))
	f("pass-through POST", plainExchange(conn, fmt.Sprintf("POST /plain/x HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s", len(body), body)))
	for _, typ := range []open.Type{open.MKE, open.MTE} {
		f("encrypted POST, "+typ.String(), encryptedExchange(t, n, conn, typ, body, body))
	}
}

// A request through an outbound host and the other relay allocates nothing in
// either.
func TestOutboundRequestAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	body := bytes.Repeat([]byte("0123456789abcdef"), 64)
	answer := fmt.Appendf(nil, "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	in := startMTE(t, "LOOPS=1", domainMap("127.0.0.1", quietOrigin(t, answer)))
	out := startMTE(t, "LOOPS=1", fmt.Sprintf(`DOMAIN_MAP={%q: {"outbound": "http://%s"}}`, outHost, in.addr))
	in.g.StopSampling()
	out.g.StopSampling()
	conn, err := out.dial()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(5 * patience))
	f := func(name, request string) {
		t.Helper()
		if got := allocations(t, 1500, plainExchange(conn, request)); got > allocationBound {
			t.Errorf("%s: %.3f allocations per request", name, got)
		} else {
			t.Logf("%s: %.4f allocations per request", name, got)
		}
	}
	f("GET", "GET /x?y=z HTTP/1.1\r\nHost: "+outHost+"\r\nAccept: */*\r\n\r\n")
	f("POST", fmt.Sprintf("POST /x HTTP/1.1\r\nHost: %s\r\nContent-Length: %d\r\n\r\n%s", outHost, len(body), body))
	f("POST in chunks", fmt.Sprintf("POST /x HTTP/1.1\r\nHost: %s\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", outHost, len(body), body))
	// In order of their start: neither finds what the other one holds.
	in.descriptors, in.goroutines = math.MaxInt, math.MaxInt
	out.descriptors, out.goroutines = math.MaxInt, math.MaxInt
}

// An answerReader reads answers and allocates nothing.
type answerReader struct {
	conn net.Conn
	in   []byte
	head http1.Response
	body http1.Body
}

func (r *answerReader) read(take func([]byte) error) error {
	have, mark := 0, http1.Mark{}
	for inBody := false; ; {
		k, err := r.conn.Read(r.in[have:])
		if err != nil {
			return err
		}
		have += k
		b := r.in[:have]
		if !inBody {
			n, fault := r.head.Parse(b, &http1.DefaultLimits, &mark, http1.MethodPost)
			if fault != nil || n > 0 && r.head.Status != 200 {
				return fmt.Errorf("answer %q", b)
			}
			if n == 0 {
				continue
			}
			r.body.Start(&r.head.Head)
			inBody, b = true, b[n:]
		}
		for have = 0; ; {
			data, n, done, fault := r.body.Next(b, &http1.DefaultLimits)
			if fault != nil {
				return fmt.Errorf("answer: %s", fault.Reason)
			}
			if err := take(data); err != nil {
				return err
			}
			if done {
				return nil
			}
			if b = b[n:]; len(b) == 0 {
				break
			}
		}
	}
}

func plainExchange(conn net.Conn, request string) func() error {
	r, b := &answerReader{conn: conn, in: make([]byte, 32<<10)}, []byte(request)
	drop := func([]byte) error { return nil }
	return func() error {
		if _, err := conn.Write(b); err != nil {
			return err
		}
		return r.read(drop)
	}
}

// encryptedExchange posts through a pair of its own, by the core of the client.
func encryptedExchange(t testing.TB, n *mteNode, conn net.Conn, typ open.Type, body, want []byte) func() error {
	t.Helper()
	s := client.NewSession("", "localhost")
	call := s.Auth()
	auth := httpDo(t, n.addr, call.Method, call.Target, "Host:localhost")
	if err := s.Authed([]byte(auth.body), time.Now()); err != nil {
		t.Fatal(err)
	}
	pairing, engine := s.NewPairing(1), new(kyber.Engine)
	steps := func() {
		for i := range pairing.Steps() {
			pairing.Step(engine, i)
		}
	}
	steps()
	c := &mteClient{n: n, host: "localhost"}
	_, _, answer, err := c.postControl(pairing.Call().Target, pairing.Call().Body)
	if err == nil {
		err = pairing.Answered(answer)
	}
	if err != nil {
		t.Fatal(err)
	}
	steps()
	pairs, err := pairing.Pairs()
	if err != nil {
		t.Fatal(err)
	}

	r := &answerReader{conn: conn, in: make([]byte, 32<<10)}
	var x client.Exchange
	var frames, out []byte
	var got int
	take := func(b []byte) error {
		for {
			ev, data, n, err := x.Feed(b)
			if err != nil {
				return err
			}
			if got+len(data) > len(want) || !bytes.Equal(data, want[got:got+len(data)]) {
				return io.ErrUnexpectedEOF
			}
			got += len(data)
			if b = b[n:]; ev == client.NeedMore {
				return nil
			}
		}
	}
	head := strings.TrimSuffix(string(c.frameHead(0)), "0\r\n\r\n")
	method, path, name, value := []byte("POST"), []byte("x?y=z"), []byte("content-type"), []byte("text/plain")
	return func() error {
		got = 0
		x.Begin(pairs[0], typ)
		err := x.AddHeader(name, value)
		if err == nil {
			frames, err = x.AppendRequest(frames[:0], method, path, true)
		}
		if err == nil {
			frames, err = x.AppendData(frames, body, true)
		}
		if err != nil {
			return err
		}
		out = append(out[:0], head...)
		out = http1.AppendUint(out, uint64(len(frames)))
		out = append(append(out, "\r\n\r\n"...), frames...)
		if _, err := conn.Write(out); err != nil {
			return err
		}
		if err := r.read(take); err != nil {
			return err
		}
		if got != len(want) || !x.InStep() {
			return fmt.Errorf("%d bytes of %d", got, len(want))
		}
		return nil
	}
}
