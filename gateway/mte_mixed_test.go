package gateway_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	wire "sluice/codec/frame"
	"sluice/codec/open"
)

const (
	mixedPairs   = 64
	mixedClients = 8
	mixedMost    = 4 << 20 // bytes of a body
	mixedCap     = 3 << 20 // MAX_REQUEST_BODY_MIB in bytes
	// mixedDrain is well below the 1 MiB that is drained to keep a pair in step.
	mixedDrain = 512 << 10
)

// A mixer sends one request after the other through one pair at a time.
type mixer struct {
	origin  *moodyOrigin
	c       *mteClient
	p       *mtePair
	conn    *mteConn
	rng     *rand.Rand
	retired *atomic.Int64
}

// logUniform draws a size from 0 to most, each order of magnitude alike.
func logUniform(rng *rand.Rand, most int) int {
	return int(math.Exp(rng.Float64()*math.Log(float64(most)+1))) - 1
}

// A mixed request: what is sent, and how far.
type mixedRequest struct {
	mode     string
	seed     uint64
	up, down int
	typ      open.Type
	path     string // instead of the mode's
	stop     int    // bytes of the body before the client leaves; -1 sends all
	noEnd    bool   // the HTTP body ends without END
	flip     bool   // one byte of a DATA is changed
	trailing bool   // a frame stands behind END
}

func (q *mixedRequest) target() string {
	if q.path != "" {
		return q.path
	}
	return fmt.Sprintf("m/%s?seed=%d&up=%d&down=%d", q.mode, q.seed, q.up, q.down)
}

// draw makes a request of a mode.
func (m *mixer) draw(mode string) *mixedRequest {
	q := &mixedRequest{mode: mode, seed: uint64(m.rng.Int64()), up: logUniform(m.rng, mixedMost), down: logUniform(m.rng, mixedMost), typ: open.MKE, stop: -1}
	if m.rng.IntN(5) == 0 { // eight times as many bytes on the wire
		q.typ, q.up, q.down = open.MTE, q.up/16, q.down/16
	}
	return q
}

// over tells whether the body is refused by the cap.
func (q *mixedRequest) over() bool { return q.up > mixedCap }

// upload writes a request. It ends early, without an error, where q says so.
func (m *mixer) upload(conn *mteConn, q *mixedRequest) error {
	p, rng := m.p, rand.New(rand.NewPCG(q.seed, 1))
	withBody := q.up > 0 || rng.IntN(2) == 0 || q.noEnd || q.flip
	head := p.request("POST", q.target(), withBody)
	most := []int{3, 50, 1500, 16 << 10, 100 << 10}[rng.IntN(5)]
	most = max(most, q.up/1000)
	w := &chopper{w: conn, rng: rng, most: most, out: m.c.frameHead(-1)}
	if err := w.write(head); err != nil {
		return err
	}
	body, app := seeded(q.seed), make([]byte, p.maxData())
	flipAt := -1
	if q.flip {
		flipAt = rng.IntN(q.up + 1)
	}
	for sent := 0; withBody; {
		if sent == q.stop {
			return w.flush()
		}
		n := min(q.up-sent, 1+rng.IntN(len(app)))
		if q.stop >= 0 {
			n = min(n, q.stop-sent)
		}
		if rng.IntN(8) == 0 { // an empty DATA is no operation
			if err := w.write(wire.AppendEnvelope(nil, wire.KindData, 0, 0)); err != nil {
				return err
			}
		}
		body.Read(app[:n])
		var flags wire.Flags
		if sent+n == q.up && !q.noEnd && (n == 0 || rng.IntN(2) == 0) {
			flags = wire.FlagEnd
		}
		b := p.appendData(nil, app[:n], flags)
		if flipAt >= sent && flipAt <= sent+n {
			b[wire.EnvelopeBytes+rng.IntN(len(b)-wire.EnvelopeBytes)] ^= 0x10
			flipAt = -1
		}
		if err := w.write(b); err != nil {
			return err
		}
		sent += n
		if flags != 0 || q.noEnd && sent == q.up {
			break
		}
	}
	if q.trailing {
		if err := w.write(wire.AppendEnvelope(nil, wire.KindData, 0, 0)); err != nil {
			return err
		}
	}
	return w.end()
}

