package store

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"sluice/codec/frame"
	"sluice/gateway/store/redistest"
)

// oldestRedis is the first version of Redis that we promise to work with.
var oldestRedis = [2]int{6, 2}

// tooNew reports whether something of this version is missing in oldestRedis.
func tooNew(version string) bool {
	major, rest, _ := strings.Cut(version, ".")
	minor, _, _ := strings.Cut(rest, ".")
	a, _ := strconv.Atoi(major)
	b, _ := strconv.Atoi(minor)
	return a > oldestRedis[0] || a == oldestRedis[0] && b > oldestRedis[1]
}

// TestRedisCommandsAreOld: no script calls a command, or gives it an option, that
// came after Redis 6.2; nor does the client, by what this server knows of each.
func TestRedisCommandsAreOld(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	docs := func(command string) string { return s.Do("COMMAND", "DOCS", command) }
	// A line behind "since" is a version: the first is the command's, later ones
	// are of arguments and of what an argument's history says.
	since := regexp.MustCompile(`(?m)^since\n([\d.]+)$`)
	if !tooNew(since.FindStringSubmatch(docs("EXPIRETIME"))[1]) || tooNew("6.2.0") || tooNew("2.6.0") {
		t.Fatal("versions are not understood")
	}

	call := regexp.MustCompile(`^p?call\('([A-Z]+)'(.*)`) // up to the line's end or the next call
	option := regexp.MustCompile(`'([A-Z]{2,})'`)
	newOption := regexp.MustCompile("`([A-Z]+)`")
	files, err := scriptFiles.ReadDir("scripts")
	if err != nil {
		t.Fatal(err)
	}
	calls := 0
	for _, f := range files {
		text := scriptText(strings.TrimSuffix(f.Name(), ".lua"))
		var found [][]string
		for line := range strings.Lines(text) {
			for _, part := range strings.Split(line, "redis.")[1:] {
				if m := call.FindStringSubmatch(part); m != nil {
					found = append(found, m)
				}
			}
		}
		if all := strings.Count(text, "redis.call(") + strings.Count(text, "redis.pcall("); all != len(found) {
			t.Errorf("%s: %d of %d calls are understood", f.Name(), len(found), all)
		}
		for _, m := range found {
			calls++
			about := docs(m[1])
			v := since.FindStringSubmatch(about)
			if v == nil || tooNew(v[1]) {
				t.Errorf("%s: %s is of %v", f.Name(), m[1], v)
			}
			// History: a version, and below it a line that names what it added.
			lines := strings.Split(about, "\n")
			var added []string
			for i := 1; i < len(lines); i++ {
				if regexp.MustCompile(`^\d+\.\d+\.\d+$`).MatchString(lines[i-1]) && tooNew(lines[i-1]) {
					for _, o := range newOption.FindAllStringSubmatch(lines[i], -1) {
						added = append(added, o[1])
					}
				}
			}
			for _, o := range option.FindAllStringSubmatch(m[2], -1) {
				if slices.Contains(added, o[1]) {
					t.Errorf("%s: %s has no %s in Redis 6.2", f.Name(), m[1], o[1])
				}
			}
		}
	}
	if calls < 30 {
		t.Errorf("only %d calls were looked at", calls)
	}

	// What the client sends by itself.
	p, pool := redisPairsFor(t, s.URL(), generous)
	c, pairs := newClient(), newPairs(pool, 1)
	wantAdd(t, p, c, pairs, frame.NoReason)
	use(t, p, c, pairs[0].ID)
	for _, m := range regexp.MustCompile(`(?m)^cmdstat_([^:]+):`).FindAllStringSubmatch(s.Do("INFO", "commandstats"), -1) {
		name, sub, _ := strings.Cut(m[1], "|")
		if name == "command" || name == "info" {
			continue // of this test
		}
		about := docs(name)
		if sub != "" {
			about = docs(name + "|" + sub)
		}
		if v := since.FindStringSubmatch(about); v == nil || tooNew(v[1]) {
			t.Errorf("the client sends %s, of %v", m[1], v)
		}
	}
}
