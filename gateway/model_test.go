package gateway_test

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	mrand "math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// The model-based test: sessions that attach, send, stall, resume, replace,
// close and drain at random, and an oracle that knows the contract and nothing
// of the relay. Per source and destination: every message once, in order, whole,
// with its opcode; every close with its code and reason; nothing in the ledger
// at the end. A run is repeated with SLUICE_SEED.

func TestModel(t *testing.T) { runModel(t, 3*time.Second, 6) }

func TestAcceptModel(t *testing.T) {
	onlyFull(t)
	runModel(t, 2*time.Minute, 12)
}

func TestSoakModel(t *testing.T) {
	minutes, err := strconv.Atoi(os.Getenv("SOAK_MINUTES"))
	if err != nil {
		t.Skip("set SOAK_MINUTES")
	}
	runModel(t, time.Duration(minutes)*time.Minute, 24)
}

func runModel(t *testing.T, d time.Duration, worlds int) {
	seed := uint64(time.Now().UnixNano())
	if s, err := strconv.ParseUint(os.Getenv("SLUICE_SEED"), 10, 64); err == nil {
		seed = s
	}
	t.Logf("SLUICE_SEED=%d", seed)
	n := startNode(t, smallSend)
	until := time.Now().Add(d)
	m := &model{n: n}
	var wg sync.WaitGroup
	for i := range worlds {
		wg.Go(func() {
			r := mrand.New(mrand.NewPCG(seed, uint64(i)))
			for round := 0; time.Now().Before(until) && !t.Failed(); round++ {
				w := &world{m: m, r: r, sid: fmt.Sprintf("model-%d-%d", i, round), v2: r.IntN(3) > 0, places: map[string]*place{}, clients: map[string][]*modelPeer{}}
				if err := w.run(until); err != nil {
					t.Errorf("world %s, seed %d: %v\nlast steps: %q", w.sid, seed, err, w.steps[max(0, len(w.steps)-25):])
				}
				w.end()
			}
		})
	}
	wg.Wait()
	t.Logf("%d steps, %d messages, %s", m.steps.Load(), m.messages.Load(), mib(m.bytes.Load()))
}

// model is what the worlds of a run share.
type model struct {
	n                      *node
	draining               sync.RWMutex // a step holds it shared, a drain alone
	steps, messages, bytes atomic.Int64
	sources                atomic.Uint32
}

// pattern is what payloads are cut from: ASCII, so that it is text and binary.
var pattern = func() []byte {
	b := make([]byte, 600<<10)
	for i := range b {
		b[i] = byte('a' + i*i%23)
	}
	return b
}()

const (
	modelHead = 18 // bytes: "ssssssss:qqqqqqqq" in hexadecimal and a flag
	flagEmpty = 'E'
	flagPlain = '-'
)

// modelPayload is message seq of a source.
func modelPayload(src uint32, seq, size int, flag byte) []byte {
	b := fmt.Appendf(nil, "%08x:%08x%c", src, seq, flag)
	at := (int(src)*7 + seq*13) % 251
	return append(b, pattern[at:at+size]...)
}

// A stream is what one destination is owed of one source.
type stream struct {
	last  int  // received last; -1 none
	from  int  // the first that is owed; earlier ones may come, in order
	owed  int  // messages below this one are owed
	lossy bool // the source, or what was for the destination, is gone: a prefix may come
}

// A place is a destination's identity: sockets come and go, it stays.
type place struct {
	mu      sync.Mutex
	name    string
	streams map[uint32]*stream
	empties int                // empty messages owed
	holes   map[[2]uint32]bool // skipped: a replaced socket still has them to read
	olds    int                // replaced sockets that have not ended
	lossy   bool
	begun   bool // something was received
}

// owe notes a message of src that must arrive.
func (p *place) owe(src uint32, seq int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	st := p.streams[src]
	if st == nil {
		st = &stream{last: -1, from: seq}
		p.streams[src] = st
	}
	st.owed = seq + 1
}

