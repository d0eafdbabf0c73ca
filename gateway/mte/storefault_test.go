package mte

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"sluice/codec/frame"
	"sluice/codec/open"
	"sluice/gateway/store"
)

// faultyPairs is a store that refuses what it is told to, at once or later.
type faultyPairs struct {
	store.Pairs
	later                         bool
	add, keepalive, take, release atomic.Uint32 // a frame.Reason
	worn                          atomic.Bool   // encoders are used up
	late                          atomic.Bool   // locks are over when they are got
}

func (p *faultyPairs) Add(c store.Client, pairs []store.NewPair, now int64, later func(frame.Reason)) (frame.Reason, bool) {
	r := frame.Reason(p.add.Load())
	if r == frame.NoReason {
		return p.Pairs.Add(c, pairs, now, later)
	}
	if p.later {
		go later(r)
	}
	return r, !p.later
}

func (p *faultyPairs) Keepalive(c store.Client, drop []frame.PairID, now int64, later func(int, frame.Reason)) (int, frame.Reason, bool) {
	r := frame.Reason(p.keepalive.Load())
	if r == frame.NoReason {
		return p.Pairs.Keepalive(c, drop, now, later)
	}
	if p.later {
		go later(0, r)
	}
	return 0, r, !p.later
}

func (p *faultyPairs) Take(c store.Client, id frame.PairID, t open.Type, now int64, w store.Waiter) (store.Lease, frame.Reason, bool) {
	r := frame.Reason(p.take.Load())
	if r == frame.NoReason {
		l, r, ok := p.Pairs.Take(c, id, t, now, w)
		if l != nil {
			l = faultyLease{l, p}
		}
		return l, r, ok
	}
	if p.later {
		go w.OnTaken(nil, r)
	}
	return nil, r, !p.later
}

type faultyLease struct {
	store.Lease
	p *faultyPairs
}

func (l faultyLease) Release(now int64, used bool, w store.Waiter) (frame.Reason, bool) {
	r := frame.Reason(l.p.release.Load())
	if r == frame.NoReason {
		return l.Lease.Release(now, used, w)
	}
	l.Lease.Retire()
	if l.p.later {
		go w.OnReleased(r)
	}
	return r, !l.p.later
}

func (l faultyLease) Held(now int64) bool { return !l.p.late.Load() && l.Lease.Held(now) }

func (l faultyLease) Encoder() open.Encoder {
	if l.p.worn.Load() {
		return wornEncoder{l.Lease.Encoder()}
	}
	return l.Lease.Encoder()
}

// wornEncoder is an encoder at the end of its sequence numbers.
type wornEncoder struct{ open.Encoder }

func (wornEncoder) AppendEncode([]byte, []byte) ([]byte, error) { return nil, open.EncodeFailed }

// A begunConn is a connection of which something was read already.
type begunConn struct {
	net.Conn
	r io.Reader
}

func (c begunConn) Read(b []byte) (int, error) { return c.r.Read(b) }

// TestStoreRefusals: what a store on the network can refuse, and an encoder that is
// used up, with what the client is told and what becomes of the pair.
func TestStoreRefusals(t *testing.T) {
	bothStores(t, func(t *testing.T, later bool) {
		p, goOn := &faultyPairs{later: later}, make(chan bool, 1)
		r := startRelay(t, relayOptions{
			store: func(s store.Pairs) store.Pairs { p.Pairs = s; return p },
			origin: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				if req.URL.Path == "/stream" {
					io.WriteString(w, "part one")
					w.(http.Flusher).Flush()
					<-goOn
				}
				digestOrigin(w, req)
			}),
		})
		c := r.client()
		c.pair() // keeps the client known
		const none = frame.NoReason

		pair := c.pair()
		for _, reason := range []frame.Reason{frame.DecoderRestoreFailed, frame.EncoderRestoreFailed, frame.NotOwner, frame.StateStoreUnavailable} {
			p.take.Store(uint32(reason))
			back := pair.snapshot()
			c.post(append(pair.post("x"), pair.body([]byte("and a body"), 100)...)).wantRefusal(t, reason, none)
			back()
			p.take.Store(uint32(none))
			pair.want(inStep)
		}

		// A lock that is over by the time the request learns of it: nothing was decoded.
		p.late.Store(true)
		back := pair.snapshot()
		c.post(pair.post("x")).wantRefusal(t, frame.StateStoreUnavailable, none)
		back()
		p.late.Store(false)
		pair.want(inStep)

		offers, _ := c.offer(2)
		body := string(frame.AppendPairRequest(nil, &c.token, c.about.KyberStrength, offers))
		for _, reason := range []frame.Reason{frame.StateStoreUnavailable, frame.PoolExhausted} {
			p.add.Store(uint32(reason))
			before := r.role.pairs.Count()
			c.call("POST", frame.PairPath, body).wantRefusal(t, reason, none)
			if n := r.role.pairs.Count(); n != before {
				t.Errorf("%d pairs after a refusal, %d before", n, before)
			}
		}
		p.add.Store(uint32(none))
		if a := c.call("POST", frame.PairPath, body); a.status != 200 {
			t.Errorf("the same call again: %d %s", a.status, a.body)
		}

		p.keepalive.Store(uint32(frame.StateStoreUnavailable))
		c.call("POST", frame.KeepalivePath, string(frame.AppendKeepalive(nil, &c.token, nil))).wantRefusal(t, frame.StateStoreUnavailable, none)
		p.keepalive.Store(uint32(none))

		// A state that was not saved: told instead of the answer, or behind its head.
		p.release.Store(uint32(frame.StateStoreWriteFailed))
		pair = c.pair()
		c.post(pair.get("x")).wantRefusal(t, frame.StateStoreWriteFailed, none)
		p.release.Store(uint32(none))
		pair.want(gone)
		pair = c.pair()
		p.release.Store(uint32(frame.StateStoreWriteFailed))
		conn, b := c.dial(), pair.get("stream")
		io.WriteString(conn, c.head("POST", "/", "Content-Type: "+typeFrames, "Content-Length: "+strconv.Itoa(len(b)))+string(b))
		first := make([]byte, 1)
		if _, err := io.ReadFull(conn, first); err != nil { // the head, and RESPONSE with it
			t.Fatal(err)
		}
		goOn <- true
		a, err := readReply(begunConn{conn, io.MultiReader(bytes.NewReader(first), conn)}, "POST")
		if err != nil {
			t.Fatal(err)
		}
		e := pair.read(a)
		if e.err == nil || e.err.Code != 503 || e.err.Reason != frame.StateStoreWriteFailed.String() {
			t.Errorf("a stream whose state was not saved: %+v", e)
		}
		p.release.Store(uint32(none))
		pair.want(gone)

		p.worn.Store(true)
		pair = c.pair()
		a = c.post(pair.get("x"))
		p.worn.Store(false)
		a.wantRefusal(t, frame.EncodeFailed, none)
	})
}

