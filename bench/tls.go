package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"time"
)

const (
	// tlsBar is what a message may cost over TLS in terms of a plain one and two
	// passes of AES-256-GCM over it.
	tlsBar = 1.3
	// tlsIdleBarKiB is the process memory of one idle TLS socket.
	tlsIdleBarKiB = 12
	// stormRate is how many handshakes a second the established sessions stand.
	stormRate = 1000
	// stormBarMillis is what their round trip may take then, 99 times of 100.
	stormBarMillis = 5

	tlsPairs     = 10
	stormWorkers = 8
)

// tlsCells are the loads of the relay over TLS.
var tlsCells = []struct {
	name            string
	payload, window int
}{
	{"1 KiB, 32 in flight", 1 << 10, 32},
	{"16 KiB, 8 in flight", 16 << 10, 8},
}

// runTLS compares the relay over TLS with the relay without and the bare cipher,
// weighs idle sockets, and looks at a session beside a storm of handshakes.
func runTLS(l *lab, r *report) error {
	if _, ok := l.target(sluiceName); !ok {
		r.note("tls: not run, sluice is not among the targets")
		return nil
	}
	dir, err := os.MkdirTemp("", "sluice-bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	if err := writeCertificate(cert, key); err != nil {
		return err
	}
	plain, err := l.startTLSRelay("", "")
	if err != nil {
		return err
	}
	defer plain.stop()
	secure, err := l.startTLSRelay(cert, key)
	if err != nil {
		return err
	}
	defer secure.stop()
	if err := l.tlsThroughput(r, plain, secure); err != nil {
		return err
	}
	if err := l.tlsStorm(r, secure); err != nil {
		return err
	}
	return l.tlsIdle(r, cert, key)
}

// startTLSRelay runs the relay with one loop; without a certificate it is plain.
func (l *lab) startTLSRelay(cert, key string) (*server, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	argv, env := sluiceCommand(l, port, 1)
	if cert != "" {
		env = append(env, "PASEO_RELAY_TLS_CERT_FILE="+cert, "PASEO_RELAY_TLS_KEY_FILE="+key)
	}
	return l.startProcess(sluiceName, port, l.cores.server, argv, env)
}

// writeCertificate makes a certificate of its own signature, ECDSA P-256.
func writeCertificate(cert, key string) error {
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		DNSNames:     []string{relayedHost},
		NotAfter:     time.Now().Add(24 * time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &k.PublicKey, k)
	if err != nil {
		return err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		return err
	}
	if err := os.WriteFile(cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		return err
	}
	return os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}), 0o600)
}

// tlsThroughput measures a message's cost, plain, over TLS and for the cipher
// alone, in turns.
func (l *lab) tlsThroughput(r *report, plain, secure *server) error {
	t := newTable("one loop on one core", "plain", "two passes of AES-256-GCM", "TLS", "TLS / both")
	for _, c := range tlsCells {
		var costs, bare, secures, over []float64
		for round := range l.plan.rounds {
			gcm, err := l.gcmPasses(c.payload)
			if err != nil {
				return err
			}
			var cost [2]float64
			for i := range 2 {
				k := (i + round) % 2
				s, cfg := plain, (*tls.Config)(nil)
				if k == 1 {
					s, cfg = secure, tlsClient
				}
				if cost[k], err = l.relayCost(s, cfg, c.payload, c.window); err != nil {
					return fmt.Errorf("%s: %w", c.name, err)
				}
			}
			costs, bare, secures = append(costs, cost[0]), append(bare, gcm), append(secures, cost[1])
			over = append(over, cost[1]/(cost[0]+gcm))
			r.raw("tls", "round %d, %s: plain_s_per_M=%.3f gcm_s_per_M=%.3f tls_s_per_M=%.3f", round+1, c.name, cost[0], gcm, cost[1])
		}
		ratio := median(over)
		t.add(c.name, number(median(costs)), number(median(bare)), number(median(secures)), number(ratio))
		r.check("TLS, "+c.name+", CPU per message, × plain and two passes", ratio, tlsBar)
	}
	r.section("Relay over TLS, server CPU seconds per million messages", t.String())
	return nil
}

// gcmPasses returns the CPU seconds of sealing and opening a million messages.
func (l *lab) gcmPasses(size int) (perMillion float64, err error) {
	gcm, err := newBulkGCM(size)
	if err != nil {
		return 0, err
	}
	turns := 0
	var spent time.Duration
	err = onCore(l.cores.server, func() error {
		for start := threadCPU(); spent < 200*time.Millisecond; spent = threadCPU() - start {
			for range bulkTurn {
				if err := gcm.turn(); err != nil {
					return err
				}
			}
			turns += bulkTurn
		}
		return nil
	})
	return spent.Seconds() / float64(turns) * 1e6, err
}

