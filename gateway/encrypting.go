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
// relay to take what was sent to them.
const lastAnswers = time.Second

// An encrypting is the encrypting relay with its listener.
type encrypting struct {
	role     *mte.Role
	front    *edge.Server
	listener *loop.Listener
	loops    []*loop.Loop
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
	e := &encrypting{role: role, loops: g.loops}
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

// finish ends what is left when the time of a drain is over, and waits a moment
// for the last bytes to be taken.
func (e *encrypting) finish() {
	e.role.CloseRest()
	for _, l := range e.loops {
		l.Post(loop.Func(e.front.CloseIdle))
	}
	for end := loop.Now() + int64(lastAnswers); loop.Now() < end && e.front.Stats.Open.Load() > 0; {
		time.Sleep(drainStep)
	}
}
