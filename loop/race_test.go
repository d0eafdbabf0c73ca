//go:build race

package loop

// raceEnabled: the race detector allocates in code that does not.
const raceEnabled = true
