package edge

// pending returns how many bytes of output wait in memory for the peer.
func (c *HTTPConn) pending() int { return len(c.out) - c.sent }
