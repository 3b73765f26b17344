package house

import (
	"go/ast"
	"maps"
	"slices"
	"testing"
)

// configured are the rooms that the coordinator configures. Their defaults stand in internal/config, and only there.
var configured = []string{
	"internal/confirmloop", "internal/sendloop", "internal/server", "internal/callback",
	"internal/store/redis", "internal/events", "internal/console",
	"internal/console/pages",
}

// knobs lists the exported fields of the Config and the Limits of each configured room.
func knobs(t *testing.T) map[string]map[string]bool {
	t.Helper()
	found := map[string]map[string]bool{}
	for _, f := range files(t) {
		if f.test || !slices.Contains(configured, f.pkg.room()) {
			continue
		}
		for _, declaration := range f.tree.Decls {
			for _, field := range configFields(declaration) {
				if found[f.pkg.room()] == nil {
					found[f.pkg.room()] = map[string]bool{}
				}
				found[f.pkg.room()][field] = false
			}
		}
	}
	return found
}

func configFields(declaration ast.Decl) (names []string) {
	general, ok := declaration.(*ast.GenDecl)
	if !ok {
		return nil
	}
	for _, spec := range general.Specs {
		named, ok := spec.(*ast.TypeSpec)
		if !ok || named.Name.Name != "Config" && named.Name.Name != "Limits" {
			continue
		}
		structure, ok := named.Type.(*ast.StructType)
		if !ok {
			continue
		}
		for _, field := range structure.Fields.List {
			for _, name := range field.Names {
				if name.IsExported() {
					names = append(names, name.Name)
				}
			}
		}
	}
	return names
}

// TestEveryKnobIsSet demands that shipped code outside of a room sets each field of its Config. A field that only tests
// set is an unexported field, which tests reach through export_test.go.
func TestEveryKnobIsSet(t *testing.T) {
	t.Parallel()
	found := knobs(t)
	for _, f := range files(t) {
		if f.test || in(f.pkg.room(), []string{"test/..."}) {
			continue
		}
		for room, fields := range found {
			if local := f.importedAs(module + "/" + room); local != "" && f.pkg.room() != room {
				markSet(f.tree, local, fields)
			}
		}
	}
	unset := 0
	for _, room := range slices.Sorted(maps.Keys(found)) {
		for _, field := range slices.Sorted(maps.Keys(found[room])) {
			if !found[room][field] {
				unset++
				t.Errorf("%s: nothing shipped sets %s: make it an unexported field or a constant", room, field)
			}
		}
	}
	t.Logf("FIGURE knobs that production never sets: %d", unset)
}

// markSet marks the fields that a composite literal of the package or an assignment sets.
func markSet(tree *ast.File, local string, fields map[string]bool) {
	mark := func(name *ast.Ident) {
		if _, is := fields[name.Name]; is {
			fields[name.Name] = true
		}
	}
	ast.Inspect(tree, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CompositeLit:
			of, ok := n.Type.(*ast.SelectorExpr)
			if !ok || !isIdent(of.X, local) {
				return true
			}
			for _, element := range n.Elts {
				if pair, ok := element.(*ast.KeyValueExpr); ok {
					if name, ok := pair.Key.(*ast.Ident); ok {
						mark(name)
					}
				}
			}
		case *ast.AssignStmt:
			for _, left := range n.Lhs {
				if selector, ok := left.(*ast.SelectorExpr); ok {
					mark(selector.Sel)
				}
			}
		}
		return true
	})
}

func isIdent(e ast.Expr, name string) bool {
	ident, ok := e.(*ast.Ident)
	return ok && ident.Name == name
}

// TestDefaultsStandOnce demands that no configured room has a default of its own for a field of its Config. The logger
// may have a default, because it is no key.
func TestDefaultsStandOnce(t *testing.T) {
	t.Parallel()
	fields := knobs(t)
	twice := 0
	for _, f := range files(t) {
		room := f.pkg.room()
		if f.test || fields[room] == nil {
			continue
		}
		ast.Inspect(f.tree, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || len(call.Args) != 2 {
				return true
			}
			function, ok := call.Fun.(*ast.SelectorExpr)
			if !ok || function.Sel.Name != "Or" || !isIdent(function.X, "cmp") {
				return true
			}
			field, ok := call.Args[0].(*ast.SelectorExpr)
			if !ok || field.Sel.Name == "Logger" {
				return true
			}
			if _, is := fields[room][field.Sel.Name]; is {
				twice++
				t.Errorf("%s:%d gives %s a default: the default stands in internal/config, and the room demands a value",
					f.path, f.line(call.Pos()), field.Sel.Name)
			}
			return true
		})
	}
	t.Logf("FIGURE defaults that a room repeats: %d", twice)
}
