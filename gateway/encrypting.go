package gateway

import (
	"time"

	"sluice/codec/http1"
	"sluice/gateway/edge"
	"sluice/gateway/metric"
	"sluice/gateway/mte"
	"sluice/loop"
)

// Bounds of an origin's response head.
const (
	originHeadBytes = 128 << 10
	originHeaders   = 1024
)

// lastAnswers is how long the end of a drain waits for clients of the encrypting
// relay to close: what was sent when the time was over may still be on its way.
const lastAnswers = time.Second

// An encrypting is the encrypting relay with its listener.
type encrypting struct {
	role     *mte.Role
	front    *edge.Server
	listener *loop.Listener
	loops    []*loop.Loop

	lastAnswers time.Duration // lastAnswers; tests change it
}

// buildMTE makes the encrypting relay and its listener.
func (g *Gateway) buildMTE() error {
	c := &g.cfg.MTE
	limits := http1.Limits{HeadBytes: int(g.cfg.HTTP.MaxHeadBytes), Fields: g.cfg.HTTP.MaxHeaders}
	// What an origin may send is bounded by the metadata that has to carry it; the
	// settings are about clients, who are strangers.
	answers := http1.Limits{HeadBytes: max(limits.HeadBytes, originHeadBytes), Fields: max(limits.Fields, originHeaders)}
	role, err := mte.New(mte.Config{
		MTE:           *c,
		Client:        g.cfg.Client,
		Version:       Version,
		ConfigVersion: g.cfg.Version,
		Drain:         g.cfg.Lifecycle.Drain,
		WriteStall:    g.cfg.Socket.WriteStall,
		Limits:        answers,
		Trusted:       edge.NewTrustedProxies(g.cfg.Edge.TrustedProxies),
		Pairs:         g.sharedPairs(),
		OriginTLS:     g.tls,
	}, g.loops, g.log)
	if err != nil {
		return err
	}
	secure, err := g.tlsOf(metric.ListenerMTE, "TLS_CERT_FILE", c.TLS)
	if err != nil {
		role.Close()
		return err
	}
	e := &encrypting{role: role, loops: g.loops, lastAnswers: lastAnswers}
	e.front = edge.NewServer(edge.Config{
		Limits:         limits,
		IdleTimeout:    g.cfg.Relay.HTTPIdleTimeout,
		BodyTimeout:    c.MaxRequestTime,
		WriteStall:     g.cfg.Socket.WriteStall,
		MaxConnections: g.cfg.HTTP.MaxConnections,
		OnCeiling:      g.ceiling(metric.ListenerMTE),
		Proxy:          g.proxyRule(metric.ListenerMTE),
		TLS:            secure,
	}, role, g.loops)
	g.encrypting = e
	if e.listener, err = g.listen("PORT", c.Listen, 0); err != nil {
		return err
	}
	for _, l := range g.loops {
		if err := l.Accept(e.listener, e.front); err != nil {
			return err
		}
	}
	return nil
}

func (e *encrypting) drain(on bool) {
	e.role.Drain(on)
	e.front.Drain(on)
}

// finish waits until the clients have what was answered, or the time end; then it
// ends what is left, and waits a moment for the last bytes to be taken.
func (e *encrypting) finish(end int64) {
	e.closeIdle()
	for loop.Now() < end && (e.role.Active() > 0 || e.leaving(end) > 0) {
		time.Sleep(drainStep)
	}
	e.role.CloseRest()
	e.closeIdle()
	for end := loop.Now() + int64(e.lastAnswers); loop.Now() < end && e.front.Stats.Open.Load() > 0; {
		time.Sleep(drainStep)
	}
}

// closeIdle closes the connections that wait for a request.
func (e *encrypting) closeIdle() {
	for _, l := range e.loops {
		l.Post(loop.Func(e.front.CloseIdle))
	}
}

// leaving counts the connections whose client has not got all of an answer that is
// complete. A loop that does not say so until the time end counts for none.
func (e *encrypting) leaving(end int64) (n int) {
	counts := make(chan int, len(e.loops))
	for _, l := range e.loops {
		l.Post(loop.Func(func(l *loop.Loop) { counts <- e.front.Leaving(l) }))
	}
	over := time.After(time.Duration(end - loop.Now()))
	for range e.loops {
		select {
		case m := <-counts:
			n += m
		case <-over:
			return n
		}
	}
	return n
}