// exchange sends a request and compares the answer. It keeps the connection if
// that may be.
func (m *mixer) exchange(q *mixedRequest, status int) (err error) {
	if m.conn == nil {
		if m.conn, err = m.c.n.dial(); err != nil {
			return err
		}
	}
	conn := m.conn
	conn.SetDeadline(time.Now().Add(3 * patience))
	m.p.use(q.typ)
	sent := make(chan error, 1)
	go func() { sent <- m.upload(conn, q) }()
	a, err := conn.answer(m.p)
	switch {
	case err != nil:
	case a.status != status:
		err = fmt.Errorf("status %d, expected %d", a.status, status)
	case q.mode == "echo":
		err = sameStream(a, q.seed, int64(q.up))
	default:
		err = sameStream(a, q.seed+1, int64(q.down))
	}
	return m.finished(conn, a, sent, err)
}

func (m *mixer) finished(conn *mteConn, a *mteAnswer, sent chan error, err error) error {
	if err == nil && !a.http.Close {
		if err = <-sent; err == nil && m.rng.IntN(8) > 0 {
			return nil
		}
		m.hangUp(false)
		return err
	}
	var r *mteRefusal
	if err == nil || errors.As(err, &r) {
		<-sent // a refusal waits for the upload, or has it dropped
	}
	m.hangUp(false)
	if err != nil && r == nil {
		<-sent
	}
	return err
}

// hangUp closes the connection.
func (m *mixer) hangUp(reset bool) {
	if m.conn == nil {
		return
	}
	if reset {
		m.conn.Conn.(wsConn).SetLinger(0)
	}
	m.conn.Close()
	m.conn = nil
}

// leave uploads as much as q says, reads part of the answer, if head is true, and
// leaves when the origin has got that far.
func (m *mixer) leave(q *mixedRequest, head bool) (err error) {
	m.hangUp(false)
	if m.conn, err = m.c.n.dial(); err != nil {
		return err
	}
	m.conn.SetDeadline(time.Now().Add(3 * patience))
	m.p.use(q.typ)
	there := m.origin.expect(q.seed)
	sent := make(chan error, 1)
	conn := m.conn
	go func() { sent <- m.upload(conn, q) }()
	if head {
		var a *mteAnswer
		if a, err = m.conn.answer(m.p); err == nil {
			_, err = io.CopyN(io.Discard, a, int64(m.rng.IntN(q.down+1)))
		}
	}
	if err == nil {
		err = <-sent
	}
	// What the relay has not seen when the client leaves has not happened.
	select {
	case <-there:
	case <-time.After(patience):
		err = errors.Join(err, errors.New("the request never came to the origin"))
	}
	m.hangUp(m.rng.IntN(2) == 0)
	return err
}

// refusedWith expects a refusal, with a cause or NoReason.
func refusedWith(err error, reason, cause wire.Reason) error {
	var r *mteRefusal
	if !errors.As(err, &r) || !refusedFor(err, reason) {
		return fmt.Errorf("expected %v: %w", reason, orNothing(err))
	}
	if cause == wire.NoReason && r.Cause.Code != 0 || cause != wire.NoReason && (r.Cause.Reason != cause.String() || r.Cause.Code != cause.Code() || r.Cause.Hop != 0) {
		return fmt.Errorf("expected the cause %v: %w", cause, err)
	}
	return nil
}

func orNothing(err error) error {
	if err == nil {
		return errors.New("an answer without a refusal")
	}
	return err
}

// gone proves that the relay has retired the pair, and makes another.
func (m *mixer) gone() error {
	m.retired.Add(1)
	if _, err := m.p.get("m/sink?seed=1&up=0&down=0"); !refusedFor(err, wire.PairNotFound) && !refusedFor(err, wire.InvalidClientID) {
		return fmt.Errorf("a pair that must be retired: %w", orNothing(err))
	}
	var err error
	m.p, err = m.c.pair()
	return err
}

