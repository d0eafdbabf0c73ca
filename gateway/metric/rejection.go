package metric

// A Rejection is why a connection got no WebSocket. Its text is the label of
// paseo_relay_connection_rejections_total and the value in log lines.
type Rejection uint8

const (
	// RejectUpgrade: 426. A browser or a scanner opened the address, or a proxy dropped the
	// Upgrade header.
	RejectUpgrade Rejection = iota
	// RejectRequest: 400. A daemon or app built its address wrongly: role, serverId, v,
	// connectionId.
	RejectRequest
	// RejectDraining: 503. A new session came to a node that is going down: its load balancer
	// has not noticed yet.
	RejectDraining
	// RejectClusterFloor: 503. Fewer nodes are alive than MIN_CLUSTER_SIZE: the fleet is starting,
	// or this side of a partition is the small one.
	RejectClusterFloor
	// RejectStore: 503. Nobody can say who owns the session: Redis is unreachable.
	RejectStore
	// RejectCapacity: 503. The WebSocket ceiling is reached: the node is too small, or one address
	// opens sockets without end.
	RejectCapacity
	// RejectMemory: 503. Resident memory is above the watermark.
	RejectMemory
	// RejectHTTPCeiling: closed. HTTP_MAX_CONNECTIONS is reached and no connection is idle: a flood
	// of slow requests, or keep-alive connections of a proxy.
	RejectHTTPCeiling
	// RejectProxyProtocol: closed. A trusted peer sent no PROXY header or another sent one: the
	// load balancer and we are configured differently.
	RejectProxyProtocol

	rejections
)

// Rejections is the number of values of Rejection.
const Rejections = rejections

var rejectionNames = [rejections]string{
	RejectUpgrade:       "upgrade_required",
	RejectRequest:       "bad_request",
	RejectDraining:      "draining",
	RejectClusterFloor:  "cluster_floor",
	RejectStore:         "ownership_store",
	RejectCapacity:      "capacity",
	RejectMemory:        "memory_pressure",
	RejectHTTPCeiling:   "http_ceiling",
	RejectProxyProtocol: "proxy_protocol",
}

func (r Rejection) String() string { return rejectionNames[r] }
