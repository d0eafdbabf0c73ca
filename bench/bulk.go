package main

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/cloudflare/circl/kem/mlkem/mlkem1024"

	"sluice/codec/frame"
	"sluice/codec/open"
	"sluice/gateway/client"
	"sluice/kyber"
)

const (
	// bulkBar and pairingBar are what ours must reach of the bare arithmetic.
	bulkBar    = 0.85
	pairingBar = 0.85

	bulkFrame = 64 << 10 // bytes of a DATA's payload
	// bulkTurn is how many frames either side takes before it is the other's
	// turn: a few milliseconds.
	bulkTurn = 64

	pairBatch     = 100
	mlkemStrength = 1024
)

// runBulk compares arithmetic that somebody else wrote with what it becomes in
// our hands: frames and pairing calls.
func runBulk(l *lab, r *report) error {
	if err := runBulkFrames(l, r); err != nil {
		return fmt.Errorf("frames: %w", err)
	}
	return runBulkPairing(l, r)
}

// runBulkFrames encodes and decodes DATA of 64 KiB, on the server's core and in
// turns with AES-256-GCM on as many bytes.
func runBulkFrames(l *lab, r *report) error {
	ours, err := newBulkCodec()
	if err != nil {
		return err
	}
	bare, err := newBulkGCM(len(ours.plain))
	if err != nil {
		return err
	}
	var rates, bareRates []float64
	for round := range l.plan.rounds {
		var spent, bareSpent time.Duration
		taken := 0.0
		err := onCore(l.cores.server, func() error {
			for spent+bareSpent < time.Duration(l.plan.seconds*float64(time.Second)) {
				start := threadCPU()
				for range bulkTurn {
					if err := bare.turn(); err != nil {
						return err
					}
				}
				between := threadCPU()
				for range bulkTurn {
					if err := ours.turn(); err != nil {
						return err
					}
				}
				bareSpent += between - start
				spent += threadCPU() - between
				taken += bulkTurn * float64(len(ours.plain))
			}
			return nil
		})
		if err != nil {
			return err
		}
		rates = append(rates, taken/spent.Seconds()/1e9)
		bareRates = append(bareRates, taken/bareSpent.Seconds()/1e9)
		r.raw("bulk", "round %d, frames: GB_s=%.3f bare_GB_s=%.3f", round+1, rates[round], bareRates[round])
	}
	share := median(ratios(rates, bareRates))
	t := newTable("encode and decode of 64 KiB", "GB/s", "of bare")
	t.add("AES-256-GCM", number(median(bareRates)), "1.00")
	t.add("frames, MKE", number(median(rates)), number(share))
	r.checkLeast("frames of 64 KiB, share of bare AES-256-GCM", share, bulkBar)
	r.section("Bulk", t.String())
	return nil
}

// A bulkCodec is a direction of a pair with both its ends.
type bulkCodec struct {
	enc   open.Encoder
	dec   open.Decoder
	plain []byte // of a DATA: flags and application bytes
	wire  []byte
}

func newBulkCodec() (*bulkCodec, error) {
	profile, err := open.New(mlkemStrength, frame.SequenceWindow)
	if err != nil {
		return nil, err
	}
	var entropy [kyber.SharedKeyBytes]byte
	state := profile.AppendInitialState(nil, &entropy, 1, nil)
	c := &bulkCodec{enc: profile.NewEncoder(open.MKE), dec: profile.NewDecoder(open.MKE)}
	if err := c.enc.Restore(state); err != nil {
		return nil, err
	}
	c.plain = frame.AppendData(nil, 0, make([]byte, profile.PlaintextBytes(open.MKE, bulkFrame)-1))
	return c, c.dec.Restore(state)
}

// turn makes a frame and takes it apart.
func (c *bulkCodec) turn() (err error) {
	b := frame.AppendEnvelope(c.wire[:0], frame.KindData, 0, bulkFrame)
	if c.wire, err = c.enc.AppendEncode(b, c.plain); err != nil {
		return err
	}
	e, n, err := frame.ParseEnvelope(c.wire)
	if err != nil {
		return err
	}
	text, err := c.dec.Decode(c.wire[n:])
	if err != nil {
		return err
	}
	app, err := frame.SplitData(text, e.Flags)
	if err == nil && len(app) != len(c.plain)-1 {
		err = fmt.Errorf("a frame of %d bytes came out with %d", len(c.plain)-1, len(app))
	}
	return err
}

// A bulkGCM is the same without frames, numbers that are looked at, and windows.
type bulkGCM struct {
	gcm   cipher.AEAD
	nonce [12]byte
	plain []byte
	out   []byte
}

func newBulkGCM(size int) (*bulkGCM, error) {
	block, err := aes.NewCipher(make([]byte, 32))
	if err != nil {
		return nil, err
	}
	gcm, err := cipher.NewGCM(block)
	if err != nil {
		return nil, err
	}
	return &bulkGCM{gcm: gcm, plain: make([]byte, size), out: make([]byte, 0, size+gcm.Overhead())}, nil
}

func (g *bulkGCM) turn() error {
	binary.BigEndian.PutUint64(g.nonce[4:], binary.BigEndian.Uint64(g.nonce[4:])+1)
	sealed := g.gcm.Seal(g.out, g.nonce[:], g.plain, nil)
	_, err := g.gcm.Open(sealed[:0], g.nonce[:], sealed, nil)
	return err
}

