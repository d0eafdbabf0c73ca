//go:build race

package proxy

// raceEnabled: the race detector allocates in code that does not.
const raceEnabled = true
