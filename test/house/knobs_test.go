package house

import (
	"go/ast"
	"go/types"
	"testing"
)

// configured are the rooms that the coordinator configures. Their defaults stand in internal/config, and only there.
var configured = []string{
	"internal/confirmloop", "internal/sendloop", "internal/server", "internal/callback",
	"internal/store/redis", "internal/events", "internal/console",
	"internal/console/pages",
}

// knobs lists the exported fields of the Config and the Limits of each configured room, as ROOM FIELD.
func knobs(c *typeChecker) map[types.Object]string {
	found := map[types.Object]string{}
	for _, room := range configured {
		for _, name := range []string{"Config", "Limits"} {
			named := c.checked[module+"/"+room].Scope().Lookup(name)
			if named == nil {
				continue
			}
			if structure, ok := named.Type().Underlying().(*types.Struct); ok {
				for field := range structure.Fields() {
					if field.Exported() {
						found[field] = room + " " + field.Name()
					}
				}
			}
		}
	}
	return found
}

// TestEveryKnobIsSet demands that shipped code outside of a room sets each field of its Config. A field that only tests
// set is an unexported field, which tests reach through export_test.go.
func TestEveryKnobIsSet(t *testing.T) {
	t.Parallel()
	c := typeCheck(t)
	unset := knobs(c)
	const few = 40 // fewer mean that this test has lost sight of them
	if len(unset) < few {
		t.Fatalf("found only %d knobs", len(unset))
	}
	for path, sources := range c.sources {
		for _, f := range sources {
			ast.Inspect(f.tree, func(n ast.Node) bool {
				for _, name := range fieldsSetBy(n) {
					if used := c.infos[path].Uses[name]; used != nil && used.Pkg() != nil && used.Pkg().Path() != path {
						delete(unset, used)
					}
				}
				return true
			})
		}
	}
	for _, knob := range unset {
		t.Errorf("nothing shipped sets %s: make it an unexported field or a constant", knob)
	}
	figure(t, "knobs that production never sets: %d", len(unset))
}

// fieldsSetBy are the names of the fields that a literal or an assignment sets, among others. A field that shipped code
// only reads is no knob.
func fieldsSetBy(n ast.Node) (names []*ast.Ident) {
	switch n := n.(type) {
	case *ast.KeyValueExpr:
		if name, is := n.Key.(*ast.Ident); is {
			names = append(names, name)
		}
	case *ast.AssignStmt:
		for _, left := range n.Lhs {
			if selector, is := left.(*ast.SelectorExpr); is {
				names = append(names, selector.Sel)
			}
		}
	}
	return names
}

// TestDefaultsStandOnce demands that no configured room has a default of its own for a field of its Config. The logger
// may have a default, because it is no key.
func TestDefaultsStandOnce(t *testing.T) {
	t.Parallel()
	c := typeCheck(t)
	all, twice := knobs(c), 0
	for _, room := range configured {
		path := module + "/" + room
		for _, f := range c.sources[path] {
			ast.Inspect(f.tree, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok || len(call.Args) != 2 {
					return true
				}
				function, ok := call.Fun.(*ast.SelectorExpr)
				field, with := call.Args[0].(*ast.SelectorExpr)
				if !ok || !with || function.Sel.Name != "Or" || !isIdent(function.X, "cmp") || field.Sel.Name == "Logger" {
					return true
				}
				if all[c.infos[path].Uses[field.Sel]] != "" {
					twice++
					t.Errorf("%s:%d gives %s a default: the default stands in internal/config, and the room demands a value",
						f.path, f.line(call.Pos()), field.Sel.Name)
				}
				return true
			})
		}
	}
	figure(t, "defaults that a room repeats: %d", twice)
}

func isIdent(e ast.Expr, name string) bool {
	ident, ok := e.(*ast.Ident)
	return ok && ident.Name == name
}
