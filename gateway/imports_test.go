package gateway_test

import (
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// layers of the tree, the lowest first. A package may import packages of lower
// layers only, so that what knows sockets never learns of products, and the two
// products never learn of each other. A name that ends in * stands for every
// package below that directory.
var layers = [][]string{
	{"loop", "ledger", "kyber", "codec/*", "gateway/store/redistest"},
	{"gateway/tlsconn", "gateway/textfile"},
	{"gateway/edge", "gateway/store", "gateway/config", "gateway/client", "gateway/metric", "gateway/logging", "gateway/adminpage"},
	{"gateway/relay", "gateway/mte"},
	{"gateway"},
	{"gateway/sluice"},
	{"bench", "bench/*"},
}

// sideways are the arrows within a layer that were decided on, as "from to".
var sideways = []string{}

// layerOf returns the index of a package's layer.
func layerOf(pkg string) (int, bool) {
	for i, names := range layers {
		for _, name := range names {
			below, isPattern := strings.CutSuffix(name, "*")
			if pkg == name || isPattern && strings.HasPrefix(pkg, below) {
				return i, true
			}
		}
	}
	return 0, false
}

// checkArrow says what is wrong with from importing to, or nothing.
func checkArrow(from, to string) error {
	upper, ok := layerOf(from)
	if !ok {
		return fmt.Errorf("%s has no layer: give it one in imports_test.go", from)
	}
	lower, ok := layerOf(to)
	if !ok {
		return fmt.Errorf("%s has no layer: give it one in imports_test.go", to)
	}
	switch {
	case lower < upper:
		return nil
	case lower > upper:
		return fmt.Errorf("%s imports %s, which is above it", from, to)
	case slices.Contains(sideways, from+" "+to):
		return nil
	default:
		return fmt.Errorf("%s imports %s beside it; what both need belongs below them", from, to)
	}
}

// ownImports reads the imports of one file that are packages of this module.
func ownImports(file string) ([]string, error) {
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
	if err != nil {
		return nil, err
	}
	var own []string
	for _, spec := range f.Imports {
		name, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return nil, err
		}
		if pkg, ok := strings.CutPrefix(name, "sluice/"); ok {
			own = append(own, pkg)
		}
	}
	return own, nil
}

// skipDir leaves out what is no package of this module: hidden and testdata
// directories, and other modules.
func skipDir(root, dir, name string) bool {
	if dir == root {
		return false
	}
	if strings.HasPrefix(name, ".") || name == "testdata" {
		return true
	}
	_, err := os.Stat(filepath.Join(dir, "go.mod"))
	return err == nil
}

// Files are parsed rather than listed by the go command, so that the files of
// other systems count as well. Tests may import what they like.
func TestImportsPointDown(t *testing.T) {
	const root = ".."
	packages := 0
	seen := make(map[string]bool)
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if skipDir(root, name, d.Name()) {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		rel, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		from := path.Dir(filepath.ToSlash(rel))
		if !seen[from] {
			seen[from] = true
			packages++
			if _, ok := layerOf(from); !ok {
				t.Errorf("%s has no layer: give it one in imports_test.go", from)
			}
		}
		imports, err := ownImports(name)
		if err != nil {
			return err
		}
		for _, to := range imports {
			if err := checkArrow(from, to); err != nil {
				t.Errorf("%s: %v", rel, err)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if packages < 5 {
		t.Fatalf("found only %d packages below %s", packages, root)
	}
}

// portable are the packages that build on macOS too (README, "Limits").
var portable = []string{
	"codec/frame", "codec/http1", "codec/open", "codec/proxy", "codec/ws", "ledger", "kyber",
	"gateway/adminpage", "gateway/client", "gateway/config", "gateway/logging", "gateway/metric", "gateway/store", "gateway/textfile",
}

// What the portable packages rest on must not lead to the reactor, which needs
// epoll, be it by way of others.
func TestPortablePackagesLeaveOutTheReactor(t *testing.T) {
	seen := map[string]bool{}
	var visit func(pkg, from string)
	visit = func(pkg, from string) {
		if pkg == "loop" {
			t.Errorf("%s imports loop", from)
			return
		}
		if seen[pkg] {
			return
		}
		seen[pkg] = true
		files, err := filepath.Glob(filepath.Join("..", filepath.FromSlash(pkg), "*.go"))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %d files, %v", pkg, len(files), err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			imports, err := ownImports(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, to := range imports {
				visit(to, pkg)
			}
		}
	}
	for _, pkg := range portable {
		visit(pkg, "the list")
	}
}

func TestCheckArrowSuccess(t *testing.T) {
	f := func(from, to string) {
		t.Helper()
		if err := checkArrow(from, to); err != nil {
			t.Error(err)
		}
	}
	// One layer down.
	f("gateway/sluice", "gateway")
	f("gateway", "gateway/relay")
	f("gateway/mte", "gateway/client")
	f("gateway/edge", "codec/http1")
	// Several at once.
	f("gateway", "loop")
	f("gateway/relay", "codec/ws")
	// The benchmarks see everything.
	f("bench", "gateway/client")
}

func TestCheckArrowFailure(t *testing.T) {
	f := func(from, to string) {
		t.Helper()
		if checkArrow(from, to) == nil {
			t.Errorf("%s may not import %s, but nothing was said", from, to)
		}
	}
	// Up.
	f("loop", "gateway/metric")
	f("gateway/config", "gateway")
	f("gateway", "bench")
	// The two products.
	f("gateway/relay", "gateway/mte")
	f("gateway/mte", "gateway/relay")
	// The bottom imports nothing of ours.
	f("codec/frame", "codec/open")
	f("loop", "ledger")
	// A package that nobody has placed.
	f("gateway/util", "loop")
	f("gateway", "internal/x")
}
