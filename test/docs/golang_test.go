package docs

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

const module = "github.com/msghandler/msghandler/"

// imports are the packages that a block of Go may use without an import, by the name in the block. A block imports all
// others itself, and those of ours whose names are not unique.
var imports = map[string]string{
	"bytes": "bytes", "context": "context", "tls": "crypto/tls", "x509": "crypto/x509", "sql": "database/sql",
	"json": "encoding/json", "errors": "errors", "fmt": "fmt", "io": "io", "slog": "log/slog", "net": "net",
	"http": "net/http", "os": "os", "signal": "os/signal", "strings": "strings", "syscall": "syscall",
	"testing": "testing", "time": "time",
	"grpc": "google.golang.org/grpc", "codes": "google.golang.org/grpc/codes",
	"credentials": "google.golang.org/grpc/credentials", "status": "google.golang.org/grpc/status",
	"consumer": module + "consumer", "rabbitmqconsumer": module + "broker/rabbitmq/rabbitmqconsumer",
	"envelope": module + "consumer/envelope", "msghandlertest": module + "msghandlertest",
	"producer": module + "producer", "outbox": module + "producer/outbox", "shards": module + "producer/outbox/shards",
	"sqlmarker": module + "producer/marker/sql", "sqlinbox": module + "consumer/inbox/sql",
}

// givenFile declares the names that blocks of Go use and do not show, such as db and pay.
const givenFile = "testdata/given.go"

// checkGo compiles a block: a whole file, declarations, or statements, which may follow import declarations. Unused
// variables and imports are allowed.
func checkGo(t *testing.T, b *block) []problem {
	t.Helper()
	compiler.mu.Lock()
	defer compiler.mu.Unlock()
	set := token.NewFileSet()
	source, err := goFile(set, b)
	if err != nil {
		return goProblems(b, set, err)
	}
	trees := []*ast.File{source}
	if source.Name.Name == snippet {
		trees = append(trees, given(t, set, source))
	}
	return typeCheck(t, b, set, trees)
}

// snippet is the name of the package of blocks without a package clause.
const snippet = "snippet"

var importLines = regexp.MustCompile(`^(?:\s*import (?:"[^"]*"|\w+ "[^"]*"|\((?s:.*?)\n\)) *\n|\s*//.*\n|\s*\n)*`)

// goFile parses a block as a file of its own.
func goFile(set *token.FileSet, b *block) (*ast.File, error) {
	text := b.text()
	if strings.HasPrefix(text, "package ") || strings.Contains(text, "\npackage ") {
		return parser.ParseFile(set, b.page, fmt.Sprintf("/*line :%d:1*/%s", b.line+1, text), parser.SkipObjectResolution)
	}
	head := importLines.FindString(text)
	rest := text[len(head):]
	line := b.line + 1 + strings.Count(head, "\n")
	begin := fmt.Sprintf("package %s;/*line :%d:1*/%s", snippet, b.line+1, head)
	wrapped := fmt.Sprintf("%sfunc _() error {\n/*line :%d:1*/%s\nreturn nil\n}\n", begin, line, rest)
	if file, err := withImports(set, b.page, begin+rest); err == nil {
		return file, nil
	}
	return withImports(set, b.page, wrapped)
}

// withImports parses a file and adds the imports that it lacks.
func withImports(set *token.FileSet, name, source string) (*ast.File, error) {
	file, err := parser.ParseFile(token.NewFileSet(), name, source, 0)
	if err != nil {
		return nil, err
	}
	var lacking strings.Builder
	lacking.WriteString("package " + snippet + ";")
	for name, imported := range imports {
		if usesPackage(file, name) {
			fmt.Fprintf(&lacking, "import %s %q;", name, imported)
		}
	}
	source = strings.Replace(source, "package "+snippet+";", lacking.String(), 1)
	return parser.ParseFile(set, name, source, parser.SkipObjectResolution)
}

// usesPackage says whether a file has an unresolved name before a dot, and no import for the name.
func usesPackage(file *ast.File, name string) bool {
	for _, spec := range file.Imports {
		imported, _ := strconv.Unquote(spec.Path.Value)
		if spec.Name != nil && spec.Name.Name == name || spec.Name == nil && path.Base(imported) == name {
			return false
		}
	}
	return slices.ContainsFunc(file.Unresolved, func(ident *ast.Ident) bool { return ident.Name == name })
}

