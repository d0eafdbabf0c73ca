// Package gateway composes Sluice: it builds the two roles on a set of event
// loops from one configuration, starts them, watches them and stops them.
package gateway

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"sync/atomic"
	"time"

	"sluice/codec/http1"
	"sluice/gateway/config"
	"sluice/gateway/edge"
	"sluice/gateway/logging"
	"sluice/gateway/metric"
	"sluice/gateway/relay"
	"sluice/gateway/store"
	"sluice/gateway/tlsconn"
	"sluice/ledger"
	"sluice/loop"
)

// Version is the program's; the linker sets it.
var Version = "dev"

const (
	// keepAlive and userTimeout find peers whose path has died: probes on idle
	// connections, a bound on unacknowledged output. Contract, relay §2. The
	// kernel applies the second to a peer that keeps its window closed, too, so
	// it must be longer than any deadline of ours for such a peer.
	keepAlive   = 60 * time.Second
	userTimeout = 60 * time.Second
)

// A Gateway is one running Sluice. Several can run in one process.
type Gateway struct {
	cfg   *config.Config
	log   *slog.Logger
	lines *logging.Limiter[metric.Listener] // about HTTP_MAX_CONNECTIONS

	tls        *tlsconn.Engine
	certs      *certificateWatch
	tlsLines   *logging.Limiter[tlsconn.Failure]
	proxyLines *logging.Limiter[metric.Listener]

	loops    []*loop.Loop
	led      *ledger.Ledger
	owner    store.Ownership
	redis    *store.Redis // nil without REDIS_URL
	relay    *relay.Relay
	metrics  *metric.Relay
	process  *metric.Process
	front    *edge.Server // of the relay's listener
	listener *loop.Listener

	encrypting *encrypting // nil with the role off

	watchdog *loop.Watchdog
	memory   *memory
	admin    *admin
	history  *history
	live     *liveConfig // nil when nothing watches the settings
	notifier *notifier   // nil without a supervisor; liveConfig.start sets it before anything uses it

	configVersion atomic.Uint64
	configPending atomic.Bool  // no version of the control plane is in force
	configAnswer  atomic.Int64 // loop.Now of the control plane's last answer, or of the start

	tuning  tuning
	state   atomic.Int32 // lifeState
	order   drainOrder
	failed  chan int // exit code of a gateway that gave up
	stopped chan struct{}
}

// A tuning is what the contract fixes and tests change.
type tuning struct {
	owner     store.OwnerTimes
	forwarded func(*store.Tenure) // relay.Config.Forwarded
}

var contractTuning = tuning{owner: store.DefaultOwnerTimes}

// Start builds and starts a gateway. On an error nothing is left running.
func Start(cfg *config.Config, log *slog.Logger) (*Gateway, error) {
	return start(cfg, log, contractTuning, false)
}

// start is Start; pending says that settings are missing which the control plane
// has to bring.
func start(cfg *config.Config, log *slog.Logger, tune tuning, pending bool) (*Gateway, error) {
	g := &Gateway{cfg: cfg, log: log, tuning: tune, lines: logging.NewLimiter(log, metric.Listeners), failed: make(chan int, 1), stopped: make(chan struct{})}
	g.tlsLines, g.proxyLines = logging.NewLimiter(log, tlsconn.Failures), logging.NewLimiter(log, metric.Listeners)
	g.certs = newCertificateWatch(g)
	g.configPending.Store(pending)
	g.configAnswer.Store(loop.Now())
	if err := g.build(); err != nil {
		g.closeListeners()
		if g.encrypting != nil {
			g.encrypting.role.Close()
		}
		for _, l := range g.loops {
			l.Discard()
		}
		g.closeRedis()
		return nil, err
	}
	if cfg.Relay.StartDraining {
		g.SetDraining(true)
	} else {
		g.setState(stateReady)
	}
	// What the loops ask of the gateway must be there before they run.
	g.watchdog = loop.WatchLoops(g.loops, cfg.Relay.CapacityMutationTimeout, g.failClosed)
	for _, l := range g.loops {
		go l.Run()
	}
	if g.owner != nil {
		g.owner.Start(g.relay.Lose)
	}
	g.memory = watchMemory(g)
	g.certs.start()
	g.history.begin()
	g.admin.serve()
	return g, nil
}