// inStep proves that the pair works.
func (m *mixer) inStep() error {
	if _, err := m.p.get("m/sink?seed=1&up=0&down=3"); err != nil {
		return fmt.Errorf("a pair that must be in step: %w", err)
	}
	return nil
}

// A mood is one way a request can go; weights are relative.
type mood struct {
	name   string
	weight int
	act    func(m *mixer) error
}

var moods = []mood{
	{"sink", 50, func(m *mixer) error {
		q := m.draw("sink")
		if q.over() {
			return refusedWith(m.exchange(q, 200), wire.BodyTooLarge, wire.NoReason)
		}
		return m.exchange(q, 200)
	}},
	{"echo", 20, func(m *mixer) error {
		q := m.draw("echo")
		q.up = min(q.up, mixedCap)
		return m.exchange(q, 200)
	}},
	{"origin answers early", 4, func(m *mixer) error {
		q := m.draw("early")
		q.up, q.down = min(q.up, mixedCap), q.down%10000
		return m.exchange(q, 413)
	}},
	{"origin drops the request", 3, func(m *mixer) error {
		q := m.draw("drop")
		q.up = min(q.up, mixedCap)
		return refusedWith(m.exchange(q, 200), wire.UpstreamResponseFailed, wire.NoReason)
	}},
	{"origin closes unread", 2, func(m *mixer) error {
		q := m.draw("refuse")
		q.up = min(q.up, mixedDrain)
		return refusedWith(m.exchange(q, 200), wire.UpstreamResponseFailed, wire.NoReason)
	}},
	{"origin cuts its answer", 3, func(m *mixer) error {
		q := m.draw("cut")
		q.up = min(q.up, mixedCap)
		if err := refusedWith(m.exchange(q, 200), wire.UpstreamResponseFailed, wire.NoReason); err != nil {
			return err
		}
		return m.gone()
	}},
	{"client leaves mid-upload", 3, func(m *mixer) error {
		q := m.draw("sink")
		q.up = max(q.up, 10)
		q.stop = 1 + m.rng.IntN(min(q.up, mixedCap)-1)
		if err := m.leave(q, false); err != nil {
			return err
		}
		return m.gone()
	}},
	{"client leaves before the answer", 3, func(m *mixer) error {
		q := m.draw("hanghead")
		q.up = min(q.up, mixedCap)
		if err := m.leave(q, false); err != nil {
			return err
		}
		return m.inStep()
	}},
	{"client leaves mid-response", 3, func(m *mixer) error {
		q := m.draw("hang")
		q.up, q.down = min(q.up, mixedCap), q.down+1
		if err := m.leave(q, true); err != nil {
			return err
		}
		return m.gone()
	}},
	{"path refused", 3, func(m *mixer) error {
		q := m.draw("sink")
		q.path, q.up = "m/../x", min(q.up, mixedDrain)
		return refusedWith(m.exchange(q, 200), wire.MetadataInvalid, wire.NoReason)
	}},
	{"path refused, drain exceeded", 1, func(m *mixer) error {
		q := m.draw("sink")
		q.typ, q.path, q.up = open.MKE, "m/%2e./x", 1<<20+1<<19+q.up/4
		if err := refusedWith(m.exchange(q, 200), wire.EOFBeforeEnd, wire.MetadataInvalid); err != nil {
			return err
		}
		return m.gone()
	}},
	{"damaged REQUEST", 2, func(m *mixer) error {
		m.p.use(open.MKE)
		b := m.p.request("GET", "m/sink?seed=1&up=0&down=5", false)
		bad := bytes.Clone(b)
		bad[len(bad)-1-m.rng.IntN(16)] ^= 1
		_, err := m.p.send(bad)
		if err := refusedWith(err, wire.DecodeFailed, wire.NoReason); err != nil {
			return err
		}
		_, err = m.p.send(b) // nobody can kill a pair with bytes he saw
		return err
	}},
	{"replay", 2, func(m *mixer) error {
		m.p.use(open.MKE)
		b := m.p.request("GET", "m/sink?seed=1&up=0&down=5", false)
		if _, err := m.p.send(b); err != nil {
			return err
		}
		_, err := m.p.send(b)
		return refusedWith(err, wire.ReplayRejected, wire.NoReason)
	}},
	{"damaged DATA", 2, func(m *mixer) error {
		q := m.draw("sink")
		q.up, q.flip = min(q.up, mixedCap), true
		if err := refusedWith(m.exchange(q, 200), wire.EOFBeforeEnd, wire.DecodeFailed); err != nil {
			return err
		}
		return m.gone()
	}},
	{"no END", 2, func(m *mixer) error {
		q := m.draw("sink")
		q.up, q.noEnd = min(q.up, mixedCap), true
		if err := refusedWith(m.exchange(q, 200), wire.EOFBeforeEnd, wire.NoReason); err != nil {
			return err
		}
		return m.gone()
	}},
	{"bytes behind END", 2, func(m *mixer) error {
		q := m.draw("sink")
		q.up, q.trailing = min(q.up, mixedCap), true
		return refusedWith(m.exchange(q, 200), wire.InvalidFrame, wire.NoReason)
	}},
}