// given parses the declarations that the block may use, without the names that the block declares itself.
func given(t *testing.T, set *token.FileSet, of *ast.File) *ast.File {
	t.Helper()
	file, err := parser.ParseFile(set, givenFile, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	file.Name.Name = snippet
	declared := map[string]bool{}
	for _, d := range of.Decls {
		for _, name := range declaredBy(d) {
			declared[name] = true
		}
	}
	file.Decls = slices.DeleteFunc(file.Decls, func(d ast.Decl) bool {
		return slices.ContainsFunc(declaredBy(d), func(name string) bool { return declared[name] })
	})
	return file
}

// declaredBy are the names that a declaration adds to the package.
func declaredBy(d ast.Decl) (names []string) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Recv == nil && d.Name.Name != "_" {
			names = append(names, d.Name.Name)
		}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch spec := spec.(type) {
			case *ast.TypeSpec:
				names = append(names, spec.Name.Name)
			case *ast.ValueSpec:
				for _, name := range spec.Names {
					names = append(names, name.Name)
				}
			}
		}
	}
	return names
}

// typeCheck returns the problems of the types in the block.
func typeCheck(t *testing.T, b *block, set *token.FileSet, trees []*ast.File) (problems []problem) {
	t.Helper()
	config := types.Config{Importer: compiler.importer(t, set), Error: func(err error) {
		var mistake types.Error
		if errors.As(err, &mistake) && mistake.Soft {
			return // an unused variable or import
		}
		problems = append(problems, goProblems(b, set, err)...)
	}}
	_, _ = config.Check(snippet, set, trees, nil)
	return problems
}

// goProblems are the problems of an error of the parser or of the type check.
func goProblems(b *block, set *token.FileSet, err error) []problem {
	var mistake types.Error
	if !errors.As(err, &mistake) {
		return []problem{b.problem(0, fmt.Sprintf("Go cannot read this block: %v", err))}
	}
	at := set.Position(mistake.Pos)
	return []problem{{at.Filename, at.Line, fmt.Sprintf("%s: correct the block, or declare in test/docs/%s what the "+
		"block does not show", mistake.Msg, givenFile)}}
}

// compiled finds the compiled packages for type checks.
type compiled struct {
	mu      sync.Mutex
	exports map[string]string
}

var compiler compiled

// importer imports packages from the build cache. The imports of all blocks are compiled at the first call.
func (c *compiled) importer(t *testing.T, set *token.FileSet) types.Importer {
	t.Helper()
	if c.exports == nil {
		c.exports = exports(t)
	}
	return importer.ForCompiler(set, "gc", func(path string) (io.ReadCloser, error) {
		file, known := c.exports[path]
		if !known {
			return nil, fmt.Errorf("there is no package %s in this workspace", path)
		}
		return os.Open(file)
	})
}

var importPattern = regexp.MustCompile(`(?m)^\s*(?:import )?(?:\w+ )?"([\w./-]+)"\s*$`)

// exports returns the files with the compiled types of all packages that blocks import.
func exports(t *testing.T) map[string]string {
	t.Helper()
	paths := map[string]bool{}
	for _, imported := range imports {
		paths[imported] = true
	}
	sources, err := os.ReadFile(givenFile)
	if err != nil {
		t.Fatal(err)
	}
	texts := []string{string(sources)}
	for _, path := range pages(t) {
		for _, b := range readPage(t, path).blocks {
			if b.language == "go" && !b.is("file") {
				texts = append(texts, b.text())
			}
		}
	}
	for _, found := range importPattern.FindAllStringSubmatch(strings.Join(texts, "\n"), -1) {
		paths[found[1]] = true
	}
	cmd := exec.Command("go", append([]string{"list", "-e", "-export", "-json=ImportPath,Export"},
		slices.Sorted(maps.Keys(paths))...)...)
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for decoder := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p struct{ ImportPath, Export string }
		if err := decoder.Decode(&p); err != nil {
			return found
		}
		if p.Export != "" {
			found[p.ImportPath] = p.Export
		}
	}
}
