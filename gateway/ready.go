package gateway

import (
	"time"

	"sluice/gateway/store"
)

// Ready reports whether the WebSocket relay accepts new work.
func (g *Gateway) Ready() bool {
	ok, _ := g.readiness()
	return ok
}

// readiness says what keeps the loops and the WebSocket relay from being ready.
func (g *Gateway) readiness() (ok bool, why string) {
	if s := g.currentState(); s != stateReady {
		return false, s.String()
	}
	if g.watchdog != nil && g.watchdog.Late(time.Second) {
		return false, "an event loop does not answer"
	}
	if g.relay == nil {
		return true, ""
	}
	switch ok, why := g.owner.Ready(); {
	case !ok && why == store.BelowFloor:
		return false, "below PASEO_RELAY_MIN_CLUSTER_SIZE"
	case !ok:
		return false, "the ownership store is unavailable"
	case g.relay.Pressed():
		return false, "memory is above PASEO_RELAY_MEMORY_WATERMARK_BYTES"
	case g.led.Full():
		return false, "as many WebSockets as PASEO_RELAY_ACCEPTORS times PASEO_RELAY_CONNECTIONS_PER_ACCEPTOR allows"
	}
	return true, ""
}

// allReady is readiness of both roles: what the admin listener says. What the
// domains of the encrypting relay are the control plane may have to say first.
func (g *Gateway) allReady() (ok bool, why string) {
	switch ok, why := g.readiness(); {
	case !ok:
		return false, why
	case g.encrypting == nil:
		return true, ""
	case g.redis != nil && !g.redis.Ready():
		return false, "the store of pairs is unavailable (REDIS_URL)"
	case g.configPending.Load():
		return false, "no settings from CONTROL_PLANE_URL yet"
	}
	return true, ""
}
