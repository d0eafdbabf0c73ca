package gateway

import (
	"sluice/gateway/relay"
	"sluice/ledger"
	"sluice/loop"
)

// Doors for the black-box tests: what they assert on besides the wire.

// Ledger returns the account of the relay's sockets.
func (g *Gateway) Ledger() *ledger.Ledger { return g.led }

// Relay returns the WebSocket relay.
func (g *Gateway) Relay() *relay.Relay { return g.relay }

// Loops returns the event loops.
func (g *Gateway) Loops() []*loop.Loop { return g.loops }

// HTTPConnections returns how many connections of the relay's listener are no WebSockets.
func (g *Gateway) HTTPConnections() int64 { return g.front.Stats.Open.Load() }

// Failed delivers the exit code of a gateway that gave up.
func (g *Gateway) Failed() <-chan int { return g.failed }

// CheckPairs looks for pairs of outbound hosts that were lost or counted twice.
func (g *Gateway) CheckPairs() error { return g.encrypting.role.CheckPairs() }

// Relayed returns how many requests are under way through the encrypting relay.
func (g *Gateway) Relayed() int64 { return g.encrypting.role.Active() }
