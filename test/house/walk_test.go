package house

import (
	"go/ast"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// step is a line of docs/reference/architecture.md: a file with a function or type on the way of the message.
var step = regexp.MustCompile("(?m)^[0-9]+\\. \\[`([^`]+)`\\]\\(\\.\\./\\.\\./([^)]+)\\): `([^`]+)`")

// The aims for the way of a Submit. They are reported, not held: a step missing on the page makes the way no shorter.
const fewFiles, fewLines = 26, 5500

// docs/reference/architecture.md follows a Submit through the code. Each named file and function exists.
func TestWalkNamesExistingCode(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "reference", "architecture.md"))
	if err != nil {
		t.Fatal(err)
	}
	declared := map[string]map[string]bool{}
	for _, f := range files(t) {
		declared[f.path] = namesOf(f)
	}
	steps := step.FindAllStringSubmatch(string(page), -1)
	if len(steps) < 10 {
		t.Fatalf("docs/reference/architecture.md has %d steps of the form: number, link, function", len(steps))
	}
	visited, lines, seams := map[string]bool{}, 0, 0
	for _, found := range steps {
		name, path, function := found[1], found[2], found[3]
		source, err := os.ReadFile(filepath.Join("..", "..", path))
		if err != nil {
			t.Errorf("docs/reference/architecture.md: %v", err)
			continue
		}
		if name != path {
			t.Errorf("docs/reference/architecture.md: the link %s leads to %s", name, path)
		}
		if names := declared[path]; names != nil && !names[function] {
			t.Errorf("docs/reference/architecture.md: %s has no %s", path, function)
		}
		if !visited[path] {
			visited[path] = true
			lines += strings.Count(string(source), "\n")
		}
	}
	for _, f := range files(t) {
		if visited[f.path] {
			seams += functionFields(f)
		}
	}
	figure(t, "function fields in the files on the way, which jump-to-definition cannot cross: %d", seams)
	figure(t, "files on the way of a Submit: %d (aim %d), with %d lines (aim %d)", len(visited), fewFiles, lines, fewLines)
}

// functionFields counts the fields of structs that hold a function.
func functionFields(f file) (fields int) {
	ast.Inspect(f.tree, func(n ast.Node) bool {
		if structure, ok := n.(*ast.StructType); ok {
			for _, field := range structure.Fields.List {
				if _, function := field.Type.(*ast.FuncType); function {
					fields += max(1, len(field.Names))
				}
			}
		}
		return true
	})
	return fields
}

// namesOf lists what a file declares: functions, types, and methods as Type.Method.
func namesOf(f file) map[string]bool {
	names := map[string]bool{}
	for _, declaration := range f.tree.Decls {
		switch d := declaration.(type) {
		case *ast.FuncDecl:
			names[receiver(d)+d.Name.Name] = true
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				if s, ok := spec.(*ast.TypeSpec); ok {
					names[s.Name.Name] = true
				}
			}
		}
	}
	return names
}

// receiver is the type of a method and a dot, and empty for a function.
func receiver(d *ast.FuncDecl) string {
	if d.Recv == nil || len(d.Recv.List) != 1 {
		return ""
	}
	of := d.Recv.List[0].Type
	if pointer, ok := of.(*ast.StarExpr); ok {
		of = pointer.X
	}
	switch generic := of.(type) {
	case *ast.IndexExpr:
		of = generic.X
	case *ast.IndexListExpr:
		of = generic.X
	}
	if name, ok := of.(*ast.Ident); ok {
		return name.Name + "."
	}
	return ""
}
