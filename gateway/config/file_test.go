package config

import (
	"fmt"
	"strings"
	"testing"
)

// render writes a tree so that two can be compared.
func render(n *node) string {
	switch n.kind {
	case nodeList, nodeObject:
		var b strings.Builder
		for i, item := range n.items {
			if n.kind == nodeObject {
				fmt.Fprintf(&b, "%q:", n.keys[i])
			}
			b.WriteString(render(item) + " ")
		}
		if n.kind == nodeList {
			return "[" + b.String() + "]"
		}
		return "{" + b.String() + "}"
	}
	return fmt.Sprintf("%d%q", n.kind, n.text)
}

func TestParseFileSuccess(t *testing.T) {
	f := func(text, want string) {
		t.Helper()
		n, err := parseFile([]byte(text))
		if err != nil {
			t.Errorf("%q: %v", text, err)
			return
		}
		if got := render(n); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
	// the same tree from both
	const tree = `{"a":2"1" "b":{"c":[3"x" 3"1" 1"true" 0"" ] } }`
	f(`{"a":1,"b":{"c":["x","1",true,null]}}`, tree)
	f("a: 1\nb:\n  c:\n  - x\n  - '1'\n  - true\n  - null\n", tree)
	f("a: 1\nb: {c: [x, \"1\", true, ~]}", tree)
	f("--- # head\na: 1\nb: {c: [x, \"1\", true, ]}\n...\n", `{"a":2"1" "b":{"c":[3"x" 3"1" 1"true" ] } }`)
	// empty containers
	f(`{}`, `{}`)
	f(" \n{\"a\":[],\"b\":{}}", `{"a":[] "b":{} }`)
	// numbers keep their text
	f(`{"a":1.50,"b":-0,"c":1e3}`, `{"a":2"1.50" "b":2"-0" "c":2"1e3" }`)
	f("a: 1.50\nb: 0x10\nc: 1_000\nd: 010\n", `{"a":2"1.50" "b":2"0x10" "c":2"1_000" "d":2"010" }`)
	// texts
	f("a: |\n  x\n  y\n", `{"a":3"x\ny\n" }`)
	f("a: on\nb: yes\nc: \"\"\nd:\n", `{"a":3"on" "b":3"yes" "c":3"" "d":0"" }`)
	f(`{"a":"\u00e4\n"}`, `{"a":3"ä\n" }`)
	f("127.0.0.1: x\n1: y\n", `{"127.0.0.1":3"x" "1":3"y" }`)
}

// A file cut anywhere is either refused or a shorter file, never a crash.
func TestParseFileCuts(t *testing.T) {
	for _, text := range []string{
		"{\"a\":[1,{\"b\":\"\\u00e4\"}],\n\"c\":null}",
		"a: 1\nb:\n  c: [x, \"y\", {z: 'q'}]\n  d: |\n    text\n- e\n",
	} {
		for i := range len(text) {
			n, err := parseFile([]byte(text[:i]))
			if (n == nil) == (err == nil) {
				t.Errorf("%q: %v %v", text[:i], n, err)
			}
			if err == nil && text[0] == '{' {
				t.Errorf("%q was taken for a whole object", text[:i])
			}
		}
	}
}

func FuzzParseFile(f *testing.F) {
	for _, s := range []string{
		`{"A":1,"B":{"c":["x",true,null]}}`, "A: 1\nB:\n  c:\n  - x\n  - [y, {z: 'q'}]\n", "a: |\n  x\n", "a: &x 1\nb: *x\n", "? a\n: b\n",
		"<<: {a: 1}", "- a\n- b", "%YAML 1.2\n---\na: 1\n", "a: \"\\ud83d\\ude00\"", "{a: 1, b}", "{\"a\":{\"a\":{\"a\":1}}}", "\ufeffa: 1", "a:\n\t- b", "#", "a: 'b", "!!map {a: b}", "a: {", "--- |\n x", "? ? ?", "- - - a",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		n, err := parseFile(text)
		if err != nil {
			if n != nil || err.line < 1 || !isOneLine(err.text) {
				t.Fatalf("%v %q", n, err)
			}
			return
		}
		checkTree(t, n, 1)
		// Whatever the tree is, reading it as settings gives lines or a Config.
		c, faults, _ := Load([]string{"CONFIG_FILE=f"}, files{"f": string(text)}.read)
		if (c == nil) == (faults == nil) {
			t.Fatalf("%v %v", c, faults)
		}
		for _, fault := range faults {
			if !isOneLine(fault.String()) {
				t.Fatalf("%q is not one line", fault)
			}
		}
	})
}

// checkTree asserts what readers of a tree rely on.
func checkTree(t *testing.T, n *node, depth int) {
	t.Helper()
	if depth > maxNesting+1 {
		t.Fatal("too deep")
	}
	if n.kind == nodeObject && len(n.keys) != len(n.items) || n.kind != nodeObject && n.keys != nil {
		t.Fatalf("%d keys of %d items", len(n.keys), len(n.items))
	}
	seen := map[string]bool{}
	for _, k := range n.keys {
		if seen[k] {
			t.Fatalf("key %q twice", k)
		}
		seen[k] = true
	}
	for _, item := range n.items {
		checkTree(t, item, depth+1)
	}
}

func FuzzDomainMap(f *testing.F) {
	for _, s := range []string{
		`{"a.test":{"upstream":"http://h","headers":{"x":"y"},"cors_origins":["*"]}}`, `{"a":{"outbound":"http://h","outbound_token":"t"}}`, `{"a":{}}`, `[]`, `{`, `{"[::1]:80":{"upstream":"http://[::1]/%2e"}}`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		c, faults, _ := Load([]string{"DOMAIN_MAP=" + text}, nil)
		for _, fault := range faults {
			if !isOneLine(fault.String()) {
				t.Fatalf("%q is not one line", fault)
			}
		}
		if faults != nil {
			return
		}
		for host, d := range c.MTE.Domains {
			if d.Host != host || strings.ToLower(host) != host || (d.Outbound == nil) == (d.Upstream == nil) {
				t.Fatalf("%q: %+v", host, d)
			}
		}
	})
}
