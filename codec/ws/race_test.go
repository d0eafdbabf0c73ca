//go:build race

package ws

// raceEnabled: the race detector allocates in code that does not.
const raceEnabled = true
