package relay

// Bodies of the answers that refuse an upgrade, in the order of the checks (contract, relay §1).
// Peers and dashboards match on them.
const (
	// 426. A browser that opened the address, a proxy that dropped the Upgrade header.
	refuseUpgrade = "Expected WebSocket upgrade"

	// 400. A daemon or app that built its address wrongly; it will not get better by retrying.
	refuseRole             = "Missing or invalid role parameter"
	refuseNoServerID       = "Missing serverId parameter"
	refuseLongServerID     = "serverId is too long"
	refuseServerIDText     = "serverId is not valid UTF-8"
	refuseVersion          = "Invalid v parameter (expected 1 or 2)"
	refuseLongConnectionID = "connectionId is too long"
	refuseConnectionIDText = "connectionId is not valid UTF-8"

	// 503, of a session nobody owns yet. Another node may take it.
	refuseDraining     = "draining"
	refuseClusterFloor = "below cluster floor"
	refuseStore        = "ownership store unavailable"

	// 503 with Retry-After. This node is full, for now.
	refuseCapacity = "at capacity"
	refuseMemory   = "memory pressure"
)