// TestCloseRestWithLocksLost: at the end of a drain the locks are over, and what one
// stream has gathered is in the way of another. Each ends, and once.
func TestCloseRestWithLocksLost(t *testing.T) {
	p, goOn := new(faultyPairs), make(chan struct{})
	r := startRelay(t, relayOptions{
		store: func(s store.Pairs) store.Pairs { p.Pairs = s; return p },
		origin: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			w.(http.Flusher).Flush()
			<-goOn
		}),
	})
	t.Cleanup(func() { close(goOn) })
	c := r.client()
	var conns []net.Conn
	for range len(r.loops) + 1 { // so that one loop has two of them
		conn, b := c.dial(), c.pair().get("x")
		io.WriteString(conn, c.head("POST", "/", "Content-Type: "+typeFrames, "Content-Length: "+strconv.Itoa(len(b)))+string(b))
		conns = append(conns, conn)
	}
	answering := func(st *stream) bool { return st != nil && st.state == streamAnswering && st.answer.started }
	r.streams("two answers on one loop", func(st *stream) bool {
		next := st.next
		if !answering(st) || !answering(next) {
			return false
		}
		p.late.Store(true)
		(*fromOrigin)(next).OnData(next.origin.call, []byte("x"))
		if (*closeRest)(st.s).Deliver(st.s.l); st.s.streams != nil {
			t.Error("a stream is left behind")
		}
		return true
	})
	r.role.CloseRest()
	for _, conn := range conns {
		if a, err := readReply(conn, "POST"); err != nil || a.cut {
			t.Errorf("answered %d, cut %v, %v", a.status, a.cut, err)
		}
	}
}

// heldPairs is a store that answers later, and for as long as it is held not at all.
type heldPairs struct {
	laterPairs
	hold  atomic.Bool
	asked atomic.Int64 // while it is held
	goOn  chan struct{}
}

func (p *heldPairs) Take(c store.Client, id frame.PairID, t open.Type, now int64, w store.Waiter) (store.Lease, frame.Reason, bool) {
	if !p.hold.Load() {
		return p.laterPairs.Take(c, id, t, now, w)
	}
	p.asked.Add(1)
	go func() {
		<-p.goOn
		p.laterPairs.Take(c, id, t, now, w)
	}()
	return nil, frame.NoReason, false
}

// TestCloseRestWhileTaking: a request whose pair the store gives only after the end
// of a drain is refused, and neither the origin nor the pair sees anything of it.
func TestCloseRestWhileTaking(t *testing.T) {
	var asked atomic.Int64
	p := &heldPairs{goOn: make(chan struct{})}
	r := startRelay(t, relayOptions{
		store: func(s store.Pairs) store.Pairs { p.Pairs = s; return p },
		origin: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			asked.Add(1)
			digestOrigin(w, req)
		}),
	})
	release := sync.OnceFunc(func() { close(p.goOn) })
	t.Cleanup(release)
	c := r.client()
	c.pair() // keeps the client known
	pair := c.pair()
	unknown := *pair
	unknown.id = frame.NewPairID()

	p.hold.Store(true)
	back := pair.snapshot()
	ask := func(b []byte) net.Conn {
		conn := c.dial()
		io.WriteString(conn, c.head("POST", "/", "Content-Type: "+typeFrames, "Content-Length: "+strconv.Itoa(len(b)))+string(b))
		return conn
	}
	whole := ask(append(pair.post("x"), pair.body([]byte("and a body"), 100)...))
	back()
	none := ask(unknown.get("x"))
	back()
	r.await("both wait for the store", func() bool { return p.asked.Load() == 2 })
	r.role.CloseRest()
	release()
	p.hold.Store(false)
	f := func(conn net.Conn, reason frame.Reason) {
		t.Helper()
		a, err := readReply(conn, "POST")
		if err != nil {
			t.Fatal(err)
		}
		a.wantRefusal(t, reason, frame.NoReason)
		if !a.close {
			t.Errorf("%s: the connection stays", reason)
		}
	}
	f(whole, frame.StateStoreUnavailable)
	f(none, frame.PairNotFound) // what the store says goes before
	if n := asked.Load(); n != 0 {
		t.Errorf("the origin got %d requests", n)
	}
	pair.want(inStep)
}
