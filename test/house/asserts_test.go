package house

import (
	"go/ast"
	"slices"
	"strings"
	"testing"
)

const assertPackage = module + "/internal/ground/assert"

// deciding are the rooms whose functions change the state of messages.
var deciding = []string{
	"internal/store/redis", "internal/delivery", "internal/confirmloop", "internal/sendloop", "broker/...",
}

// unasserted are methods of the store's ports that change nothing, each with its reason.
var unasserted = map[string]string{"Recall": "it stores no message"}

// A function changes the state of messages when it is a method of the store's ports, makes an outcome or a settlement,
// takes a message as acknowledged, publishes, or has a marker deleted. What must hold there is written there.
func TestStateChangesAreAsserted(t *testing.T) {
	t.Parallel()
	ports, found := storePorts(t), 0
	for _, f := range files(t) {
		if f.test || f.generated || !in(f.pkg.room(), deciding) {
			continue
		}
		for _, declaration := range f.tree.Decls {
			function, ok := declaration.(*ast.FuncDecl)
			if !ok || function.Body == nil {
				continue
			}
			port := receiver(function) == "Store." && f.pkg.room() == "internal/store/redis" &&
				slices.Contains(ports, function.Name.Name)
			if !port && !changesState(function.Body) {
				continue
			}
			found++
			if !asserts(function.Body) {
				t.Errorf("%s:%d: %s%s changes the state of messages and asserts nothing: state what must hold there",
					f.path, f.line(function.Pos()), receiver(function), function.Name.Name)
			}
		}
	}
	if atLeast := len(ports) + 10; found < atLeast {
		t.Errorf("%d functions change the state of messages, expected %d at least: the search misses some", found, atLeast)
	}
	figure(t, "functions that change the state of messages, each with an assertion: %d", found)
}

// storePorts names the methods of the ports in package halfmsg that answer with results or claims.
func storePorts(t *testing.T) (names []string) {
	t.Helper()
	for _, f := range files(t) {
		if f.test || f.pkg.room() != "internal/halfmsg" {
			continue
		}
		ast.Inspect(f.tree, func(n ast.Node) bool {
			port, ok := n.(*ast.InterfaceType)
			if !ok {
				return true
			}
			for _, method := range port.Methods.List {
				signature, ok := method.Type.(*ast.FuncType)
				if ok && answersMessages(signature) && unasserted[method.Names[0].Name] == "" {
					names = append(names, method.Names[0].Name)
				}
			}
			return false
		})
	}
	return names
}

func answersMessages(signature *ast.FuncType) bool {
	if signature.Results == nil {
		return false
	}
	return slices.ContainsFunc(signature.Results.List, func(result *ast.Field) bool {
		array, ok := result.Type.(*ast.ArrayType)
		return ok && slices.Contains([]string{"Result", "Submitted", "Claim"}, lastName(array.Elt))
	})
}

// changesState finds what functions that change the state of messages do, beside the store's own methods.
func changesState(body ast.Node) (changes bool) {
	ast.Inspect(body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CompositeLit:
			kind := lastName(n.Type)
			changes = changes || (kind == "Outcome" || kind == "Settlement") && len(n.Elts) > 0 ||
				kind == "Result" && takesAcked(n)
		case *ast.AssignStmt:
			changes = changes || slices.ContainsFunc(n.Lhs, func(to ast.Expr) bool {
				selector, ok := to.(*ast.SelectorExpr)
				return ok && selector.Sel.Name == "Event"
			})
		case *ast.CallExpr:
			called, ok := n.Fun.(*ast.SelectorExpr)
			changes = changes || ok && (called.Sel.Name == "DeleteBusiness" ||
				called.Sel.Name == "Publish" && lastName(called.X) == "Publisher")
		}
		return true
	})
	return changes
}

// takesAcked reports a result with the outcome Acked.
func takesAcked(result *ast.CompositeLit) bool {
	return slices.ContainsFunc(result.Elts, func(element ast.Expr) bool {
		field, ok := element.(*ast.KeyValueExpr)
		return ok && lastName(field.Value) == "Acked"
	})
}

// lastName is the name of an identifier, or the last one of a selector.
func lastName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	}
	return ""
}

// asserts reports a call of package assert, or of a function of the own package that does nothing else.
func asserts(body ast.Node) (found bool) {
	ast.Inspect(body, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		switch called := call.Fun.(type) {
		case *ast.Ident:
			found = found || strings.HasPrefix(called.Name, "assert")
		case *ast.SelectorExpr:
			found = found || lastName(called.X) == "assert"
		}
		return true
	})
	return found
}

// The rule of an assertion is its name in a test's report.
func TestAssertionsHaveNamesOfTheirOwn(t *testing.T) {
	t.Parallel()
	where := map[string]string{}
	for _, f := range files(t) {
		if f.test || f.importedAs(assertPackage) == "" {
			continue
		}
		ast.Inspect(f.tree, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			selector, ok := call.Fun.(*ast.SelectorExpr)
			place := map[string]int{"Always": 1, "Sometimes": 1, "Unreachable": 0}
			at, asserts := place[nameOf(selector)]
			if !ok || !asserts || lastName(selector.X) != "assert" {
				return true
			}
			rule, ok := call.Args[at].(*ast.BasicLit)
			switch {
			case !ok:
				t.Errorf("%s:%d: the rule of an assertion is a constant text", f.path, f.line(call.Pos()))
			case where[rule.Value] != "":
				t.Errorf("%s:%d: %s has this rule already: %s", f.path, f.line(call.Pos()), where[rule.Value], rule.Value)
			default:
				where[rule.Value] = f.path
			}
			return true
		})
	}
}

func nameOf(selector *ast.SelectorExpr) string {
	if selector == nil {
		return ""
	}
	return selector.Sel.Name
}
