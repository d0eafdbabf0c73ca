package gateway_test

import (
	"testing"
	"time"
)

// The acceptance of the encrypting relay at its full size; the same tests run
// smaller every day.

// 10,000 requests over 64 pairs, of all sizes, cut anywhere, with clients that
// leave and origins that fail.
func TestAcceptMixed(t *testing.T) {
	onlyFull(t)
	runMixed(t, uint64(time.Now().UnixNano()), 10_000)
}

// Bodies of 2 GiB in either direction, memory flat.
func TestAcceptLongBodies(t *testing.T) {
	onlyFull(t)
	longBodies(t, 2<<30, memoryBound)
}

// Events are at the client within 50 ms beside other traffic; of ten in a row one
// may meet the scheduler of a machine that has other things to do.
func TestAcceptEventsFlow(t *testing.T) {
	onlyFull(t)
	if d := eventDelays(t); d[events-2] > eventBound || d[events-1] > 10*eventBound {
		t.Errorf("events took %v", d)
	}
}