// receive judges a message that came at a socket which has seen seen of each source.
func (p *place) receive(m wsMessage, seen map[uint32]int) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(m.data) == 0 {
		if !p.begun && p.olds == 0 {
			return nil // it belongs to a message of before this place was there
		}
		if p.empties--; p.empties < 0 && !p.lossy && p.olds == 0 {
			return errors.New("an empty message too many")
		}
		return nil
	}
	var src uint32
	var seq int
	if len(m.data) < modelHead {
		return fmt.Errorf("not of us: %v", m)
	}
	if _, err := fmt.Sscanf(string(m.data[:17]), "%08x:%08x", &src, &seq); err != nil {
		return fmt.Errorf("not of us: %v", m)
	}
	flag := m.data[modelHead-1]
	if want := modelPayload(src, seq, len(m.data)-modelHead, flag); !bytes.Equal(m.data, want) || m.op != opText+seq&1 {
		return fmt.Errorf("message %d of source %d is not whole: %v", seq, src, m)
	}
	if flag == flagEmpty {
		p.empties++
	}
	if last, ok := seen[src]; ok && seq <= last {
		return fmt.Errorf("message %d of source %d behind %d at one socket", seq, src, last)
	}
	seen[src] = seq
	st := p.streams[src]
	if st == nil {
		// Of before this place was owed anything by the source.
		st = &stream{last: -1, from: 1 << 30}
		p.streams[src] = st
	}
	hole := [2]uint32{src, uint32(seq)}
	switch {
	case p.holes[hole]:
		delete(p.holes, hole)
		return nil
	case st.last < 0 && seq <= st.from, seq == st.last+1 && st.last >= 0:
	case seq > st.last+1 && p.olds > 0:
		// What lies between is still to be read at replaced sockets.
		for i := max(st.last+1, min(st.from, seq)); i < seq; i++ {
			p.holes[[2]uint32{src, uint32(i)}] = true
		}
	default:
		return fmt.Errorf("message %d of source %d behind %d (owed from %d to %d)", seq, src, st.last, st.from, st.owed)
	}
	st.last, p.begun = seq, true
	return nil
}

// settled reports whether everything owed has arrived.
func (p *place) settled() (bool, string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.olds > 0 {
		return false, p.name + ": a replaced socket has not ended"
	}
	for src, st := range p.streams {
		if !st.lossy && st.owed > 0 && st.last != st.owed-1 {
			return false, fmt.Sprintf("%s: source %d: %d of %d", p.name, src, st.last+1, st.owed)
		}
	}
	if !p.lossy && (p.empties != 0 || len(p.holes) > 0) {
		return false, fmt.Sprintf("%s: %d empty messages and %v missing", p.name, p.empties, p.holes)
	}
	return true, ""
}

// loses makes everything of src, or of everybody with 0, optional from here on.
func (p *place) loses(src uint32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lossy = true
	for s, st := range p.streams {
		if s == src || src == 0 {
			st.lossy = true
		}
	}
}

// A modelPeer is one socket with a goroutine that reads, unless it is stalled,
// and one that writes.
type modelPeer struct {
	w    *world
	c    *wsClient
	name string
	src  uint32
	seq  int
	at   *place // where what it receives is judged; nil for control

	mu      sync.Mutex
	cond    *sync.Cond
	stalled bool
	writes  [][]byte
	writing bool
	stopped bool // the writer
	notices []string
	pongs   map[string]bool
	closed  *wsMessage // the relay's close frame
	over    error      // how the connection ended
	old     bool       // replaced
	err     error
}

func (w *world) open(query, name string, at *place) (*modelPeer, error) {
	var opts []wsOption
	if w.r.IntN(2) == 0 {
		opts = append(opts, smallBuffers)
	}
	c, err := dialWS(w.m.n.t, w.m.n.addr, query, name, opts...)
	if err != nil {
		return nil, err
	}
	p := &modelPeer{w: w, c: c, name: name, src: w.m.sources.Add(1), at: at, pongs: map[string]bool{}}
	p.cond = sync.NewCond(&p.mu)
	w.peers = append(w.peers, p)
	go p.reader()
	go p.writer()
	return p, nil
}

