// Package house holds the rules of the house: which package may import which, the places of each library, and the
// layout of the code.
//
// Each failure names the rule and its reason. A new room is entered into the tables here, which is the moment to
// think about its place.
package house

import (
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"math"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

const module = "github.com/msghandler/msghandler"

// pkg is one package of the modules, in the words of go list.
type pkg struct {
	ImportPath, Dir, Name string
	Imports, Deps         []string
	GoFiles               []string
	IgnoredGoFiles        []string
	TestGoFiles           []string
	XTestGoFiles          []string
}

// room is the import path within the repository.
func (p pkg) room() string {
	return strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, module), "/")
}

// packages lists the modules of go.work once for all tests.
func packages(t *testing.T) []pkg {
	t.Helper()
	list, err := listOnce()
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// fields are the fields of pkg: go list is quicker without the others.
const fields = "ImportPath,Dir,Name,Imports,Deps,GoFiles,IgnoredGoFiles,TestGoFiles,XTestGoFiles"

var listOnce = sync.OnceValues(func() ([]pkg, error) {
	cmd := exec.Command("go", "list", "-e", "-json="+fields, "work")
	cmd.Dir = filepath.Join("..", "..")
	out, err := cmd.Output()
	if err != nil {
		return nil, err
	}
	var list []pkg
	for decoder := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		switch err := decoder.Decode(&p); {
		case errors.Is(err, io.EOF):
			return list, nil
		case err != nil:
			return nil, err
		}
		list = append(list, p)
	}
})

// file is one parsed source file of the modules.
type file struct {
	pkg       pkg
	path      string // within the repository
	test      bool
	generated bool
	set       *token.FileSet
	tree      *ast.File
}

// files parses the modules once for all tests.
func files(t *testing.T) []file {
	t.Helper()
	list := packages(t)
	parsed, err := parseOnce(list)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

var parsed struct {
	sync.Once
	files []file
	err   error
}

func parseOnce(list []pkg) ([]file, error) {
	parsed.Do(func() {
		for _, p := range list {
			for _, name := range append(append([]string{}, p.GoFiles...), p.IgnoredGoFiles...) {
				parse(p, name, strings.HasSuffix(name, "_test.go"))
			}
			for _, name := range append(append([]string{}, p.TestGoFiles...), p.XTestGoFiles...) {
				parse(p, name, true)
			}
		}
	})
	return parsed.files, parsed.err
}

// set holds all positions: a type check of several files needs one set for them.
var set = token.NewFileSet()

func parse(p pkg, name string, test bool) {
	tree, err := parser.ParseFile(set, filepath.Join(p.Dir, name), nil, parser.ParseComments)
	if err != nil {
		parsed.err = errors.Join(parsed.err, err)
		return
	}
	parsed.files = append(parsed.files, file{
		pkg: p, path: filepath.Join(p.room(), name), test: test, generated: ast.IsGenerated(tree), set: set, tree: tree,
	})
}

// line is where a node stands, for a failure.
func (f file) line(at token.Pos) int {
	return f.set.Position(at).Line
}

// uses calls found for each use of NAME.MEMBER of an imported package, such as os.Exit.
func (f file) uses(path string, members []string, found func(line int, member string)) {
	local := f.importedAs(path)
	if local == "" {
		return
	}
	ast.Inspect(f.tree, func(n ast.Node) bool {
		selector, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if name, ok := selector.X.(*ast.Ident); ok && name.Name == local {
			for _, member := range members {
				if selector.Sel.Name == member {
					found(f.line(selector.Pos()), member)
				}
			}
		}
		return true
	})
}

// importedAs is the name of a package in the file, empty without an import.
func (f file) importedAs(path string) string {
	for _, spec := range f.tree.Imports {
		if strings.Trim(spec.Path.Value, `"`) != path {
			continue
		}
		if spec.Name != nil {
			return spec.Name.Name
		}
		return path[strings.LastIndex(path, "/")+1:]
	}
	return ""
}

// in says whether a room matches one of the patterns: "a/b" means the room itself, "a/b/..." all rooms below as well,
// "" the root.
func in(room string, patterns []string) bool {
	for _, pattern := range patterns {
		above, all := strings.CutSuffix(pattern, "/...")
		if room == above || all && strings.HasPrefix(room, above+"/") {
			return true
		}
	}
	return false
}

// figure reports a figure of the house. make house prints the figures and nothing else.
func figure(t *testing.T, format string, values ...any) {
	t.Helper()
	t.Logf("FIGURE "+format, values...)
}

// atMost fails when a place is further from a rule than the limit says. Shares are compared with one decimal.
func atMost(t *testing.T, place string, is, limit float64, what string) {
	t.Helper()
	if math.Round(is*10)/10 > limit {
		t.Errorf("%s: %.1f "+what+" (at most %g)", place, is, limit)
	}
}
