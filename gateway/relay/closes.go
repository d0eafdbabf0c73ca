package relay

import "sluice/codec/ws"

// A closing is a close frame that we may send, and why. The list is complete:
// no socket of this role is closed by us with anything else, the codec's
// protocol errors apart.
type closing struct {
	Code   uint16
	Reason string
}

var (
	// A newer socket took the place: the peer connected again, most often after
	// its network had changed, before we had noticed that the old path is dead.
	closeReplaced = closing{ws.ClosePolicyViolation, "Replaced by new connection"}
	// A hello without a usable key: an old or broken app, or somebody probing.
	closeBadKey = closing{ws.ClosePolicyViolation, "Invalid handshake key"}
	// The last client of a connectionId left, so its data socket has no use.
	closeClientGone = closing{ws.CloseGoingAway, "Client disconnected"}
	// The daemon's data socket left: the client has nobody to talk to.
	closeServerGone = closing{ws.CloseServiceRestart, "Server disconnected"}
	// A client sent a frame and no data socket came: the daemon is overloaded or half dead.
	closeNoData = closing{ws.CloseTryAgainLater, "Data socket timeout"}
	// Control was told of clients and opened no data socket, twice.
	closeControlDead = closing{ws.CloseInternalError, "Control unresponsive"}
	// The control peer does not read what it is told.
	closeControlFull = closing{ws.CloseTryAgainLater, "Control queue full"}
	// The node holds as many payload bytes as it may.
	closeBudget = closing{ws.CloseTryAgainLater, "Ingress budget exhausted"}
	// A message was begun and did not get on.
	closeMessageIdle = closing{ws.CloseTryAgainLater, "Message timeout"}
	// The destination took its bytes too slowly.
	closeSlow = closing{ws.CloseTryAgainLater, "Delivery timeout"}
	// The node, or this socket alone, holds too much memory.
	closeMemory = closing{ws.CloseTryAgainLater, "Memory pressure"}
	// The node is going down.
	closeRestart = closing{ws.CloseServiceRestart, "Service restart"}
	// Another node owns the session now.
	closeMoved = closing{ws.CloseServiceRestart, "Session owner moved"}
	// The reservation ran out before the socket attached.
	closeExpired = closing{ws.CloseServiceRestart, "Session expired"}
	// A message larger than the contract allows.
	closeTooBig = closing{ws.CloseTooBig, "Message too big"}
)
