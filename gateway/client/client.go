// Package client is the client of an encrypting relay. It has two halves.
//
// The core (Session, Pairing, Pair, Exchange, Refusal) is the protocol without I/O: it makes what is
// to be sent, takes what came, and decides what a refusal means. It reads no clock and starts
// nothing, so that an event loop can drive it.
//
// The transport (Client) drives the core over net.Conn with goroutines, for programs.
package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"sync"
	"time"

	"sluice/codec/frame"
	"sluice/codec/open"
	"sluice/kyber"
)

// Options are what a Client needs to know. Only URL has no default.
type Options struct {
	// URL names the relay: http or https, host, optionally a port. A path is not used.
	URL string
	// Host is the Host header, if it is not the URL's.
	Host string
	// MTE encodes requests and answers as MTE instead of MKE.
	MTE bool
	// Agent names the program to the relay. The relay then leaves cookies inside the encryption.
	Agent string
	// MaxPairs bounds the requests that are in flight at once; the others wait. 0: 16.
	MaxPairs int
	// Batch is how many pairs are made at a time. 0: 2.
	Batch int
	// TLS is the configuration for https; nil verifies the server by the system's roots.
	TLS *tls.Config
	// Dial opens a connection; nil: TCP, 10 s.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Kyber computes the key exchange; nil: the goroutine that waits for it.
	Kyber *kyber.Pool
	// Trace, if set, is told what happens, a line at a time. It is called from several goroutines.
	Trace func(line string)
}

const (
	defaultMaxPairs = 16
	defaultBatch    = 2
	dialTimeout     = 10 * time.Second
)

// A Client sends requests to one relay. It authenticates and makes pairs when the first request
// needs them, and keeps both alive until Close. It may be used from anywhere.
type Client struct {
	o       Options
	address string
	secure  bool
	host    string
	typ     open.Type

	// control is held while the relay's control endpoints are in use, which is one call at a time.
	control chan struct{}
	closing context.Context // ends with Close
	close   context.CancelFunc
	running sync.WaitGroup

	mu       sync.Mutex
	session  *Session
	pool     pairPool
	links    []*link // idle connections, the latest last
	upkeep   bool    // the goroutine of upkeep.go runs
	isClosed bool
}

// New makes a client. It does not connect. The error is about Options.
func New(o Options) (*Client, error) {
	u, err := url.Parse(o.URL)
	if err != nil {
		return nil, fmt.Errorf("relay URL: %w", err)
	}
	port := u.Port()
	switch {
	case u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		return nil, fmt.Errorf("relay URL %q: want http or https and a host", o.URL)
	case port == "" && u.Scheme == "http":
		port = "80"
	case port == "":
		port = "443"
	}
	if o.MaxPairs <= 0 {
		o.MaxPairs = defaultMaxPairs
	}
	if o.Batch <= 0 {
		o.Batch = defaultBatch
	}
	if o.Dial == nil {
		o.Dial = (&net.Dialer{Timeout: dialTimeout}).DialContext
	}
	c := &Client{
		o: o, address: net.JoinHostPort(u.Hostname(), port), secure: u.Scheme == "https", host: o.Host,
		typ: open.MKE, control: make(chan struct{}, 1), session: NewSession(o.Agent, u.Hostname()),
	}
	if c.host == "" {
		c.host = u.Host
	}
	if o.MTE {
		c.typ = open.MTE
	}
	c.closing, c.close = context.WithCancel(context.Background())
	return c, nil
}

// Close ends the client: connections are closed, keys zeroed, requests that wait are refused with
// ErrClosed. Answers that are being read fail.
func (c *Client) Close() error {
	c.mu.Lock()
	c.isClosed = true
	links := c.links
	c.links = nil
	c.mu.Unlock()
	c.close()
	for _, l := range links {
		l.conn.Close()
	}
	c.running.Wait()
	c.mu.Lock()
	c.pool.wipe()
	c.mu.Unlock()
	return nil
}

// Relay is what the relay said about itself; nil before the first request.
func (c *Client) Relay() *Relay {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.session.Relay()
}

func (c *Client) trace(format string, args ...any) {
	if c.o.Trace != nil {
		c.o.Trace(fmt.Sprintf(format, args...))
	}
}

// lockControl waits for its turn at the control endpoints.
func (c *Client) lockControl(ctx context.Context) error {
	select {
	case c.control <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-c.closing.Done():
		return ErrClosed
	}
}

func (c *Client) unlockControl() { <-c.control }

// ready authenticates a session that has not.
func (c *Client) ready(ctx context.Context) error {
	c.mu.Lock()
	known := c.session.Known()
	c.mu.Unlock()
	if known {
		return nil
	}
	if err := c.lockControl(ctx); err != nil {
		return err
	}
	defer c.unlockControl()
	c.mu.Lock()
	known = c.session.Known()
	c.mu.Unlock()
	if known {
		return nil
	}
	return c.auth(ctx)
}

// auth authenticates, or refreshes the token. The caller holds control.
func (c *Client) auth(ctx context.Context) error {
	c.mu.Lock()
	call := c.session.Auth()
	c.mu.Unlock()
	body, err := c.call(ctx, &call)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	was, known := c.session.ClientID(), c.session.Known()
	if err := c.session.Authed(body, time.Now()); err != nil {
		return err
	}
	if known && c.session.ClientID() != was {
		c.pool.forget() // our token was not good any more, and the pairs are not the new client's
	}
	relay := c.session.Relay()
	c.trace("authenticated as client %v; relay %s, %s", c.session.ClientID(), relay.BuildVersion, relay.Profile)
	if relay.ProbeDiffers {
		c.trace("the relay's codec is another implementation: %s", relay.Discovery.Profile)
	}
	if !c.upkeep && !c.isClosed {
		c.upkeep = true
		c.running.Go(c.keep)
	}
	return nil
}

// repair gives up the identity that a relay no longer accepts, once for each: of two requests that
// meet the same refusal, the second finds it done.
func (c *Client) repair(id frame.ClientID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.session.Known() && c.session.ClientID() == id {
		c.trace("full repair: client %v is not accepted any more", id)
		c.session.Forget()
		c.pool.forget()
	}
}

// call sends a control call and answers the body of its 200. Another answer is a *Refusal.
func (c *Client) call(ctx context.Context, call *Call) ([]byte, error) {
	start := time.Now()
	l, err := c.link(ctx)
	if err != nil {
		return nil, err
	}
	stop := l.watch(ctx, c.closing)
	body, status, err := l.roundTrip(c.host, call)
	if !stop() || err != nil {
		l.conn.Close()
		return nil, c.cause(ctx, err)
	}
	path, _, _ := strings.Cut(call.Target, "?") // the query holds the token
	c.trace("%s %s: %d, %d bytes, %v", call.Method, path, status, len(body), time.Since(start).Round(time.Millisecond))
	refusal := l.refusal(status, body)
	c.putLink(l)
	if status != 200 {
		return nil, refusal
	}
	return body, nil
}

// cause is why an operation failed: the caller's context or our Close come before what they did to
// the connection.
func (c *Client) cause(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case c.closing.Err() != nil:
		return ErrClosed
	case err == nil:
		return errors.New("connection closed")
	}
	return err
}
