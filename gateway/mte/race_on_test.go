//go:build race

package mte

const raceEnabled = true
