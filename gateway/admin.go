package gateway

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"

	"sluice/gateway/metric"
)

// admin is the operators' listener: health, ready, metrics, drain, the live page. It runs on
// goroutines of its own, so that it answers when the loops are busy.
type admin struct {
	g      *Gateway
	server *fasthttp.Server
	conns  *adminConns
	done   chan struct{}

	acceptErrors atomic.Int64
}

const (
	adminConnections = 256
	adminTimeout     = 10 * time.Second
)

// listenAdmin opens the listener; nobody is served before serve.
func listenAdmin(g *Gateway) (*admin, error) {
	at := g.cfg.Admin.Listen
	a := &admin{g: g, done: make(chan struct{})}
	if !at.On() {
		return a, nil
	}
	ln, err := net.Listen("tcp", at.Addr())
	if err != nil {
		return nil, fmt.Errorf("ADMIN_PORT: listening on %s: %w", at.Addr(), err)
	}
	a.conns = newAdminConns(patientListener{ln, a})
	a.server = &fasthttp.Server{
		Handler:            a.handle,
		Name:               "sluice",
		Concurrency:        adminConnections,
		ReadTimeout:        adminTimeout,
		WriteTimeout:       adminTimeout,
		IdleTimeout:        time.Minute,
		MaxRequestBodySize: 4096,
		CloseOnShutdown:    true,
		Logger:             quietLogger{},
	}
	return a, nil
}

// serve begins to answer, once there is a whole gateway to tell of.
func (a *admin) serve() {
	if a.server == nil {
		close(a.done)
		return
	}
	go func() {
		defer close(a.done)
		a.server.Serve(a.conns)
	}()
}

// acceptPause is how long the admin listener waits when accept failed, most
// often because descriptors ran out.
const acceptPause = 100 * time.Millisecond

// A patientListener does not end for want of descriptors: a server that gives
// up at the first failed accept would be deaf from then on.
type patientListener struct {
	net.Listener
	a *admin
}

func (p patientListener) Accept() (net.Conn, error) {
	for told := false; ; told = true {
		c, err := p.Listener.Accept()
		if err == nil || errors.Is(err, net.ErrClosed) {
			return c, err
		}
		p.a.acceptErrors.Add(1)
		if !told {
			p.a.g.log.Error("accept failed on the admin listener; it is tried again", "setting", "ADMIN_PORT", "error", err)
		}
		time.Sleep(acceptPause)
	}
}

func (a *admin) handle(ctx *fasthttp.RequestCtx) {
	path := string(ctx.Path())
	if a.g.cfg.Admin.Listen.Host.IsLoopback() && path != "/health" && path != "/ready" && !plainHost(string(ctx.Host())) {
		// A page of the web whose name was made to lead here would be let read.
		ctx.Error("on loopback this listener answers to an address or localhost as its host", 403)
		return
	}
	switch path {
	case "/health":
		reply(ctx, 200, `{"status":"ok"}`)
	case "/ready":
		if ok, why := a.g.allReady(); !ok {
			ctx.Response.Header.Set("X-Sluice-Unready", why)
			reply(ctx, 503, `{"status":"unready"}`)
			return
		}
		reply(ctx, 200, `{"status":"ready"}`)
	case "/metrics":
		ctx.SetContentType(metric.ContentType)
		ctx.SetBody(a.g.allMetrics())
	case "/drain":
		a.drain(ctx)
	default:
		a.page(ctx)
	}
}

// drain begins a drain, or takes it back. A web page can send neither: it cannot
// set the header without asking first, and its host is a name.
func (a *admin) drain(ctx *fasthttp.RequestCtx) {
	on := ctx.IsPost()
	if !on && !ctx.IsDelete() {
		ctx.Error("method not allowed", 405)
		ctx.Response.Header.Set("Allow", "POST, DELETE") // after Error, which begins the answer anew
		return
	}
	if string(ctx.Request.Header.Peek("X-Sluice-Admin")) != "1" || !plainHost(string(ctx.Host())) {
		ctx.Error("needs the header X-Sluice-Admin: 1 and an address or localhost as its host", 403)
		return
	}
	a.g.log.Info("drain requested on the admin listener", "on", on)
	if !a.g.SetDraining(on) {
		reply(ctx, 409, `{"draining":true}`) // the process ends
		return
	}
	reply(ctx, 200, fmt.Sprintf(`{"draining":%t}`, on))
}

// plainHost reports whether a Host field names an address or localhost.
func plainHost(host string) bool {
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	}
	name = strings.TrimSuffix(strings.TrimPrefix(name, "["), "]")
	if strings.EqualFold(name, "localhost") {
		return true
	}
	_, err := netip.ParseAddr(name)
	return err == nil
}

func reply(ctx *fasthttp.RequestCtx, status int, json string) {
	ctx.SetStatusCode(status)
	ctx.SetContentType("application/json")
	ctx.SetBodyString(json)
}

// quietLogger drops what fasthttp says of broken connections.
type quietLogger struct{}

func (quietLogger) Printf(string, ...any) {}
