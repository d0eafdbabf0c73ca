package store

import (
	"embed"
	"strings"

	"github.com/redis/rueidis"
)

//go:embed scripts/*.lua
var scriptFiles embed.FS

// A Script is a Lua script that Redis executes as one step.
type Script struct {
	name string
	lua  *rueidis.Lua

	// Repeatable: executing it twice with the same arguments is executing it
	// once, so that a call whose answer was lost may be made again. One that is
	// late may be executed behind later calls, and must do no harm then either.
	Repeatable bool
}

var probeScript = NewScript("probe", true)

// NewScript makes a script of scripts/NAME.lua and of what others it names in
// lines of the form "-- needs OTHER". It is for package variables.
func NewScript(name string, repeatable bool) *Script {
	return &Script{name: name, lua: rueidis.NewLuaScript(scriptText(name)), Repeatable: repeatable}
}

func scriptText(name string) string {
	b, err := scriptFiles.ReadFile("scripts/" + name + ".lua")
	if err != nil {
		panic("BUG: " + err.Error())
	}
	var text strings.Builder
	for line := range strings.Lines(string(b)) {
		if other, ok := strings.CutPrefix(strings.TrimSpace(line), "-- needs "); ok {
			text.WriteString(scriptText(other))
		} else if !strings.HasPrefix(strings.TrimSpace(line), "--") {
			text.WriteString(line)
		}
	}
	return text.String()
}