func (p *modelPeer) reader() {
	seen := map[uint32]int{}
	for {
		p.mu.Lock()
		for p.stalled {
			p.cond.Wait()
		}
		p.mu.Unlock()
		m, err := p.c.next(time.Hour)
		p.mu.Lock()
		switch {
		case err != nil:
			p.over = err
			if p.old && p.at != nil {
				p.at.mu.Lock()
				p.at.olds--
				p.at.mu.Unlock()
			}
			p.cond.Broadcast()
			p.mu.Unlock()
			return
		case m.op == opClose && p.closed == nil:
			p.closed = &m
			p.mu.Unlock()
			p.c.nc.SetWriteDeadline(time.Now().Add(patience))
			p.c.nc.Write(closeFrame(1000, ""))
			p.c.nc.CloseWrite()
			p.mu.Lock()
		case m.op == opPong:
			p.pongs[string(m.data)] = true
		case p.closed != nil:
			p.err = fmt.Errorf("%v behind the close frame", m)
		case p.at == nil && m.op == opText:
			p.notices = append(p.notices, string(m.data))
		case p.at != nil && (m.op == opText || m.op == opBin):
			if err := p.at.receive(m, seen); err != nil && p.err == nil {
				p.err = err
			}
		default:
			p.err = fmt.Errorf("unexpected %v", m)
		}
		p.cond.Broadcast()
		p.mu.Unlock()
	}
}

func (p *modelPeer) writer() {
	for {
		p.mu.Lock()
		p.writing = false
		p.cond.Broadcast()
		for len(p.writes) == 0 && !p.stopped {
			p.cond.Wait()
		}
		if p.stopped {
			p.mu.Unlock()
			return
		}
		b := p.writes[0]
		p.writes = p.writes[1:]
		p.writing = true
		p.mu.Unlock()
		p.c.nc.SetWriteDeadline(time.Now().Add(time.Hour))
		if _, err := p.c.nc.Write(b); err != nil {
			p.mu.Lock()
			p.stopped, p.writes, p.writing = true, nil, false
			p.cond.Broadcast()
			p.mu.Unlock()
			return
		}
	}
}

// until waits for a condition of the peer, which runs with its lock held.
func (p *modelPeer) until(what string, cond func() bool) error {
	late := false
	timer := time.AfterFunc(patience, func() { p.mu.Lock(); late = true; p.cond.Broadcast(); p.mu.Unlock() })
	defer timer.Stop()
	p.mu.Lock()
	defer p.mu.Unlock()
	for !cond() {
		if p.err != nil {
			return fmt.Errorf("%s: %w", p.name, p.err)
		}
		if late {
			return fmt.Errorf("%s: never: %s (closed %v, ended %v)", p.name, what, p.closed, p.over)
		}
		p.cond.Wait()
	}
	return p.err
}

func (p *modelPeer) setStalled(on bool) {
	p.mu.Lock()
	p.stalled = on
	p.cond.Broadcast()
	p.mu.Unlock()
}

func (p *modelPeer) put(b []byte) {
	p.mu.Lock()
	p.writes = append(p.writes, b)
	p.cond.Broadcast()
	p.mu.Unlock()
}

func (p *modelPeer) written() error {
	return p.until("everything is written", func() bool { return len(p.writes) == 0 && !p.writing })
}

// wantEnd expects this close frame and the end of the stream.
func (p *modelPeer) wantEnd(code uint16, reason string) error {
	p.setStalled(false)
	if err := p.until(fmt.Sprintf("close %d %s", code, reason), func() bool { return p.over != nil }); err != nil {
		return err
	}
	if p.closed == nil || p.closed.code != code || p.closed.reason != reason {
		return fmt.Errorf("%s: expected close %d %q, got %v and %v", p.name, code, reason, p.closed, p.over)
	}
	p.c.bye()
	return nil
}

