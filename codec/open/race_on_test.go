//go:build race

package open

const raceEnabled = true