// build makes everything that runs on the loops, and the listeners.
func (g *Gateway) build() error {
	for i := range g.cfg.Loops {
		l, err := loop.New(i, loop.Config{Log: g.log})
		if err != nil {
			return err
		}
		g.loops = append(g.loops, l)
	}
	g.tls = tlsconn.New(g.loops, tlsconn.Limits{})
	g.configVersion.Store(g.cfg.Version)
	g.history = newHistory(g)
	g.process = metric.NewProcess(g.processGauges())
	g.openRedis()
	if g.cfg.Relay.Listen.On() {
		if err := g.buildRelay(); err != nil {
			return err
		}
	}
	if g.cfg.MTE.Listen.On() {
		if err := g.buildMTE(); err != nil {
			return err
		}
	}
	var err error
	g.admin, err = listenAdmin(g)
	return err
}

// buildRelay makes the WebSocket relay and its listener.
func (g *Gateway) buildRelay() error {
	c := &g.cfg.Relay
	g.owner = g.ownership()
	g.led = ledger.New(ledger.Limits{
		Sockets:     int64(c.MaxWebSockets()),
		Budget:      c.IngressBudgetBytes,
		Weight:      int64(c.IngressWeight),
		IngressWait: c.IngressWait,
	})
	g.metrics = metric.NewRelay(metric.RelayGauges{
		Ready:              g.Ready,
		Draining:           g.draining,
		Ledger:             g.ledgerGauges,
		IngressBudgetBytes: c.IngressBudgetBytes,
		MemoryBytes:        residentBytes,
		ClusterNodes:       g.owner.Nodes,
	})
	g.relay = relay.New(relay.Config{
		ControlQueue:  c.ControlQueueBytes,
		DataAttach:    c.DataAttachTimeout,
		MessageIdle:   c.MessageIdleTimeout,
		IngressWait:   c.IngressWait,
		PingInterval:  c.PingInterval,
		Deadlines:     ledger.Deadlines{Delivery: c.DeliveryTimeout, Send: c.TransportSendTimeout},
		SocketMemory:  c.SocketHeapBytes(),
		RerouteHeader: c.RerouteHeader,
		Log:           g.log,
		Ready:         g.Ready,
		Forwarded:     g.tuning.forwarded,
	}, g.led, g.owner, g.metrics, g.loops)
	secure, err := g.tlsOf(metric.ListenerRelay, "PASEO_RELAY_TLS_CERT_FILE", c.TLS)
	if err != nil {
		return err
	}
	g.front = edge.NewServer(edge.Config{
		Limits:         http1.Limits{HeadBytes: int(g.cfg.HTTP.MaxHeadBytes), Fields: g.cfg.HTTP.MaxHeaders},
		IdleTimeout:    c.HTTPIdleTimeout,
		WriteStall:     g.cfg.Socket.WriteStall,
		MaxConnections: g.cfg.HTTP.MaxConnections,
		OnCeiling:      g.ceiling(metric.ListenerRelay),
		Proxy:          g.proxyRule(metric.ListenerRelay),
		TLS:            secure,
	}, g.relay, g.loops)
	g.listener, err = g.listen("PASEO_RELAY_PORT", c.Listen, c.ReceiveBufferBytes)
	if err != nil {
		return err
	}
	for _, l := range g.loops {
		if err := l.Accept(g.listener, g.front); err != nil {
			return err
		}
	}
	return nil
}

