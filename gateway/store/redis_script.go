package store

import (
	"embed"
	"strings"
	"time"

	"github.com/redis/rueidis"
)

//go:embed scripts/*.lua
var scriptFiles embed.FS

// A script counts in damaged what it found under its keys that is not ours, or not
// any more, and deleted. scriptEnd hands that out with the answer, whatever that is;
// Redis.found takes it off again.
const (
	scriptBegin = "local damaged = 0\nlocal function answer()\n"
	scriptEnd   = "end\nlocal a = answer()\nif damaged == 0 then return a end\nreturn {'" + damagedWord + "', damaged, a}\n"
	damagedWord = "damaged"
)

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
	return &Script{name: name, lua: rueidis.NewLuaScript(scriptBegin + scriptText(name) + scriptEnd), Repeatable: repeatable}
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

// found takes off what a script says about its keys, counts it, and writes a line
// about it. It returns the script's answer.
func (r *Redis) found(s *Script, keys []string, m rueidis.RedisMessage) rueidis.RedisMessage {
	list, err := m.ToArray()
	if err != nil || len(list) != 3 || !list[1].IsInt64() {
		return m
	}
	if first, err := list[0].ToString(); err != nil || first != damagedWord {
		return m
	}
	n, _ := list[1].ToInt64()
	r.cfg.Failed()
	if skipped, ok := r.damaged.line(time.Now()); ok {
		r.cfg.Log.Warn("what was found in Redis is not what nodes write; it was deleted",
			"script", s.name, "keys", keyKind(keys), "found", n, "suppressed", skipped)
	}
	return list[2]
}

// keyFailed reports a call that failed of what lies under its keys.
func (r *Redis) keyFailed(s *Script, keys []string, f *failure) {
	if skipped, ok := r.damaged.line(time.Now()); ok {
		r.cfg.Log.Error("a script failed in Redis, of what lies under its keys or a command that Redis does not allow it",
			"script", s.name, "keys", keyKind(keys), "detail", f.detail, "suppressed", skipped)
	}
}

// keyKind is what a log may say of keys: the kind of the first, and no id.
func keyKind(keys []string) string {
	if len(keys) == 0 {
		return ""
	}
	if keys[0] == ownerNodesKey {
		return ownerNodesKey
	}
	kind, _, _ := strings.Cut(keys[0], "{")
	return short(kind) + "…"
}
