package house

import (
	"go/ast"
	"slices"
	"testing"
)

// bounded are the functions that call themselves, each with what bounds its depth.
var bounded = map[string]string{
	"internal/cli leavesOf":                         "the tree of the commands",
	"internal/cli/commandline inBlocks":             "a document that this program made",
	"internal/delivery Isolate":                     "halves a batch",
	"internal/server/guard eachItem":                "the fields of the API, of which none contains itself",
	"internal/store/redis suffix":                   "a number divided by 26",
	"broker/rabbitmq/rabbitmqconsumer topicMatches": "the words of a routing key, which has at most 255 bytes",
	"consumer/envelope requiredFields":              "the Go types of an event",
	"producer/outbox note":                          "halves a batch",
	"internal/server hasUnknown":                    "a depth of eight",
}

// A stack that overflows ends the process, and no recover helps. So a function calls itself only where a bound is known
// that no value from outside moves.
func TestRecursionHasABound(t *testing.T) {
	t.Parallel()
	found := map[string]bool{}
	for _, f := range files(t) {
		if f.test || f.generated || in(f.pkg.room(), []string{"test/...", "internal/release/...", "examples/..."}) {
			continue
		}
		for _, declaration := range f.tree.Decls {
			function, ok := declaration.(*ast.FuncDecl)
			if !ok || function.Body == nil || !callsItself(function) {
				continue
			}
			name := f.pkg.room() + " " + function.Name.Name
			if found[name] = true; bounded[name] == "" {
				t.Errorf("%s:%d: %s calls itself: a value from outside may overflow the stack, which ends the process",
					f.path, f.line(function.Pos()), function.Name.Name)
			}
		}
	}
	for name := range bounded {
		if !found[name] {
			t.Errorf("%s does not call itself: remove its line here", name)
		}
	}
}

// callsItself looks for the direct call of a function, or of a method on any value of the method's own name.
func callsItself(function *ast.FuncDecl) (calls bool) {
	var own []string // the receiver's name
	if function.Recv != nil {
		for _, name := range function.Recv.List[0].Names {
			own = append(own, name.Name)
		}
	}
	ast.Inspect(function.Body, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		switch called := call.Fun.(type) {
		case *ast.Ident:
			calls = calls || function.Recv == nil && called.Name == function.Name.Name
		case *ast.SelectorExpr:
			on, ok := called.X.(*ast.Ident)
			calls = calls || ok && called.Sel.Name == function.Name.Name && slices.Contains(own, on.Name)
		}
		return true
	})
	return calls
}