// drawMood draws by weight.
func drawMood(rng *rand.Rand) *mood {
	total := 0
	for i := range moods {
		total += moods[i].weight
	}
	k := rng.IntN(total)
	for i := range moods {
		if k -= moods[i].weight; k < 0 {
			return &moods[i]
		}
	}
	panic("BUG: weights")
}

// runMixed sends requests of all moods over 64 pairs at once. After each the pair
// is either in step, which the next one proves, or retired, as the contract says.
func runMixed(t *testing.T, seed uint64, requests int) {
	t.Logf("seed %d", seed)
	origin := &moodyOrigin{t: t}
	n := startMTEBehind(t, origin, "MAX_REQUEST_BODY_MIB="+strconv.Itoa(mixedCap>>20))
	var clients []*mteClient
	for range mixedClients {
		clients = append(clients, newMTEClient(t, n, "localhost"))
	}
	var retired atomic.Int64
	var wg sync.WaitGroup
	counts := make([]map[string]int, mixedPairs)
	for i := range mixedPairs {
		m := &mixer{origin: origin, c: clients[i%mixedClients], rng: rand.New(rand.NewPCG(seed, uint64(i))), retired: &retired}
		var err error
		if m.p, err = m.c.pair(); err != nil {
			t.Fatal(err)
		}
		counts[i] = map[string]int{}
		wg.Go(func() {
			defer func() { m.hangUp(false) }()
			for k := range (requests + mixedPairs - 1) / mixedPairs {
				mood := drawMood(m.rng)
				if err := mood.act(m); err != nil {
					t.Errorf("pair %d, request %d, %s: %v", i, k, mood.name, err)
					return
				}
				counts[i][mood.name]++
			}
			if err := m.inStep(); err != nil {
				t.Errorf("pair %d at the end: %v", i, err)
			}
		})
	}
	wg.Wait()
	total := map[string]int{}
	for _, c := range counts {
		for name, k := range c {
			total[name] += k
		}
	}
	t.Logf("%d pairs were retired; %v", retired.Load(), total)
	n.untilMetric("mte_relay_pairs_in_use", 0)
	n.untilMetric("mte_relay_pairs", mixedPairs)
	n.untilMetric("mte_relay_pairs_retired_total", float64(retired.Load()))
	n.untilMetric(`sluice_http_connections{listener="mte"}`, 0)
	if !poll(func() bool { return origin.hanging.Load() == 0 }) {
		t.Errorf("%d requests still hang at the origin", origin.hanging.Load())
	}
}

func TestMixed(t *testing.T) {
	requests := 640
	if raceEnabled {
		requests = 192
	}
	runMixed(t, uint64(time.Now().UnixNano()), requests)
}