// runBulkPairing makes pairs in full batches through the control endpoint, each
// with keys of its own, and compares the server's CPU time per pair with that of
// parsing and encapsulating to the same keys, twice a pair.
func runBulkPairing(l *lab, r *report) error {
	if _, ok := l.target(sluiceName); !ok {
		r.note("pairing: not run, sluice is not among the targets")
		return nil
	}
	t := newTable("pairing in batches of 100, ML-KEM-1024", "CPU µs per pair", "bare", "share")
	for _, atOnce := range []int{busyCalls, 2} {
		var costs, bareCosts []float64
		for round := range l.plan.rounds {
			cost, bare, err := l.pairingCost(atOnce)
			if err != nil {
				return fmt.Errorf("pairing: %w", err)
			}
			costs, bareCosts = append(costs, cost), append(bareCosts, bare)
			r.raw("bulk", "round %d, pairing, %d calls at a time: srvcpu_us_per_pair=%.1f bare_us_per_pair=%.1f", round+1, atOnce, cost, bare)
		}
		share := median(ratios(bareCosts, costs))
		t.add(fmt.Sprintf("%s, %d calls at a time", sluiceName, atOnce), number(median(costs)), number(median(bareCosts)), number(share))
		if atOnce == busyCalls {
			r.checkLeast("pairs per CPU second, share of bare ML-KEM", share, pairingBar)
		}
	}
	r.section("Pairing", t.String())
	return nil
}

// busyCalls at a time keep the server's core busy. With two it waits for the
// generator now and then, and each wait costs Go's scheduler some work.
const busyCalls = 4

// pairingCost measures a fresh server, because pairs stay, and so does what they
// weigh on the collector. The calls are made up beforehand, and a few are on their
// way at a time: keys take longer to make than to answer.
func (l *lab) pairingCost(atOnce int) (micros, bareMicros float64, err error) {
	origin, err := freePort() // nobody listens, and nobody asks
	if err != nil {
		return 0, 0, err
	}
	s, err := l.startRelay(origin, "RATE_LIMITS=false", "MAX_PAIRS_PER_CLIENT=10000000", "MAX_PAIRS=10000000")
	if err != nil {
		return 0, 0, err
	}
	defer s.stop()
	session, err := authenticate(s.port)
	if err != nil {
		return 0, 0, err
	}
	if _, err := makePairs(s.port, session, pairBatch); err != nil { // all of them open
		return 0, 0, err
	}
	if err := callAll(s.port, pairingCalls(session, l.plan.warmUp), atOnce); err != nil {
		return 0, 0, err
	}
	calls := pairingCalls(session, l.plan.seconds)
	before, err := cpuSeconds(s.pid())
	if err != nil {
		return 0, 0, err
	}
	if err := callAll(s.port, calls, atOnce); err != nil {
		return 0, 0, err
	}
	after, err := cpuSeconds(s.pid())
	if err != nil {
		return 0, 0, err
	}
	keys, err := keysOf(calls)
	if err != nil {
		return 0, 0, err
	}
	err = onCore(l.cores.server, func() error {
		bareMicros, err = bareEncapsulation(keys)
		return err
	})
	if err == nil {
		err = s.check()
	}
	return (after - before) / float64(len(calls)*pairBatch) * 1e6, bareMicros, err
}

// pairingCalls makes as many calls as a server of ours may answer in a time.
func pairingCalls(s *client.Session, seconds float64) (calls []client.Call) {
	const perSecond = 100 // at 100 µs a pair
	var e kyber.Engine
	for range max(2, int(seconds*perSecond)) {
		p := s.NewPairing(pairBatch)
		for i := range p.Steps() {
			p.Step(&e, i)
		}
		calls = append(calls, p.Call())
		p.Wipe()
	}
	return calls
}

// callAll makes calls, so many at a time that the server has always one that has
// arrived: what it costs to wait for this program is not asked here.
func callAll(port int, calls []client.Call, atOnce int) error {
	done := make(chan error, atOnce)
	for from := range atOnce {
		go func() {
			var err error
			for i := from; i < len(calls) && err == nil; i += atOnce {
				_, err = callRelay(port, calls[i])
			}
			done <- err
		}()
	}
	var err error
	for range atOnce {
		err = errors.Join(err, <-done)
	}
	return err
}

// keysOf are the keys in pairing calls.
func keysOf(calls []client.Call) (keys [][]byte, err error) {
	for i := range calls {
		var q frame.PairRequest
		if err := q.Parse(calls[i].Body, pairBatch, mlkemStrength); err != nil {
			return nil, err
		}
		for _, o := range q.Pairs {
			keys = append(keys, o.EncoderKey, o.DecoderKey)
		}
	}
	return keys, nil
}

// bareEncapsulation is the CPU time, in microseconds per two keys, of what no
// pairing can do without.
func bareEncapsulation(keys [][]byte) (micros float64, err error) {
	ciphertext := make([]byte, mlkem1024.CiphertextSize)
	shared := make([]byte, mlkem1024.SharedKeySize)
	seed := make([]byte, mlkem1024.EncapsulationSeedSize)
	start := threadCPU()
	for _, ek := range keys {
		var pk mlkem1024.PublicKey
		if err := pk.Unpack(ek); err != nil {
			return 0, err
		}
		rand.Read(seed)
		pk.EncapsulateTo(ciphertext, shared, seed)
	}
	return float64((threadCPU() - start).Microseconds()) / float64(len(keys)/2), nil
}