func (g *Gateway) listen(setting string, at config.Listen, receive int64) (*loop.Listener, error) {
	ln, err := loop.Listen(at.Addr(), loop.SocketOptions{
		ReceiveBuffer: int(receive),
		SendBuffer:    int(g.cfg.Socket.SendBufferBytes),
		Congestion:    g.cfg.Socket.Congestion,
		KeepAlive:     keepAlive,
		UserTimeout:   max(userTimeout, 2*g.cfg.Relay.TransportSendTimeout, 2*g.cfg.Socket.WriteStall),
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", setting, err)
	}
	return ln, nil
}

// ceiling returns what a listener's server calls when HTTP_MAX_CONNECTIONS is reached.
func (g *Gateway) ceiling(of metric.Listener) func(evicted bool) {
	return func(evicted bool) {
		if evicted {
			g.process.Evicted(of)
		} else if of == metric.ListenerRelay {
			g.metrics.Reject(metric.RejectHTTPCeiling)
		}
		if log := g.lines.Line(of, loop.Now()); log != nil {
			log.Warn("as many HTTP connections as HTTP_MAX_CONNECTIONS allows", "listener", of.String(),
				"limit", g.cfg.HTTP.MaxConnections, "idle_one_closed", evicted)
		}
	}
}

// flushLines tells of lines about listeners that were left out.
func (g *Gateway) flushLines(now int64) {
	g.lines.Flush(now)
	g.proxyLines.Flush(now)
	if g.log.Enabled(context.Background(), slog.LevelDebug) { // as those lines are
		g.tlsLines.Flush(now)
	}
}

// refuseConnections makes the kernel refuse connections to either role.
func (g *Gateway) refuseConnections() {
	if g.listener != nil {
		g.listener.Refuse()
	}
	if g.encrypting != nil {
		g.encrypting.listener.Refuse()
	}
}

func (g *Gateway) closeListeners() {
	if g.listener != nil {
		g.listener.Close()
		g.listener = nil
	}
	if e := g.encrypting; e != nil && e.listener != nil {
		e.listener.Close()
		e.listener = nil
	}
}

// failClosed ends a node of which a loop does not turn over any more: it may
// hold sessions that it does not serve, and must not keep them from others.
func (g *Gateway) failClosed(wedged *loop.Loop) {
	g.log.Error("an event loop is stuck; the process gives up its sessions and exits",
		"loop", wedged.ID(), "setting", "PASEO_RELAY_CAPACITY_MUTATION_TIMEOUT_MS",
		"timeout", g.cfg.Relay.CapacityMutationTimeout, "exit", exitWedged)
	g.process.LoopStalls.Inc()
	g.setState(stateFailed)
	g.refuseConnections()
	if g.relay != nil {
		g.owner.Abandon()
		now := loop.Now()
		g.relay.CloseEvenly(now, now, now+int64(failTime))
	}
	time.Sleep(failTime) // what is left of the process has nothing else to do
	wedged.Condemn()
	select {
	case g.failed <- exitWedged:
	default:
	}
}

// Stop ends a gateway that has drained: listeners, admin, watchers, loops.
func (g *Gateway) Stop() {
	g.setState(stateStopped)
	g.watchdog.Stop()
	g.memory.stop()
	g.history.stop()
	g.live.stop()
	g.certs.stop()
	g.admin.stop()
	for _, l := range g.loops {
		l.Stop()
	}
	for _, l := range g.loops {
		<-l.Done()
	}
	g.closeListeners() // at once: the kernel would go on accepting for nobody
	g.flushLines(math.MaxInt64)
	if g.relay != nil {
		g.relay.FlushLog(math.MaxInt64)
	}
	if g.owner != nil {
		g.owner.Close()
	}
	if g.encrypting != nil {
		g.encrypting.role.Close()
	}
	g.closeRedis()
	close(g.stopped)
}

// Addr returns where the relay listens; tests use port 0 of their own choice.
func (g *Gateway) Addr() string { return g.listener.Addr().String() }