// barrier proves that everything sent was read.
func (p *modelPeer) barrier() error {
	var tag [8]byte
	rand.Read(tag[:])
	p.put(frame(opPing, true, tag[:]))
	return p.until("a pong", func() bool { return p.pongs[string(tag[:])] })
}

// leave ends the peer's connection in one of three ways. Everything that it had
// to write is written before; behind a reset the end of it may be lost.
func (p *modelPeer) leave(how int) error {
	if err := p.written(); err != nil {
		return err
	}
	p.setStalled(false)
	switch how {
	case 0:
		p.put(closeFrame(4000, "model"))
		return p.wantEnd(4000, "")
	case 1:
		p.c.fin()
		return p.until("the end", func() bool { return p.over != nil })
	default:
		p.c.rst()
		return nil
	}
}

// A world is one session and its oracle. Its steps run one after the other;
// what they set off goes on meanwhile.
type world struct {
	m     *model
	r     *mrand.Rand
	sid   string
	v2    bool
	peers []*modelPeer
	steps []string

	// v1: places "server" and "client"; v2: "data C" and one for each client.
	places  map[string]*place
	server  *modelPeer // v1
	client  *modelPeer
	control *modelPeer
	datas   [3]*modelPeer
	clients map[string][]*modelPeer // by connectionId
	expect  []string                // notices that control is still owed
}

func newPlace(name string) *place {
	return &place{name: name, streams: map[uint32]*stream{}, holes: map[[2]uint32]bool{}}
}

func (w *world) step(format string, a ...any) {
	w.steps = append(w.steps, fmt.Sprintf(format, a...))
	w.m.steps.Add(1)
}

func (w *world) run(until time.Time) error {
	for range 20 + w.r.IntN(60) {
		if time.Now().After(until) {
			break
		}
		if w.r.IntN(150) == 0 {
			if err := w.drain(); err != nil {
				return fmt.Errorf("drain: %w", err)
			}
			continue
		}
		w.m.draining.RLock()
		var err error
		if w.v2 {
			err = w.stepV2()
		} else {
			err = w.stepV1()
		}
		w.m.draining.RUnlock()
		if err != nil {
			return err
		}
		if err := w.faults(); err != nil {
			return err
		}
	}
	w.step("settle at the end")
	return w.settle()
}

func (w *world) end() {
	for _, p := range w.peers {
		p.setStalled(false)
		p.mu.Lock()
		p.stopped = true
		p.cond.Broadcast()
		p.mu.Unlock()
		p.c.rst()
	}
}

func (w *world) faults() error {
	for _, p := range w.peers {
		p.mu.Lock()
		err := p.err
		p.mu.Unlock()
		if err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
	}
	return nil
}

// alive are the sockets that are attached as far as the oracle knows.
func (w *world) alive() (all []*modelPeer) {
	for _, p := range append([]*modelPeer{w.server, w.client, w.control}, w.datas[:]...) {
		if p != nil {
			all = append(all, p)
		}
	}
	for _, cs := range w.clients {
		all = append(all, cs...)
	}
	return all
}

// settle resumes everybody and waits until everything owed has arrived. Clients
// without a data socket get one first: their frames wait for it.
func (w *world) settle() error {
	for i := range w.datas {
		if len(w.clients[cidOf(i)]) > 0 && w.datas[i] == nil {
			if err := w.attachData(i); err != nil {
				return err
			}
		}
	}
	for _, p := range w.peers {
		p.setStalled(false)
	}
	for _, p := range w.alive() {
		if err := p.written(); err != nil {
			return err
		}
		if err := p.barrier(); err != nil {
			return err
		}
	}
	for _, p := range w.places {
		why := ""
		ok := false
		if !poll(func() bool {
			if w.faults() != nil {
				return true
			}
			ok, why = p.settled()
			return ok
		}) {
			return fmt.Errorf("not settled: %s", why)
		}
		if err := w.faults(); err != nil {
			return err
		}
	}
	return w.notices()
}

