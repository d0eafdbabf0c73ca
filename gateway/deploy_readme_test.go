package gateway_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// anchors are the places in a Markdown text that a link can name.
func anchors(text string) map[string]bool {
	list := map[string]bool{}
	code := false
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "```") {
			code = !code
		}
		title := strings.TrimLeft(line, "#")
		if code || title == line {
			continue
		}
		title = strings.ToLower(strings.TrimSpace(title))
		title = regexp.MustCompile(`[^\w\- ]`).ReplaceAllString(title, "")
		list["#"+strings.ReplaceAll(title, " ", "-")] = true
	}
	return list
}

// Every link of the README that stays in the repository leads somewhere, and
// everything in scripts/deploy is linked.
func TestReadmeLinks(t *testing.T) {
	text, err := os.ReadFile(topDir + "/README.md")
	if err != nil {
		t.Fatal(err)
	}
	places := anchors(string(text))
	linked := map[string]bool{}
	for _, m := range regexp.MustCompile(`\]\(([^)\s]+)\)`).FindAllStringSubmatch(string(text), -1) {
		switch to := m[1]; {
		case strings.HasPrefix(to, "https://"):
		case to[0] == '#':
			if !places[to] {
				t.Errorf("no chapter %s", to)
			}
		case !fileExists(topDir + "/" + to):
			t.Errorf("no file %s", to)
		default:
			linked[strings.TrimPrefix(to, "scripts/deploy/")] = true
		}
	}
	dirs, err := os.ReadDir(deployDir)
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range dirs {
		found := false
		for file := range linked {
			found = found || file == dir.Name() || strings.HasPrefix(file, dir.Name()+"/")
		}
		if !found {
			t.Errorf("the README does not lead to scripts/deploy/%s", dir.Name())
		}
	}
}
