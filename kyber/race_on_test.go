//go:build race

package kyber

const raceEnabled = true
