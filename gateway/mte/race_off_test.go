//go:build !race

package mte

const raceEnabled = false