// relayCost runs pairs that each keep a window of messages in flight.
func (l *lab) relayCost(s *server, cfg *tls.Config, payload, window int) (perMillion float64, err error) {
	var pairs []*relayPair
	defer func() {
		for _, p := range pairs {
			p.close()
		}
	}()
	for i := range tlsPairs {
		p, err := dialPair(s.port, cfg, fmt.Sprintf("tls-%d-%d", payload, i))
		if err != nil {
			return 0, err
		}
		pairs = append(pairs, p)
	}
	run := func(seconds float64, burst func(p *relayPair, payload, window int, end time.Time) (int, error)) (messages int, err error) {
		end := time.Now().Add(time.Duration(seconds * float64(time.Second)))
		counts, errs := make([]int, len(pairs)), make([]error, len(pairs))
		var wg sync.WaitGroup
		for i, p := range pairs {
			wg.Go(func() { counts[i], errs[i] = burst(p, payload, window, end) })
		}
		wg.Wait()
		for i := range pairs {
			messages += counts[i]
			if errs[i] != nil {
				err = errs[i]
			}
		}
		return messages, err
	}
	if _, err := run(l.plan.warmUp, (*relayPair).bursts); err != nil {
		return 0, err
	}
	before, err := cpuSeconds(s.pid())
	if err != nil {
		return 0, err
	}
	messages, err := run(l.plan.seconds, (*relayPair).flood)
	if err != nil {
		return 0, err
	}
	after, err := cpuSeconds(s.pid())
	if err != nil {
		return 0, err
	}
	return (after - before) / float64(messages) * 1e6, s.check()
}

// tlsStorm takes the round trips of an established session, alone and beside new
// handshakes. Both ends of everything but the relay share the generator's core,
// whose work is in the figures.
func (l *lab) tlsStorm(r *report, s *server) error {
	p, err := dialPair(s.port, tlsClient, "storm")
	if err != nil {
		return err
	}
	defer p.close()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2 * stormWorkers)) // none waits for a thread
	t := newTable("round trip of 64 B over TLS, ms", "p50", "p99", "handshakes a second")
	for _, rate := range []int{0, stormRate} {
		stop := make(chan struct{})
		var done sync.WaitGroup
		made, failed := 0, error(nil)
		done.Go(func() { made, failed = storm(s.port, rate, stop) })
		began := time.Now()
		trips, err := p.roundTrips(64, began.Add(time.Duration(l.plan.seconds*float64(time.Second))))
		took := time.Since(began).Seconds()
		close(stop)
		done.Wait()
		if err == nil {
			err = failed
		}
		if err != nil {
			return err
		}
		slices.Sort(trips)
		p50, p99 := millis(trips[len(trips)/2]), millis(trips[len(trips)*99/100])
		r.raw("tls", "storm: handshakes_s=%.0f p50_ms=%.3f p99_ms=%.3f n=%d", float64(made)/took, p50, p99, len(trips))
		name := "alone"
		if rate > 0 {
			name = "beside handshakes"
			r.check("TLS round trip beside 1,000 handshakes a second, p99, ms", p99, stormBarMillis)
			r.checkLeast("handshakes a second, ECDSA P-256", float64(made)/took, 0.9*stormRate)
		}
		t.add(name, number(p50), number(p99), number(float64(made)/took))
	}
	r.section("TLS handshakes", t.String())
	return s.check()
}

func millis(d time.Duration) float64 { return d.Seconds() * 1e3 }

// storm makes handshakes at a rate until stop is closed.
func storm(port, rate int, stop chan struct{}) (made int, err error) {
	if rate == 0 {
		return 0, nil
	}
	// Without the post-quantum half of the key exchange the generator's core keeps up.
	cfg := tlsClient.Clone()
	cfg.CurvePreferences = []tls.CurveID{tls.X25519}
	var mu sync.Mutex
	var wg sync.WaitGroup
	began := time.Now()
	for w := range stormWorkers {
		wg.Go(func() {
			lowerThread() // the round trips come first
			for i := w; ; i += stormWorkers {
				wait := time.Until(began.Add(time.Duration(i) * time.Second / time.Duration(rate)))
				select {
				case <-stop:
					return
				case <-time.After(wait):
				}
				c, e := tls.Dial("tcp4", fmt.Sprintf("127.0.0.1:%d", port), cfg)
				mu.Lock()
				if made++; e != nil {
					made, err = made-1, e
				}
				mu.Unlock()
				if e != nil {
					return
				}
				c.NetConn().(*net.TCPConn).SetLinger(0) // ports are few
				c.NetConn().Close()
			}
		})
	}
	wg.Wait()
	return made, err
}

// tlsIdle weighs idle sockets that have moved one message of 1 KiB each.
func (l *lab) tlsIdle(r *report, cert, key string) error {
	s, err := l.startTLSRelay(cert, key)
	if err != nil {
		return err
	}
	defer s.stop()
	first, err := dialPair(s.port, tlsClient, "first")
	if err != nil {
		return err
	}
	defer first.close()
	before, err := residentKiB(s.pid())
	if err != nil {
		return err
	}
	for i := range l.plan.sockets / 2 {
		p, err := dialPair(s.port, tlsClient, fmt.Sprintf("idle-%d", i))
		if err != nil {
			return err
		}
		defer p.close()
		if _, err := p.bursts(1<<10, 1, time.Time{}); err != nil {
			return err
		}
	}
	// What the handshakes left behind is collected when they have ended.
	per := 0.0
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(time.Second) {
		now, err := residentKiB(s.pid())
		if err != nil {
			return err
		}
		per = (now - before) / float64(l.plan.sockets)
	}
	r.raw("tls", "idle: sockets=%d per_conn_KiB=%.2f", l.plan.sockets, per)
	r.check("memory of an idle TLS socket, KiB", per, tlsIdleBarKiB)
	t := newTable(fmt.Sprintf("KiB per socket, %d sockets", l.plan.sockets), "after 1 KiB through each")
	t.add(sluiceName+" over TLS", number(per))
	r.section("Idle TLS sockets", t.String())
	return s.check()
}