// send has p send a message: any size, whole or in fragments with pings between.
func (w *world) send(p *modelPeer, owed ...*place) {
	size := [...]int{w.r.IntN(200), w.r.IntN(200), w.r.IntN(5000), w.r.IntN(70000), w.r.IntN(300 << 10)}[w.r.IntN(5)]
	flag := byte(flagPlain)
	if w.r.IntN(6) == 0 {
		flag = flagEmpty
	}
	payload := modelPayload(p.src, p.seq, size, flag)
	op := opText + p.seq&1
	for _, at := range owed {
		at.owe(p.src, p.seq)
	}
	p.seq++
	var b []byte
	if w.r.IntN(4) == 0 {
		for rest := payload; ; op = opCont {
			n := w.r.IntN(len(rest) + 1)
			if w.r.IntN(3) == 0 {
				n = len(rest)
			}
			b = append(b, frame(op, n == len(rest), rest[:n])...)
			if rest = rest[n:]; len(rest) == 0 && b != nil && n >= 0 {
				if n == 0 && op == opText {
					continue
				}
				break
			}
			if w.r.IntN(3) == 0 {
				b = append(b, frame(opPing, true, []byte("between"))...)
			}
		}
	} else {
		b = frame(op, true, payload)
	}
	if flag == flagEmpty {
		b = append(b, frame(opBin, true, nil)...)
	}
	p.put(b)
	w.m.messages.Add(1)
	w.m.bytes.Add(int64(size))
}

// burst sends some messages.
func (w *world) burst(p *modelPeer, owed ...*place) {
	k := 1 + w.r.IntN(6)
	w.step("%s sends %d", p.name, k)
	for range k {
		w.send(p, owed...)
	}
}

// replaced notes that old has lost its place to a newer socket.
func (w *world) replaced(old *modelPeer) {
	if old.at != nil {
		old.at.mu.Lock()
		old.at.olds++
		old.at.mu.Unlock()
	}
	old.mu.Lock()
	old.old = true
	if old.over != nil && old.at != nil {
		old.at.mu.Lock()
		old.at.olds--
		old.at.mu.Unlock()
	}
	old.mu.Unlock()
}

func (w *world) stepV1() error {
	roles := []string{"server", "client"}
	i := w.r.IntN(2)
	me, other := &w.server, &w.client
	if i == 1 {
		me, other = other, me
	}
	at, otherAt := w.places[roles[i]], w.places[roles[1-i]]
	switch k := w.r.IntN(12); {
	case *me == nil:
		// What is sent to nobody is dropped: nothing may be on its way.
		if err := w.settle(); err != nil {
			return err
		}
		w.step("open %s", roles[i])
		at = newPlace("v1 " + roles[i])
		w.places[roles[i]] = at
		p, err := w.open(wsQuery(w.sid, roles[i], 1, "-"), "v1 "+roles[i], at)
		if err != nil {
			return err
		}
		*me = p
	case k == 0: // replace, under load
		w.step("replace %s", roles[i])
		old := *me
		// What the old one sent and was not read is lost with it.
		if otherAt != nil {
			otherAt.loses(old.src)
		}
		w.replaced(old)
		p, err := w.open(wsQuery(w.sid, roles[i], 1, "-"), "v1 "+roles[i], at)
		if err != nil {
			return err
		}
		*me = p
		return old.wantEnd(1008, "Replaced by new connection")
	case k == 1:
		if err := w.settle(); err != nil {
			return err
		}
		how := w.r.IntN(3)
		w.step("%s leaves (%d)", roles[i], how)
		p := *me
		*me = nil
		at.loses(0)
		if err := p.leave(how); err != nil {
			return err
		}
		delete(w.places, roles[i])
	case k == 2:
		w.step("%s stalls", roles[i])
		(*me).setStalled(true)
	case k == 3:
		w.step("%s resumes", roles[i])
		(*me).setStalled(false)
	case k == 4:
		w.step("settle")
		return w.settle()
	case *other != nil:
		w.burst(*me, otherAt)
	default:
		w.burst(*me)
	}
	return nil
}

