package house

import (
	"encoding/json"
	"errors"
	"go/ast"
	"go/importer"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// typeChecker checks the module's shipped packages from source. Other packages come compiled from the build cache. So
// a change in one room compiles nothing, in contrast to go list -export ./..., which compiles each room above the
// changed room.
type typeChecker struct {
	sources  map[string][]file
	infos    map[string]*types.Info
	checked  map[string]*types.Package
	compiled types.Importer
}

// typesOnce holds the checked packages for all tests.
var typesOnce struct {
	sync.Once
	checker *typeChecker
}

// typeCheck checks all shipped packages once.
func typeCheck(t *testing.T) *typeChecker {
	t.Helper()
	typesOnce.Do(func() {
		c := newTypeChecker(t)
		for path := range c.sources {
			if _, err := c.Import(path); err != nil {
				t.Fatal(err)
			}
		}
		typesOnce.checker = c
	})
	if typesOnce.checker == nil {
		t.Fatal("the packages were not checked: see the other tests")
	}
	return typesOnce.checker
}

func newTypeChecker(t *testing.T) *typeChecker {
	t.Helper()
	c := &typeChecker{sources: map[string][]file{}, infos: map[string]*types.Info{}, checked: map[string]*types.Package{}}
	foreign := map[string]bool{}
	for _, f := range files(t) {
		if f.test || in(f.pkg.room(), []string{"test/..."}) {
			continue
		}
		c.sources[f.pkg.ImportPath] = append(c.sources[f.pkg.ImportPath], f)
		for _, imported := range f.pkg.Imports {
			if !under(imported, module) && imported != "C" && imported != "unsafe" {
				foreign[imported] = true
			}
		}
	}
	exports := exportData(t, slices.Sorted(maps.Keys(foreign)))
	open := func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) }
	c.compiled = importer.ForCompiler(set, "gc", open)
	return c
}

// Import returns a package with its types, and checks the types on the first call.
func (c *typeChecker) Import(path string) (*types.Package, error) {
	sources, ours := c.sources[path]
	if !ours {
		return c.compiled.Import(path)
	}
	if c.checked[path] != nil {
		return c.checked[path], nil
	}
	info := &types.Info{
		Types:      map[ast.Expr]types.TypeAndValue{},
		Uses:       map[*ast.Ident]types.Object{},
		Selections: map[*ast.SelectorExpr]*types.Selection{},
	}
	var trees []*ast.File
	for _, f := range sources {
		trees = append(trees, f.tree)
	}
	// Files of other systems and of other build tags are checked along with the rest, so names may be declared twice.
	config := types.Config{Importer: c, Error: func(error) {}}
	checked, _ := config.Check(path, set, trees, info)
	c.checked[path], c.infos[path] = checked, info
	return checked, nil
}

// exportData returns the file with the compiled types of each package.
func exportData(t *testing.T, packages []string) map[string]string {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list", "-export", "-json=ImportPath,Export"}, packages...)...)
	cmd.Dir = filepath.Join("..", "..")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list -export: %v", err)
	}
	exports := map[string]string{}
	for decoder := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p struct{ ImportPath, Export string }
		switch err := decoder.Decode(&p); {
		case errors.Is(err, io.EOF):
			return exports
		case err != nil:
			t.Fatal(err)
		}
		exports[p.ImportPath] = p.Export
	}
}