func cidOf(i int) string { return string(rune('a' + i)) }

func (w *world) attachData(i int) error {
	cid := cidOf(i)
	at := w.places["data "+cid]
	if at == nil {
		at = newPlace("data " + cid)
		w.places["data "+cid] = at
	}
	old := w.datas[i]
	if old != nil {
		for _, c := range w.clients[cid] {
			c.at.loses(old.src)
		}
		w.replaced(old)
	}
	w.step("data %s attaches, replacing: %t", cid, old != nil)
	p, err := w.open(wsQuery(w.sid, "server", 2, cid), "data "+cid, at)
	if err != nil {
		return err
	}
	w.datas[i] = p
	if old != nil {
		return old.wantEnd(1008, "Replaced by new connection")
	}
	return nil
}

func (w *world) stepV2() error {
	i := w.r.IntN(len(w.datas))
	cid := cidOf(i)
	cs, d := w.clients[cid], w.datas[i]
	switch k := w.r.IntN(24); {
	case k < 2 && w.control == nil || k == 0:
		return w.openControl()
	case k < 6 && len(cs) < 4:
		w.step("client of %s attaches", cid)
		at := newPlace("client of " + cid)
		w.places[fmt.Sprintf("client %d", len(w.peers))] = at
		p, err := w.open(wsQuery(w.sid, "client", 2, cid), "client of "+cid, at)
		if err != nil {
			return err
		}
		w.clients[cid] = append(cs, p)
		if len(cs) == 0 && w.places["data "+cid] == nil {
			w.places["data "+cid] = newPlace("data " + cid)
		}
		w.expect = append(w.expect, connectedJSON(cid))
		return w.notices()
	case k == 6 || d == nil && k < 10:
		return w.attachData(i)
	case k == 7 && len(cs) > 0 && d != nil:
		return w.clientLeaves(i, w.r.IntN(len(cs)), w.r.IntN(3))
	case k == 8 && d != nil:
		if len(cs) == 0 {
			return w.dataLeaves(i, w.r.IntN(2)) // nobody would tell when the relay has noticed a reset
		}
		return w.dataLeaves(i, w.r.IntN(3))
	case k == 9:
		if all := w.alive(); len(all) > 0 {
			p := all[w.r.IntN(len(all))]
			if p != w.control {
				w.step("%s stalls", p.name)
				p.setStalled(true)
			}
		}
	case k == 10:
		for _, p := range w.alive() {
			p.setStalled(false)
		}
	case k == 11:
		w.step("settle")
		return w.settle()
	case k == 12 && w.control != nil:
		w.control.put(frame(opText, true, []byte("[1,2]")))
		return w.control.barrier()
	case k < 18 && len(cs) > 0:
		w.burst(cs[w.r.IntN(len(cs))], w.places["data "+cid])
	case d != nil:
		var owed []*place
		for _, c := range cs {
			owed = append(owed, c.at)
		}
		w.burst(d, owed...)
	}
	return nil
}

func (w *world) openControl() error {
	w.step("control attaches")
	old := w.control
	p, err := w.open(wsQuery(w.sid, "server", 2, "-"), "control", nil)
	if err != nil {
		return err
	}
	w.control = p
	if old != nil {
		if err := old.wantEnd(1008, "Replaced by new connection"); err != nil {
			return err
		}
	}
	w.expect = []string{w.sync()}
	return w.notices()
}

func (w *world) sync() string {
	var ids []string
	for cid, cs := range w.clients {
		if len(cs) > 0 {
			ids = append(ids, cid)
		}
	}
	return syncJSON(ids...)
}

// notices waits for what control is owed. The watchdog's sync may come at any time.
func (w *world) notices() error {
	if w.control == nil {
		w.expect = nil
		return nil
	}
	for len(w.expect) > 0 {
		var got string
		if err := w.control.until("a notice "+w.expect[0], func() bool {
			if len(w.control.notices) == 0 {
				return false
			}
			got = w.control.notices[0]
			w.control.notices = w.control.notices[1:]
			return true
		}); err != nil {
			return err
		}
		switch {
		case sameJSON([]byte(got), []byte(w.expect[0])):
			w.expect = w.expect[1:]
		case bytes.Contains([]byte(got), []byte(`"sync"`)):
		default:
			return fmt.Errorf("control was told %s, expected %s", got, w.expect[0])
		}
	}
	return nil
}

// resumeAll lets everybody of a connectionId read, so that nothing waits for long.
func (w *world) resumeAll(cid string, d *modelPeer) {
	d.setStalled(false)
	for _, c := range w.clients[cid] {
		c.setStalled(false)
	}
}

func (w *world) clientLeaves(i, which, how int) error {
	cid := cidOf(i)
	cs, d := w.clients[cid], w.datas[i]
	c := cs[which]
	w.step("client of %s leaves (%d), %d stay", cid, how, len(cs)-1)
	w.resumeAll(cid, d)
	at := w.places["data "+cid]
	if how == 2 {
		at.loses(c.src)
	}
	c.at.loses(0)
	w.clients[cid] = append(append([]*modelPeer(nil), cs[:which]...), cs[which+1:]...)
	if err := c.leave(how); err != nil {
		return err
	}
	if len(cs) > 1 {
		return nil
	}
	// The last: what it had sent, then the close.
	w.datas[i] = nil
	if err := d.wantEnd(1001, "Client disconnected"); err != nil {
		return err
	}
	if ok, why := at.settled(); !ok {
		return fmt.Errorf("closed with messages owed: %s", why)
	}
	delete(w.places, "data "+cid)
	w.expect = append(w.expect, disconnectedJSON(cid))
	return w.notices()
}

func (w *world) dataLeaves(i, how int) error {
	cid := cidOf(i)
	cs, d := w.clients[cid], w.datas[i]
	w.step("data %s leaves (%d), %d clients", cid, how, len(cs))
	w.resumeAll(cid, d)
	for _, c := range cs {
		if how == 2 {
			c.at.loses(d.src)
		}
	}
	w.places["data "+cid].loses(0)
	w.datas[i] = nil
	delete(w.clients, cid)
	if err := d.leave(how); err != nil {
		return err
	}
	for _, c := range cs {
		if err := c.wantEnd(1012, "Server disconnected"); err != nil {
			return err
		}
		if ok, why := c.at.settled(); !ok {
			return fmt.Errorf("closed with messages owed: %s", why)
		}
	}
	delete(w.places, "data "+cid)
	if len(cs) > 0 {
		w.expect = append(w.expect, disconnectedJSON(cid))
		return w.notices()
	}
	return nil
}

// drain begins a drain and takes it back: new sessions are refused, what is
// attached goes on and may come back.
func (w *world) drain() error {
	w.m.draining.Lock()
	defer w.m.draining.Unlock()
	w.step("drain")
	w.m.n.g.SetDraining(true)
	defer func() {
		w.m.n.g.SetDraining(false)
	}()
	c, err := dialWS(w.m.n.t, w.m.n.addr, wsQuery(w.sid+"-new", "server", 1, "-"), "new")
	var no *refusedError
	if err == nil {
		c.rst()
	}
	if !errors.As(err, &no) || no.status != 503 || no.body != "draining" {
		return fmt.Errorf("a new session while draining: %v", err)
	}
	err = nil
	for range 3 {
		if len(w.alive()) == 0 {
			return nil
		}
		if w.v2 {
			err = w.openControl()
		} else if w.server != nil {
			old := w.server
			if at := w.places["client"]; at != nil {
				at.loses(old.src)
			}
			w.replaced(old)
			if w.server, err = w.open(wsQuery(w.sid, "server", 1, "-"), "v1 server", old.at); err == nil {
				err = old.wantEnd(1008, "Replaced by new connection")
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}
